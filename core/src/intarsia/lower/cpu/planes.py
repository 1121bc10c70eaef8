# SPDX-License-Identifier: Apache-2.0
"""Pools in the model's layout: the rows of a window become one line, along which it then slides.

Lines have what the padding stands for at both ends, so that vectors of results need not ask where
they are. Some lines are made before the first one is read, because what was just written by one
vector and is read by parts of two has to reach the cache first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from ...ops.pooling import PoolAttrs
from ...tir.buffer import Buffer, Scope
from ...tir.expr import Broadcast, Load, PrimExpr, Ramp, index, maximum, minimum
from ...tir.stmt import Allocate, Stmt, Store
from ..along import power_of_two
from .loops import load, parallel, seq, serial, store, unflatten, unrolled, vectorized
from .tile import Shape

_LINES_BYTES = 8 * 1024
"""Most memory of the lines that are made before they are read."""

_MOST_UNROLLED = 9
"""Taps up to which they are written out."""

_MOST_EDGES = 16
"""Results at the ends of a line, with less taps, up to which they are written out."""


class Planes(Struct, frozen=True):
    """A pool.

    Attributes:
        data: ``[N, C, *S]``.
        attrs: The windows.
        output: How many there are in each dimension of ``S``.
        start: What padding counts as; combining it changes nothing.
        combine: ``combine(value, element)``.
        finish: ``finish(value, (n, c, *place), taps)`` stores a result; ``taps`` is how many taps
            of its window exist.
        counts: Whether ``finish`` looks at ``taps``.
    """

    data: Buffer
    attrs: PoolAttrs
    output: tuple[int, ...]
    start: PrimExpr
    combine: Callable[[PrimExpr, PrimExpr], PrimExpr]
    finish: Callable[[PrimExpr, tuple[PrimExpr, ...], PrimExpr], Stmt]
    counts: bool

    @property
    def line(self) -> int:
        """How many elements of a line windows read."""
        return (self.output[-1] - 1) * self.attrs.strides[-1] + self.attrs.windows.extents[-1]

    def whole(self, axis: int) -> tuple[int, int]:
        """Return the range of results all of whose taps along a dimension exist."""
        stride, (low, _) = self.attrs.strides[axis], self.attrs.padding[axis]
        room = self.data.shape[2 + axis] + low - self.attrs.windows.extents[axis]
        first = min(-(-low // stride), self.output[axis])
        return first, max(first, min(self.output[axis], room // stride + 1))

    def taps(self, axis: int, place: PrimExpr | int) -> tuple[PrimExpr, PrimExpr]:
        """Return the first tap of a window along a dimension that exists, and the one behind."""
        attrs, size = self.attrs, self.data.shape[2 + axis]
        if self.whole(axis) == (0, self.output[axis]):
            return index(0), index(attrs.kernel[axis])
        step, begin = attrs.dilation[axis], attrs.padding[axis][0]
        top = index(place) * attrs.strides[axis] - begin
        low = maximum((index(step - 1) - top) // step, 0)
        return low, minimum((index(size - 1) - top) // step + 1, attrs.kernel[axis])


def pool_planes(work: Planes, shape: Shape) -> Stmt:
    """Return the loops: lines, then the windows along them, for some rows of results at a time."""
    lanes = power_of_two(min(shape.lanes, work.output[-1]))
    slack = 2 * lanes * work.attrs.strides[-1]
    width = max(work.line, work.attrs.padding[-1][0] + work.data.shape[-1]) + slack
    rows = prod(work.output[:-1])
    some = max(1, min(rows, _LINES_BYTES // (width * work.data.dtype.bytes)))
    some = -(-rows // -(-rows // some))
    lines = Buffer("lines", (some, width), work.data.dtype, Scope.STACK)
    blocks = -(-rows // some)
    batch = list(work.data.shape[:2])

    def block(p: PrimExpr) -> Stmt:
        plane = unflatten(p // blocks, batch)
        # The last rows overlap the ones before, if there is no whole number of them.
        first = minimum((p % blocks) * some, rows - some) if blocks > 1 else index(0)

        def place(number: PrimExpr) -> list[PrimExpr]:
            return (
                unflatten(first + number, list(work.output[:-1]))
                if rows > 1
                else [index(0) for _ in work.output[:-1]]
            )

        made = serial(some, lambda r: _line(work, shape, (lines, r), plane, place(r)), "line")
        slid = serial(some, lambda r: _slide(work, shape, (lines, r), plane, place(r)), "row")
        return Allocate(lines, seq(made, slid))

    return parallel(prod(batch) * blocks, block)


def _spans(extent: int, lanes: int, body: Callable[[PrimExpr], Stmt], first: int = 0) -> Stmt:
    """Run ``body(start)`` so that pieces of ``lanes`` cover a range; the last one may overlap."""
    whole, rest = divmod(extent, lanes)
    stmts = [serial(whole, lambda i: body(i * lanes + first), "x")] if whole else []
    if rest:
        stmts.append(body(index(first + extent - lanes)))
    return seq(*stmts)


def _line(
    work: Planes,
    shape: Shape,
    line: tuple[Buffer, PrimExpr],
    plane: Sequence[PrimExpr],
    place: Sequence[PrimExpr],
) -> Stmt:
    """Combine the rows of a window, padding at both ends."""
    attrs, columns = work.attrs, work.data.shape[-1]
    lines, number = line
    left = attrs.padding[-1][0]
    lanes = power_of_two(min(shape.lanes, columns))

    def fill(begin: int, end: int) -> list[Stmt]:
        count = end - begin
        size = min(count, shape.lanes)
        if count <= 0:
            return []

        def piece(at: PrimExpr) -> Stmt:
            return vectorized(size, lambda i: store(lines, (number, at + i), work.start))

        return [_spans(count, size, piece, begin)]

    def piece(start: PrimExpr) -> Stmt:
        return _rows(work, lanes, (lines, number, start + left), (*plane,), (*place,), start)

    ends = [*fill(0, left), *fill(left + columns, work.line)]
    return seq(*ends, _spans(columns, lanes, piece))


def _rows(
    work: Planes,
    lanes: int,
    target: tuple[Buffer, PrimExpr, PrimExpr],
    plane: tuple[PrimExpr, ...],
    place: tuple[PrimExpr, ...],
    start: PrimExpr,
) -> Stmt:
    """Combine a vector of the rows of a window."""
    attrs, (lines, number, at) = work.attrs, target
    acc = Buffer("acc", (lanes,), work.data.dtype, Scope.REGISTER)
    limits = [work.taps(axis, where) for axis, where in enumerate(place)]

    def take(taps: list[PrimExpr]) -> Stmt:
        if len(taps) < len(place):
            axis = len(taps)
            low, high = limits[axis]
            kernel = attrs.kernel[axis]
            if work.whole(axis) == (0, work.output[axis]) and kernel <= _MOST_UNROLLED:
                return unrolled(kernel, lambda k: take([*taps, k]), "k")
            return serial(high - low, lambda k: take([*taps, low + k]), "k")
        rows = [
            where * attrs.strides[axis] - attrs.padding[axis][0] + tap * attrs.dilation[axis]
            for axis, (where, tap) in enumerate(zip(place, taps, strict=True))
        ]

        def add(i: PrimExpr) -> Stmt:
            element = load(work.data, *plane, *rows, start + i)
            return store(acc, (i,), work.combine(load(acc, i), element))

        return vectorized(lanes, add)

    clear = vectorized(lanes, lambda i: store(acc, (i,), work.start))
    done = vectorized(lanes, lambda i: store(lines, (number, at + i), load(acc, i)))
    return Allocate(acc, seq(clear, take([]), done))


def _slide(
    work: Planes,
    shape: Shape,
    line: tuple[Buffer, PrimExpr],
    plane: Sequence[PrimExpr],
    place: Sequence[PrimExpr],
) -> Stmt:
    """Combine the taps along a line; store a row of results."""
    columns, last = work.output[-1], len(work.output) - 1
    low, high = work.whole(last) if work.counts else (0, columns)
    rows: PrimExpr = index(1)
    for axis, where in enumerate(place):
        first, behind = work.taps(axis, where)
        rows = rows * maximum(behind - first, 0)

    def piece(start: PrimExpr, lanes: int, taps: PrimExpr) -> Stmt:
        acc = Buffer("acc", (lanes,), work.data.dtype, Scope.REGISTER)

        def finish(i: PrimExpr) -> Stmt:
            return work.finish(load(acc, i), (*plane, *place, start + i), taps)

        done = finish(index(0)) if lanes == 1 else vectorized(lanes, finish)
        return Allocate(acc, seq(_windows(work, shape, line, start, acc), done))

    def edge(column: PrimExpr | int) -> Stmt:
        first, behind = work.taps(last, column)
        return piece(index(column), 1, rows * maximum(behind - first, 0))

    def border(start: int, end: int) -> list[Stmt]:
        # Code does not grow with the window: beyond a few columns it is a loop.
        if low + columns - high > _MOST_EDGES:
            return [serial(end - start, lambda i: edge(i + start), "x")] if end > start else []
        return [edge(column) for column in range(start, end)]

    stmts = border(0, low)
    if high > low:
        lanes = power_of_two(min(shape.lanes, high - low))
        taps = rows * work.attrs.kernel[-1]
        stmts.append(_spans(high - low, lanes, lambda at: piece(at, lanes, taps), low))
    return seq(*stmts, *border(high, columns))


def _windows(
    work: Planes, shape: Shape, line: tuple[Buffer, PrimExpr], start: PrimExpr, acc: Buffer
) -> Stmt:
    """Combine the taps of a vector of windows along a line, the first of them number ``start``."""
    attrs, (lines, number), (lanes,) = work.attrs, line, acc.shape
    stride, step, taps = attrs.strides[-1], attrs.dilation[-1], attrs.kernel[-1]
    whole = (index(0) if lanes == 1 else Ramp(index(0), 1, lanes),)

    def vector(at: PrimExpr, apart: int = 1) -> PrimExpr:
        column = at if lanes == 1 else Ramp(at, apart, lanes)
        return Load(lines, (number, column), acc.dtype, lanes)

    def tap(k: int) -> PrimExpr:
        at = start * stride + k * step
        second = shape.every_second
        if lanes == 1 or stride != 2 or second is None:
            return vector(at, stride)
        # Neighbours in one pair of vectors: an odd tap is the other half of the even one.
        odd = k * step % 2
        return second(vector(at - odd), vector(at - odd + lanes), odd)

    if taps <= _MOST_UNROLLED:
        value = tap(0)
        for k in range(1, taps):
            value = work.combine(value, tap(k))
        return Store(acc, whole, value)

    def add(k: PrimExpr) -> Stmt:
        element = vector(start * stride + k * step, stride)
        total = work.combine(Load(acc, whole, acc.dtype, lanes), element)
        return Store(acc, whole, total)

    first = work.start if lanes == 1 else Broadcast(work.start, lanes, acc.dtype)
    return seq(Store(acc, whole, first), serial(taps, add, "k"))
