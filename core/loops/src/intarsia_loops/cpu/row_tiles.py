# SPDX-License-Identifier: Apache-2.0
"""How register tiles of few sizes cover rows of which the run knows the number.

Small tiles are seldom many, and each size of them is code of its own. Where there are several they
share what is the same for all (:func:`joined_tiles`): where a tile begins, and its epilogue. The
sums of a tile are on the stack in between::

    for tile of all small ones:
        size, start = ...
        if size == 10: sums[0..10) = A[start + 0..10) @ B      # in registers, micro_kernel.py
        elif size == 6: ...
        for r in size: C[start + r] = epilogue(sums[r])

That takes a store and a load of each vector of sums, and a third of the code of tiles apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.tir.expr import IntImm, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import IfStmt, Stmt

from .loops import cut, for_parts, let_all, seq, serial
from .tiling import best_rows, tile_cost

FEW_ROWS = 4
"""Rows of a tile whose sums are enough not to wait for each other."""

SizeChoice: TypeAlias = Callable[[Callable[[int], Stmt]], Stmt]
"""``choose(multiply)``: ``multiply(size)`` for the size that a tile of the run has."""


class RowTiles(Struct, frozen=True):
    """How tiles of few sizes cover an open number of rows, at least as many as the last size.

    All rows but those of the last two large tiles are covered by large ones; what covers the rest
    at the least cost is decided when compiling, for every number of rows that there may be.

    Attributes:
        rows: How many rows there are.
        sizes: Rows of a tile of each size, the largest first.
        clamped: The sizes that may be used where there are fewer rows: rows of such a tile are
            computed one by one, and the last row stands for those behind it.
    """

    rows: PrimExpr
    sizes: tuple[int, ...]
    clamped: tuple[int, ...] = ()

    def counts(self, name: str) -> tuple[list[TirVar], list[tuple[TirVar, PrimExpr]]]:
        """Return how many tiles there are of each size, and what they are bound to."""
        largest, *others = self.sizes
        counts = [TirVar(f"{name}{size}") for size in self.sizes]
        if not others:
            return counts, [(counts[0], (self.rows + (largest - 1)) // largest)]
        full, rest = TirVar("full"), TirVar("rest")
        bound = [
            (full, maximum(self.rows // largest - 1, 0)),
            (rest, self.rows - full * largest),
        ]
        table = _covers(self.sizes, self.clamped)
        for number, count in enumerate(counts):
            value = _looked_up([row[number] for row in table], rest)
            bound.append((count, full + value if number == 0 else value))
        return counts, bound

    def start(self, size: int, number: PrimExpr, before: PrimExpr) -> PrimExpr:
        """Return the first row of a tile; ``before`` is how many rows are in larger ones."""
        start = minimum(before + number * size, self.rows - size)
        return maximum(start, 0) if size in self.clamped else start

    def row(self, size: int, start: PrimExpr, r: PrimExpr | int) -> PrimExpr:
        """Return a row of a tile."""
        return minimum(start + r, self.rows - 1) if size in self.clamped else start + r


class EvenTiles(Struct, frozen=True):
    """How large tiles and equal smaller ones, whose sizes differ by one, cover an open number of
    rows: at the cost of :class:`RowTiles` of all small sizes, with less to compute.

    Attributes:
        rows: How many rows there are.
        largest: Rows of a large tile.
        most: Rows of a smaller one at most; there are tiles of each size up to that.
        large: How many large tiles there are.
        small: How many smaller ones.
        each: Rows of a smaller tile.
        longer: How many of them, the first ones, have a row more.
    """

    rows: PrimExpr
    largest: int
    most: int
    large: TirVar = field(default_factory=lambda: TirVar("large"))
    small: TirVar = field(default_factory=lambda: TirVar("small"))
    each: TirVar = field(default_factory=lambda: TirVar("each"))
    longer: TirVar = field(default_factory=lambda: TirVar("longer"))

    def bound(self) -> list[tuple[TirVar, PrimExpr]]:
        """Return what the numbers of tiles are bound to."""
        full, rest, behind = TirVar("full"), TirVar("rest"), TirVar("behind")
        table = [_even_cover(rows, self.largest, self.most) for rows in range(2 * self.largest)]
        large, small = zip(*table, strict=True)
        each = behind
        for parts in range(2, max(small) + 1):
            each = select(self.small < parts, each, behind // parts)
        return [
            (full, maximum(self.rows // self.largest - 1, 0)),
            (rest, self.rows - full * self.largest),
            (self.large, full + _looked_up(large, rest)),
            (self.small, _looked_up(small, rest)),
            (behind, self.rows - self.large * self.largest),
            (self.each, each),
            (self.longer, behind - self.each * self.small),
        ]

    def tile(self, number: PrimExpr, is_large: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Return the first row of a tile and how many it has.

        Args:
            number: Among all large tiles, or behind all of them among the smaller ones.
            is_large: Which of both it is.
        """
        before = self.large * self.largest + number * self.each + minimum(number, self.longer)
        rows = self.each + select(number < self.longer, index(1), index(0))
        return (
            select(is_large, number * self.largest, before),
            select(is_large, index(self.largest), rows),
        )


