# SPDX-License-Identifier: Apache-2.0
"""A reduction by many threads: partial results, then one result of a warp or of a block.

Neighbouring threads read neighbouring terms. Threads of a warp exchange values by shuffles where
the device has them, and warps in shared memory; without shuffles a block does so as a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import guarded, lets, load, seq, serial, store, unflatten, unrolled
from intarsia_ir.tir.expr import CallTarget, PrimExpr, TirVar, binary, const, equal
from intarsia_ir.tir.stmt import Allocate, Barrier, Stmt
from intarsia_ir.tir.tensor import Reduction
from intarsia_runtime.dtype import DType

from ..row_reductions import neutral
from .grid import chunks
from .traits import GridTraits


class SharedReduction(Struct, frozen=True):
    """A reduction whose terms are shared out among the threads of a warp or of a block.

    Attributes:
        body: The reduction.
        value: A term, as loads of buffers.
        init: What the terms are combined with.
        done: ``done(value)`` stores the result.
        threads: Of a warp or of a block; a power of two if the device has no shuffles.
        traits: Of the device.
    """

    body: Reduction
    value: PrimExpr
    init: PrimExpr
    done: Callable[[PrimExpr], Stmt]
    threads: int
    traits: GridTraits

    @property
    def warp(self) -> int:
        """Threads that start together."""
        return self.traits.warp

    def in_block(self, lane: PrimExpr) -> tuple[Stmt, Buffer | None]:
        """Return the loops of a block or warp with one result, and its shared memory.

        All threads pass the barriers. Thread 0 stores the result; no barrier follows.
        """
        total = Buffer("total", (1,), self.value.dtype, MemoryScope.REGISTER)
        shuffles = bool(self.traits.shuffle_down)
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
        return Allocate(total, seq(*parts)), shared if exchanged > 1 else None

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
        traits, step = self.traits, self.warp // 2
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
        return self.done(self._combined(self.init, load(total, 0)))
