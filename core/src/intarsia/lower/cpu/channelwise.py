# SPDX-License-Identifier: Apache-2.0
"""Windows that stay within a channel: depthwise convolution and pools over channels-last data.

Rows of the result are shared between threads. Results whose window is whole are computed several at
a time, so that the input elements they share are loaded once; those at the left and right border
one at a time, with the taps that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from ...tir.buffer import Buffer, Scope
from ...tir.expr import PrimExpr, index, maximum, minimum
from ...tir.stmt import Allocate, Stmt
from .loops import cut, load, parallel, seq, serial, store, unrolled, vectorized
from .tile import Shape
from .window import Window

SumTaps: TypeAlias = Callable[
    [Buffer, PrimExpr, tuple[PrimExpr, PrimExpr, PrimExpr], tuple[PrimExpr, int]], Stmt
]


class Channelwise(Struct, frozen=True):
    """What happens in a window.

    Attributes:
        data: ``[N, H, W, C]``.
        window: Geometry.
        start: Value before the first tap.
        combine: ``combine(sum, element, (tap row, tap column), channel)``.
        finish: ``finish(sum, (n, row, column, channel), taps)``: stores a result; ``taps`` is how
            many taps of its window exist.
        sum_up: ``sum_up(sums, element, (tap row, tap column, channel), (rows, columns))`` writes
            the sums of one result in place of the loops over its taps; ``element`` is that of the
            first tap that exists, of which there are so many rows and columns. ``None`` for loops.
    """

    data: Buffer
    window: Window
    start: PrimExpr
    combine: Callable[[PrimExpr, PrimExpr, tuple[PrimExpr, PrimExpr], PrimExpr], PrimExpr]
    finish: Callable[[PrimExpr, tuple[PrimExpr, ...], PrimExpr], Stmt]
    sum_up: SumTaps | None = None


def channelwise_loops(work: Channelwise, shape: Shape) -> Stmt:
    """Return the loops; a vector of channels is computed at once, for some neighbours."""
    batch = work.data.shape[0]
    rows = work.window.output[0]

    def row(p: PrimExpr) -> Stmt:
        return _row(work, shape, p // rows, p % rows)

    return parallel(batch * rows, row)


_MOST_UNROLLED = 16
"""Border columns, and taps of a row of the window, up to which each is written out.

Code is as long as the number of border columns times that of taps: for larger windows it has loops.
"""


class _Taps(Struct, frozen=True):
    """The taps of a row of a window that exist: the first one, and how many."""

    start: PrimExpr
    count: PrimExpr | int


def _row(work: Channelwise, shape: Shape, image: PrimExpr, row: PrimExpr) -> Stmt:
    """Compute a row of results."""
    window, lanes = work.window, shape.lanes
    low, high = window.interior(1)

    def edge(column: PrimExpr | int) -> Stmt:
        return _piece(work, lanes, (image, row, index(column)), 1, _taps_at(window, column))

    def border(start: int, end: int) -> list[Stmt]:
        if low + window.output[1] - high > _MOST_UNROLLED:
            return [serial(end - start, lambda i: edge(i + start), "x")] if end > start else []
        return [edge(column) for column in range(start, end)]

    stmts = border(0, low)
    whole = _Taps(index(0), window.kernel[1])
    for part in cut(high - low, shape.neighbours) if high > low else ():
        first = part.start + low
        stmts.append(
            serial(
                part.count,
                lambda i, f=first, s=part.size: _piece(
                    work, lanes, (image, row, i * s + f), s, whole
                ),
                "x",
            )
        )
    return seq(*stmts, *border(high, window.output[1]))


def _taps_at(window: Window, column: PrimExpr | int) -> _Taps:
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


def _piece(
    work: Channelwise,
    lanes: int,
    place: tuple[PrimExpr, PrimExpr, PrimExpr],
    results: int,
    taps: _Taps,
) -> Stmt:
    """Compute ``results`` neighbours for all channels."""
    channels = work.data.shape[3]
    stmts: list[Stmt] = []
    for part in cut(channels, lanes):
        stmts.append(
            serial(
                part.count,
                lambda o, f=part.start, s=part.size: _vectors(
                    work, place, results, taps, (o * s + f, s)
                ),
                "channel",
            )
        )
    return seq(*stmts)


def _vectors(
    work: Channelwise,
    place: tuple[PrimExpr, PrimExpr, PrimExpr],
    results: int,
    taps: _Taps,
    channels: tuple[PrimExpr, int],
) -> Stmt:
    """Compute ``results`` neighbours for one vector of channels."""
    image, row, column = place
    first, lanes = channels
    window = work.window
    (sh, sw), (dh, dw) = window.strides, window.dilation
    acc = Buffer("acc", (results, lanes), work.start.dtype, Scope.REGISTER)
    top = row * sh - window.padding[0]
    low, high = _inside(window, 0, row)
    if window.interior(0) == (0, window.output[0]):
        low, high = index(0), index(window.kernel[0])

    def each(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        return unrolled(results, lambda r: vectorized(lanes, lambda i: body(r, i)))

    def tap(kh: PrimExpr, kw: PrimExpr) -> Stmt:
        def add(r: PrimExpr, i: PrimExpr) -> Stmt:
            x = (column + r) * sw + kw * dw - window.padding[1]
            element = load(work.data, image, top + kh * dh, x, first + i)
            value = work.combine(load(acc, r, i), element, (kh, kw), first + i)
            return store(acc, (r, i), value)

        return each(add)

    def rows_of(number: PrimExpr) -> Stmt:
        def at(k: PrimExpr) -> Stmt:
            return tap(low + number, k + taps.start)

        if isinstance(taps.count, int) and taps.count <= _MOST_UNROLLED:
            return unrolled(taps.count, at, "kw")
        return serial(taps.count, at, "kw")

    def sums() -> Stmt:
        clear = each(lambda r, i: store(acc, (r, i), work.start))
        if taps.count == 0:
            return clear
        if work.sum_up is None or not isinstance(taps.count, int):
            return seq(clear, serial(high - low, rows_of, "kh"))
        x = column * sw + taps.start * dw - window.padding[1]
        element = load(work.data, image, top + low * dh, x, first)
        tap_of = (low, taps.start, first)
        return work.sum_up(acc, element, tap_of, (high - low, taps.count))

    count = maximum(high - low, 0) * taps.count
    body = seq(
        sums(),
        each(lambda r, i: work.finish(load(acc, r, i), (image, row, column + r, first + i), count)),
    )
    return Allocate(acc, body)
