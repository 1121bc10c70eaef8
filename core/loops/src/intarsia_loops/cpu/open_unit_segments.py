# SPDX-License-Identifier: Apache-2.0
"""How the results of a strip are cut into segments of a matrix unit where sizes are open.

The loops over them are in ``open_matrix_unit_conv.py``.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.tir.expr import PrimExpr, TirVar, minimum

from .matrix_unit import SEGMENTS
from .open_strips import StripReader

EXACT = 1 << 44
"""Of reciprocals of numbers of tiles and segments: products are exact quotients, as a strip has
fewer than 2**15 tiles, for up to 2**12 blocks of channels."""


class UnitGrid(Struct, frozen=True):
    """How the results of a strip are cut.

    Attributes:
        length: Results of a row, or of one that holds all of them.
        inverse: Reciprocal of the results from row to row of one that holds all; else 0.
        size: Results of a segment.
        segments: How many a row is cut into, and the reciprocal of that number.
        total: Segments of all rows.
        tiles: How many these are, and the reciprocal of that number.
        fetched: Lines of the next block that a tile fetches in a step.
        stride: Bytes from what one result reads first to what its neighbour in the row does.
    """

    length: PrimExpr
    inverse: PrimExpr
    size: PrimExpr
    segments: tuple[PrimExpr, PrimExpr]
    total: PrimExpr
    tiles: tuple[PrimExpr, PrimExpr]
    fetched: PrimExpr
    stride: PrimExpr


def segments_of(
    grid: UnitGrid, read: StripReader, tile: PrimExpr
) -> tuple[list[list[TirVar]], list[tuple[TirVar, PrimExpr]]]:
    """Return names for the segments of a tile, by its number in a block, and their values.

    They are its row, its column, results that are done before, and where what it reads begins.
    """
    (segments, apart), size = grid.segments, grid.size
    words = ("row", "column", "done", "begin")
    names = [[TirVar(name) for name in words] for _ in range(SEGMENTS)]
    bound: list[tuple[TirVar, PrimExpr]] = []
    for segment, (row, column, done, begin) in enumerate(names):
        wanted = tile * SEGMENTS + segment
        place = minimum(wanted, grid.total - 1)
        left = (place - row * segments) * size
        bound += [
            (row, place * apart // EXACT),
            (column, minimum(left, grid.length - size)),
            (done, left - column + (wanted - place) * size),
            (begin, read.place(row, column)),
        ]
    return names, bound
