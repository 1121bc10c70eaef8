# SPDX-License-Identifier: Apache-2.0
"""Which rows of a batch go along the sequence of a recurrent layer together.

The rows of a register tile share each load of the weight. Other tiles follow one another along the
whole sequence, or on other threads, as long as a second-level cache holds the weight. From a larger
one, which is read from farther away in every step, up to 8 rows go along together: what a block of
columns of the gates has of the weight (115 KiB of 4 MiB with 600 columns) is read once in a step,
and multiplied with one tile of rows after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer
from ..tir.build import let, lets, parallel, seq, serial
from ..tir.expr import (
    Binary,
    BinaryOp,
    IntImm,
    PrimExpr,
    TirVar,
    equal,
    index,
    minimum,
    select,
)
from ..tir.stmt import IfStmt, Stmt

_STREAMED_BYTES = 1 << 20
"""Weights from so many bytes on are read from behind the second-level cache."""

_MOST_ROWS = 8
"""Rows that share what they read of such a weight; more of them are shared by the threads."""

Rows: TypeAlias = "Sequence[PrimExpr]"
"""Rows of a batch that go along the sequence together."""


class Group(Struct, frozen=True):
    """Neighbouring rows of a batch that go along the sequence together.

    Attributes:
        most: How many they are at most.
        tiles: ``tiles(do)``: does ``do(rows)`` for each tile of them.
        rows: ``rows(do)``: does ``do(row)`` for each of them.
        first: The first of them.
    """

    most: int
    tiles: Callable[[Callable[[Rows], Stmt]], Stmt]
    rows: Callable[[Callable[[PrimExpr], Stmt]], Stmt]
    first: PrimExpr

    def place(self, row: PrimExpr) -> PrimExpr:
        """Return the number of a row among them."""
        match row:
            case _ if row is self.first:
                return index(0)
            case Binary(BinaryOp.ADD, self.first, IntImm()):
                return row.b
            case _:
                return row - self.first


class RowTile(Struct, frozen=True):
    """Which sums are in registers together.

    Attributes:
        rows: Rows that go along together.
        width: Most columns of a gate: a vector, or two where registers do not hold all gates.
        sums: Most elements of a tile of several rows; it has as many gates at a time as fit.
        ends: Most columns whose functions are computed together.
        lanes: Elements of a register, each of which is one sum of a tile of several rows.
        lane: ``lane(element, number)``: lane ``number`` of the vector of a state that begins at
            ``element``, in all lanes, where instructions multiply by a lane of a register (NEON);
            ``None`` if elements are loaded one by one.
    """

    rows: int = 1
    width: int = 16
    sums: int = 512
    ends: int = 32
    lanes: int = 16
    lane: Callable[[PrimExpr, int], PrimExpr | None] | None = None

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
        return along(_one_tile(index(0), 1), tile.alone(weight))
    is_open = not isinstance(index(batch), IntImm)
    if tile.rows > 1 and _is_streamed(weight) and (is_open or batch > tile.rows):
        groups = _over_groups(batch, tile, along)
    elif is_open and tile.rows > 1:
        groups = _over_open_tiles(index(batch), tile, along)
    else:
        return _over_tiles(batch, tile, weight, along)
    if not is_open:
        return groups
    alone = parallel(batch, lambda row: along(_one_tile(row, 1), tile.alone(weight)))
    return IfStmt(index(batch) < 2, alone, groups)


def _is_streamed(weight: Buffer) -> bool:
    """Whether no cache holds a weight, so that several tiles of rows read it together."""
    return weight.dtype is DType.FLOAT32 and weight.bytes >= _STREAMED_BYTES


def _over_tiles(batch: int, tile: RowTile, weight: Buffer, along: Along) -> Stmt:
    """Do ``along(group, width)`` for tiles, and for one of the rows that are left.

    A row alone would read all of the weight for itself: it makes the first tile larger, if it can.
    Tiles of fewer rows, each with as many, take 1.1 times as long with 6 rows and AVX2.
    """
    left = batch % tile.rows
    joined = tile.joins and left == 1 < batch
    whole = batch // tile.rows - int(joined)
    parts: list[Stmt] = []
    done = 0
    for size, tiles in ((tile.rows + 1, int(joined)), (tile.rows, whole), (left, int(not joined))):
        width = tile.alone(weight) if size == 1 else tile.width

        def group(number: PrimExpr, done: int = done, size: int = size, width: int = width) -> Stmt:
            first = number * size + done
            return let(first, lambda row: along(_one_tile(row, size), width), "first")

        if tiles * size:
            parts.append(parallel(tiles, group))
        done += tiles * size
    return seq(*parts)


def _over_open_tiles(batch: PrimExpr, tile: RowTile, along: Along) -> Stmt:
    """Do the same for as many rows as the run has, two at least.

    What is not a product is done by loops over rows, so that tiles of all sizes share it: it is
    most of the code of a step.
    """
    most, joins = tile.rows + tile.joins, index(int(tile.joins))
    one_more = select(equal(batch % tile.rows, 1), joins, index(0))

    def group(number: PrimExpr) -> Stmt:
        begin = number * tile.rows + select(equal(number, 0), index(0), one_more)
        rows = tile.rows + select(equal(number, 0), one_more, index(0))
        first, count = TirVar("first"), TirVar("count")
        own = Group(
            most,
            lambda do: _sized_tile(first, count, range(1 + tile.joins, most + 1), do),
            _each_row(first, count),
            first,
        )
        values = (begin, minimum(rows, batch - begin))
        return lets((first, count), values, along(own, tile.width))

    return parallel((batch + (tile.rows - 1 - tile.joins)) // tile.rows, group)


def _over_groups(batch: int, tile: RowTile, along: Along) -> Stmt:
    """Do ``along(group, width)`` for groups of several tiles, which share what they read."""

    def group(number: PrimExpr) -> Stmt:
        first, count = TirVar("first"), TirVar("count")
        begin = number * _MOST_ROWS
        values = [begin, minimum(index(_MOST_ROWS), index(batch) - begin)]
        return lets((first, count), values, along(_tiles(first, count, tile.rows), tile.width))

    return parallel((batch + (_MOST_ROWS - 1)) // _MOST_ROWS, group)


def _each_row(first: PrimExpr, count: PrimExpr) -> Callable[[Callable[[PrimExpr], Stmt]], Stmt]:
    """Return what does something for each of neighbouring rows, in a loop."""
    return lambda do: serial(count, lambda n: let(first + n, do, "row"), "n")


def _one_tile(first: PrimExpr, size: int) -> Group:
    """Return a group of the rows of one tile."""
    rows = [first + n for n in range(size)]
    if size == 1:
        return Group(1, lambda do: do(rows), lambda do: do(first), first)
    return Group(size, lambda do: do(rows), _each_row(first, index(size)), first)


def _sized_tile(
    first: PrimExpr, count: PrimExpr, sizes: Iterable[int], do: Callable[[Rows], Stmt]
) -> Stmt:
    """Do something with some rows, for as many of which there is code."""
    return seq(*(IfStmt(equal(count, n), do([first + k for k in range(n)])) for n in sizes))


def _tiles(first: PrimExpr, count: PrimExpr, size: int) -> Group:
    """Return a group of ``count`` rows: tiles of ``size``, and one of those that are left."""

    def tiles(do: Callable[[Rows], Stmt]) -> Stmt:
        def whole(n: PrimExpr) -> Stmt:
            return let(first + n * size, lambda row: do([row + k for k in range(size)]), "first")

        rest = _sized_tile(first + count // size * size, count % size, range(1, size), do)
        return seq(serial(count // size, whole, "tile"), rest)

    return Group(_MOST_ROWS, tiles, _each_row(first, count), first)
