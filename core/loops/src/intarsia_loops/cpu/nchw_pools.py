# SPDX-License-Identifier: Apache-2.0
"""Pooling in the model's layout, NCHW, separable: down the windows first, then along the rows.

All rows of a window are combined into one row buffer, padded at both ends; then windows slide along
it, a vector of results at a time::

    parallel: planes x blocks of output rows
      for row: buffer[row] = combine(rows of the window)   # 1 accumulator, vectors of columns
      for row: out = combine(buffer[row][x + kw] for kw)   # 1 accumulator

Separation takes KH + KW instead of KH * KW operations for each result, which holds for max and sum.
Registers: 1 accumulator + 1 operand. Several row buffers (at most 8 KiB, a quarter of the
first-level cache) are filled before the first is read: a load that spans two stores just made
cannot be forwarded from the store buffer and would stall. Stride 2 is deinterleaved in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.ops.pooling import PoolAttrs
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Broadcast, Load, PrimExpr, Ramp, index, maximum, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt, Store
from intarsia_runtime.size import Dim

from ..row_reductions import power_of_two
from .loops import load, parallel, seq, serial, store, unflatten, unrolled, vectorized
from .tiling import CpuTiling

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
        epilogue: ``epilogue(value, (n, c, *position), taps)`` stores a result; ``taps`` is
            the number of its taps inside the input.
        counts: Whether ``epilogue`` looks at ``taps``.
    """

    data: Buffer
    attrs: PoolAttrs
    output: tuple[int, ...]
    start: PrimExpr
    combine: Callable[[PrimExpr, PrimExpr], PrimExpr]
    epilogue: Callable[[PrimExpr, tuple[PrimExpr, ...], PrimExpr], Stmt]
    counts: bool

    @property
    def line(self) -> int:
        """How many elements of a line windows read."""
        return (self.output[-1] - 1) * self.attrs.strides[-1] + self.attrs.windows.extents[-1]

    def interior(self, axis: int) -> tuple[int, int]:
        """Return the range of results all of whose taps along a dimension exist."""
        stride, (low, _) = self.attrs.strides[axis], self.attrs.padding[axis]
        room = self.data.shape[2 + axis] + low - self.attrs.windows.extents[axis]
        first = min(-(-low // stride), self.output[axis])
        return first, max(first, min(self.output[axis], room // stride + 1))

    def has_all_taps(self, axis: int) -> bool:
        """Whether all taps along a dimension exist; of an open one, whatever its size is."""
        if isinstance(self.data.shape[2 + axis], Dim):
            return self.attrs.padding[axis] == (0, 0) and not self.attrs.ceil_mode
        return self.interior(axis) == (0, self.output[axis])

    def taps(self, axis: int, position: PrimExpr | int) -> tuple[PrimExpr, PrimExpr]:
        """Return the first tap of a window along a dimension that exists, and the one behind."""
        attrs, size = self.attrs, self.data.shape[2 + axis]
        if self.has_all_taps(axis):
            return index(0), index(attrs.kernel[axis])
        step, begin = attrs.dilation[axis], attrs.padding[axis][0]
        top = index(position) * attrs.strides[axis] - begin
        low = maximum((index(step - 1) - top) // step, 0)
        return low, minimum((index(size - 1) - top) // step + 1, attrs.kernel[axis])


def nchw_pool_loops(work: Planes, tiling: CpuTiling) -> Stmt:
    """Return the loops: lines, then the windows along them, for some rows of results at a time."""
    lanes = power_of_two(min(tiling.lanes, work.output[-1]))
    slack = 2 * lanes * work.attrs.strides[-1]
    width = max(work.line, work.attrs.padding[-1][0] + work.data.shape[-1]) + slack
    rows = prod(work.output[:-1])
    block_rows = max(1, min(rows, _LINES_BYTES // (width * work.data.dtype.bytes)))
    block_rows = -(-rows // -(-rows // block_rows))
    lines = Buffer("lines", (block_rows, width), work.data.dtype, MemoryScope.STACK)
    blocks = -(-rows // block_rows)
    batch = list(work.data.shape[:2])

    def block(p: PrimExpr) -> Stmt:
        plane = unflatten(p // blocks, batch)
        # The last rows overlap the ones before, if there is no whole number of them.
        first = minimum((p % blocks) * block_rows, rows - block_rows) if blocks > 1 else index(0)

        def position(number: PrimExpr) -> list[PrimExpr]:
            return (
                unflatten(first + number, list(work.output[:-1]))
                if rows > 1
                else [index(0) for _ in work.output[:-1]]
            )

        made = serial(
            block_rows, lambda r: _line(work, tiling, (lines, r), plane, position(r)), "line"
        )
        slid = serial(
            block_rows, lambda r: _slide(work, tiling, (lines, r), plane, position(r)), "row"
        )
        return Allocate(lines, seq(made, slid))

    return parallel(prod(batch) * blocks, block)


def _spans(extent: int, lanes: int, body: Callable[[PrimExpr], Stmt], first: int = 0) -> Stmt:
    """Run ``body(start)`` so that pieces of ``lanes`` cover a range; the last one may overlap."""
    interior, rest = divmod(extent, lanes)
    stmts = [serial(interior, lambda i: body(i * lanes + first), "x")] if interior else []
    if rest:
        stmts.append(body(index(first + extent - lanes)))
    return seq(*stmts)


def _line(
    work: Planes,
    tiling: CpuTiling,
    line: tuple[Buffer, PrimExpr],
    plane: Sequence[PrimExpr],
    position: Sequence[PrimExpr],
) -> Stmt:
    """Combine the rows of a window, padding at both ends."""
    attrs, columns = work.attrs, work.data.shape[-1]
    lines, number = line
    left = attrs.padding[-1][0]
    lanes = power_of_two(min(tiling.lanes, columns))

    def fill(begin: int, end: int) -> list[Stmt]:
        count = end - begin
        size = min(count, tiling.lanes)
        if count <= 0:
            return []

        def piece(start_column: PrimExpr) -> Stmt:
            return vectorized(size, lambda i: store(lines, (number, start_column + i), work.start))

        return [_spans(count, size, piece, begin)]

    def piece(start: PrimExpr) -> Stmt:
        return combine_rows(
            work, lanes, (lines, number, start + left), (*plane,), (*position,), start
        )

    ends = [*fill(0, left), *fill(left + columns, work.line)]
    return seq(*ends, _spans(columns, lanes, piece))


def combine_rows(
    work: Planes,
    lanes: int,
    target: tuple[Buffer, PrimExpr, PrimExpr],
    plane: tuple[PrimExpr, ...],
    position: tuple[PrimExpr, ...],
    start: PrimExpr,
) -> Stmt:
    """Combine a vector of the rows of a window."""
    attrs, (lines, number, start_column) = work.attrs, target
    acc = Buffer("acc", (lanes,), work.data.dtype, MemoryScope.REGISTER)
    limits = [work.taps(axis, where) for axis, where in enumerate(position)]

    def take(taps: list[PrimExpr]) -> Stmt:
        if len(taps) < len(position):
            axis = len(taps)
            low, high = limits[axis]
            kernel = attrs.kernel[axis]
            if work.has_all_taps(axis) and kernel <= _MOST_UNROLLED:
                return unrolled(kernel, lambda k: take([*taps, k]), "k")
            return serial(high - low, lambda k: take([*taps, low + k]), "k")
        rows = [
            where * attrs.strides[axis] - attrs.padding[axis][0] + tap * attrs.dilation[axis]
            for axis, (where, tap) in enumerate(zip(position, taps, strict=True))
        ]

        def add(i: PrimExpr) -> Stmt:
            element = load(work.data, *plane, *rows, start + i)
            return store(acc, (i,), work.combine(load(acc, i), element))

        return vectorized(lanes, add)

    clear = vectorized(lanes, lambda i: store(acc, (i,), work.start))
    done = vectorized(lanes, lambda i: store(lines, (number, start_column + i), load(acc, i)))
    return Allocate(acc, seq(clear, take([]), done))


def _slide(
    work: Planes,
    tiling: CpuTiling,
    line: tuple[Buffer, PrimExpr],
    plane: Sequence[PrimExpr],
    position: Sequence[PrimExpr],
) -> Stmt:
    """Combine the taps along a line; store a row of results."""
    columns, last = work.output[-1], len(work.output) - 1
    low, high = work.interior(last) if work.counts else (0, columns)
    rows: PrimExpr = index(1)
    for axis, where in enumerate(position):
        first, behind = work.taps(axis, where)
        rows = rows * maximum(behind - first, 0)

    def piece(start: PrimExpr, lanes: int, taps: PrimExpr) -> Stmt:
        acc = Buffer("acc", (lanes,), work.data.dtype, MemoryScope.REGISTER)

        def epilogue(i: PrimExpr) -> Stmt:
            return work.epilogue(load(acc, i), (*plane, *position, start + i), taps)

        done = epilogue(index(0)) if lanes == 1 else vectorized(lanes, epilogue)
        return Allocate(acc, seq(combine_taps(work, tiling, line, start, acc), done))

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
        lanes = power_of_two(min(tiling.lanes, high - low))
        taps = rows * work.attrs.kernel[-1]
        stmts.append(
            _spans(high - low, lanes, lambda start_column: piece(start_column, lanes, taps), low)
        )
    return seq(*stmts, *border(high, columns))


def combine_taps(
    work: Planes, tiling: CpuTiling, line: tuple[Buffer, PrimExpr], start: PrimExpr, acc: Buffer
) -> Stmt:
    """Combine the taps of a vector of windows along a line, the first of them number ``start``."""
    attrs, (lines, number), (lanes,) = work.attrs, line, acc.shape
    stride, step, taps = attrs.strides[-1], attrs.dilation[-1], attrs.kernel[-1]
    interior = (index(0) if lanes == 1 else Ramp(index(0), 1, lanes),)

    def vector(start_column: PrimExpr, stride_of: int = 1) -> PrimExpr:
        column = start_column if lanes == 1 else Ramp(start_column, stride_of, lanes)
        return Load(lines, (number, column), acc.dtype, lanes)

    def tap(k: int) -> PrimExpr:
        start_column = start * stride + k * step
        second = tiling.deinterleave
        if lanes == 1 or stride != 2 or second is None:
            return vector(start_column, stride)
        # Neighbours in one pair of vectors: an odd tap is the other half of the even one.
        odd = k * step % 2
        return second(vector(start_column - odd), vector(start_column - odd + lanes), odd)

    if taps <= _MOST_UNROLLED:
        value = tap(0)
        for k in range(1, taps):
            value = work.combine(value, tap(k))
        return Store(acc, interior, value)

    def add(k: PrimExpr) -> Stmt:
        element = vector(start * stride + k * step, stride)
        total = work.combine(Load(acc, interior, acc.dtype, lanes), element)
        return Store(acc, interior, total)

    first = work.start if lanes == 1 else Broadcast(work.start, lanes, acc.dtype)
    return seq(Store(acc, interior, first), serial(taps, add, "k"))
