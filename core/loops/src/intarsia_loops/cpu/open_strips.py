# SPDX-License-Identifier: Apache-2.0
"""The work item of an open convolution, the copy of what it reads, and the places of its tiles.

The loops around them are in ``open_conv.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    PrimExpr,
    TirVar,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt

from .loops import let_all, load, seq, serial, store, unflatten, unrolled
from .window import Window


class StripItem(Struct, frozen=True):
    """What one item computes: rows and columns of an image, for some blocks of channels.

    Attributes:
        image: Number of the image.
        group: Of channels.
        row: First row of results.
        column: First column of results.
        height: Rows.
        width: Columns.
        blocks: First block of channels, and the one behind the last.
        taps: Rows and columns of windows that are read; all if there are none.
    """

    image: PrimExpr
    group: PrimExpr
    row: PrimExpr
    column: PrimExpr
    height: PrimExpr
    width: PrimExpr
    blocks: tuple[PrimExpr, PrimExpr]
    taps: tuple[TapRange, ...] = ()


class TapRange(Struct, frozen=True):
    """The taps of a row or column of windows that are read: the first, and how many."""

    first: PrimExpr
    count: PrimExpr


class StripReader(Struct, frozen=True):
    """How a result reads what it is computed from.

    Attributes:
        place: ``place(row, column)``: where the first element that a result reads lies.
        element: ``element(place, step)``: an element from there on.
    """

    place: Callable[[PrimExpr, PrimExpr], PrimExpr]
    element: Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]


class StripTile(Struct, frozen=True):
    """Consecutive results of a strip.

    Attributes:
        start: The first one, counted in the strip.
        size: How many.
        is_clamped: Whether the last result of the strip stands for those behind it.
    """

    start: PrimExpr
    size: int
    is_clamped: bool


class TilePlaces(Struct, frozen=True):
    """Where the results of a tile lie.

    Attributes:
        count: How many there are.
        read: ``read(r)``: where what a result reads begins.
        result: ``result(r)``: image, row and column of a result.
    """

    count: int
    read: Callable[[PrimExpr], PrimExpr]
    result: Callable[[PrimExpr], Sequence[PrimExpr]]


def with_row_places(
    work: StripItem, read: StripReader, tile: StripTile, body: Callable[[TilePlaces], Stmt]
) -> Stmt:
    """Return ``body(places)`` for results of a single row, which are neighbours."""
    columns = Buffer("columns", (tile.size,), INDEX, MemoryScope.REGISTER)

    def column(r: PrimExpr) -> PrimExpr:
        place = tile.start + r
        return minimum(place, work.width - 1) if tile.is_clamped else place

    def read_place(r: PrimExpr) -> PrimExpr:
        return read.place(index(0), load(columns, r) if tile.is_clamped else column(r))

    def result(r: PrimExpr) -> Sequence[PrimExpr]:
        return work.image, work.row, work.column + column(r)

    found = body(TilePlaces(tile.size, read_place, result))
    if not tile.is_clamped:
        return found
    bound = unrolled(tile.size, lambda r: store(columns, (r,), column(r)), "r")
    return Allocate(columns, seq(bound, found))


def with_places(
    work: StripItem,
    read: StripReader,
    tile: StripTile,
    output: tuple[int, int, int],
    body: Callable[[TilePlaces], Stmt],
) -> Stmt:
    """Return ``body(places)`` behind the loop that computes the places of a tile.

    Args:
        work: What is computed.
        read: How a result reads what it is computed from.
        tile: The results.
        output: Images of results, and rows and columns of each.
        body: What is done with the places.
    """
    _, rows, columns = (index(size) for size in output)
    places = Buffer("places", (2, tile.size), INDEX, MemoryScope.STACK)
    at = Buffer("at", (tile.size,), INDEX, MemoryScope.REGISTER)
    cursor = Buffer("cursor", (2,), INDEX, MemoryScope.REGISTER)
    first, end = TirVar("first_row"), work.height * work.width

    def step(r: PrimExpr) -> Stmt:
        y, x = TirVar("y"), TirVar("x")
        following = x + 1
        down = select(following >= work.width, y + 1, y)
        across = select(following >= work.width, index(0), following)
        if tile.is_clamped:
            is_there = tile.start + r + 1 < end
            down, across = select(is_there, down, y), select(is_there, across, x)
        number = (work.image * rows + (work.row + y)) * columns + (work.column + x)
        stmts = seq(
            store(places, (0, r), read.place(y, x)),
            store(places, (1, r), number),
            store(cursor, (0,), down),
            store(cursor, (1,), across),
        )
        return let_all([(y, load(cursor, 0)), (x, load(cursor, 1))], stmts)

    begin = seq(
        store(cursor, (0,), first),
        store(cursor, (1,), tile.start - first * work.width),
    )
    steps = Allocate(cursor, seq(begin, serial(tile.size, step, "r")))
    held = unrolled(tile.size, lambda r: store(at, (r,), load(places, 0, r)), "r")

    def result(r: PrimExpr) -> Sequence[PrimExpr]:
        return unflatten(load(places, 1, r), list(output))

    found = body(TilePlaces(tile.size, lambda r: load(at, r), result))
    filled = seq(LetStmt(first, tile.start // work.width, steps), Allocate(at, seq(held, found)))
    return Allocate(places, filled)


def strip_span(window: Window, axis: int, results: PrimExpr) -> PrimExpr:
    """Return how many rows or columns of the input an open number of results reads."""
    return (results - 1) * window.strides[axis] + window.span(axis, 1)


def may_leave_rows(window: Window) -> bool:
    """Whether windows may read rows that are outside of the input; certainly not those of sound."""
    rows = (window.size[0] - 1) // window.strides[0] + 1
    return window.kernel[0] > 1 or window.padding[0] > 0 or window.output[0] != rows


def taps_of_item(
    window: Window, work: StripItem, axis: int, taps: tuple[TirVar, TirVar]
) -> list[tuple[TirVar, PrimExpr]]:
    """Bind the first tap of a row or column that is inside of the image, and their number."""
    stride, apart = window.strides[axis], window.dilation[axis]
    count = window.kernel[axis]
    start, results = ((work.row, work.height), (work.column, work.width))[axis]
    begin = start * stride - window.padding[axis]
    last = begin + (results - 1) * stride
    size = index(window.size[axis])
    first = minimum(maximum(index(0) - last + (apart - 1), 0) // apart, count)
    behind = minimum(maximum(size - begin + (apart - 1), 0) // apart, count)
    return [(taps[0], first), (taps[1], maximum(behind - taps[0], 0))]


def shifted(work: StripItem, k: Sequence[PrimExpr]) -> Sequence[PrimExpr]:
    """Return a place along K, counted from the first tap of a window."""
    if not work.taps:
        return k
    down, across = work.taps
    moved = [k[0] + down.first, *k[1:]]
    if len(k) == 3:
        moved[1] = k[1] + across.first
    return moved
