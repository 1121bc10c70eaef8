# SPDX-License-Identifier: Apache-2.0
"""How a convolution of open sizes is cut: into strips, pieces of rows and tiles of results.

The loops are in ``open_conv.py``, which says why.
"""

from __future__ import annotations

from math import prod
from typing import cast

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_runtime.size import maximum as maximum_size
from intarsia_runtime.size import minimum as minimum_size

from .conv import Convolution
from .conv_plan import most_neighbours
from .open_matrix_unit_conv import unit_columns
from .prefetch import is_streamed
from .tiling import STACKED_STRIP, CpuTiling

ITEMS = 8
"""Pieces of work that two or four threads can share evenly."""

LEAST_ROWS = 4
"""Rows of results of a strip at least, before blocks of channels are shared instead."""

_LEAST_RESULTS = 128
"""The same of results that a matrix unit computes: the end of a strip is a tile that is not full,
and each strip reads all weights (256 channels of 10x8 pixels: 0.90 of the time of two strips). What
is read with strides is more than the results, and groups of blocks copy it once each."""

_ADDRESSES = 14
"""Most results of a tile over several rows: each has an address in a register of its own."""

_LONG_TILE = 12
"""Results of a tile that would have more: as many sums of one vector are no fewer than needed."""

_ORDERED_TILE = 5
"""Results of such a tile over words in an order of their own: a step has two places as well, for
which addresses of 8 results leave no register. Their data are spilled then (AVX2, 1.3 times)."""

_LEAST_PIECE = 16
"""Results of a piece of a row at least."""

_NEAR_WEIGHTS = 256 * 1024
"""Most memory of the weights of a single row whose strips the stack holds; others have strips as
large as they are. Each tile of results reads the weights, from the second-level cache, so larger
strips gain nothing (of 64 KiB: a vocoder 0.95 to 1.00 of the time)."""


class OpenConvPlan(Struct, frozen=True):
    """How a convolution is cut.

    Attributes:
        is_row: Whether results are a single row, as of sound.
        is_copied: Whether strips are copied before they are multiplied.
        skips: Whether taps that are outside of a small image are left away; zeros add nothing.
        capacity: Most elements of a strip.
        piece: Most results of a piece of a row.
        tile: Results of a register tile.
        blocks: Of output channels in a group.
        results: Of a strip at least, before blocks of channels are shared instead.
    """

    is_row: bool
    is_copied: bool
    skips: bool
    capacity: int
    piece: int
    tile: int
    blocks: int
    results: int

    def strip_size(self, conv: Convolution) -> int:
        """Return how many elements a strip has at most: no more than its share of an image."""
        window = conv.window
        (height, width), parts = window.output, 1
        if not self.is_row:  # as many strips as the loops make for threads to share
            pieces = conv.data.shape[0] * conv.groups * ((width + (self.piece - 1)) // self.piece)
            wanted = (pieces + (ITEMS - 1)) // maximum_size(pieces, 1)
            parts = maximum_size(minimum_size(wanted, height // self._least_rows(width)), 1)
        results = (height + (parts - 1)) // parts, width
        rows, columns = (
            (maximum_size(size, 1) - 1) * stride + window.span(axis, 1)
            for axis, (size, stride) in enumerate(zip(results, window.strides, strict=True))
        )
        return cast("int", minimum_size(rows * columns * conv.inner, self.capacity))

    def _least_rows(self, width: int) -> int:
        """Return how many rows of results strips of some width have at least."""
        if not self.results:
            return LEAST_ROWS
        pieces = maximum_size((width + (self.piece - 1)) // self.piece, 1)
        wide = maximum_size((width + (pieces - 1)) // pieces, 1)
        return cast("int", maximum_size(self.results // wide, LEAST_ROWS))


def open_conv_plan(tiling: CpuTiling, conv: Convolution) -> OpenConvPlan:
    """Return how a convolution is cut."""
    window = conv.window
    is_copied = window.kernel != (1, 1) or window.may_leave_input or conv.copied
    reach, is_row = window.span(0, 1), window.output[0] == 1
    most = tiling.strip_bytes
    if is_row:
        weights = prod(conv.weight.shape) * conv.weight.dtype.bytes
        most = min(most, STACKED_STRIP if weights <= _NEAR_WEIGHTS else weights)
    least = reach * window.span(1, _LEAST_PIECE) * conv.inner
    capacity = max(most // conv.data.dtype.bytes, least)
    across = capacity // (reach * conv.inner)  # columns of the input
    width = conv.weight.shape[2] if tiling.unit is None else unit_columns(conv)
    return OpenConvPlan(
        is_row=is_row,
        is_copied=is_copied,
        skips=window.dilation != (1, 1) and conv.padding_value == 0 and is_float(conv),
        capacity=capacity,
        piece=(across - window.span(1, 1)) // window.strides[1] + 1,
        tile=_tile(tiling, conv, is_row=is_row, is_copied=is_copied),
        blocks=-(-conv.columns // width),
        results=0 if tiling.unit is None else _least_results(conv),
    )


def _least_results(conv: Convolution) -> int:
    """Return how many results of a matrix unit a strip has at least."""
    strides = 1 if is_streamed(conv.weight) else prod(conv.window.strides)
    return _LEAST_RESULTS // strides


def _tile(tiling: CpuTiling, conv: Convolution, *, is_row: bool, is_copied: bool) -> int:
    """Return the results of a register tile."""
    rows = tiling.rows_for(conv.weight.shape[2] // tiling.lanes)
    if not is_row:
        rows = rows if rows <= _ADDRESSES else _LONG_TILE
        rows = min(rows, _ORDERED_TILE) if conv.is_ordered else rows
    return min(rows, most_neighbours(tiling, conv, is_copied=is_copied))


def is_float(conv: Convolution) -> bool:
    """Whether weights are floats that are not packed in words."""
    return isinstance(conv.weight, Buffer) and conv.weight.dtype.is_float
