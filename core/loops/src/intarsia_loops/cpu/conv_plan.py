# SPDX-License-Identifier: Apache-2.0
"""How a direct convolution (``conv.py``) is cut into strips of rows, and these into tiles."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import Struct

from intarsia_runtime.size import Dim

from ..typical import typical
from .aliased_rows import most_rows
from .conv_strip import Convolution, strip_rows, taps_computed
from .matrix_unit import SEGMENTS, segment_rows
from .prefetch import is_streamed
from .tiling import STACKED_STRIP, CpuTiling, best_rows
from .window import Window

_ITEMS = 8
"""Pieces of work that two or four threads can share evenly."""

_LARGE_WEIGHTS_FACTOR = 2.25
"""How many times larger strips may be where weights come from memory."""

_MOST_LINES = 1.25
"""Lines that a strip reads, by those it would read if windows of others read none of them."""


class ConvPlan(Struct, frozen=True):
    """How a convolution is cut: strips of ``height`` rows, tiles of ``tile`` results."""

    height: int
    strips: int
    tile: tuple[int, int]
    blocks: int
    blocks_per_item: int


def conv_plan(tiling: CpuTiling, conv: Convolution, row_segments: int) -> ConvPlan:
    """Return the strips, tiles and pieces of work that cost least.

    Args:
        tiling: Register tile of the machine.
        conv: The convolution, of a piece of each row if rows are cut.
        row_segments: Pieces of each row.
    """
    window = conv.window
    rows, columns = window.output
    width = tile_channels(tiling, conv)
    blocks = -(-conv.columns // width)
    most_tiled = tiling.rows_for(width // tiling.lanes)
    tile_height, _ = _tile_of(tiling, window, width, most_tiled)
    padded = window.span(1, columns)
    items = conv.groups * typical(conv.data.shape[0]) * row_segments
    most = most_bytes(tiling, conv)

    def fits(height: int) -> bool:
        if conv.is_copied:
            lines, _ = strip_rows(window, height, is_segment=row_segments > 1)
            return lines * padded * conv.inner * 4 <= most
        (kh, kw), read = window.kernel, window.span(0, height)
        return min(read, height * kh) * min(padded, columns * kw) * conv.inner * 4 <= most

    heights = [h for h in range(rows, 0, -1) if rows % h == 0 and fits(h)] or [1]
    heights = _kept_on_stack(conv, heights) or heights

    def cost(height: int) -> float:
        strips = rows // height * items
        full_tiles, remainder = divmod(height, tile_height)
        tiles = full_tiles + (0.75 if remainder else 0.0)
        ideal = height / tile_height
        lines, _ = strip_rows(window, height, is_segment=row_segments > 1)
        halo = lines / height / window.strides[0]
        copy = halo * 4.0 / (window.kernel[0] * window.kernel[1] * conv.columns)
        uneven = max(-(-strips // t) * t / strips for t in (2, 4))
        return tiles / ideal * min(uneven, 1.3) * taps_computed(conv, height) + copy

    height = min(heights, key=cost)
    strips = rows // height
    group = blocks
    while group > 1 and strips * items * -(-blocks // group) < _ITEMS:
        group = -(-group // 2)
    most_tiled = min(most_tiled, most_neighbours(tiling, conv, is_copied=conv.is_copied))
    tile = _tile_of(tiling, window, width, most_tiled)
    return ConvPlan(height, strips, tile, blocks, group)


def _kept_on_stack(conv: Convolution, heights: Sequence[int]) -> list[int]:
    """Return the heights of strips that the stack holds, where an open batch loses nothing by it.

    Memory of threads is reserved for as many as there are, also for a single image. Strips that
    copy few rows twice take 1.00 to 1.02 of the time where weights are in the first cache as well
    (an 8-bit ResNet with AMX), and none of the workspace.
    """
    window, columns = conv.window, conv.window.span(1, conv.window.output[1])
    is_open = isinstance(conv.data.shape[0], Dim)
    if not is_open or not conv.is_copied or conv.weight.bytes > STACKED_STRIP:
        return []

    def suits(height: int) -> bool:
        lines, _ = strip_rows(window, height, is_segment=False)
        is_small = lines * columns * conv.inner * conv.data.dtype.bytes <= STACKED_STRIP
        return is_small and lines <= _MOST_LINES * height * window.strides[0]

    return [height for height in heights if suits(height)]


def _tile_of(tiling: CpuTiling, window: Window, width: int, most: int) -> tuple[int, int]:
    """Return height and width of the neighbours that a tile computes, at most so many."""
    rows, columns = window.output
    if tiling.unit is not None:
        count, size = segment_rows(columns, tiling.unit)
        return (min(rows, SEGMENTS), columns) if count == 1 else (1, min(columns, SEGMENTS * size))
    tile_width = best_rows(columns, most)
    if tiling.tile_columns:
        tile_width = min(tiling.tile_columns, columns, most)
    return max(1, min(rows, most // tile_width)), tile_width


def most_neighbours(tiling: CpuTiling, conv: Convolution, *, is_copied: bool) -> int:
    """Return how many pixels of a tile a first-level cache holds lines of side by side.

    With 512 channels and a stride of 2 they lie 4096 bytes apart (``aliased_rows.py``): tiles of 7
    pixels take 0.75 to 0.8 of the time of 14 (AMD Zen 4). Vectors of data (NEON) are loaded rarely.
    """
    if tiling.left_lanes is not None:
        return sys.maxsize
    channels = conv.inner if is_copied else conv.data.shape[3]
    return most_rows(conv.window.strides[1] * channels * conv.data.dtype.bytes)


def tile_channels(tiling: CpuTiling, conv: Convolution) -> int:
    """Return how many channels a tile computes: a matrix unit has two registers of a block each."""
    width = conv.weight.shape[2]
    return width if tiling.unit is None else min(2, -(-conv.columns // width)) * width


def most_bytes(tiling: CpuTiling, conv: Convolution) -> float:
    """Return how many bytes a strip may have.

    Each strip reads all weights anew: many of them come from memory again for each.
    """
    return tiling.strip_bytes * (_LARGE_WEIGHTS_FACTOR if is_streamed(conv.weight) else 1)
