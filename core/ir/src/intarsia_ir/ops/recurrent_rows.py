# SPDX-License-Identifier: Apache-2.0
"""Which rows of a batch go along the sequence of a recurrent layer together.

The rows of a register tile share each load of the weight. Other tiles follow one another along the
whole sequence, or on other threads, as long as a second-level cache holds the weight. From a larger
one, which is read from farther away in every step, up to 8 rows go along together: what a block of
columns of the gates has of the weight (115 KiB of 4 MiB with 600 columns) is read once in a step,
and multiplied with one tile of rows after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer
from ..tir.build import let, lets, parallel, seq, serial
from ..tir.expr import IntImm, PrimExpr, TirVar, all_of, equal, index, minimum, select
from ..tir.stmt import IfStmt, Stmt

_STREAMED_BYTES = 1 << 20
"""Weights from so many bytes on are read from behind the second-level cache."""

_MOST_ROWS = 8
"""Rows that share what they read of such a weight; more of them are shared by the threads."""

Rows: TypeAlias = "Sequence[PrimExpr]"
"""Rows of a batch that go along the sequence together."""


class Group(Struct, frozen=True):
    """Rows of a batch that go along the sequence together.

    Attributes:
        most: How many they are at most.
        tiles: ``tiles(do)``: does ``do(rows)`` for each tile of them.
        rows: ``rows(do)``: does ``do(row)`` for each of them.
        first: The first of them, which are neighbours.
    """

    most: int
    tiles: Callable[[Callable[[Rows], Stmt]], Stmt]
    rows: Callable[[Callable[[PrimExpr], Stmt]], Stmt]
    first: PrimExpr


class RowTile(Struct, frozen=True):
    """Which sums are in registers together.

    Attributes:
        rows: Rows that go along together.
        width: Most columns of a gate: a vector, or two where registers do not hold all gates.
        sums: Most elements of a tile of several rows; it has as many gates at a time as fit.
        lanes: Elements of a register, each of which is one sum of a tile of several rows.
    """

    rows: int = 1
    width: int = 16
    sums: int = 512
    lanes: int = 16

    @property
    def joins(self) -> bool:
        """Whether registers have room for the sums of one more row and all of at most 4 gates."""
        return self.rows > 1 and 4 * self.width * (self.rows + 1) <= self.sums

    def alone(self, weight: Buffer) -> int:
        """Return most columns of a gate for a row that goes alone.

        They are two vectors, so that 8 sums of 4 gates hide the latency of a multiply-add, and at
        least 16; of a packed weight a block, which comes from a cache that is slower than this.
        """
        two = 2 * self.width if self.joins else self.width
        most = max(16, two) if self.rows > 1 else self.width
        return min(most, weight.shape[3]) if len(weight.shape) == 4 else most


Along: TypeAlias = Callable[[Group, int], Stmt]
"""``along(group, width)``: goes along the sequence with a group, with at most so many columns of a
gate at a time.
"""


def over_rows(batch: int, tile: RowTile, weight: Buffer, along: Along) -> Stmt:
    """Return the loops over groups of a batch's rows.

    Args:
        batch: Rows, of which the run may know how many.
        tile: Rows and columns whose sums are in registers.
        weight: What the states are multiplied with.
        along: What to do with a group.
    """
    if batch == 1:
        return along(_one_tile([index(0)]), tile.alone(weight))
    if isinstance(index(batch), IntImm) and batch > tile.rows and not tile.joins:
        tile = replace(tile, rows=-(-batch // -(-batch // tile.rows)))  # as many in each tile
    if _share_the_weight(batch, tile, weight):
        return _over_groups(batch, tile, weight, along)
    return _over_tiles(batch, tile, weight, along)


def _share_the_weight(batch: int, tile: RowTile, weight: Buffer) -> bool:
    """Whether several tiles of rows read a weight together that no cache holds."""
    extent = index(batch)
    is_one_tile = isinstance(extent, IntImm) and extent.value <= tile.rows
    is_streamed = weight.dtype is DType.FLOAT32 and weight.bytes >= _STREAMED_BYTES
    return is_streamed and tile.rows > 1 and not is_one_tile


def _over_tiles(batch: int, tile: RowTile, weight: Buffer, along: Along) -> Stmt:
    """Do ``along(group, width)`` for groups of a tile's rows, and for one of those that are left.

    A row alone would read all of the weight for itself: behind groups of four or more, it makes the
    first group larger.
    """
    parts: list[Stmt] = []
    left, done = index(batch), index(0)
    for size in range(tile.rows + tile.joins, 0, -1):
        count = left // size
        if size > tile.rows:
            is_alone = all_of([equal(left % tile.rows, 1), left > 1])
            count = select(is_alone, index(1), index(0))
        own = tile.alone(weight) if size == 1 else tile.width

        def group(
            number: PrimExpr, size: int = size, done: PrimExpr = done, own: int = own
        ) -> Stmt:
            first = done + number * size
            names = [TirVar(f"row{n}", first.dtype) for n in range(size)]
            return lets(names, [first + n for n in range(size)], along(_one_tile(names), own))

        parts.append(parallel(count, group))
        done, left = done + count * size, left - count * size
    return seq(*parts)


def _over_groups(batch: int, tile: RowTile, weight: Buffer, along: Along) -> Stmt:
    """Do ``along(group, width)`` for groups of several tiles, which share what they read."""

    def group(number: PrimExpr) -> Stmt:
        first, count = TirVar("first"), TirVar("count")
        begin = number * _MOST_ROWS
        values = [begin, minimum(index(_MOST_ROWS), index(batch) - begin)]
        return lets((first, count), values, along(_tiles(first, count, tile.rows), tile.width))

    groups = parallel((batch + (_MOST_ROWS - 1)) // _MOST_ROWS, group)
    if isinstance(index(batch), IntImm):
        return groups
    own = tile.alone(weight)
    alone = parallel(batch, lambda row: along(_one_tile([row]), own))
    return IfStmt(index(batch) < 2, alone, groups)


def _one_tile(rows: Rows) -> Group:
    """Return a group of the rows of one tile."""

    def each_row(do: Callable[[PrimExpr], Stmt]) -> Stmt:
        return seq(*(do(row) for row in rows))

    return Group(len(rows), lambda do: do(rows), each_row, rows[0])


def _tiles(first: PrimExpr, count: PrimExpr, size: int) -> Group:
    """Return a group of ``count`` rows: tiles of ``size``, and one of those that are left."""

    def tile(do: Callable[[Rows], Stmt], begin: PrimExpr, rows: int) -> Stmt:
        names = [TirVar(f"row{n}", begin.dtype) for n in range(rows)]
        return lets(names, [begin + n for n in range(rows)], do(names))

    def tiles(do: Callable[[Rows], Stmt]) -> Stmt:
        whole = serial(count // size, lambda n: tile(do, first + n * size, size), "tile")
        left, begin = count % size, first + count // size * size
        rest = [IfStmt(equal(left, rows), tile(do, begin, rows)) for rows in range(1, size)]
        return seq(whole, *rest)

    def each_row(do: Callable[[PrimExpr], Stmt]) -> Stmt:
        return serial(count, lambda n: let(first + n, do, "row"), "n")

    return Group(_MOST_ROWS, tiles, each_row, first)
