# SPDX-License-Identifier: Apache-2.0
"""Convolution on a matrix unit: the tiles of one block of channels of a strip.

As ``conv.py``, with the tile of ``matrix_unit.py`` (2 x 2 registers: 4 sums + 2 A + 2 B of 8). A
segment is up to 16 neighbouring output pixels of a row; rows of a register are ``stride`` bytes
apart in the strip, so no im2col is needed. All tiles of a strip multiply the same two blocks of
weights, which stay in the first-level cache, or, beyond 32 KiB, are read past it: the taps of a
tile read the same pixels several times. The next blocks are prefetched, each tile its share.

Of a narrow image a register would hold few results. Where it takes fewer registers, the rows of a
strip are one, as they lie in memory; results between rows, of windows that reach from the end of a
row into the next, are passed over. (Lines as images of width 1: 16 results a register, not one;
Magika in bfloat16 with AMX 0.13 of the time.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.expr import PrimExpr, index, minimum
from intarsia_ir.tir.stmt import IfStmt, Stmt

from .loops import Source
from .matrix_unit import RESIDENT_BYTES, SEGMENTS, MatrixUnit, Streamed, segment_rows
from .matrix_unit_tiles import ResultRow, Segment, UnitTile, UnitTiles, matrix_unit_tiles
from .prefetch import prefetch_next_block
from .tiling import CpuTiling

_WORD_BYTES = 4

Access: TypeAlias = tuple[
    Callable[[PrimExpr, PrimExpr, tuple[PrimExpr, ...]], PrimExpr],
    Callable[[Sequence[PrimExpr], int], PrimExpr],
    Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt],
]
"""``read(row, column, step)``: data; ``right(step, number)``: the first weight of a block;
``done(row, column, channel, sum)``: what to do with a result."""


class MatrixUnitStrip(Struct, frozen=True):
    """What a strip of results is computed from.

    Attributes:
        size: Rows and columns of results.
        stride: Bytes from what one result reads first to what its neighbour in the row does.
        steps: Extents of the loops to sum over, outermost first.
        weight: All weights.
        block: The first of the blocks of them that are multiplied together.
        channels: Channels of these blocks that exist.
        pitch: Results from one row to the next as they lie in memory; ``None`` if that is no
            multiple of the distance of neighbours.
    """

    size: tuple[int, int]
    stride: int
    steps: tuple[int, ...]
    weight: Source
    block: PrimExpr
    channels: int
    pitch: int | None

    def rows(self, unit: MatrixUnit) -> tuple[int, int]:
        """Return how many rows are computed, and how long each: one holds all if that is less."""
        height, across = self.size
        if self.pitch is None:
            return self.size
        long = (height - 1) * self.pitch + across
        count, _ = segment_rows(across, unit)
        return (1, long) if segment_rows(long, unit)[0] < height * count else self.size


def matrix_unit_conv_tiles(
    tiling: CpuTiling, unit: MatrixUnit, strip: MatrixUnitStrip, access: Access
) -> Stmt:
    """Return the loops over the tiles of a strip.

    Args:
        tiling: What the machine has besides.
        unit: Its matrix unit.
        strip: What is computed.
        access: What is read and written.
    """
    read, right, done_result = access
    height, across = strip.rows(unit)
    pitch = strip.pitch if strip.size != (height, across) else None
    count, rows = segment_rows(across, unit)
    total = height * count
    segments_per_tile = min(total, SEGMENTS)
    tiles = -(-total // segments_per_tile)
    blocks = -(-strip.channels // unit.lanes)

    def segment(wanted: PrimExpr) -> Segment:
        number = minimum(wanted, total - 1) if total % segments_per_tile else wanted
        row, left = number // count, number % count * rows
        column = minimum(left, across - rows) if across % rows else left
        done = index(0)

        def place(r: PrimExpr | int) -> tuple[PrimExpr, PrimExpr]:
            at = column + r
            return (row, at) if pitch is None else (row + at // pitch, at % pitch)

        def stored(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
            y, x = place(r)
            result = done_result(y, x, c, value)
            has_others = pitch is not None and pitch > strip.size[1]
            return IfStmt(x < strip.size[1], result) if has_others else result

        if across % rows or total % segments_per_tile:
            done = left - column + (wanted - number) * rows
        return Segment(
            lambda k: read(*place(0), tuple(k)),
            strip.stride,
            done,
            lambda r: ResultRow(partial(stored, r)),
        )

    def tile(t: PrimExpr) -> UnitTile:
        start, depth = (strip.block + blocks, 0), blocks * prod(strip.steps)
        weight_prefetch = prefetch_next_block(
            tiling.prefetch, strip.weight, start, depth, (t, tiles), 1
        )
        return UnitTile(lambda s: segment(t * segments_per_tile + s), right, weight_prefetch)

    block_bytes = blocks * prod(strip.steps) * unit.lanes * _WORD_BYTES
    streamed = Streamed(right=block_bytes > RESIDENT_BYTES)
    common = UnitTiles(unit, tiles, segments_per_tile, rows, strip.channels, strip.steps, streamed)
    return matrix_unit_tiles(common, tile)
