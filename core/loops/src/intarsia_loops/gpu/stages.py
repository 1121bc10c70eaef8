# SPDX-License-Identifier: Apache-2.0
"""Default loops of a device: every tensor of a group becomes a separate kernel.

An element-wise tensor gets one thread for each element, or for each 16 bytes if its operands have
its layout. A reduction gets one thread for each result if neighbouring threads then read
neighbouring elements; otherwise a warp, or a whole block if there are few results. The threads of a
reduction exchange partial results by shuffles. A device without shuffles reduces a tree in shared
memory, with a barrier after each step and half of the threads in the next.
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
)
from intarsia_ir.tir.expr import (
    PrimExpr,
    TirVar,
    binary,
    cast,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, Seq, Stmt, Thread
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor

from ..collapse import collapse
from ..nests import Nest, loads
from ..tensors import Stages
from ..typical import typical
from ..vectorizable import vectorizes
from .grid import bound, chunks
from .launches import block_threads
from .reductions import SharedReduction
from .rows import row_loops
from .traits import GridTraits
from .vectors import VectorStage

LONG = 32
"""Terms from which a reduction is shared out among threads."""

MANY = 16384
"""Results from which one thread for each keeps a device busy."""


def device_loops(name: str, stages: Stages, traits: GridTraits) -> PrimFunc:
    """Return the loops of a group that no schedule takes; temporaries are scratch memory."""
    stages = collapse(stages)
    rows = row_loops(name, stages, traits)
    if rows is not None:
        return rows
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
                    VectorStage.of(self.target, value, self.tensor.axes[-1].var)
                    if (self.tensor.axes)
                    else None
                )
                if vector is not None:
                    return self._each(vector.body(self.place, self.traits), vector.lanes)
                return self._each(store(self.target, self.place, value))

    def _each(self, body: Stmt, lanes: int = 1) -> Stmt:
        """Run ``body`` in a thread for every ``lanes`` elements."""
        total = prod(self.tensor.shape) // lanes
        size = block_threads(total, self.traits)
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
        terms = typical(prod(axis.extent for axis in body.axes))
        results = typical(prod(self.tensor.shape))
        last = self.tensor.axes[-1] if self.tensor.axes else None
        side_by_side = (
            last is not None
            and typical(last.extent) >= self.traits.warp
            and vectorizes(value, last.var)
        )
        if terms < LONG or (results >= MANY and side_by_side):
            return self._each(self._serial(body, value, init))
        wide = self.traits.max_threads
        threads = wide if terms >= 4 * wide and results < MANY else self.traits.warp
        return self._shared(SharedReduction(body, value, init, self.epilogue, threads, self.traits))

    def _shared(self, reduction: SharedReduction) -> Stmt:
        """Give every result a block, or a warp of one."""
        results, threads, warp = prod(self.tensor.shape), reduction.threads, self.traits.warp
        # All threads of a block pass a barrier: without shuffles a block has one result.
        alone = threads > warp or not self.traits.shuffle_down
        rows = 1 if alone else max(1, min(self.traits.max_threads // warp, typical(results)))
        block, row, lane = TirVar("block"), TirVar("row"), TirVar("lane")
        number = block * rows + row if rows > 1 else block
        body, shared = reduction.in_block(lane)
        axes = [axis.var for axis in self.tensor.axes]
        if axes:
            body = lets(axes, unflatten(number, self.tensor.shape), body)
        body = guarded(None if results % rows == 0 else number < results, body)
        body = bound(Thread.THREAD_X, lane, threads, body)
        if rows > 1:
            body = bound(Thread.THREAD_Y, row, rows, body)
        body = allocate([] if shared is None else [shared], body)
        return bound(Thread.BLOCK_X, block, chunks(results, rows), body)

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
