# SPDX-License-Identifier: Apache-2.0
"""Several stages along a row as one kernel, such as softmax and layer normalization.

A block computes a row. Its threads compute one stage after the other, with a barrier between them.
Intermediate values are in shared memory, so global memory is read and written once, and one launch
replaces up to five. Each thread has four elements of the row.

For rows of open length, shared memory keeps only the reductions, because its size is fixed when the
kernel is compiled. Intermediate values, such as the exponentials of a softmax, are computed again
where they are read, from elements in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, guarded, lets, seq, serial, store, unflatten
from intarsia_ir.tir.expr import PrimExpr, Read, TirVar, cast, equal, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Barrier, Stmt, Thread
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor
from intarsia_ir.tir.walk import post_order
from intarsia_runtime.size import Dim

from ..nests import loads
from ..tensors import Stages, inline_all
from .grid import bound, chunks
from .reductions import SharedReduction
from .traits import GridTraits

SHARED_BYTES = 24 * 1024
"""Shared memory of a block for what stages leave: half of what every device has."""

LEAST, MOST = 32, 8192
"""Terms of a row for which a block of threads is neither idle nor alone for long."""

PER_THREAD = 4
"""Elements of a row for each thread."""

OPEN_ROW = 512
"""Elements of a row of an open length, where its threads are counted."""


def row_loops(name: str, stages: Stages, traits: GridTraits) -> PrimFunc | None:
    """Return the kernel; ``None`` if the stages do not all go along the same rows.

    Args:
        name: Of the kernel.
        stages: Collapsed.
        traits: Of the device.
    """
    rows = _rows(stages)
    if rows is None:
        return None
    stages = _recomputed(stages, rows)
    inner = [stage for stage in stages.stages if stage not in stages.outputs]
    kept = sum(prod(_own(stage, rows)) * stage.dtype.bytes for stage in inner)
    lengths = [_length(stage, rows) for stage in stages.stages]
    longest = max([OPEN_ROW if isinstance(length, Dim) else length for length in lengths])
    if kept > SHARED_BYTES or not LEAST <= longest <= MOST:
        return None
    buffers = {
        tensor: Buffer(f"{word}{n}", tensor.shape, tensor.dtype)
        for word, tensors in (("p", stages.inputs), ("out", stages.outputs))
        for n, tensor in enumerate(tensors)
    }
    params = tuple(buffers.values())
    own = [
        Buffer(f"row{n}", _own(stage, rows), stage.dtype, MemoryScope.SHARED)
        for n, stage in enumerate(inner)
    ]
    buffers |= dict(zip(inner, own, strict=True))
    threads = traits.warp
    while threads * PER_THREAD < longest and threads * 2 <= traits.max_threads:
        threads *= 2
    number, lane = TirVar("number"), TirVar("lane")
    work = _Rows(rows, buffers, frozenset(inner), threads, traits)
    parts: list[Stmt] = []
    for place, stage in enumerate(stages.stages):
        part, shared = work.stage(stage, lane)
        own += [] if shared is None else [shared]
        # What thread 0 computes of what it stored needs no barrier.
        if place and not (_one(stage, rows) and prod(_own(stages.stages[place - 1], rows)) == 1):
            parts.append(Barrier())
        parts.append(lets([a.var for a in stage.axes[: len(rows)]], unflatten(number, rows), part))
    body = bound(Thread.THREAD_X, lane, threads, seq(*parts))
    body = bound(Thread.BLOCK_X, number, prod(rows), allocate(own, body))
    return PrimFunc(name, params, len(stages.outputs), body)


def _rows(stages: Stages) -> tuple[int, ...] | None:
    """Return the shape of the rows; ``None`` if a stage goes elsewhere."""
    reductions = [stage for stage in stages.stages if isinstance(stage.body, Reduction)]
    if not reductions or len(stages.stages) < 2:
        return None
    rows = reductions[0].shape
    known = set(stages.stages)
    for stage in stages.stages:
        body = stage.body
        if body is None or isinstance(body, ArgReduction) or stage.shape[: len(rows)] != rows:
            return None
        if not prod(stage.shape) or (isinstance(body, Reduction) and stage.shape != rows):
            return None
        values = (body.value, body.init) if isinstance(body, Reduction) else (body,)
        row = [axis.var for axis in stage.axes[: len(rows)]]
        for node in post_order(*values):
            if isinstance(node, Read) and node.tensor in known:
                at = node.indices[: len(rows)]
                if len(at) < len(rows) or any(x is not v for x, v in zip(at, row, strict=True)):
                    return None
    return rows


def _recomputed(stages: Stages, rows: Sequence[int]) -> Stages:
    """Return the stages without those that would have to keep a row of an open length."""
    kept = set(stages.outputs)
    kept.update(s for s in stages.stages if not isinstance(prod(_own(s, rows)), Dim))
    if len(kept) == len(stages.stages):
        return stages
    rebuilt, replaced = inline_all(stages.outputs, kept)
    return Stages(stages.inputs, rebuilt, tuple(replaced[out] for out in stages.outputs))


def _own(stage: Tensor, rows: Sequence[int]) -> tuple[int, ...]:
    """Sizes of a stage within a row."""
    return stage.shape[len(rows) :]


def _one(stage: Tensor, rows: Sequence[int]) -> bool:
    """Whether thread 0 alone computes a stage."""
    return not isinstance(stage.body, Reduction) and prod(_own(stage, rows)) == 1


def _length(stage: Tensor, rows: Sequence[int]) -> int:
    """Elements or terms of a stage within a row."""
    if isinstance(stage.body, Reduction):
        return prod(axis.extent for axis in stage.body.axes)
    return prod(_own(stage, rows))


class _Rows(Struct, frozen=True):
    """What the stages of a kernel have in common.

    Attributes:
        rows: Shape of the rows.
        buffers: Where each tensor is.
        inner: Tensors whose buffer holds one row.
        threads: Of a block.
        traits: Of the device.
    """

    rows: tuple[int, ...]
    buffers: Mapping[Tensor, Buffer]
    inner: frozenset[Tensor]
    threads: int
    traits: GridTraits

    def stage(self, stage: Tensor, lane: PrimExpr) -> tuple[Stmt, Buffer | None]:
        """Return what the threads of a block do for a stage, and its shared memory."""
        dropped = {tensor: len(self.rows) for tensor in self.inner}
        load = loads(self.buffers, dropped, {})
        body = stage.body
        if isinstance(body, Reduction):
            value, init = load(body.value), load(body.init)
            stored = partial(self._stored, stage)
            made = SharedReduction(body, value, init, stored, self.threads, self.traits)
            return made.in_block(lane)
        if body is None or isinstance(body, ArgReduction):
            raise AssertionError("a stage of a row has a value, or is a reduction")
        return self._each(stage, load(body), lane), None

    def _each(self, stage: Tensor, value: PrimExpr, lane: PrimExpr) -> Stmt:
        """Compute the elements of a row, neighbouring threads neighbouring elements."""
        own = _own(stage, self.rows)
        axes, count = [axis.var for axis in stage.axes[len(self.rows) :]], prod(own)
        element = TirVar("element")
        body = lets(axes, unflatten(element, own), self._stored(stage, value))
        if count == 1:
            return guarded(equal(lane, 0), lets([element], [index(0)], body))
        body = guarded(None if count % self.threads == 0 else element < count, body)

        def at(number: PrimExpr) -> Stmt:
            return lets([element], [number * self.threads + lane], body)

        return serial(chunks(count, self.threads), at, "round")

    def _stored(self, stage: Tensor, value: PrimExpr) -> Stmt:
        """Store an element where the variables of the stage's axes say."""
        place = [axis.var for axis in stage.axes]
        if stage in self.inner:
            place = place[len(self.rows) :]
        return store(self.buffers[stage], place, cast(value, stage.dtype))
