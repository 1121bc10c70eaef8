# SPDX-License-Identifier: Apache-2.0
"""The loop over tiles of a matrix unit, each of which hides the epilogue of the one before.

Registers: 4 sums + 2 A + 2 B of 8, see ``matrix_unit.py``.

Sums leave the unit through memory, 32 x 32 words = 4 KiB, which stay in the first-level cache. The
tiles of a loop overlap: the first step of a tile stores each register of sums of the tile before
just before it begins to add to it (:meth:`MatrixUnit.exchange`), and its last steps do the epilogue
of the tile before, some rows each, by vectors. The unit never waits for stores or vectors as long
as a tile has steps enough: with K = 64 bytes the epilogue, about 4 cycles a vector, takes longer
than the products. Intel's optimization manual overlaps post-operations with products so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import IntImm, PrimExpr, TirVar, const, index
from intarsia_ir.tir.stmt import Allocate, IfStmt, Stmt

from .loops import address_of, let_all, load, seq, serial, unflatten, vectorized
from .matrix_unit import MatrixUnit, Streamed, UnitOperands, chunk_of
from .prefetch import OpenUnitPrefetch, WeightPrefetch
from .tile_stores import stores_bytes

_LEAST_ROWS = 2
"""Rows of results of a step where sizes are open: of one, which no factor multiplies, kernels would
differ in more than numbers from those of fewer channels, which have two or more."""


class ResultRow(Struct, frozen=True):
    """A row of results.

    Attributes:
        epilogue: ``epilogue(column, sum)``: what to do with a result.
        bound: Variables that this uses: what is computed once for all columns.
        exists: Whether there is such a row; ``None`` if there certainly is.
    """

    epilogue: Callable[[PrimExpr, PrimExpr], Stmt]
    bound: Sequence[tuple[TirVar, PrimExpr]] = ()
    exists: PrimExpr | None = None


class Segment(Struct, frozen=True):
    """Neighbouring rows of a product.

    Attributes:
        left: ``left(step)``: the element of the first row.
        stride: Bytes from row to row.
        done: Rows at the beginning that the segment before has too.
        results: ``results(row)``: a row of its results.
        end: Rows that exist, if there may be fewer than a register has.
    """

    left: Callable[[Sequence[PrimExpr]], PrimExpr]
    stride: int | PrimExpr
    done: PrimExpr
    results: Callable[[PrimExpr], ResultRow]
    end: PrimExpr | None = None


class UnitTile(Struct, frozen=True):
    """One of the tiles that :func:`matrix_unit_tiles` computes.

    Attributes:
        segment: ``segment(number)``: one of its segments.
        right: ``right(step, block)``: the first packed weight of one of its blocks of columns.
        weight_prefetch: What to fetch into the cache meanwhile, counted in tiles.
        around: Adds to a step, of this number, what it should fetch besides.
        bound: Variables that the others use: what is computed once for a tile.
        filled: Fills the table of :class:`UnitTiles` for this tile.
    """

    segment: Callable[[PrimExpr], Segment]
    right: Callable[[Sequence[PrimExpr], int], PrimExpr]
    weight_prefetch: WeightPrefetch | OpenUnitPrefetch | None = None
    around: Callable[[Sequence[PrimExpr], Stmt], Stmt] | None = None
    bound: Sequence[tuple[TirVar, PrimExpr]] = ()
    filled: Stmt | None = None


class UnitTiles(Struct, frozen=True):
    """What the tiles of one loop have in common.

    Attributes:
        unit: What multiplies.
        count: How many tiles, at least one.
        segments: Segments of a tile.
        rows: Rows of a segment.
        columns: Columns that exist: the last block of weights may have more.
        steps: Extents of the loops to sum over, outermost first.
        streamed: What is read past the first-level cache.
        present: How many segments a tile has, 1 or all, where the run decides.
        position: ``position(number, extents)``: where in the loops over products one of them is.
        table: A buffer that says which rows of results exist, and what it says of none. Results of
            a tile are then those of the one before, which the table is of.
    """

    unit: MatrixUnit
    count: int | PrimExpr
    segments: int
    rows: int
    columns: int
    steps: tuple[int, ...]
    streamed: Streamed = Streamed()
    present: PrimExpr | None = None
    position: Callable[[PrimExpr, Sequence[int]], Sequence[PrimExpr]] = unflatten
    table: tuple[Buffer, Stmt] | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Registers of sums, down and across."""
        return self.segments, -(-self.columns // self.unit.lanes)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Extents of the loops over products of registers."""
        return (*self.steps[:-1], self.steps[-1] // self.chunk)

    @property
    def chunk(self) -> int:
        """Words of the innermost loop that are multiplied at a time."""
        return chunk_of(self.steps[-1], self.unit)


def matrix_unit_tiles(tiles: UnitTiles, tile: Callable[[PrimExpr], UnitTile]) -> Stmt:
    """Return the loop over tiles; the unit is configured for it.

    The first products of a tile take the place of the sums of the tile before, whose epilogue its
    other products hide: see the head of this file.
    """
    unit = tiles.unit
    down, across = tiles.grid
    sums = Buffer("sums", (down * tiles.rows, across * unit.lanes), unit.sums, MemoryScope.STACK)

    written = unit.write(sums, tiles.rows, tiles.grid, tiles.present)

    def hidden_epilogue(i: PrimExpr) -> Stmt:
        """Do the epilogue of tile ``i`` while the unit computes the next one, if there is one."""
        before, now, is_followed = tile(i), tile(i + 1), i < index(tiles.count) - 1
        exchanged = _multiply(tiles, now, index(0), sums)
        begun = IfStmt(is_followed, exchanged, written)
        body = seq(begun, *_steps_with_epilogue(tiles, (now, before), is_followed, sums))
        return let_all((*now.bound, *before.bound), body)

    def either(i: PrimExpr) -> Stmt:
        """Compute tile ``i``, if there is one, and do the epilogue of the one before, if any."""
        now, is_there = tile(i), i < index(tiles.count)
        begun = IfStmt(is_there, _multiply(tiles, now, index(0), sums), written)
        steps = _steps_with_epilogue(tiles, (now, now), is_there, sums)
        assert now.filled is not None  # as there is a table
        return let_all(now.bound, seq(begun, *steps, now.filled))

    if tiles.table is not None:
        table, of_none = tiles.table
        done = serial(index(tiles.count) + 1, either, "t")
        return Allocate(sums, Allocate(table, seq(unit.clear(tiles.grid), of_none, done)))
    first = tile(index(0))
    begun = serial(prod(tiles.chunks), lambda k: _multiply(tiles, first, k), "k")
    if isinstance(tiles.count, int) and tiles.count == 1:
        done = seq(begun, written, _epilogue(tiles, first, sums, index(0), sums.shape[0]))
        return Allocate(sums, seq(unit.clear(tiles.grid), let_all(first.bound, done)))
    done = serial(tiles.count, hidden_epilogue, "t")
    return Allocate(sums, seq(unit.clear(tiles.grid), let_all(first.bound, begun), done))


def _steps_with_epilogue(
    tiles: UnitTiles, now_and_before: tuple[UnitTile, UnitTile], is_followed: PrimExpr, sums: Buffer
) -> list[Stmt]:
    """Return the steps of a tile but the first, some with equal parts of the epilogue before.

    Parts have a constant number of rows: loops whose ends vary are mispredicted, and what the unit
    could have begun meanwhile is discarded (61 instead of 78 % of the peak, Emerald Rapids). Behind
    the last tile there are no steps: a condition costs less than a second copy of the epilogue,
    which is most of the code of a layer.
    """
    (tile, before), steps = now_and_before, prod(tiles.chunks)
    rows = sums.shape[0]
    if steps == 1:
        return [_epilogue(tiles, before, sums, index(0), rows)]
    size = max(-(-rows // (steps - 1)), 1 if tiles.table is None else _LEAST_ROWS)
    parts, remainder = divmod(rows, size)

    late = steps - 1 - parts - (1 if remainder else 0)

    def step(k: PrimExpr, count: int) -> Stmt:
        multiplied = IfStmt(is_followed, _multiply(tiles, tile, k + (late + 1)))
        return seq(multiplied, _epilogue(tiles, before, sums, k * size, count))

    def with_early(k: PrimExpr) -> Stmt:
        multiplied = IfStmt(is_followed, _multiply(tiles, tile, k + 1))
        stored = _epilogue(tiles, before, sums, (k - late) * size, size)
        return seq(multiplied, IfStmt(k >= late, stored))

    stmts: list[Stmt] = []
    if late and tiles.table is not None:
        stmts.append(serial(late + parts, with_early, "k"))
    else:
        rest = serial(late, lambda k: _multiply(tiles, tile, k + 1), "k")
        stmts += [IfStmt(is_followed, rest)] if late else []
        stmts.append(serial(parts, lambda k: step(k, size), "k"))
    if remainder:
        stmts.append(step(index(parts), remainder))
    return stmts


def _multiply(
    tiles: UnitTiles, tile: UnitTile, number: PrimExpr, sums: Buffer | None = None
) -> Stmt:
    """Do one step of a tile; its first one writes the sums of the tile before to ``sums``."""
    position = tiles.position(number, tiles.chunks)
    step = (*position[:-1], position[-1] * tiles.chunk)
    segments = [tile.segment(index(s)) for s in range(tiles.segments)]
    left = [(address_of(each.left(step)), each.stride) for each in segments]
    right = [address_of(tile.right(step, block)) for block in range(tiles.grid[1])]
    operands = UnitOperands(left, right, tiles.streamed, tiles.present)
    body = (
        tiles.unit.multiply(operands)
        if sums is None
        else tiles.unit.exchange(operands, sums, tiles.rows)
    )
    if tile.around is not None:
        body = tile.around(step, body)
    if tile.weight_prefetch is None:
        return body
    lanes = tiles.unit.lanes
    return tile.weight_prefetch.around(body, position, tiles.chunks, (1, lanes))


def _epilogue(tiles: UnitTiles, tile: UnitTile, sums: Buffer, low: PrimExpr, size: int) -> Stmt:
    """Hand on the sums of ``size`` rows of a tile from ``low`` on, vector by vector.

    Rows that the segment before has, too, are left out, and those that do not exist.
    """
    used, unit = tiles.columns, tiles.unit

    def row(i: PrimExpr) -> Stmt:
        number, r = (low + i) // tiles.rows, (low + i) % tiles.rows
        segment = tile.segment(number)
        results = segment.results(r)
        stores = results.epilogue(TirVar("v"), const(0, unit.sums))
        lanes = unit.lanes * (unit.byte_vectors if stores_bytes(stores) else 1)
        stored = seq(
            *(
                vectorized(
                    min(lanes, used - first),
                    lambda c, f=first: results.epilogue(c + f, load(sums, low + i, c + f)),
                )
                for first in range(0, used, lanes)
            )
        )
        if results.exists is not None:
            stored = IfStmt(results.exists, stored)
        stored = let_all(results.bound, stored)
        done, end = segment.done, segment.end
        if end is not None:
            stored = IfStmt(r < end, stored)
        if not (isinstance(done, IntImm) and done.value == 0):
            stored = IfStmt(r >= done, stored)
        return stored if tiles.present is None else IfStmt(number < tiles.present, stored)

    return serial(size, row, "r")
