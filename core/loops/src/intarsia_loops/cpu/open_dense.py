# SPDX-License-Identifier: Apache-2.0
"""GEMM of an open number of rows: ``C[M, N] = A[M, K] @ B``, B packed, M known when it runs.

The register tile is that of ``dense.py``; only the number of tiles is not known. Rows are covered
by tiles of as many rows as the registers hold, and the remainder by smaller ones
(:class:`RowTiles`): the last tile ends at the last row, and overlaps the one before instead of
being smaller still. Some rows are then computed twice, with the same result. Where smaller tiles
cost more, one more large tile overlaps instead. Tiles have 14, 6 and 4 rows on AVX-512, 6 and 4 on AVX2; any number of
rows from 4 on costs at most 1.3 times as much as with a tile for that number. Fewer than four rows
cost as much as four, because sums wait for each other (``tiling.best_rows``). So fewer than 4 rows,
as of a token that is decoded, have a version of one row a tile, with several sums for a result.

Loops, outermost first::

    version: fewer than 4 rows, or more
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

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt

from .dense import ITEMS
from .loops import EpilogueStore, let_all, load, parallel, seq, serial, unflatten
from .micro_kernel import register_tile
from .panel import Matrix
from .prefetch import prefetch_next_open_block
from .tiling import CpuTiling, column_parts

_FULL = 4
"""Rows of a tile whose sums are enough not to wait for each other."""

_MIDDLE = 6
"""Rows of a tile between that and one of at least twice as many."""

_TILES = 16
"""Most tiles of a panel: enough to use a block of weights again, few enough to share the rows."""


class RowTiles(Struct, frozen=True):
    """How tiles of three sizes cover an open number of rows, at least :attr:`small`.

    Attributes:
        rows: How many there are.
        largest: Rows of a large tile.
        middle: Rows of a tile between large and small ones; 0 if there are none.
    """

    rows: PrimExpr
    largest: int
    middle: int = 0

    @property
    def small(self) -> int:
        """Rows of a small tile."""
        return _FULL if self.largest > _FULL else 1

    @property
    def counts(self) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """How many large, middle and small tiles there are; of large ones the last may overlap."""
        if self.largest == 1:
            return self.rows, index(0), index(0)
        small, middle = self.small, self.middle
        full, rest = self.rows // self.largest, self.rows % self.largest
        # Smaller tiles cost less than a large one: 6 + 6 of 14, 4 + 4 of 14, 4 of 6.
        most = 2 * middle if middle else 2 * small if self.largest > 2 * small else small
        large = full + minimum(full, select(rest > most, index(1), index(0)))
        left = maximum(self.rows - large * self.largest, 0)
        if not middle:
            return large, index(0), (left + (small - 1)) // small
        # 5 and 6 rows are one, 7 and 8 are two small ones, 9 and 10 are one of each.
        one = select((left + (small - 1)) % small < middle - small, index(1), index(0))
        some = select(left > small, one, index(0))
        middles = select(left > middle + small, (left + 1) // middle, some)
        left = maximum(left - middles * middle, 0)
        return large, middles, (left + (small - 1)) // small

    def start(self, size: int, number: PrimExpr, before: PrimExpr) -> PrimExpr:
        """Return the first row of a tile; ``before`` is how many rows are in larger ones."""
        return minimum(before + number * size, self.rows - size)

    def row(self, size: int, start: PrimExpr, r: PrimExpr | int) -> PrimExpr:
        """Return a row of a tile: that of a middle one may be longer than all rows."""
        if size == self.middle and size != self.largest:
            return minimum(maximum(start, 0) + r, self.rows - 1)
        return start + r


def tile_versions(rows: PrimExpr, largest: int, version: Callable[[int], Stmt]) -> Stmt:
    """Return a version for few rows, a row at a time, and one whose tiles are large and small.

    Args:
        rows: How many rows there are.
        largest: Rows of the largest tile.
        version: ``version(tile)``: the loops with large tiles of so many rows.
    """
    wide = version(largest)
    small = RowTiles(rows, largest).small
    return wide if small == 1 else IfStmt(rows < small, version(1), wide)


def for_row_tiles(rows: PrimExpr, largest: int, tile: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    """Cover all rows by large and small tiles: ``tile(start, rows)`` computes some."""
    tiles = RowTiles(rows, largest)
    count = TirVar("large")
    large, _, small = tiles.counts
    body = serial(count, lambda n: tile(tiles.start(largest, n, index(0)), largest), "m")
    if largest > 1:
        behind = count * largest
        rest = serial(small, lambda n: tile(tiles.start(tiles.small, n, behind), tiles.small), "m")
        body = seq(body, rest)
    return LetStmt(count, large, body)


def open_dense_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Buffer,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: Register tile.
        left: The rows; ``m`` is an expression over size variables.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    rows = index(left.m)
    largest = tiling.rows_for(weight.shape[2] // tiling.lanes)

    def version(tile: int) -> Stmt:
        return _tiles(tiling, left, weight, outputs, epilogue, outer, tile)

    return tile_versions(rows, largest, version)


def _tiles(
    tiling: CpuTiling,
    left: Matrix,
    weight: Buffer,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
    tile: int,
) -> Stmt:
    """Return the loops with tiles of at most so many rows."""
    depth, width = left.k, weight.shape[2]
    rows, middle = index(left.m), _MIDDLE if tile > 2 * _MIDDLE else 0
    tiles = RowTiles(rows, tile, middle)
    counts = [TirVar(name) for name in ("large", "middle", "small")]
    in_panel = max(1, min(_TILES, tiling.panel_bytes // max(1, depth * weight.dtype.bytes * tile)))

    def one(
        start: PrimExpr, size: int, block: PrimExpr, used: int, shared: tuple[PrimExpr, PrimExpr]
    ) -> Stmt:
        return register_tile(
            tiling,
            rows=size,
            columns=used,
            largest=(tile, width),
            steps=(depth,),
            left=lambda r, k: left.element(tiles.row(size, start, r), k[0]),
            right=lambda k, c: load(weight, block, k[0], c),
            epilogue=lambda r, c, value: epilogue(
                value, (*unflatten(tiles.row(size, start, r), outer), block * width + c)
            ),
            dtype=weight.dtype,
            weight_prefetch=prefetch_next_open_block(
                None if tile == 1 else tiling.prefetch, weight, (block + 1, 0), shared
            ),
        )

    def panel(block: PrimExpr, used: int, part: Sequence[PrimExpr]) -> Stmt:
        """Multiply a panel with a block: its large tiles, and smaller ones behind the last."""
        begin, end, middles, smalls = part
        large, total = end - begin, end - begin + middles + smalls

        def of_size(size: int, count: PrimExpr, before: PrimExpr, done: PrimExpr) -> Stmt:
            def body(t: PrimExpr) -> Stmt:
                start = tiles.start(size, t, before)
                return one(start, size, block, used, (done + t, total))

            return serial(count, body, "m")

        stmts = [of_size(tile, large, begin * tile, index(0))]
        if middle:
            stmts.append(of_size(middle, middles, end * tile, large))
        if tile > 1:
            before = end * tile + middles * middle
            stmts.append(of_size(tiles.small, smalls, before, large + middles))
        return seq(*stmts)

    stmts: list[Stmt] = []
    panels = maximum((counts[0] + (in_panel - 1)) // in_panel, 1)
    for first, blocks, used in column_parts(outputs, width):
        group = max(1, -(-blocks // ITEMS))
        groups = -(-blocks // group)

        def item(
            p: PrimExpr, f: int = first, b: int = blocks, u: int = used, g: int = group,
            n: int = groups,
        ) -> Stmt:  # fmt: skip
            part = [TirVar(name) for name in ("begin", "end", "middles", "smalls")]
            begin, end = part[:2]
            block = (p % n) * g
            number = index(g) if b % g == 0 else minimum(index(g), b - block)
            is_last = end >= counts[0]
            values = (
                (p // n) * in_panel,
                minimum(begin + in_panel, counts[0]),
                select(is_last, counts[1], index(0)),
                select(is_last, counts[2], index(0)),
            )
            body = serial(number, lambda c: panel(block + c + f, u, part), "n")
            return let_all(list(zip(part, values, strict=True)), body)

        stmts.append(parallel(panels * groups, item))
    return let_all(list(zip(counts, tiles.counts, strict=True)), seq(*stmts))
