# SPDX-License-Identifier: Apache-2.0
"""What products with weights in blocks have in common: columns side by side, and tiles of rows.

Threads share stripes of 64 columns. A line of a cache holds a word of 32 bits of 16 of them, with
the codes of neighbours along K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ..tir.build import lets, parallel, seq, serial
from ..tir.expr import PrimExpr, TirVar, index, maximum, minimum
from ..tir.stmt import Stmt

COLUMNS = 64
"""Columns of a stripe, which one thread computes."""

LINE = 16
"""Words of 32 bits in a line of the cache."""

_REPEATED = 4
"""Rows of a tile from which on one that lacks a quarter of them computes the last one again."""


class BlockTile(Struct, frozen=True):
    """Rows and vectors of columns whose sums are in registers together.

    A sum has two registers: one for a block, and one for all blocks.
    """

    rows: int
    vectors: int


def in_stripes(
    rows: int,
    stripes: int,
    tiles: Sequence[BlockTile],
    tile: Callable[[PrimExpr, Sequence[PrimExpr], int], Stmt],
) -> Stmt:
    """Cut a product into tiles.

    Args:
        rows: Of the result; may be a size of the run.
        stripes: How many times 64 columns it has.
        tiles: From the most rows to one.
        tile: ``tile(stripe, rows, vectors)`` computes all columns of a stripe of some rows.
    """

    def named(number: PrimExpr, chosen: Sequence[PrimExpr], vectors: int) -> Stmt:
        names = [TirVar(f"row{n}", row.dtype) for n, row in enumerate(chosen)]
        return lets(names, chosen, tile(number, names, vectors))

    def stripe(number: PrimExpr) -> Stmt:
        parts: list[Stmt] = []
        left, done = index(rows), index(0)
        for each in tiles:
            count = (left + each.rows // 4) // each.rows

            def rows_of(at: PrimExpr, each: BlockTile = each, done: PrimExpr = done) -> Stmt:
                first, last = done + at * each.rows, index(rows) - 1
                chosen = [
                    minimum(first + n, last) if each.rows >= _REPEATED else first + n
                    for n in range(each.rows)
                ]
                return named(number, chosen, each.vectors)

            parts.append(serial(count, rows_of, "rows"))
            done = done + count * each.rows
            left = maximum(left - count * each.rows, 0)
        return seq(*parts)

    return parallel(stripes, stripe, "columns")


def in_parts(vectors: int, lanes: int, sums: Callable[[Sequence[PrimExpr]], Stmt]) -> Stmt:
    """Compute the columns of a stripe, some vectors at a time.

    Args:
        vectors: How many.
        lanes: Columns of a vector.
        sums: ``sums(columns)`` computes them; ``columns`` are those that vectors begin at.
    """

    def part(at: PrimExpr) -> Stmt:
        first = at * (vectors * lanes)
        return sums([first + v * lanes for v in range(vectors)])

    return serial(COLUMNS // (vectors * lanes), part, "part")
