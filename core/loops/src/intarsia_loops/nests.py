# SPDX-License-Identifier: Apache-2.0
"""Loop nests of one tensor: element-wise, reduction, or argmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    BinaryOp,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Read,
    TirVar,
    binary,
    cast,
    const,
    index,
    intrinsic,
    select,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Allocate, For, ForKind, LetStmt, Seq, Stmt, Store
from intarsia_ir.tir.tensor import ArgReduction, Axis, Reduction, Tensor, extents
from intarsia_ir.tir.walk import map_statement, post_order, rewrite, substitute
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from .block_sums import is_long_sum, sum_by_blocks
from .invariants import hoisted_places, with_places
from .ranges import Range, split_ranges
from .row_reductions import RowResult, power_of_two, reduce_along, serial_loops
from .typical import typical
from .vectorizable import at_step, is_linear, shared_step, vectorizes

BLOCK = 4096
"""Elements of a parallel iteration over a single long dimension."""

_DEEP = 16
"""Elements of a reduction from which on several vectors of results are computed at once."""

_FEW = 4
"""Neighbours that are stored one by one, if they are the same element."""

Place: TypeAlias = "dict[TirVar, PrimExpr]"
Emit: TypeAlias = "Callable[[PrimExpr], Stmt]"
LoadRule: TypeAlias = "Callable[[PrimExpr], PrimExpr]"


def loads(
    buffers: Mapping[Tensor, Buffer], dropped: Mapping[Tensor, int], place: Place
) -> LoadRule:
    """Return what turns reads of tensors into loads of buffers, at a place of some variables."""

    def load(node: PrimExpr) -> PrimExpr | None:
        if not isinstance(node, Read):
            return None
        indices = node.indices[dropped.get(node.tensor, 0) :]
        return Load(buffers[node.tensor], indices, node.dtype, 1)

    def rule(expr: PrimExpr) -> PrimExpr:
        return rewrite(substitute(expr, place), load)

    return rule


def parallel_loops(
    row: Sequence[TirVar], counts: Sequence[int], body: Stmt, *, parallel: bool
) -> Stmt:
    """Wrap ``body`` in loops over ``row``; as one parallel loop if that is profitable."""
    wanted = [(var, extent) for var, extent in zip(row, counts, strict=True)]
    if not parallel or typical(prod(counts)) < 2:
        for var, extent in reversed(wanted):
            body = For(var, index(extent), ForKind.SERIAL, body)
        return body
    # As few loops as give every thread enough iterations: each fused one costs a division.
    count = next(
        (n for n in range(1, len(wanted) + 1) if typical(prod(counts[:n])) >= 64), len(wanted)
    )
    for var, extent in reversed(wanted[count:]):
        body = For(var, index(extent), ForKind.SERIAL, body)
    if count == 1:
        return For(wanted[0][0], index(counts[0]), ForKind.PARALLEL, body)
    fused = TirVar("fused")
    for number in reversed(range(count)):
        var, extent = wanted[number]
        step = prod(counts[number + 1 : count])
        value = fused // index(step) if number == 0 else (fused // index(step)) % index(extent)
        body = LetStmt(var, value, body)
    return For(fused, index(prod(counts[:count])), ForKind.PARALLEL, body)


class Nest(Struct, frozen=True):
    """The loops of one tensor.

    Attributes:
        axes: Loops to write.
        buffer: Where elements go.
        leading: Indices of ``buffer`` in front of the axes.
        lanes: Elements of a vector.
        parallel: Whether outer loops run on several threads.
        overlap: Whether what fills no vector is computed by one that overlaps the one before.
        byte_tables: Whether vectors of bytes are looked up in tables of 256 bytes.
    """

    axes: tuple[Axis, ...]
    buffer: Buffer
    leading: tuple[PrimExpr, ...]
    lanes: int
    parallel: bool
    overlap: bool = False
    byte_tables: bool = False

    def _indices(self, last: PrimExpr | None) -> tuple[PrimExpr, ...]:
        """Return the place in the buffer, with ``last`` as the innermost index."""
        own: list[PrimExpr] = [axis.var for axis in self.axes]
        if last is not None and own:
            own[-1] = last
        return (*self.leading, *own)

    def _outer(self, body: Stmt) -> Stmt:
        outer = self.axes[:-1]
        counts = [axis.extent for axis in outer]
        return parallel_loops([a.var for a in outer], counts, body, parallel=self.parallel)

    def elementwise(self, value: PrimExpr) -> Stmt:
        """Store ``value`` at every place; along the innermost axis in vectors where that works."""
        if not self.axes:
            return Store(self.buffer, self.leading, value)
        split = _split_point(value, self.axes)
        if split is not None:
            return self._halves(*split)
        last = self.axes[-1]

        def store(at: PrimExpr) -> Stmt:
            return Store(self.buffer, self._indices(at), substitute(value, {last.var: at}))

        if not vectorizes(value, last.var, byte_tables=self.byte_tables):
            ranges = split_ranges(value, last)
            if ranges is not None and any(vectorizes(part.value, last.var) for part in ranges):
                return self._outer(Seq(tuple([self._range(part, last) for part in ranges])))
            at = TirVar(last.var.name)
            step = shared_step(value, last)
            if step > 1:
                return self._outer(self._steps(value, last, at, step))
            value, places = hoisted_places(value, last.var)
            loop = For(at, index(last.extent), ForKind.SERIAL, store(at))
            return self._outer(with_places(loop, places))
        if isinstance(value, Load) and self._is_repeated(value, last):
            return self._outer(Seq(tuple(store(index(at)) for at in range(last.extent))))
        # Of a loop that copies a vector, compilers make a call, which takes longer than the loop.
        abreast = 2 if isinstance(value, Load) else 1
        if len(self.axes) == 1 and self.parallel and typical(last.extent) >= 2 * BLOCK:
            return self._blocks(last, store, abreast)
        loops = vector_loops(last, self.lanes, store, overlap=self.overlap, abreast=abreast)
        return self._outer(loops)

    def _is_repeated(self, value: Load, last: Axis) -> bool:
        """Whether an element is repeated along the innermost axis, few times.

        Compilers load vectors of such elements then, and interleave them.
        """
        few = not isinstance(last.extent, Dim) and last.extent <= _FEW < self.lanes
        return few and len(self.axes) > 1 and last.var not in set(post_order(value))

    def _range(self, part: Range, last: Axis) -> Stmt:
        """Store the elements of part of the innermost axis."""

        def store(at: PrimExpr) -> Stmt:
            place = at + index(part.start)
            value = substitute(part.value, {last.var: place})
            return Store(self.buffer, self._indices(place), value)

        own = Axis(TirVar(last.var.name), *extents((part.extent,)))
        if vectorizes(part.value, last.var):
            return vector_loops(own, self.lanes, store, overlap=self.overlap)
        return For(own.var, index(own.extent), ForKind.SERIAL, store(own.var))

    def _steps(self, value: PrimExpr, axis: Axis, at: TirVar, step: int) -> Stmt:
        """Store ``step`` neighbours at a time, which read the same places."""
        stores = [
            Store(
                self.buffer,
                self._indices(at * step + rest),
                at_step(value, axis.var, step, at, rest),
            )
            for rest in range(step)
        ]
        return For(at, index(axis.extent // step), ForKind.SERIAL, Seq(tuple(stores)))

    def _blocks(self, axis: Axis, store: Emit, abreast: int) -> Stmt:
        """Split a single long axis among threads."""
        block = TirVar("block")

        def store_in_block(at: PrimExpr) -> Stmt:
            return store(block * BLOCK + at)

        def store_rest(at: PrimExpr) -> Stmt:
            return store(at + index(axis.extent // BLOCK * BLOCK))

        body = vector_loops(Axis(axis.var, BLOCK), self.lanes, store_in_block, abreast=abreast)
        parts: list[Stmt] = [For(block, index(axis.extent // BLOCK), ForKind.PARALLEL, body)]
        if axis.extent % BLOCK:
            rest = Axis(axis.var, axis.extent % BLOCK)
            own = vector_loops(rest, self.lanes, store_rest, overlap=self.overlap, abreast=abreast)
            parts.append(own)
        return Seq(tuple(parts))

    def _halves(self, node: IfThenElse, number: int, at: int) -> Stmt:
        """Split axis ``number`` at ``at``, where the condition of ``node`` turns false."""
        axis = self.axes[number]
        halves: list[Stmt] = []
        for start, extent, chosen in ((0, at, node.a), (at, axis.extent - at, node.b)):
            var = TirVar(axis.var.name)
            moved = substitute(chosen, {axis.var: var + start})
            axes = (*self.axes[:number], Axis(var, extent), *self.axes[number + 1 :])
            halves.append(_Shifted(self, axes, len(self.leading) + number, start).emit(moved))
        return Seq(tuple(halves))

    def reduction(self, body: Reduction, load: LoadRule) -> Stmt:
        """Store the combination of ``body.value`` at every place."""
        value, init = load(body.value), load(body.init)
        last = self.axes[-1] if self.axes else None
        if last is not None and goes_across(last, value):
            return self._reduce_across(body, value, init, last)
        inner = body.axes[-1]
        # Whole numbers add up the same in any order: compilers share such sums among lanes alone.
        if typical(inner.extent) >= 8 and vectorizes(value, inner.var) and value.dtype.is_float:
            return self._every_place(self._reduce_along(body, value, init))
        return self._every_place(self._reduce_scalar(body, value, init))

    def _every_place(self, body: Stmt) -> Stmt:
        axes = self.axes
        counts = [axis.extent for axis in axes]
        return parallel_loops([a.var for a in axes], counts, body, parallel=self.parallel)

    def _reduce_scalar(self, body: Reduction, value: PrimExpr, init: PrimExpr) -> Stmt:
        total = Buffer("total", (1,), value.dtype, MemoryScope.REGISTER)
        at = (IntImm(0),)
        current = Load(total, at, value.dtype, 1)
        step = Store(total, at, binary(body.combine, current, value))
        loop = serial_loops(body.axes, step)
        done = Store(self.buffer, self._indices(None), cast(current, self.buffer.dtype))
        return Allocate(total, Seq((Store(total, at, init), loop, done)))

    def _reduce_along(self, body: Reduction, value: PrimExpr, init: PrimExpr) -> Stmt:
        row = RowResult(self.buffer, self._indices(None), self.lanes, self.overlap)
        return reduce_along(body, value, init, row)

    def _reduce_across(self, body: Reduction, value: PrimExpr, init: PrimExpr, last: Axis) -> Stmt:
        """Reduce a vector of neighbouring results at once."""

        def piece(start: PrimExpr, lanes: int) -> Stmt:
            total = Buffer("total", (lanes,), value.dtype, MemoryScope.REGISTER)
            part = Buffer("part", (lanes,), value.dtype, MemoryScope.REGISTER)

            def vector(emit: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
                if lanes == 1:
                    return emit(IntImm(0), start)
                lane = TirVar("lane")
                statement = emit(lane, start + lane)
                return For(lane, IntImm(lanes), ForKind.VECTORIZED, statement)

            def begin(lane: PrimExpr, at: PrimExpr) -> Stmt:
                return Store(total, (lane,), substitute(init, {last.var: at}))

            def clear(lane: PrimExpr, _at: PrimExpr) -> Stmt:
                return Store(part, (lane,), const(0, value.dtype))

            def combine(lane: PrimExpr, item: PrimExpr, register: Buffer) -> Stmt:
                current = Load(register, (lane,), value.dtype, 1)
                return Store(register, (lane,), binary(body.combine, item, current))

            def step(register: Buffer, place: Mapping[TirVar, PrimExpr]) -> Stmt:
                def take(lane: PrimExpr, at: PrimExpr) -> Stmt:
                    return combine(lane, substitute(value, {last.var: at, **place}), register)

                return vector(take)

            def add(lane: PrimExpr, _at: PrimExpr) -> Stmt:
                return combine(lane, Load(part, (lane,), value.dtype, 1), total)

            def end(lane: PrimExpr, at: PrimExpr) -> Stmt:
                current = Load(total, (lane,), value.dtype, 1)
                return Store(self.buffer, self._indices(at), cast(current, self.buffer.dtype))

            if is_long_sum(body, value.dtype):
                ends = (vector(clear), vector(add))
                loop = sum_by_blocks(body.axes, total, part, step, ends)
            else:
                loop = serial_loops(body.axes, step(total, {}))
            return Allocate(total, Seq((vector(begin), loop, vector(end))))

        # Several vectors side by side hide the latency of adding, where there is much to add.
        deep = typical(prod(axis.extent for axis in body.axes)) >= _DEEP
        widest = 4 * self.lanes if deep else 0
        return self._outer(_pieces(last, self.lanes, piece, overlap=self.overlap, widest=widest))

    def arg_reduction(self, body: ArgReduction, load: LoadRule) -> Stmt:
        """Store the index of the extreme at every place."""
        value = load(body.value)
        best = Buffer("best", (1,), value.dtype, MemoryScope.REGISTER)
        found = Buffer("found", (1,), INDEX, MemoryScope.REGISTER)
        at = (IntImm(0),)
        current = Load(best, at, value.dtype, 1)
        item, better = TirVar("item", value.dtype), TirVar("better", DType.BOOL)
        step = LetStmt(
            item,
            value,
            LetStmt(
                better,
                better_extreme(item, current, largest=body.largest, last=body.last),
                Seq(
                    (
                        Store(found, at, select(better, body.axis.var, Load(found, at, INDEX, 1))),
                        Store(best, at, select(better, item, current)),
                    )
                ),
            ),
        )
        result = cast(Load(found, at, INDEX, 1), self.buffer.dtype)
        parts = (
            Store(best, at, substitute(value, {body.axis.var: IntImm(0)})),
            Store(found, at, IntImm(0)),
            serial_loops((body.axis,), step),
            Store(self.buffer, self._indices(None), result),
        )
        return self._every_place(Allocate(best, Allocate(found, Seq(parts))))


def goes_across(last: Axis, value: PrimExpr) -> bool:
    """Whether a reduction computes a vector of neighbouring results rather than one at a time."""
    return typical(last.extent) >= 4 and vectorizes(value, last.var)


def better_extreme(item: PrimExpr, best: PrimExpr, *, largest: bool, last: bool) -> PrimExpr:
    """Whether ``item`` replaces ``best`` in a search; NaN beats every number, as in NumPy.

    Args:
        item: An element, or a vector of them.
        best: The extreme of those before.
        largest: Whether the largest is searched for.
        last: Whether the last of equal ones counts.
    """
    if last:
        better = item >= best if largest else item <= best
    else:
        better = item > best if largest else item < best
    if not item.dtype.is_float:
        return better
    nan = intrinsic(Intrinsic.ISNAN, item)
    if not last:
        nan = binary(BinaryOp.AND, nan, binary(BinaryOp.EQ, best, best))
    return binary(BinaryOp.OR, better, nan)


def vector_loops(
    axis: Axis, lanes: int, store: Emit, *, overlap: bool = False, abreast: int = 1
) -> Stmt:
    """Return vectorized loops over an axis: whole vectors, then ever smaller ones.

    Args:
        axis: What they run over.
        lanes: Elements of a vector.
        store: What is done at a place.
        overlap: Whether the last vector starts early instead, at places that were done already.
        abreast: Vectors of one iteration.
    """

    def piece(start: PrimExpr, width: int) -> Stmt:
        if width == 1:
            return store(start)
        lane = TirVar("lane")
        return For(lane, IntImm(width), ForKind.VECTORIZED, store(start + lane))

    return _pieces(axis, lanes, piece, overlap=overlap, abreast=abreast)


def _pieces(
    axis: Axis,
    lanes: int,
    piece: Callable[[PrimExpr, int], Stmt],
    *,
    overlap: bool,
    widest: int = 0,
    abreast: int = 1,
) -> Stmt:
    """Cover an axis with pieces of ``lanes`` elements, then with one more, or ever smaller ones.

    Pieces of ``widest`` elements come first, if that is more than ``lanes``; ``abreast`` of them
    are one iteration.
    """
    if isinstance(axis.extent, Dim):
        return _open_pieces(axis, max(lanes, widest), lanes, piece)
    parts: list[Stmt] = []
    start, width = 0, power_of_two(min(lanes, axis.extent))
    if lanes < widest <= axis.extent:
        width = widest
    while start < axis.extent:
        count = (axis.extent - start) // width
        parts += _repeated(axis, (start, count, width), piece, abreast)
        start += count * width
        rest = axis.extent - start
        if width > lanes:
            width = lanes
        if overlap and 1 < rest < width:
            parts.append(piece(IntImm(axis.extent - width), width))
            break
        if width > rest:
            # Few sizes: every one is another copy of the body.
            width = 4 if width > 4 and rest >= 4 else 1
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))


def _open_pieces(
    axis: Axis, widest: int, lanes: int, piece: Callable[[PrimExpr, int], Stmt]
) -> Stmt:
    """Cover an axis of an open size: wide pieces, then vectors, then single elements."""
    parts: list[Stmt] = []
    start: Size = 0
    for width in dict.fromkeys((widest, lanes, 1)):
        count = (axis.extent - start) // width
        if width == 1 < lanes and widest % lanes == 0:
            count = axis.extent % lanes  # fewer than a vector has, as code generators can tell
        if count == 0:
            continue
        var = TirVar(axis.var.name)
        body = piece(var * width + index(start), width)
        parts.append(For(var, index(count), ForKind.SERIAL, body))
        start = start + count * width
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))


def _repeated(
    axis: Axis, place: tuple[int, int, int], piece: Callable[[PrimExpr, int], Stmt], abreast: int
) -> list[Stmt]:
    """Return a loop over pieces, ``abreast`` in an iteration, and those that are left over."""
    start, count, width = place
    stmts: list[Stmt] = []
    if count >= 2 * abreast:
        var = TirVar(axis.var.name)
        step = abreast * width
        group = [piece(var * step + (start + n * width), width) for n in range(abreast)]
        body = group[0] if abreast == 1 else Seq(tuple(group))
        stmts.append(For(var, IntImm(count // abreast), ForKind.SERIAL, body))
        start, count = start + count // abreast * step, count % abreast
    return stmts + [piece(IntImm(start + n * width), width) for n in range(count)]


def _split_point(value: PrimExpr, axes: Sequence[Axis]) -> tuple[IfThenElse, int, int] | None:
    """Find a choice between two ranges of one axis at the root of ``value``: a concatenation."""
    if not isinstance(value, IfThenElse) or any(isinstance(a.extent, Dim) for a in axes):
        return None
    found = is_linear(value.condition, axes)
    return None if found is None else (value, *found)


class _Shifted(Struct, frozen=True):
    """A nest over part of an axis: the buffer's index is the loop variable plus ``start``."""

    nest: Nest
    axes: tuple[Axis, ...]
    dimension: int
    start: int

    def emit(self, value: PrimExpr) -> Stmt:
        inner = Nest(
            self.axes,
            self.nest.buffer,
            self.nest.leading,
            self.nest.lanes,
            self.nest.parallel,
            self.nest.overlap,
            self.nest.byte_tables,
        )
        return _shift_stores(inner.elementwise(value), self.nest.buffer, self.dimension, self.start)


def _shift_stores(stmt: Stmt, buffer: Buffer, dimension: int, start: int) -> Stmt:
    def on_stmt(inner: Stmt) -> Stmt:
        if isinstance(inner, Store) and inner.buffer is buffer:
            indices = list(inner.indices)
            indices[dimension] = indices[dimension] + start
            return Store(buffer, tuple(indices), inner.value)
        return map_statement(inner, on_stmt, _same)

    return on_stmt(stmt)


def _same(expr: PrimExpr) -> PrimExpr:
    return expr
