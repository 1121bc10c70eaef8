# SPDX-License-Identifier: Apache-2.0
"""Default loops of a device: every tensor of a group becomes a kernel of its own.

An element-wise tensor gets one thread for each element, or for each 16 bytes where its operands lie
as it does. A reduction gets one thread for each result where neighbouring threads then read
neighbouring elements, else a warp, or a whole block if the results are few. Threads that share a
reduction exchange partial results by shuffles, or, on a device without them, in shared memory: a
tree of sums with a barrier behind each step, half of the threads at each.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import (
    allocate,
    guarded,
    lets,
    load,
    seq,
    serial,
    store,
    unflatten,
    unrolled,
)
from intarsia_ir.tir.expr import (
    CallTarget,
    IfThenElse,
    Load,
    PrimExpr,
    TirVar,
    binary,
    cast,
    const,
    equal,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, Barrier, Invoke, Seq, Stmt, Thread
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor
from intarsia_ir.tir.walk import post_order, rewrite, substitute, variables
from intarsia_runtime.dtype import DType

from ..collapse import collapse
from ..nests import Nest, loads
from ..row_reductions import neutral
from ..tensors import Stages
from ..vectorizable import vectorizes
from .grid import bound, chunks
from .traits import GridTraits

VECTOR = 16
"""Bytes that a thread moves in one instruction."""

LONG = 32
"""Terms from which a reduction is shared out among threads."""

MANY = 16384
"""Results from which one thread for each keeps a device busy."""


def device_loops(name: str, stages: Stages, traits: GridTraits) -> PrimFunc:
    """Return the loops of a group that no schedule takes; temporaries are scratch memory."""
    stages = collapse(stages)
    buffers: dict[Tensor, Buffer] = {}
    params = [_global(tensor, f"p{n}") for n, tensor in enumerate(stages.inputs)]
    buffers.update(zip(stages.inputs, params, strict=True))
    outputs = [_global(tensor, f"out{n}") for n, tensor in enumerate(stages.outputs)]
    buffers.update(zip(stages.outputs, outputs, strict=True))
    inner = [stage for stage in stages.stages if stage not in buffers]
    scratch = [_global(tensor, f"scratch{n}") for n, tensor in enumerate(inner)]
    buffers.update(zip(inner, scratch, strict=True))
    parts = [_Stage(stage, buffers, traits).loops() for stage in stages.stages]
    return PrimFunc(name, (*params, *outputs, *scratch), len(outputs), seq(*parts), len(scratch))


def _global(tensor: Tensor, name: str) -> Buffer:
    return Buffer(name, tensor.shape, tensor.dtype)


class _Stage(Struct, frozen=True):
    """One tensor on its way to a kernel."""

    tensor: Tensor
    buffers: Mapping[Tensor, Buffer]
    traits: GridTraits

    @property
    def target(self) -> Buffer:
        """Where its elements go."""
        return self.buffers[self.tensor]

    @property
    def place(self) -> tuple[PrimExpr, ...]:
        """The element that a thread computes."""
        return tuple(axis.var for axis in self.tensor.axes)

    def load(self, expr: PrimExpr) -> PrimExpr:
        """Read from buffers instead of tensors."""
        return loads(self.buffers, {}, {})(expr)

    def loops(self) -> Stmt:
        """Return the loops of the kernel; none if the tensor is empty."""
        body = self.tensor.body
        if not prod(self.tensor.shape) or body is None:
            return Seq(())
        match body:
            case Reduction():
                return self._reduction(body)
            case ArgReduction():
                nest = Nest((), self.target, self.place, 1, False)
                return self._each(nest.arg_reduction(body, self.load))
            case _:
                value = self.load(body)
                vector = (
                    _VectorStage.of(self.target, value, self.tensor.axes[-1].var)
                    if (self.tensor.axes)
                    else None
                )
                if vector is not None:
                    return self._each(vector.body(self.place, self.traits), vector.lanes)
                return self._each(store(self.target, self.place, value))

    def _each(self, body: Stmt, lanes: int = 1) -> Stmt:
        """Run ``body`` in a thread for every ``lanes`` elements."""
        total = prod(self.tensor.shape) // lanes
        warp = self.traits.warp
        size = min(self.traits.max_threads, chunks(total, warp) * warp)
        block, thread = TirVar("block"), TirVar("thread")
        number = block * size + thread
        axes = [axis.var for axis in self.tensor.axes]
        if axes:
            element = TirVar("element")
            values = unflatten(element, self.tensor.shape)
            body = lets(axes, values, body)
            body = lets([element], [number * lanes], body)
        body = guarded(None if total % size == 0 else number < total, body)
        inner = bound(Thread.THREAD_X, thread, size, body)
        return bound(Thread.BLOCK_X, block, chunks(total, size), inner)

    def _reduction(self, body: Reduction) -> Stmt:
        value, init = self.load(body.value), self.load(body.init)
        terms = prod(axis.extent for axis in body.axes)
        results = prod(self.tensor.shape)
        last = self.tensor.axes[-1] if self.tensor.axes else None
        side_by_side = (
            last is not None and last.extent >= self.traits.warp and vectorizes(value, last.var)
        )
        if terms < LONG or (results >= MANY and side_by_side):
            return self._each(self._serial(body, value, init))
        wide = self.traits.max_threads
        threads = wide if terms >= 4 * wide and results < MANY else self.traits.warp
        return _Shared(self, body, value, init, threads).loops()

    def _serial(self, body: Reduction, value: PrimExpr, init: PrimExpr) -> Stmt:
        total = Buffer("total", (1,), value.dtype, MemoryScope.REGISTER)
        step: Stmt = store(total, (0,), binary(body.combine, load(total, 0), value))
        for axis in reversed(body.axes):
            step = _serial_axis(axis.var, axis.extent, step)
        done = self.epilogue(load(total, 0))
        return Allocate(total, seq(store(total, (0,), init), step, done))

    def epilogue(self, value: PrimExpr) -> Stmt:
        """Store a result."""
        return store(self.target, self.place, cast(value, self.target.dtype))


def _serial_axis(var: TirVar, extent: int, body: Stmt) -> Stmt:
    def at(place: PrimExpr) -> Stmt:
        return lets([var], [place], body)

    return serial(extent, at, var.name)


class _Shared(Struct, frozen=True):
    """A reduction whose terms are shared out among the threads of a warp or of a block."""

    stage: _Stage
    body: Reduction
    value: PrimExpr
    init: PrimExpr
    threads: int

    @property
    def warp(self) -> int:
        """Threads that start together."""
        return self.stage.traits.warp

    def loops(self) -> Stmt:
        """Return the loops: partial results, then one result of a warp or of a block."""
        results = prod(self.stage.tensor.shape)
        shuffles = bool(self.stage.traits.shuffle_down)
        # All threads of a block pass a barrier: without shuffles a block has one result.
        rows = max(1, min(self.stage.traits.max_threads // self.warp, results))
        rows = rows if shuffles and self.threads == self.warp else 1
        block, row, lane = TirVar("block"), TirVar("row"), TirVar("lane")
        number = block * rows + row if rows > 1 else block
        total = Buffer("total", (1,), self.value.dtype, MemoryScope.REGISTER)
        exchanged = self.threads // self.warp if shuffles else self.threads
        shared = Buffer("across", (exchanged,), self.value.dtype, MemoryScope.SHARED)
        parts = [self._partial(total, lane)]
        if shuffles:
            parts.append(self._shuffled(total))
        if not shuffles:
            parts += [self._tree(total, shared, lane)]
        elif self.threads > self.warp:
            parts.append(self._across(total, shared, lane))
        else:
            parts.append(guarded(equal(lane, 0), self._done(total)))
        axes = [axis.var for axis in self.stage.tensor.axes]
        body = Allocate(total, seq(*parts))
        if axes:
            body = lets(axes, unflatten(number, self.stage.tensor.shape), body)
        body = guarded(None if results % rows == 0 else number < results, body)
        body = bound(Thread.THREAD_X, lane, self.threads, body)
        if rows > 1:
            body = bound(Thread.THREAD_Y, row, rows, body)
        body = allocate([shared] if exchanged > 1 else [], body)
        return bound(Thread.BLOCK_X, block, chunks(results, rows), body)

    def _combined(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return binary(self.body.combine, a, b)

    def _partial(self, total: Buffer, lane: PrimExpr) -> Stmt:
        """Combine every ``threads``-th term, neighbouring threads neighbouring terms."""
        extents = [axis.extent for axis in self.body.axes]
        terms = prod(extents)
        term = TirVar("term")
        step = store(total, (0,), self._combined(load(total, 0), self.value))
        step = lets([axis.var for axis in self.body.axes], unflatten(term, extents), step)
        step = guarded(None if terms % self.threads == 0 else term < terms, step)

        def at(round_: PrimExpr) -> Stmt:
            return lets([term], [round_ * self.threads + lane], step)

        start = store(total, (0,), neutral(self.body.combine, total.dtype))
        return seq(start, serial(chunks(terms, self.threads), at, "round"))

    def _shuffled(self, total: Buffer) -> Stmt:
        """Bring the results of a warp to its first thread."""
        parts: list[Stmt] = []
        traits, step = self.stage.traits, self.warp // 2
        while step:
            mine = load(total, 0)
            amount = const(step, DType.INT32)
            other = CallTarget(traits.kind, traits.shuffle_down, (mine, amount), total.dtype, 1)
            var = TirVar("other", total.dtype)
            combined = store(total, (0,), self._combined(mine, var))
            parts.append(lets([var], [other], combined))
            step //= 2
        return seq(*parts)

    def _across(self, total: Buffer, shared: Buffer, lane: PrimExpr) -> Stmt:
        """Bring the results of all warps to the first thread."""
        warp = self.warp
        warps = self.threads // warp
        put = guarded(equal(lane % warp, 0), store(shared, (lane // warp,), load(total, 0)))

        def add(n: PrimExpr) -> Stmt:
            return store(total, (0,), self._combined(load(total, 0), load(shared, n + 1)))

        last = seq(unrolled(warps - 1, add, "warp"), self._done(total))
        return seq(put, Barrier(), guarded(equal(lane, 0), last))

    def _tree(self, total: Buffer, shared: Buffer, lane: PrimExpr) -> Stmt:
        """Bring the results of all threads to the first one, in shared memory."""
        parts: list[Stmt] = [store(shared, (lane,), load(total, 0)), Barrier()]
        step = self.threads // 2
        while step:
            other = load(shared, lane + step)
            combined = store(shared, (lane,), self._combined(load(shared, lane), other))
            parts += [guarded(lane < step, combined), Barrier()]
            step //= 2
        parts[-1] = guarded(equal(lane, 0), self._done(shared))
        return seq(*parts)

    def _done(self, total: Buffer) -> Stmt:
        return self.stage.epilogue(self._combined(self.init, load(total, 0)))


class _VectorStage(Struct, frozen=True):
    """Element-wise work on 16 bytes at a time.

    Attributes:
        target: Where elements go.
        value: An element.
        last: Variable of the innermost dimension.
        lanes: Elements of 16 bytes of the widest type.
        wide: Loads that move whole vectors.
    """

    target: Buffer
    value: PrimExpr
    last: TirVar
    lanes: int
    wide: tuple[Load, ...]

    @staticmethod
    def of(target: Buffer, value: PrimExpr, last: TirVar) -> _VectorStage | None:
        """Return the plan; ``None`` if the elements do not lie side by side."""
        nodes = tuple(post_order(value))
        found = [node for node in nodes if isinstance(node, Load)]
        if any(isinstance(node, IfThenElse) for node in nodes):
            return None  # what it guards may lie outside of the buffer
        lanes = VECTOR // max(node.dtype.bytes for node in (target, *found))
        if (
            lanes < 2
            or target.shape[-1] % lanes
            or any(node.dtype.bytes != target.dtype.bytes for node in found)
        ):
            return None
        wide = tuple(node for node in found if _side_by_side(node, last, lanes))
        scattered = [
            node
            for node in found
            if node not in wide and any(last in variables(at) for at in node.indices)
        ]
        return None if scattered or not wide else _VectorStage(target, value, last, lanes, wide)

    def body(self, place: tuple[PrimExpr, ...], traits: GridTraits) -> Stmt:
        """Return what the thread does that starts at ``place``."""
        own = {
            node: Buffer(f"in{n}", (self.lanes,), node.dtype, MemoryScope.REGISTER)
            for n, node in enumerate(self.wide)
        }
        result = Buffer("result", (self.lanes,), self.target.dtype, MemoryScope.REGISTER)
        moved = [
            Invoke(traits.kind, traits.load_16, (load(buffer, 0), node))
            for node, buffer in own.items()
        ]

        def lane(at: PrimExpr) -> Stmt:
            value = rewrite(self.value, _keep, {n: load(b, at) for n, b in own.items()})
            return store(result, (at,), substitute(value, {self.last: self.last + at}))

        elements = (load(self.target, *place), load(result, 0))
        out = Invoke(traits.kind, traits.store_16, elements)
        parts = seq(*moved, unrolled(self.lanes, lane, "v"), out)
        return allocate([*own.values(), result], parts)


def _side_by_side(node: Load, last: TirVar, lanes: int) -> bool:
    if not node.indices or node.indices[-1] is not last or node.buffer.shape[-1] % lanes:
        return False
    return not any(last in variables(at) for at in node.indices[:-1])


def _keep(_node: PrimExpr) -> PrimExpr | None:
    return None
