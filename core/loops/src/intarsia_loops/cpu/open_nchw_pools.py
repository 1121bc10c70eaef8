# SPDX-License-Identifier: Apache-2.0
"""Pools in the model's layout of open sizes: as those of known sizes, a tile of results at a time.

As in ``nchw_pools``, windows are combined down the rows into a line, then slide along it. A line
has the columns of one tile of results, at most 8 vectors, and is padded at both ends, so that its
size is known whatever the image's is::

    parallel: planes x blocks of up to 4 rows of results
      for tile of columns:
        for row: line[row] = combine(rows of the window)       # vectors of columns
        for row: out = combine(line[row][x + kw] for kw)       # vectors of results

Of results that are no whole number of vectors the last vector overlaps the one before. Fewer than a
vector are computed by vectors of 4, and fewer than that one by one, as are means at the borders,
whose windows have less elements.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from intarsia_ir.ops.pooling import PoolAttrs
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, if_then_else, index, maximum, minimum
from intarsia_ir.tir.stmt import Allocate, IfStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from .loops import let_all, load, parallel, seq, serial, store, unflatten, vectorized
from .nchw_pools import Planes, combine_rows, combine_taps
from .tiling import CpuTiling

_LINES_BYTES = 8 * 1024
"""Most memory of the lines that are made before they are read, of more than one row."""

_MOST_BYTES = 64 * 1024
"""Most memory of a line: longer windows are combined by plain loops."""

_VECTORS = 8
"""Vectors of results of a tile."""

_ROWS = 4
"""Rows of results of a block."""


def suits_open_planes(attrs: PoolAttrs, tiling: CpuTiling, dtype: DType) -> bool:
    """Whether a line of windows is short enough to lie on the stack."""
    return _tile(attrs, tiling, dtype).width * dtype.bytes <= _MOST_BYTES


_FEW_LANES = 4
"""Elements of a short vector."""


class _LineTile(Struct, frozen=True):
    """Results that are computed from the same lines.

    Attributes:
        columns: Results along a row.
        rows: Rows.
        width: Elements of a line, those included that only vectors of taps reach.
    """

    columns: int
    rows: int
    width: int


def _tile(attrs: PoolAttrs, tiling: CpuTiling, dtype: DType) -> _LineTile:
    stride, extent, lanes = attrs.strides[-1], attrs.windows.extents[-1], tiling.lanes
    vectors = max(1, min(_VECTORS, _LINES_BYTES // (lanes * stride * dtype.bytes)))
    width = lanes * (vectors + 2) * stride + extent
    rows = max(1, min(_ROWS, _LINES_BYTES // (width * dtype.bytes)))
    return _LineTile(lanes * vectors, rows, width)


class _Place(Struct, frozen=True):
    """A row of results in a tile, and the line it is made from.

    Attributes:
        line: The lines, and which of them.
        plane: Image and channel.
        position: The row.
        first: The first column of the tile.
        count: Columns of the tile.
    """

    line: tuple[Buffer, PrimExpr]
    plane: tuple[PrimExpr, ...]
    position: tuple[PrimExpr, ...]
    first: PrimExpr
    count: PrimExpr


def open_plane_loops(work: Planes, tiling: CpuTiling) -> Stmt:
    """Return the loops of a pool whose sizes, all or some of them, the run knows."""
    tile = _tile(work.attrs, tiling, work.data.dtype)
    lines = Buffer("lines", (tile.rows, tile.width), work.data.dtype, MemoryScope.STACK)
    batch, counts, columns = list(work.data.shape[:2]), list(work.output[:-1]), work.output[-1]
    rows = index(product(counts))
    blocks = (rows + (tile.rows - 1)) // tile.rows

    def block(number: PrimExpr) -> Stmt:
        image, channel, top, high = (TirVar(name) for name in ("image", "channel", "top", "rows"))
        bound = list(zip((image, channel), unflatten(number // blocks, batch), strict=True))
        bound += [(top, number % blocks * tile.rows), (high, minimum(rows - top, tile.rows))]

        def tile_of(number: PrimExpr) -> Stmt:
            first, count = TirVar("first"), TirVar("columns")
            own = [(first, number * tile.columns), (count, minimum(columns - first, tile.columns))]

            def each(body: Callable[[_Place], Stmt]) -> Stmt:
                def row(number: PrimExpr) -> Stmt:
                    names = [TirVar("at") for _ in counts]
                    values = unflatten(top + number, counts) if counts else []
                    place = _Place((lines, number), (image, channel), (*names,), first, count)
                    return let_all(list(zip(names, values, strict=True)), body(place))

                return serial(high, row, "row")

            made, slid = (
                each(lambda place, do=do: do(work, tiling, place)) for do in (_line, _slide)
            )
            return let_all(own, seq(made, slid))

        tiles = serial((index(columns) + (tile.columns - 1)) // tile.columns, tile_of, "tile")
        return let_all(bound, Allocate(lines, tiles))

    return parallel(index(product(batch)) * blocks, block)


def _line(work: Planes, tiling: CpuTiling, place: _Place) -> Stmt:
    """Combine the rows of the windows of a tile, padding at both ends."""
    attrs, columns, lanes = work.attrs, index(work.data.shape[-1]), tiling.lanes
    lines, number = place.line
    source, need, low, high = (TirVar(name) for name in ("source", "need", "low", "high"))
    bound = [
        (source, place.first * attrs.strides[-1] - attrs.padding[-1][0]),
        (need, (place.count - 1) * attrs.strides[-1] + attrs.windows.extents[-1]),
        (low, maximum(minimum(0 - source, need), 0)),
        (high, maximum(minimum(columns - source, need), low)),
    ]

    def padding(start: PrimExpr, end: PrimExpr) -> Stmt:
        return serial(end - start, lambda i: store(lines, (number, start + i), work.start), "x")

    def piece(start: PrimExpr, lanes: int) -> Stmt:
        target = (lines, number, start)
        return combine_rows(work, lanes, target, place.plane, place.position, start + source)

    ends = (padding(index(0), low), padding(high, need))
    return let_all(bound, seq(*ends, _pieces(low, high - low, lanes, piece)))


def _slide(work: Planes, tiling: CpuTiling, place: _Place) -> Stmt:
    """Combine the taps along a line; store the results of a tile in a row."""
    last = len(work.output) - 1
    rows: PrimExpr = index(1)
    for axis, where in enumerate(place.position):
        first, behind = work.taps(axis, where)
        rows = rows * maximum(behind - first, 0)
    taps_of_row, low, count = TirVar("taps"), TirVar("low"), TirVar("count")

    def piece(start: PrimExpr, lanes: int, taps: PrimExpr) -> Stmt:
        acc = Buffer("acc", (lanes,), work.data.dtype, MemoryScope.REGISTER)

        def epilogue(i: PrimExpr) -> Stmt:
            column = place.first + start + i
            return work.epilogue(load(acc, i), (*place.plane, *place.position, column), taps)

        done = epilogue(index(0)) if lanes == 1 else vectorized(lanes, epilogue)
        return Allocate(acc, seq(combine_taps(work, tiling, place.line, start, acc), done))

    def inner(start: PrimExpr, lanes: int) -> Stmt:
        return piece(start, lanes, taps_of_row * work.attrs.kernel[last])

    def edge(number: PrimExpr) -> Stmt:
        start, taps = TirVar("start"), TirVar("own")
        first, behind = work.taps(last, place.first + start)
        own = [
            (start, if_then_else(number < low, number, number + count)),
            (taps, taps_of_row * maximum(behind - first, 0)),
        ]
        return let_all(own, piece(start, 1, taps))

    if not work.counts:
        return _pieces(index(0), place.count, tiling.lanes, inner)
    begin, end = _interior(work, place)
    bound = [(taps_of_row, rows), (low, begin), (count, maximum(end - low, 0))]
    edges = serial(place.count - count, edge, "x")
    return let_all(bound, seq(edges, _pieces(low, count, tiling.lanes, inner)))


def _interior(work: Planes, place: _Place) -> tuple[PrimExpr, PrimExpr]:
    """Return the results of a tile whose taps all count: the first, and the one behind the last."""
    stride, (before, _) = work.attrs.strides[-1], work.attrs.padding[-1]
    room = index(work.data.shape[-1]) + (before - work.attrs.windows.extents[-1])
    low = maximum(index(-(-before // stride)) - place.first, 0)
    return minimum(low, place.count), minimum(room // stride + 1 - place.first, place.count)


def _pieces(
    first: PrimExpr, count: PrimExpr, lanes: int, body: Callable[[PrimExpr, int], Stmt]
) -> Stmt:
    """Run ``body(start, lanes)`` so that vectors cover a range: whole ones, or short ones if it is
    shorter than a whole one, or its elements one by one.
    """

    def single(number: PrimExpr) -> Stmt:
        start = TirVar("start")
        return let_all([(start, first + number)], body(start, 1))

    def vectors(lanes: int) -> Stmt:
        def vector(number: PrimExpr) -> Stmt:
            start = TirVar("start")
            value = first + minimum(number * lanes, count - lanes)
            return let_all([(start, value)], body(start, lanes))

        return serial((count + (lanes - 1)) // lanes, vector, "x")

    stmt = serial(count, single, "x")
    for size in sorted({min(_FEW_LANES, lanes), lanes}):
        stmt = IfStmt(count >= size, vectors(size), stmt)
    return stmt
