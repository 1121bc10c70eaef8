# SPDX-License-Identifier: Apache-2.0
"""GEMM of open M: ``C[M, N] = A[M, K] @ B``, B packed, M known at run time.

The register tile is that of ``dense.py``; only the number of tiles is open. Full tiles cover the
rows, and smaller tiles the remainder (:class:`RowTiles`). The last tile ends at the last row and
overlaps the one before, so some rows are computed twice, with the same result. Tiles have 14, 10, 6
and 4 rows on AVX-512, 6 and 4 on AVX2: from 8 rows on that costs at most 1.13 times as much as
tiles for that number (``tiling.tile_cost``). M = 1, as in decoding one token, has a version with
several partial sums for each result. 2 and 3 rows are a tile of 4, which reads the weights once.

Loops, outermost first::

    version: one row, or more
      parallel: panels of tiles x groups of blocks of B
        for block of B in the group:        # [K, width], stays in the first-level cache
          for tile of the panel:            # micro_kernel.py: all of K, accumulators in registers

A panel has as many tiles as ``panel_bytes`` holds, so it stays in the second-level cache while the
blocks of B pass, as in ``dense.py``. A block of large weights is prefetched by the tiles of the
block before (``prefetch.py``). XNNPACK's GEMM takes M the same way: tiles of ``mr`` rows, and a
remainder by a kernel of fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct

from intarsia_ir.tir.expr import BinaryOp, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt

from .dense import ITEMS
from .loops import EpilogueStore, Source, counted, let_all, load, parallel, seq, serial, unflatten
from .micro_kernel import register_tile
from .ordered_tiles import OrderedWords
from .panel import Matrix
from .prefetch import prefetch_next_open_block
from .tiling import CpuTiling, column_parts, tile_cost

_FULL = 4
"""Rows of a tile whose sums are enough not to wait for each other."""

_MIDDLE = (10, 6)
"""Rows of tiles between that and one of some twice as many."""

_MANY = 16
"""Columns of all blocks by those behind the last from which on these have small tiles alone."""

_TILES = 16
"""Most tiles of a panel: enough to use a block of weights again, few enough to share the rows."""


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
    sizes = (largest, _FULL) if largest > _FULL else (largest,)
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


def open_dense_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
    *,
    many: bool = False,
    few: bool = False,
    is_ordered: bool = False,
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: Register tile.
        left: The rows; ``m`` is an expression over size variables.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        many: Whether rows are nearly always many, as pixels are, so that two sizes of tiles do:
            more versions take three times as long to compile.
        few: Whether rows are few and the product is small beside others, as that of pooled images
            is: one row, or tiles of four.
        is_ordered: Whether words of weights are (``ordered_words.py``).
    """
    largest = tiling.rows_for(weight.shape[2] // tiling.lanes)
    if not is_ordered:
        largest = min(tiling.rows, largest)

    def with_tiles(sizes: tuple[int, ...], clamped: tuple[int, ...]) -> Stmt:
        small = (sizes[-1],)
        stmts: list[Stmt] = []
        for part in column_parts(outputs, weight.shape[2]):
            is_rest = part[0] * weight.shape[2] >= _MANY * part[2]
            used = small if is_rest and small != (1,) else sizes
            tiles = RowTiles(index(left.m), used, used if is_rest else clamped)
            work = _OpenProduct(tiling, left, weight, epilogue, outer, tiles, is_ordered)
            stmts.append(work.loops(*part))
        return seq(*stmts)

    if many:
        small = min(_FULL, largest)
        return with_tiles(tuple(dict.fromkeys((largest, small))), (small,))

    def version(sizes: tuple[int, ...]) -> Stmt:
        if sizes == (1,):
            return with_tiles((1,), ())
        smaller = (*(size for size in _MIDDLE if size + _FULL <= sizes[0]), *sizes[1:])
        return with_tiles((sizes[0], *smaller), smaller)

    if few and largest > 1:
        small = min(_FULL, largest)
        return IfStmt(index(left.m) > 1, with_tiles((small,), (small,)), with_tiles((1,), ()))
    if largest <= _FULL:
        return tile_versions(index(left.m), largest, version)
    return IfStmt(index(left.m) > 1, version((largest, _FULL)), version((1,)))


def one_row_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of one row, where others compute more; arguments as of the above."""
    tiles = RowTiles(index(left.m), (1,))
    work = _OpenProduct(tiling, left, weight, epilogue, outer, tiles)
    return seq(*(work.loops(*part) for part in column_parts(outputs, weight.shape[2])))


class _OpenProduct(Struct, frozen=True):
    """``left @ weight`` with tiles of some sizes.

    Attributes:
        tiling: Register tile.
        left: The rows.
        weight: Packed ``[blocks, depth, width]``.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        tiles: How tiles cover the rows.
        is_ordered: Whether words of weights are (``ordered_words.py``).
    """

    tiling: CpuTiling
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]
    tiles: RowTiles
    is_ordered: bool = False

    @property
    def _depth(self) -> int:
        return self.left.k if self.is_ordered else self.weight.shape[1]

    def loops(self, first: int, blocks: int, used: int) -> Stmt:
        """Share panels and groups of blocks, of so many columns each, between threads."""
        tile = self.tiles.sizes[0]
        counts, bound = self.tiles.counts("rows")
        row_bytes = max(1, self._depth * self.weight.dtype.bytes * tile)
        in_panel = max(1, min(_TILES, self.tiling.panel_bytes // row_bytes))
        panels = maximum((counts[0] + (in_panel - 1)) // in_panel, 1)
        group = max(1, -(-blocks // ITEMS))
        groups = -(-blocks // group)

        def item(p: PrimExpr) -> Stmt:
            begin, end = TirVar("begin"), TirVar("end")
            smaller = [TirVar(f"some{size}") for size in self.tiles.sizes[1:]]
            block = counted(BinaryOp.MUL, counted(BinaryOp.FLOOR_MOD, p, groups), group) + first
            number = index(group)
            if blocks % group:
                number = minimum(number, (blocks + first) - block)
            panel = counted(BinaryOp.FLOOR_DIV, p, groups)
            values = [(begin, panel * in_panel), (end, minimum(begin + in_panel, counts[0]))]
            for some, count in zip(smaller, counts[1:], strict=True):
                values.append((some, select(end >= counts[0], count, index(0))))
            total = TirVar("tiles")
            values.append((total, sum(smaller, end - begin)))
            part = (begin, end, *smaller)

            def multiply(c: PrimExpr) -> Stmt:
                number = TirVar("block")
                return LetStmt(number, block + c, self._panel(number, used, part, total))

            return let_all(values, serial(number, multiply, "n"))

        return let_all(bound, parallel(counted(BinaryOp.MUL, panels, groups), item))

    def _panel(self, block: PrimExpr, used: int, part: Sequence[PrimExpr], total: PrimExpr) -> Stmt:
        """Multiply a panel with a block: its large tiles, and smaller ones behind the last."""
        tiles = self.tiles
        begin, end, *smaller = part
        before, done = begin * tiles.sizes[0], index(0)
        stmts: list[Stmt] = []
        for size, count in zip(tiles.sizes, (end - begin, *smaller), strict=True):

            def body(
                t: PrimExpr, size: int = size, before: PrimExpr = before, done: PrimExpr = done
            ) -> Stmt:
                start = tiles.start(size, t, before)
                return self._tile(start, size, (block, used), (done + t, total))

            stmts.append(serial(count, body, "m"))
            before, done = before + count * size, done + count
        return seq(*stmts)

    def _tile(
        self,
        start: PrimExpr,
        size: int,
        part: tuple[PrimExpr, int],
        shared: tuple[PrimExpr, PrimExpr],
    ) -> Stmt:
        """Multiply some rows with a block.

        Args:
            start: The first row.
            size: How many.
            part: The block, and columns of it that are there.
            shared: Number of the tile in its panel, and how many there are.
        """
        weight, tiles, (block, used) = self.weight, self.tiles, part
        width, first = weight.shape[2], TirVar("start")
        words = self._words(block, size, first)
        steps = self._depth if words is None else words.steps
        fetched = (
            None
            if tiles.sizes[0] == 1
            else prefetch_next_open_block(
                self.tiling.prefetch, weight, (block + 1, 0), shared, 0 if words is None else steps
            )
        )
        loops = register_tile(
            self.tiling,
            rows=size,
            columns=used,
            largest=(tiles.sizes[0], width),
            steps=(self._depth,),
            left=lambda r, k: self.left.element(tiles.row(size, first, r), k[0]),
            right=lambda k, c: load(weight, block, k[0], c),
            epilogue=lambda r, c, value: self.epilogue(
                value, (*unflatten(tiles.row(size, first, r), self.outer), block * width + c)
            ),
            dtype=weight.dtype,
            weight_prefetch=fetched,
            words=words,
            is_one_of_several=True,
        )
        return LetStmt(first, start, loops if fetched is None else fetched.bind(steps, loops))

    def _words(self, block: PrimExpr, size: int, first: PrimExpr) -> OrderedWords | None:
        """Return the words of a block, if they are in an order of their own."""
        dot = self.tiling.ordered if self.is_ordered else None

        def element(r: int | PrimExpr, place: PrimExpr) -> PrimExpr:
            return self.left.element(self.tiles.row(size, first, r), place)

        return None if dot is None else OrderedWords(dot, self.weight, block, self.left.k, element)
