# SPDX-License-Identifier: Apache-2.0
"""Winograd's transform of the data of images of open sizes, which all convolutions can share.

It depends neither on the weights nor on the epilogue, and takes a third of the code of a kernel.
Where kernels may call procedures it is one, compiled once for all convolutions of a model, which
differ in the numbers that they pass: a call transforms several tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    PrimExpr,
    TirVar,
    all_of,
    equal,
    if_then_else,
    index,
    select,
)
from intarsia_ir.tir.forward import KERNEL, number_name
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, IfStmt, Invoke, LetStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

from .loops import address_of, cut, for_parts, let_all, load, seq, serial, store, vectorized
from .winograd import SIZE, STEP, WinogradOperands, transform_vector

Place: TypeAlias = "tuple[PrimExpr, PrimExpr, PrimExpr]"
"""Image, row and column of the first result of a tile."""


class TileGrid(Struct, frozen=True):
    """Tiles numbered through all images, rows and columns.

    Attributes:
        rows: Rows of tiles of an image.
        across: Tiles in a row.
    """

    rows: PrimExpr
    across: PrimExpr

    def each(
        self, first: PrimExpr, count: PrimExpr, body: Callable[[PrimExpr, Place], Stmt]
    ) -> Stmt:
        """Run ``body(number, place)`` for neighbouring tiles; ``number`` counts from 0."""
        rows, across = self.rows, self.across
        cursor = Buffer("cursor", (3,), INDEX, MemoryScope.REGISTER)
        at, line = TirVar("at"), TirVar("line")
        begin = [
            store(cursor, (0,), line // rows),
            store(cursor, (1,), line % rows),
            store(cursor, (2,), at % across),
        ]

        def one(number: PrimExpr) -> Stmt:
            image, row, column = (TirVar(name) for name in ("image", "row", "column"))
            down = TirVar("down")
            is_last, is_end = equal(column + 1, across), equal(down, rows)
            stepped = LetStmt(
                down,
                select(is_last, row + 1, row),
                seq(
                    store(cursor, (2,), select(is_last, index(0), column + 1)),
                    store(cursor, (1,), select(is_end, index(0), down)),
                    store(cursor, (0,), select(is_end, image + 1, image)),
                ),
            )
            values = zip((image, row, column), range(3), strict=True)
            bound = [(var, load(cursor, number)) for var, number in values]
            place = (image, row * STEP, column * STEP)
            return let_all(bound, seq(body(number, place), stepped))

        loop = serial(count, one, "t")
        bound = [(at, first), (line, at // across)]
        return let_all(bound, Allocate(cursor, seq(*begin, loop)))


class InputTiles(Struct, frozen=True):
    """What the transform of tiles reads and writes.

    Attributes:
        size: Rows and columns of an image.
        padding: Above and to the left of it.
        dtype: Of all elements.
        vectors: ``vectors(body)`` is ``body(channel, lanes)`` for all vectors of channels.
        element: ``element(pixel, channel)``: one of all images.
        written: ``written(e, tile, channel, value)`` stores element ``e`` of a tile.
    """

    size: tuple[PrimExpr, PrimExpr]
    padding: tuple[int, int]
    dtype: DType
    vectors: Callable[[Callable[[PrimExpr, int], Stmt]], Stmt]
    element: Callable[[PrimExpr, PrimExpr], PrimExpr]
    written: Callable[[int, PrimExpr, PrimExpr, PrimExpr], Stmt]

    def transform(self, tiles: tuple[PrimExpr, PrimExpr, PrimExpr], grid: TileGrid) -> Stmt:
        """Write those of neighbouring tiles: number of the first, its place, how many there are."""
        first, start, count = tiles

        def one(number: PrimExpr, place: Place) -> Stmt:
            return self._transform(start + number, place)

        return grid.each(first, count, one)

    def _transform(self, tile: PrimExpr, place: Place) -> Stmt:
        """Write ``B^T d B`` of one tile.

        What differs at the edges is only how registers are filled: pixels outside of the image have
        a negative number. The transform itself is there once.
        """
        (image, top, left), (rows, columns) = place, self.size
        y, x = top - self.padding[0], left - self.padding[1]
        is_inside = all_of([y >= 0, y + SIZE <= rows, x >= 0, x + SIZE <= columns])
        lines = [TirVar(f"line{r}") for r in range(SIZE)]
        inside = TirVar("inside")
        bound = [(inside, select(is_inside, index(1), index(0)))]
        bound += [(line, (image * rows + (y + r)) * columns + x) for r, line in enumerate(lines)]
        pixels = Buffer("pixels", (SIZE * SIZE,), INDEX, MemoryScope.STACK)

        def column(s: PrimExpr) -> Stmt:
            across = x + s
            is_there = all_of([across >= 0, across < columns])
            stmts: list[Stmt] = []
            for r, line in enumerate(lines):
                down = all_of([y + r >= 0, y + r < rows, is_there])
                stmts.append(store(pixels, (s * SIZE + r,), select(down, line + s, index(-1))))
            return seq(*stmts)

        def given(tile_in: Buffer, start: PrimExpr, width: int) -> Stmt:
            def middle(r: int, s: int, v: PrimExpr) -> Stmt:
                return store(tile_in, (r * SIZE + s, v), self.element(lines[r] + s, start + v))

            def edge(r: int, s: int, v: PrimExpr) -> Stmt:
                pixel = load(pixels, s * SIZE + r)
                value = if_then_else(pixel >= 0, self.element(pixel, start + v), 0)
                return store(tile_in, (r * SIZE + s, v), value)

            def filled(one: Callable[[int, int, PrimExpr], Stmt]) -> Stmt:
                elements = product(range(SIZE), repeat=2)
                return seq(*(vectorized(width, partial(one, r, s)) for r, s in elements))

            return IfStmt(inside > 0, filled(middle), filled(edge))

        def vector(start: PrimExpr, lanes: int) -> Stmt:
            def written(e: int, channel: PrimExpr, value: PrimExpr) -> Stmt:
                return self.written(e, tile, channel, value)

            return transform_vector(self.dtype, (start, lanes), given, written)

        found = IfStmt(equal(inside, 0), serial(SIZE, column, "s"))
        return let_all(bound, Allocate(pixels, seq(found, self.vectors(vector))))


def transformed(
    conv: WinogradOperands,
    memory: tuple[Buffer, PrimExpr],
    tiles: tuple[PrimExpr, PrimExpr, PrimExpr],
    lanes: int,
    *,
    shared: bool,
) -> Stmt:
    """Return what transforms the data of neighbouring tiles.

    Args:
        conv: Operands.
        memory: Transformed data, ``[16, tiles, C]``, and elements of each of the 16 planes.
        tiles: Number of the first tile, its place in the memory, and how many there are.
        lanes: Elements of a vector.
        shared: Whether a procedure does it.
    """
    (wide, plane), data = memory, conv.data
    padding, channels = conv.window.padding, data.shape[3]
    grid, size = [index(n) for n in conv.grid], [index(n) for n in conv.window.size]
    if shared:
        procedure = _procedure(lanes, channels % lanes, (padding[0], padding[1]), data.dtype)
        places = (address_of(load(data, 0, 0, 0, 0)), address_of(load(wide, 0)))
        values = (*tiles, *grid, *size, index(channels), plane)
        return Invoke(KERNEL, procedure.name, places, values, procedure)
    work = InputTiles(
        (size[0], size[1]),
        (padding[0], padding[1]),
        data.dtype,
        lambda body: for_parts(cut(channels, lanes), body, "channel"),
        lambda pixel, channel: load(data, 0, 0, pixel, channel),
        lambda e, tile, c, value: store(wide, (plane * e + (tile * channels + c),), value),
    )
    return work.transform(tiles, TileGrid(grid[0], grid[1]))


@cache
def _procedure(lanes: int, rest: int, padding: tuple[int, int], dtype: DType) -> PrimFunc:
    """Return the procedure for channels of which whole vectors leave a rest."""
    elements = (variable("elements"),)
    data, wide = (Buffer(name, elements, dtype) for name in ("data", "wide"))  # pyright: ignore[reportArgumentType] - sizes as numbers
    names = ("first", "start", "count", "down", "across", "rows", "columns")
    first, start, count, down, across, rows, columns = (TirVar(name) for name in names)
    channels, plane, whole = TirVar(number_name(0)), TirVar("plane"), TirVar("whole")

    def vectors(body: Callable[[PrimExpr, int], Stmt]) -> Stmt:
        full = serial(whole, lambda n: body(n * lanes, lanes), "channel")
        return seq(full, body(whole * lanes, rest)) if rest else full

    work = InputTiles(
        (rows, columns),
        padding,
        dtype,
        vectors,
        lambda pixel, channel: load(data, pixel * channels + channel),
        lambda e, tile, c, value: store(wide, (plane * e + (tile * channels + c),), value),
    )
    loops = work.transform((first, start, count), TileGrid(down, across))
    body = LetStmt(whole, channels // lanes, loops)
    sizes = (first, start, count, down, across, rows, columns, channels, plane)
    name = f"winograd_input_{lanes}_{rest}_{padding[0]}_{padding[1]}_{dtype}"
    return PrimFunc(name, (data, wide), 1, body, sizes=sizes)
