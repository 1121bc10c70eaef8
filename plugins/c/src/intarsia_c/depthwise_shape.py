# SPDX-License-Identifier: Apache-2.0
"""What the name of a depthwise kernel says of its convolution."""

from __future__ import annotations

from msgspec import Struct

from .byte_results import Bytes

GATHERED_COLUMN_WORDS = 16
"""Words of a column of a strip whose windows are gathered: one for each of sixteen channels."""

_MOST_TAPS = 64
_GATHERED_TAPS = 4  # rows and columns that a vector has places for
_MOST_REACH = 7  # columns that an offset of a load of bytes reaches: below 128 bytes
_MOST_APART = 508  # bytes that the offset of a gather reaches


class DepthwiseShape(Struct, frozen=True):
    """A depthwise convolution, as the name of a function has it.

    Attributes:
        signed: Whether data are signed.
        result: Type of results.
        size: Rows, columns and channels of the input.
        output: Rows and columns of results.
        kernel: Rows and columns of taps.
        strides: Rows and columns between windows.
        padding: Rows and columns before the input.
        dilation: Distance of taps.
        zero: Zero point of the data.
    """

    signed: bool
    result: Bytes
    size: tuple[int, int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    zero: int

    @property
    def columns(self) -> int:
        """Columns of the input that a row of results reads."""
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.output[1] - 1) * self.strides[1] + reach

    @property
    def pairs(self) -> int:
        """Words of two taps in a column of a window."""
        return -(-self.kernel[0] // 2)

    @property
    def strip_words(self) -> int:
        """32-bit words of a strip, in any form."""
        words = self.columns * 4 * max(self.pairs, self.kernel[0])
        if not self.is_gathered:
            return words
        pixels = -(-self.output[1] // 4) * 4
        columns = (pixels - 1) * self.strides[1] + (_GATHERED_TAPS - 1) * self.dilation[1] + 1
        return max(words, columns * GATHERED_COLUMN_WORDS)

    @property
    def has_vectors(self) -> bool:
        """Whether there is a form for MVE."""
        reach = (self.kernel[1] - 1) * self.dilation[1]
        return self.size[2] % 8 == 0 and (self.is_gathered or reach <= _MOST_REACH)

    @property
    def is_gathered(self) -> bool:
        """Whether the taps of a channel are one vector there."""
        step = 4 * GATHERED_COLUMN_WORDS * self.strides[1]
        return max(self.kernel) <= _GATHERED_TAPS and 3 * step <= _MOST_APART

    @property
    def is_supported(self) -> bool:
        """Whether there is a function: channels come in words, and taps can be written out."""
        return self.size[2] % 4 == 0 and self.kernel[0] * self.kernel[1] <= _MOST_TAPS

    @property
    def name(self) -> str:
        """Name of the function."""
        pairs = (self.kernel, self.strides, self.padding, self.dilation)
        numbers = "".join(f"_{letter}{a}x{b}" for letter, (a, b) in zip("kspd", pairs, strict=True))
        (height, width, channels), (rows, columns) = self.size, self.output
        return (
            f"ix_depthwise_{'i' if self.signed else 'u'}8_{self.result.name}"
            f"_h{height}w{width}c{channels}_o{rows}x{columns}{numbers}_z{self.zero & 255}"
        )
