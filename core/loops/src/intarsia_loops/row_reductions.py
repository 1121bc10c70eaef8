# SPDX-License-Identifier: Apache-2.0
"""Reductions along a row: vectors of partial results, whose lanes are combined at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    binary,
    cast,
    const,
    index,
    select,
)
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Seq, Stmt, Store
from intarsia_ir.tir.tensor import Axis, Reduction, highest, lowest
from intarsia_ir.tir.walk import substitute
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .typical import typical


def neutral(combine: BinaryOp, dtype: DType) -> PrimExpr:
    """Return the value that changes nothing when combined."""
    match combine:
        case BinaryOp.MUL:
            return const(1, dtype)
        case BinaryOp.MIN:
            return const(highest(dtype), dtype)
        case BinaryOp.MAX:
            return const(lowest(dtype), dtype)
        case BinaryOp.AND:
            return const(1 if dtype is DType.BOOL or not dtype.is_signed else -1, dtype)
        case _:
            return const(0, dtype)


def serial_loops(axes: Sequence[Axis], body: Stmt) -> Stmt:
    """Wrap ``body`` in serial loops, the first axis outermost."""
    for axis in reversed(axes):
        body = For(axis.var, index(axis.extent), ForKind.SERIAL, body)
    return body


def power_of_two(number: int) -> int:
    """Return the largest power of two that is not above ``number``, at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)


class RowResult(Struct, frozen=True):
    """Where a reduction's result goes, and how vectors reach it.

    Attributes:
        buffer: What takes the result.
        indices: Its place there.
        lanes: Elements of a vector.
        overlap: Whether what fills no vector is read by one that overlaps the one before.
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    lanes: int
    overlap: bool


class _PartialResults(Struct, frozen=True):
    """A register of partial results.

    Attributes:
        register: Its lanes.
        combine: What combines partial results.
    """

    register: Buffer
    combine: BinaryOp

    @property
    def _whole(self) -> tuple[PrimExpr, ...]:
        return (Ramp(IntImm(0), 1, self.register.shape[0]),)

    def begin(self) -> Stmt:
        """Fill the lanes with what changes nothing."""
        start, lanes = neutral(self.combine, self.register.dtype), self.register.shape[0]
        return Store(self.register, self._whole, Broadcast(start, lanes, start.dtype))

    def take(self, item: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        """Combine each lane with ``item(lane)``.

        The item stands first: looking for NaN in it, as extremes do, waits for nothing.
        """
        lane = TirVar("lane")
        current = Load(self.register, (lane,), self.register.dtype, 1)
        step = Store(self.register, (lane,), binary(self.combine, item(lane), current))
        return For(lane, IntImm(self.register.shape[0]), ForKind.VECTORIZED, step)

    def combined(self) -> PrimExpr:
        """Return the combination of all lanes."""
        dtype = self.register.dtype
        vector = Load(self.register, self._whole, dtype, self.register.shape[0])
        return ReduceLanes(self.combine, vector, dtype)


def _vector(name: str, lanes: int, value: PrimExpr, combine: BinaryOp) -> _PartialResults:
    return _PartialResults(Buffer(name, (lanes,), value.dtype, MemoryScope.REGISTER), combine)


def reduce_along(body: Reduction, value: PrimExpr, init: PrimExpr, row: RowResult) -> Stmt:
    """Reduce with a vector of partial results along the innermost reduction axis.

    Args:
        body: The reduction.
        value: An element, as loads of buffers; it has a vector form along the innermost axis.
        init: What the result starts from.
        row: Where it goes.
    """
    inner, outer = body.axes[-1], body.axes[:-1]
    # Four registers of partial results hide the latency of adding; short rows need one.
    wide = 4 * row.lanes if typical(inner.extent) >= 8 * row.lanes else row.lanes
    lanes = wide if isinstance(inner.extent, Dim) else power_of_two(min(wide, inner.extent))
    partial = _vector("partial", lanes, value, body.combine)
    chunk = TirVar(inner.var.name)
    step = partial.take(lambda lane: substitute(value, {inner.var: chunk * lanes + lane}))
    steps = For(chunk, index(inner.extent // lanes), ForKind.SERIAL, step)
    rest = inner.extent % lanes
    if not isinstance(rest, Dim) and rest > 1 and row.overlap:
        edge = _vector("edge", min(lanes, row.lanes), value, body.combine)
        loops = serial_loops(outer, Seq((steps, *_edge(edge, inner, value, rest))))
        total = binary(body.combine, partial.combined(), edge.combined())
        result = cast(binary(body.combine, init, total), row.buffer.dtype)
        done = Store(row.buffer, row.indices, result)
        filled = Seq((partial.begin(), edge.begin(), loops, done))
        return Allocate(partial.register, Allocate(edge.register, filled))
    register = Buffer("total", (1,), value.dtype, MemoryScope.REGISTER)
    at = (IntImm(0),)
    scalar = Load(register, at, value.dtype, 1)
    parts: list[Stmt] = [
        partial.begin(),
        serial_loops(outer, steps),
        Store(register, at, binary(body.combine, init, partial.combined())),
    ]
    if rest:
        var = TirVar(inner.var.name)
        tail = substitute(value, {inner.var: var + index(inner.extent - rest)})
        store = Store(register, at, binary(body.combine, scalar, tail))
        parts.append(serial_loops((*outer, Axis(var, rest)), store))
    parts.append(Store(row.buffer, row.indices, cast(scalar, row.buffer.dtype)))
    return Allocate(partial.register, Allocate(register, Seq(tuple(parts))))


def _edge(edge: _PartialResults, inner: Axis, value: PrimExpr, rest: int) -> list[Stmt]:
    """Return what combines the last ``rest`` elements: vectors, the last one of the row's end.

    Lanes of that one that were taken before count as nothing.
    """
    lanes = edge.register.shape[0]
    start, left = inner.extent - rest, rest % lanes
    stmts: list[Stmt] = []
    if rest >= lanes:
        chunk = TirVar(inner.var.name)
        step = edge.take(lambda lane: substitute(value, {inner.var: chunk * lanes + lane + start}))
        stmts.append(For(chunk, IntImm(rest // lanes), ForKind.SERIAL, step))
    if left:
        nothing = neutral(edge.combine, value.dtype)

        def fresh(lane: PrimExpr) -> PrimExpr:
            item = substitute(value, {inner.var: lane + (inner.extent - lanes)})
            return select(lane >= lanes - left, item, nothing)

        stmts.append(edge.take(fresh))
    return stmts
