# SPDX-License-Identifier: Apache-2.0
"""Windows that stay within a channel, NHWC: depthwise convolution and pooling.

A tile is ``neighbours`` (8) output pixels of a row x 1 vector of channels::

    parallel: batch x output rows
      for tile of 8 pixels, for vector of channels:        # accumulators in registers
        for kh, kw: acc[p] = combine(acc[p], x[row + kh, p * s + kw, channels], w[kh, kw, channels])

Registers: 8 accumulators + 1 vector of weights, whose products have a memory operand = 9 of 16; 8
sums hide the latency of two multiply-add units. Pixels of a tile share input columns, which the
first-level cache keeps. Pixels at the left and right border have the taps that exist, so the
interior has no bounds checks. XNNPACK's ``dwconv`` micro-kernels (NHWC, weights packed by channel)
do the same. Borders of several pixels, and rows of one tile, are in tiles whose taps are written
out, those that each pixel has: of 7 pixels and 7 taps 37 multiply-adds of 49. (768 channels of 7 x
7 pixels, 7 x 7 taps: 0.39 of the time of single pixels, AMD Zen 4.)

Rows of open sizes have tiles of 8 or of 4 pixels between their borders, of which the last one
overlaps the one before; the run chooses. Pixels of the borders, and of rows with fewer others, are
by themselves, four vectors of channels at a time, whose weights all of them read; of bytes, pixels
between borders have dot products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    PrimExpr,
    TirVar,
    binary,
    if_then_else,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.stmt import Allocate, IfStmt, Stmt
from intarsia_runtime.size import Dim

from .loops import RangePart, cut, let_all, load, parallel, seq, serial, store, unrolled, vectorized
from .tiling import CpuTiling
from .window import Window

WindowMicroKernel: TypeAlias = Callable[
    [Buffer, PrimExpr, tuple[PrimExpr, PrimExpr, PrimExpr], tuple[PrimExpr, int]], Stmt
]


class NhwcWindows(Struct, frozen=True):
    """A reduction over windows that stay within a channel.

    Attributes:
        data: ``[N, H, W, C]``.
        window: Geometry.
        start: Value before the first tap.
        combine: ``combine(sum, element, (tap row, tap column), channel)``.
        epilogue: ``epilogue(sum, (n, row, column, channel), taps)`` stores a result; ``taps``
            is the number of its taps inside the input.
        micro_kernel: ``micro_kernel(sums, element, (tap row, tap column, channel), (rows,
            columns))`` writes the sums of one result; ``element`` is the first tap inside the
            input, ``rows`` x ``columns`` taps are inside. ``None`` for loops over the taps.
    """

    data: Buffer
    window: Window
    start: PrimExpr
    combine: Callable[[PrimExpr, PrimExpr, tuple[PrimExpr, PrimExpr], PrimExpr], PrimExpr]
    epilogue: Callable[[PrimExpr, tuple[PrimExpr, ...], PrimExpr], Stmt]
    micro_kernel: WindowMicroKernel | None = None


def nhwc_window_loops(work: NhwcWindows, tiling: CpuTiling) -> Stmt:
    """Return the loops; a vector of channels is computed at once, for some neighbours."""
    batch = work.data.shape[0]
    rows = work.window.output[0]

    def row(p: PrimExpr) -> Stmt:
        if not isinstance(work.window.size[1], Dim):
            return _row(work, tiling, p // rows, p % rows)
        image, number = TirVar("image"), TirVar("row")
        place = [(image, p // rows), (number, p % rows)]
        return let_all(place, _open_row(work, tiling, image, number))

    return parallel(batch * rows, row)


_MOST_UNROLLED = 16
"""Border columns, and taps of a row of the window, up to which each is written out.

