# SPDX-License-Identifier: Apache-2.0
"""Sliding windows, which convolutions and pools share: checks, output sizes, NumPy views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import Dim

from ..graph.guards import require_at_most
from ..graph.types import Shape, Size
from .arrays import Array
from .type_rules import shape_text

Padding: TypeAlias = tuple[tuple[int, int], ...]


class Windows(Struct, frozen=True):
    """How a window moves over the spatial dimensions; one entry for each of them.

    Attributes:
        kernel: Positions in the window.
        strides: Steps between windows.
        padding: Positions added before and after.
        dilation: Distance between neighbours in a window.
        ceil_mode: Keep a last window that leaves the padded input at the end.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def extents(self) -> tuple[int, ...]:
        """What a window spans, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def check(
        self, name: str, spatial: Shape, *, signed_padding: bool = False, may_be_none: bool = False
    ) -> None:
        """Check the settings against the number of spatial dimensions.

        Args:
            name: The operator, for messages.
            spatial: Sizes that windows move over.
            signed_padding: Whether the padding may be negative, and is not checked here.
            may_be_none: Whether no window at all may be the result, as :meth:`output_shape` says.

        Raises:
            TypeRuleError: A setting has another length or a value out of range.
        """
        rank = len(spatial)
        settings = {
            "kernel": self.kernel,
            "strides": self.strides,
            "padding": self.padding,
            "dilation": self.dilation,
        }
        for what, values in settings.items():
            if len(values) != rank:
                raise TypeRuleError(
                    f"{name}: {what} {values} must have one entry for each of the {rank} spatial"
                    f" dimensions of {shape_text(spatial)}"
                )
        for what in ("kernel", "strides", "dilation"):
            if any(not isinstance(value, int) or value < 1 for value in settings[what]):
                raise TypeRuleError(
                    f"{name}: {what} {settings[what]} must be at least 1 everywhere"
                )
        if signed_padding:  # of a result, whose size the caller checks
            return
        if any(low < 0 or high < 0 for low, high in self.padding):
            raise TypeRuleError(f"{name}: padding {self.padding} must not be negative")
        why = f"{name}: a window must fit into what it moves over"
        for axis, size in enumerate(spatial):
            if isinstance(size, Dim):
                room = size + sum(self.padding[axis]) + self._overhang(axis)
                room = room + (self._missing(axis) if may_be_none else 0)
                require_at_most(self.extents[axis], room, why)

    def _overhang(self, axis: int) -> int:
        """Return how much of a last window may leave the padded input."""
        return self.strides[axis] - 1 if self.ceil_mode else 0

    def _missing(self, axis: int) -> int:
        """Return how much larger than the padded input a window may be, and there is none.

        With a step larger than 1 and without ceiling, ONNX Runtime counts one window where ONNX's
        formula has none; so neither is taken.
        """
        return self.strides[axis] if self.ceil_mode or self.strides[axis] == 1 else 0

    def output_shape(self, name: str, spatial: Shape, *, may_be_none: bool = False) -> Shape:
        """Return how many windows there are in each dimension.

        Args:
            name: The operator, for messages.
            spatial: Sizes that windows move over.
            may_be_none: Whether there may be no window, where ONNX and ONNX Runtime agree on that.

        Raises:
            TypeRuleError: The window is larger than the padded input.
        """
        sizes: list[Size] = []
        for axis, size in enumerate(spatial):
            low, high = self.padding[axis]
            stride, extent = self.strides[axis], self.extents[axis]
            room = size + (low + high - extent)
            least = -self._missing(axis) if may_be_none else 0
            if isinstance(room, int) and room + self._overhang(axis) < least:
                raise TypeRuleError(
                    f"{name}: a window of {extent} does not fit into dimension {axis} of the"
                    f" spatial shape {shape_text(spatial)} with padding {self.padding[axis]}"
                )
            more = low + high - extent + self._overhang(axis)
            # A window of ceil_mode must begin inside the input or the padding before it.
            more = min(more, low - 1) if self.ceil_mode else more
            sizes.append((size + more) // stride + 1)
        return tuple(sizes)

    def view(self, x: Array, fill: float, output: Sequence[int]) -> Array:
        """Return ``x`` of shape ``(N, C, *spatial)`` as windows ``(N, C, *output, *kernel)``.

        Positions outside the input hold ``fill``.
        """
        rank = len(self.kernel)
        widths = [(0, 0), (0, 0)]
        for axis, (low, high) in enumerate(self.padding):
            reach = max(output[axis] - 1, 0) * self.strides[axis] + self.extents[axis]
            widths.append((low, max(high, reach - low - x.shape[2 + axis])))
        padded = np.pad(x, widths, constant_values=np.asarray(fill, x.dtype))
        axes = tuple(range(2, 2 + rank))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.extents, axis=axes)
        steps = [slice(0, n * s, s) for n, s in zip(output, self.strides, strict=True)]
        inner = [slice(None, None, d) for d in self.dilation]
        return windows[(slice(None), slice(None), *steps, *inner)]
