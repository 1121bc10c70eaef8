# SPDX-License-Identifier: Apache-2.0
"""Convolution of bytes by a matrix unit: the tiles of one block of channels of a strip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from ...tir.expr import PrimExpr, minimum
from ...tir.stmt import Stmt
from .ahead import next_block
from .loops import Source, serial
from .matrix_unit import SEGMENTS, MatrixUnit, Segment, segment_rows, unit_tile
from .tile import Shape

Access: TypeAlias = tuple[
    Callable[[PrimExpr, PrimExpr, tuple[PrimExpr, ...]], PrimExpr],
    Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt],
]
"""``read(row, column, step)``: data; ``right(step, channel)``: a weight;
``done(row, column, channel, sum)``: what to do with a result."""


class UnitStrip(Struct, frozen=True):
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


def unit_tiles(shape: Shape, unit: MatrixUnit, strip: UnitStrip, access: Access) -> Stmt:
    """Return the loops over the tiles of a strip.

    Args:
        shape: What the machine has besides.
        unit: Its matrix unit.
        strip: What is computed.
        access: What is read and written.
    """
    read, right, done = access
    height, across = strip.size
    count, rows = segment_rows(across, unit)
    total = height * count
    at_once = min(total, SEGMENTS)
    tiles = -(-total // at_once)

    def segment(wanted: PrimExpr) -> Segment:
        number = minimum(wanted, total - 1) if total % at_once else wanted
        row, left = number // count, number % count * rows
        column = minimum(left, across - rows)
        return Segment(
            lambda k: read(row, column, tuple(k)),
            strip.stride,
            left - column + (wanted - number) * rows,
            lambda r, c, value: done(row, column + r, c, value),
        )

    def tile(t: PrimExpr) -> Stmt:
        segments = [segment(t * at_once + s) for s in range(at_once)]
        start, depth = (strip.block + 1, 0), prod(strip.steps)
        ahead = next_block(shape.prefetch, strip.weight, start, depth, (t, tiles), 1)
        return unit_tile(unit, segments, rows, strip.channels, strip.steps, right, ahead)

    return serial(tiles, tile, "t")