Code is as long as the number of border columns times that of taps: for larger windows it has loops.
"""


_VECTORS = 4
"""Vectors of channels of a pixel by itself: as many sums as a multiply-add takes cycles."""


class _Taps(Struct, frozen=True):
    """The taps along an axis of a window that exist: the first one, and how many."""

    start: PrimExpr
    count: PrimExpr | int


def _row(work: NhwcWindows, tiling: CpuTiling, image: PrimExpr, row: PrimExpr) -> Stmt:
    """Compute a row of results."""
    window, lanes, tap_rows = work.window, tiling.lanes, _taps_of_row(work.window, row)
    low, high = window.interior(1)
    all_taps = (tap_rows, _Taps(index(0), window.kernel[1]))

    def interior(part: RangePart) -> Stmt:
        def tile(i: PrimExpr) -> Stmt:
            place = (image, row, part.start_of(i))
            return _pixel_group(work, lanes, place, part.size, all_taps)

        return serial(part.count, tile, "x")

    def ends(columns: range) -> Stmt:
        place = (image, row, index(columns.start))
        own = [window.taps(1, column) for column in columns]
        return _all_channels(
            work, lanes, lambda part: _end_vectors(work, place, tap_rows, own, part)
        )

    tiles = _with_borders(work, tiling)
    if tiles:
        first, *inner = tiles[: max(1, len(tiles) - 1)]
        middle = [interior(RangePart(inner[0].start, len(inner), len(first)))] if inner else []
        return seq(ends(first), *middle, *(ends(last) for last in tiles[1:][-1:]))

    def edge(column: PrimExpr | int) -> Stmt:
        taps = (tap_rows, _taps_of_column(window, column))
        return _pixel_group(work, lanes, (image, row, index(column)), 1, taps)

    def border(start: int, end: int) -> list[Stmt]:
        if low + window.output[1] - high > _MOST_UNROLLED:
            return [serial(end - start, lambda i: edge(i + start), "x")] if end > start else []
        return [edge(column) for column in range(start, end)]

    stmts = border(0, low)
    for part in cut(high - low, tiling.neighbours) if high > low else ():
        stmts.append(interior(RangePart(part.start + low, part.count, part.size)))
    return seq(*stmts, *border(high, window.output[1]))


def _with_borders(work: NhwcWindows, tiling: CpuTiling) -> list[range]:
    """Return equal tiles of a row, of which only the first and the last reach into its borders.

    A pixel of a border by itself waits for the latency of its only sum. Of borders one pixel wide
    that is nothing beside a row of several tiles, which has none of these.
    """
    window, columns = work.window, work.window.output[1]
    low, high = window.interior(1)
    count = -(-columns // tiling.neighbours)
    size = -(-columns // count)
    tiles = [range(start, min(start + size, columns)) for start in range(0, columns, size)]
    is_written_out = work.micro_kernel is None and window.kernel[1] <= _MOST_UNROLLED
    has_borders = columns > 1 and (low > 1 if count > 1 else high - low < columns)
    are_inside = all(low <= tile.start and tile.stop <= high for tile in tiles[1:-1])
    return tiles if is_written_out and has_borders and are_inside else []


_FEW = 24
"""Pixels of a row up to which tiles of 4 are better than one of 8 that computes many twice."""


def _open_row(work: NhwcWindows, tiling: CpuTiling, image: PrimExpr, row: PrimExpr) -> Stmt:
    """Compute a row of an open number of results."""
    window, lanes, large = work.window, tiling.lanes, tiling.neighbours
    columns, stride = index(window.output[1]), window.strides[1]
    small = max(1, large // 2)
    has_singles = work.micro_kernel is not None  # which pixels of a border do without
    low, inner, count = TirVar("low"), TirVar("inner"), TirVar("count")
    tap_row, tap_count = TirVar("tap_row"), TirVar("tap_rows")
    given, tap_rows = _taps_of_row(window, row), _Taps(tap_row, tap_count)
    last = index(window.size[1]) + (window.padding[1] - window.span(1, 1))
    high = maximum(minimum(columns, last // stride + 1), low)
    interior = [
        (low, minimum(index(-(-window.padding[1] // stride)), columns)),
        (inner, high - low),
        (count, inner if has_singles else select(inner >= small, inner, index(0))),
        (tap_row, given.start),
        (tap_count, index(given.count)),
    ]
    all_taps = (tap_rows, _Taps(index(0), window.kernel[1]))

    def edges(channels: tuple[PrimExpr, int], vectors: int) -> Stmt:
        def edge(number: PrimExpr) -> Stmt:
            column, start, taps = TirVar("column"), TirVar("start"), TirVar("taps")
            inside = _taps_of_column(window, column)
            bound = [
                (column, if_then_else(number < low, number, number + count)),
                (start, inside.start),
                (taps, index(inside.count)),
            ]
            own, pixel = (tap_rows, _Taps(start, taps)), (image, row, column)
            return let_all(bound, _vectors(work, pixel, 1, own, channels, vectors))

        return serial(columns - count, edge, "x")

    def singles(channels: tuple[PrimExpr, int], vectors: int) -> Stmt:
        def single(number: PrimExpr) -> Stmt:
            column = TirVar("column")
            pixel = (image, row, column)
            body = _vectors(work, pixel, 1, all_taps, channels, vectors)
            return let_all([(column, low + number)], body)

        return serial(count, single, "x")

    def version(size: int) -> Stmt:
        def tile(number: PrimExpr) -> Stmt:
            first = TirVar("first")
            body = _pixel_group(work, lanes, (image, row, first), size, all_taps)
            return let_all([(first, low + minimum(number * size, count - size))], body)

        return serial((count + (size - 1)) // size, tile, "x")

    fitting = binary(BinaryOp.OR, count >= _FEW, (count + (large - 1)) % large >= small)
    fitting = binary(BinaryOp.AND, count >= large, fitting)
    narrow = version(small)
    if has_singles:
        narrow = IfStmt(count >= small, narrow, _several_vectors(work, lanes, singles))
    middle = IfStmt(fitting, version(large), narrow)
    borders = _several_vectors(work, lanes, edges)
    return let_all(interior, seq(borders, middle))


def _taps_of_row(window: Window, row: PrimExpr) -> _Taps:
    """Return the taps of the window of a row that are inside the input."""
    if not isinstance(window.size[0], Dim) and window.interior(0) == (0, window.output[0]):
        return _Taps(index(0), window.kernel[0])
    low, high = _inside(window, 0, row)
    return _Taps(low, high - low)


def _taps_of_column(window: Window, column: PrimExpr | int) -> _Taps:
    """Return the taps of the window of a column that are inside the input."""
    if isinstance(column, int):
        taps = window.taps(1, column)
        return _Taps(index(taps.start), len(taps))
    low, high = _inside(window, 1, column)
    return _Taps(low, maximum(high - low, 0))


def _inside(window: Window, axis: int, result: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return the first tap along an axis that is inside the input, and the one behind the last."""
    step, first = window.dilation[axis], result * window.strides[axis] - window.padding[axis]
    low = maximum((index(step - 1) - first) // step, 0)
    high = minimum((index(window.size[axis] - 1) - first) // step + 1, window.kernel[axis])
    return low, high


def _pixel_group(
    work: NhwcWindows,
    lanes: int,
    pixel: tuple[PrimExpr, PrimExpr, PrimExpr],
    pixels: int,
    taps: tuple[_Taps, _Taps],
) -> Stmt:
    """Compute ``pixels`` neighbours for all channels; ``taps`` of rows and of columns."""
    return _all_channels(work, lanes, lambda part: _vectors(work, pixel, pixels, taps, part))


def _several_vectors(
    work: NhwcWindows, lanes: int, body: Callable[[tuple[PrimExpr, int], int], Stmt]
) -> Stmt:
    """Run ``body((first channel, lanes), vectors)`` for all channels, some vectors at once."""
    full, rest = divmod(work.data.shape[3], lanes)
    several = max(1, min(_VECTORS, full)) if work.micro_kernel is None else 1

    def group(number: PrimExpr) -> Stmt:
        first = number * several
        if full % several:
            first = minimum(first, full - several)
        return body((first * lanes, lanes), several)

    stmts = [serial(-(-full // several), group, "channel")]
    if rest:
        stmts.append(body((index(full * lanes), rest), 1))
    return seq(*stmts)


def _all_channels(
    work: NhwcWindows, lanes: int, vectors: Callable[[tuple[PrimExpr, int]], Stmt]
) -> Stmt:
    """Run ``vectors((first channel, channels))`` for all channels, ``lanes`` at once."""
    channels = work.data.shape[3]
    stmts: list[Stmt] = []
    for part in cut(channels, lanes):
        stmts.append(
            serial(
                part.count,
                lambda o, f=part.start, s=part.size: vectors((o * s + f, s)),
                "channel",
            )
        )
    return seq(*stmts)


def _vectors(
    work: NhwcWindows,
    pixel: tuple[PrimExpr, PrimExpr, PrimExpr],
    pixels: int,
    taps: tuple[_Taps, _Taps],
    channels: tuple[PrimExpr, int],
    vectors: int = 1,
) -> Stmt:
    """Compute ``pixels`` neighbours for one vector of channels, or one for several."""
    (image, row, column), (tap_rows, tap_columns) = pixel, taps
    low, (first, lanes) = tap_rows.start, channels
    window = work.window
    (sh, sw), (dh, dw) = window.strides, window.dilation
    acc = Buffer("acc", (pixels * vectors, lanes), work.start.dtype, MemoryScope.REGISTER)
    top = row * sh - window.padding[0]

    def each(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        return unrolled(pixels * vectors, lambda r: vectorized(lanes, lambda i: body(r, i)))

    def place(r: PrimExpr, i: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
        if vectors == 1:
            return image, row, column + r, first + i
        return image, row, column, first + r * lanes + i

    def tap(kh: PrimExpr, kw: PrimExpr) -> Stmt:
        def add(r: PrimExpr, i: PrimExpr) -> Stmt:
            *pixel, channel = place(r, i)
            value = _with_tap(work, load(acc, r, i), pixel, (kh, kw), channel)
            return store(acc, (r, i), value)

        return each(add)

    def rows_of(number: PrimExpr) -> Stmt:
        def tap_at_column(k: PrimExpr) -> Stmt:
            return tap(low + number, k + tap_columns.start)

        if isinstance(tap_columns.count, int) and tap_columns.count <= _MOST_UNROLLED:
            return unrolled(tap_columns.count, tap_at_column, "kw")
        return serial(tap_columns.count, tap_at_column, "kw")

    def sums() -> Stmt:
        clear = each(lambda r, i: store(acc, (r, i), work.start))
        if tap_columns.count == 0:
            return clear
        if work.micro_kernel is None or not isinstance(tap_columns.count, int):
            return seq(clear, serial(tap_rows.count, rows_of, "kh"))
        x = column * sw + tap_columns.start * dw - window.padding[1]
        element = load(work.data, image, top + low * dh, x, first)
        tap_of = (low, tap_columns.start, first)
        return work.micro_kernel(acc, element, tap_of, (index(tap_rows.count), tap_columns.count))

    count = maximum(index(tap_rows.count), 0) * tap_columns.count
    body = seq(
        sums(),
        each(lambda r, i: work.epilogue(load(acc, r, i), place(r, i), count)),
    )
    return Allocate(acc, body)


def _end_vectors(
    work: NhwcWindows,
    pixel: tuple[PrimExpr, PrimExpr, PrimExpr],
    tap_rows: _Taps,
    taps: Sequence[range],
    channels: tuple[PrimExpr, int],
) -> Stmt:
    """Compute neighbours for one vector of channels, each with its own ``taps`` of a row."""
    (image, row, column), (first, lanes) = pixel, channels
    acc = Buffer("acc", (len(taps), lanes), work.start.dtype, MemoryScope.REGISTER)

    def add(r: int, i: PrimExpr, kh: PrimExpr, kw: int) -> Stmt:
        place = (image, row, column + r)
        value = _with_tap(work, load(acc, r, i), place, (kh, index(kw)), first + i)
        return store(acc, (r, i), value)

    def row_of(number: PrimExpr) -> Stmt:
        own = ((r, kw) for kw in range(work.window.kernel[1]) for r in range(len(taps)))
        return seq(
            *(
                vectorized(lanes, lambda i, r=r, kw=kw: add(r, i, tap_rows.start + number, kw))
                for r, kw in own
                if kw in taps[r]
            )
        )

    def stored(r: int, i: PrimExpr) -> Stmt:
        count = maximum(index(tap_rows.count), 0) * len(taps[r])
        return work.epilogue(load(acc, r, i), (image, row, column + r, first + i), count)

    def each(body: Callable[[int, PrimExpr], Stmt]) -> Stmt:
        return seq(*(vectorized(lanes, lambda i, r=r: body(r, i)) for r in range(len(taps))))

    clear = each(lambda r, i: store(acc, (r, i), work.start))
    return Allocate(acc, seq(clear, serial(tap_rows.count, row_of, "kh"), each(stored)))


def _with_tap(
    work: NhwcWindows,
    value: PrimExpr,
    pixel: Sequence[PrimExpr],
    tap: tuple[PrimExpr, PrimExpr],
    channel: PrimExpr,
) -> PrimExpr:
    """Return the sum of a pixel with one more tap."""
    window, (image, row, column), (kh, kw) = work.window, pixel, tap
    (sh, sw), (dh, dw) = window.strides, window.dilation
    y = row * sh - window.padding[0] + kh * dh
    x = column * sw + kw * dw - window.padding[1]
    element = load(work.data, image, y, x, channel)
    return work.combine(value, element, tap, channel)
