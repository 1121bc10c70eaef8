# SPDX-License-Identifier: Apache-2.0
"""Convolution on a matrix unit: the tiles of one block of channels of a strip.

As ``conv.py``, with the tile of ``matrix_unit.py`` (2 x 2 registers: 4 sums + 2 A + 2 B of 8). A
segment is up to 16 neighbouring output pixels of a row; rows of a register are ``stride`` bytes
apart in the strip, so no im2col is needed. The next block of weights is prefetched, each tile its
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.expr import PrimExpr, minimum
from intarsia_ir.tir.stmt import Stmt

from .loops import Source, serial
from .matrix_unit import SEGMENTS, MatrixUnit, Segment, matrix_unit_tile, segment_rows
from .prefetch import prefetch_next_block
from .tiling import CpuTiling

Access: TypeAlias = tuple[
    Callable[[PrimExpr, PrimExpr, tuple[PrimExpr, ...]], PrimExpr],
    Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt],
]
"""``read(row, column, step)``: data; ``right(step, channel)``: a weight;
``done(row, column, channel, sum)``: what to do with a result."""


class MatrixUnitStrip(Struct, frozen=True):
    """What a strip of results is computed from.

    Attributes:
        size: Rows and columns of results.
        stride: Bytes from what one result reads first to what its neighbour in the row does.
        steps: Extents of the loops to sum over, outermost first.
        weight: All weights.
        block: Which block of them.
        channels: Channels of the block that exist, and that the packed weights have.
    """

    size: tuple[int, int]
    stride: int
    steps: tuple[int, ...]
    weight: Source
    block: PrimExpr
    channels: tuple[int, int]


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
    read, right, done = access
    height, across = strip.size
    count, rows = segment_rows(across, unit)
    total = height * count
    segments_per_tile = min(total, SEGMENTS)
    tiles = -(-total // segments_per_tile)

    def segment(wanted: PrimExpr) -> Segment:
        number = minimum(wanted, total - 1) if total % segments_per_tile else wanted
        row, left = number // count, number % count * rows
        column = minimum(left, across - rows)
        return Segment(
            lambda k: read(row, column, tuple(k)),
            strip.stride,
            left - column + (wanted - number) * rows,
            lambda r, c, value: done(row, column + r, c, value),
        )

    def tile(t: PrimExpr) -> Stmt:
        segments = [segment(t * segments_per_tile + s) for s in range(segments_per_tile)]
        start, depth = (strip.block + 1, 0), prod(strip.steps)
        weight_prefetch = prefetch_next_block(
            tiling.prefetch, strip.weight, start, depth, (t, tiles), 1
        )
        return matrix_unit_tile(
            unit, segments, rows, strip.channels, strip.steps, right, weight_prefetch
        )

    return serial(tiles, tile, "t")