@cache
def _even_cover(rows: int, largest: int, most: int) -> tuple[int, int]:
    """Return how many large tiles, and how many smaller ones, cover some rows at the least cost."""

    def cost(large: int, small: int) -> float:
        each, longer = divmod(rows - large * largest, max(small, 1))
        shorter = (small - longer) * tile_cost(each)
        return large * tile_cost(largest) + shorter + longer * tile_cost(each + 1)

    covers = [
        (large, small)
        for large in range(rows // largest + 1)
        for small in range(-(-(rows - large * largest) // most), rows - large * largest + 1)
        if small or rows == large * largest
    ]
    return min(covers, key=lambda cover: cost(*cover))


@cache
def _covers(sizes: tuple[int, ...], clamped: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    """Return how many tiles of each size cover 0, 1, 2 ... rows at the least cost."""
    return [_cover(rows, sizes, clamped) for rows in range(2 * sizes[0])]


def _cover(rows: int, sizes: tuple[int, ...], clamped: tuple[int, ...]) -> tuple[int, ...]:
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,) * len(sizes))]
    for count in range(1, rows + 1):
        options: list[tuple[float, tuple[int, ...]]] = []
        for number, size in enumerate(sizes):
            if size > rows and size not in clamped:
                continue
            cost, before = best[max(count - size, 0)]
            made = tuple(n + (at == number) for at, n in enumerate(before))
            options.append((cost + tile_cost(size), made))
        best.append(min(options, default=(0.0, best[0][1])))
    return best[rows][1]


def _looked_up(values: Sequence[int], number: PrimExpr) -> PrimExpr:
    """Return ``values[number]`` by comparisons with where the values change."""
    result: PrimExpr = index(values[-1])
    for at in range(len(values) - 2, -1, -1):
        if values[at] != values[at + 1]:
            result = select(number <= at, index(values[at]), result)
    return result


def tile_versions(
    rows: PrimExpr, largest: int, version: Callable[[tuple[int, ...]], Stmt], *, least: int = 1
) -> Stmt:
    """Return a version for few rows, a row at a time, and one whose tiles are large and small.

    Args:
        rows: How many rows there are.
        largest: Rows of the largest tile.
        version: ``version(sizes)``: the loops with tiles of such sizes.
        least: How many rows there are at least.
    """
    sizes = (largest, FEW_ROWS) if largest > FEW_ROWS else (largest,)
    wide = version(sizes)
    if sizes[-1] <= least:
        return wide
    return IfStmt(rows < sizes[-1], version((1,)), wide)


def for_row_tiles(
    rows: PrimExpr, sizes: tuple[int, ...], tile: Callable[[PrimExpr, int], Stmt]
) -> Stmt:
    """Cover all rows by tiles: ``tile(start, rows)`` computes some."""
    tiles = RowTiles(rows, sizes)
    counts, bound = tiles.counts("rows")
    stmts: list[Stmt] = []
    before = index(0)
    for size, count in zip(sizes, counts, strict=True):

        def one(n: PrimExpr, size: int = size, before: PrimExpr = before) -> Stmt:
            return tile(tiles.start(size, n, before), size)

        stmts.append(serial(count, one, "m"))
        before = before + count * size
    return let_all(bound, seq(*stmts))


def joined_tiles(
    tiles: RowTiles,
    counts: Sequence[tuple[int, PrimExpr]],
    before: PrimExpr,
    tile: Callable[[PrimExpr, tuple[PrimExpr, PrimExpr], SizeChoice], Stmt],
) -> Stmt:
    """Return one loop over tiles of several sizes.

    Args:
        tiles: How tiles cover the rows.
        counts: Rows of a tile of each size, and how many of them there are, in their order.
        before: How many rows are in tiles before these.
        tile: ``tile(number, (start, rows), choose)`` computes the rows of a tile from one on;
            ``choose(multiply)`` is ``multiply(size)`` for the size that it has.
    """

    def one(number: PrimExpr) -> Stmt:
        start, rows = TirVar("start"), TirVar("rows")
        *smaller, last = counts
        behind, done = [index(0)], [before]
        for rows_of, count in smaller:
            behind.append(behind[-1] + count)
            done.append(done[-1] + count * rows_of)
        size, first = index(last[0]), done[-1] + (number - behind[-1]) * last[0]
        for n in range(len(smaller) - 1, -1, -1):
            rows_of, is_one = smaller[n][0], number < behind[n + 1]
            size = select(is_one, index(rows_of), size)
            first = select(is_one, done[n] + (number - behind[n]) * rows_of, first)

        def choose(multiply: Callable[[int], Stmt]) -> Stmt:
            made = multiply(last[0])
            for n in range(len(smaller) - 1, -1, -1):
                made = IfStmt(number < behind[n + 1], multiply(smaller[n][0]), made)
            return made

        least = maximum(minimum(first, tiles.rows - rows), 0)
        body = tile(number, (start, minimum(rows, tiles.rows - start)), choose)
        return let_all([(rows, size), (start, least)], body)

    return serial(sum((count for _, count in counts), index(0)), one, "m")


def cover_rows(
    rows: PrimExpr, largest: int, tile: Callable[[PrimExpr, int], Stmt], least: int
) -> Stmt:
    """Cover the rows, ``least`` or more, with tiles."""
    if isinstance(rows, IntImm):
        limit = best_rows(rows.value, largest)
        return for_parts(cut(rows.value, limit), tile, "m")
    return tile_versions(rows, largest, lambda sizes: for_row_tiles(rows, sizes, tile), least=least)
