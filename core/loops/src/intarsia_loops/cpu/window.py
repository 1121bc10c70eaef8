# SPDX-License-Identifier: Apache-2.0
"""Geometry of two-dimensional windows over channels-last data."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.ops.pooling import PoolAttrs

from .operators import ConvAttrs


class Window(Struct, frozen=True):
    """Windows over an image.

    Attributes:
        size: Height and width of the input.
        output: Height and width of the result.
        kernel: Taps.
        strides: Steps between windows.
        padding: Zeros before the input.
        dilation: Distance between taps.
    """

    size: tuple[int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def is_point(self) -> bool:
        """Whether every result comes from the one input element at its place."""
        return (
            self.kernel == (1, 1)
            and self.strides == (1, 1)
            and self.padding == (0, 0)
            and self.size == self.output
        )

    @property
    def picks_points(self) -> bool:
        """Whether every result comes from one input element, and others are left out."""
        return self.kernel == (1, 1) and not self.may_leave_input and self.strides != (1, 1)

    def span(self, axis: int, results: int) -> int:
        """Return how many input positions ``results`` neighbouring results read."""
        reach = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        return (results - 1) * self.strides[axis] + reach

    @property
    def is_padded(self) -> bool:
        """Whether any window leaves the input."""
        return any(
            self.padding[axis] > 0
            or self.span(axis, self.output[axis]) > self.padding[axis] + self.size[axis]
            for axis in (0, 1)
        )

    @property
    def may_leave_input(self) -> bool:
        """Whether windows of one tap leave the input, where its sizes may be open."""
        return any(self.padding) or any(
            result != (size - 1) // stride + 1
            for size, result, stride in zip(self.size, self.output, self.strides, strict=True)
        )

    def interior(self, axis: int) -> tuple[int, int]:
        """Return the range of results all of whose taps are inside the input."""
        stride, pad = self.strides[axis], self.padding[axis]
        low = -(-pad // stride)
        last = self.size[axis] + pad - self.span(axis, 1)
        high = min(self.output[axis], last // stride + 1) if last >= 0 else 0
        low = min(low, self.output[axis])
        return low, max(low, high)

    def taps(self, axis: int, result: int) -> range:
        """Return the taps of result number ``result`` that are inside the input."""
        first = result * self.strides[axis] - self.padding[axis]
        inside = [
            tap
            for tap in range(self.kernel[axis])
            if 0 <= first + tap * self.dilation[axis] < self.size[axis]
        ]
        return range(inside[0], inside[-1] + 1) if inside else range(0)


def window_of(size: Sequence[int], output: Sequence[int], attrs: ConvAttrs | PoolAttrs) -> Window:
    """Return the geometry that attributes give for an input and a result of these sizes."""
    (top, _), (left, _) = attrs.padding
    return Window(
        (size[0], size[1]),
        (output[0], output[1]),
        (attrs.kernel[0], attrs.kernel[1]),
        (attrs.strides[0], attrs.strides[1]),
        (top, left),
        (attrs.dilation[0], attrs.dilation[1]),
    )
