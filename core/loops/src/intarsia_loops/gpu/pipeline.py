# SPDX-License-Identifier: Apache-2.0
"""GEMM with several tiles on their way: a ring of buffers in shared memory (multistage).

A step waits for its tile, synchronizes, starts the copies of the tile that is ``stages - 1`` steps
on, and multiplies. That tile takes the buffer of the step before, which all threads have left
behind at the barrier, so one barrier serves a step. Copies are asynchronous and belong to groups,
one for each step: all but the newest ``stages - 2`` must have arrived. With two buffers, a step
waits for memory whenever a tile takes longer to arrive than to multiply; with four, three steps
pass before, which is what a tile from the memory of an H100 takes.

An operand that cannot be copied so (one that is converted, or halves that do not lie side by side)
goes through registers, beside the other's copies. The scheme is the multistage one of CUTLASS.
"""

from __future__ import annotations

from intarsia_ir.tir.build import guarded, seq, serial
from intarsia_ir.tir.expr import PrimExpr, index
from intarsia_ir.tir.stmt import Barrier, Invoke, Stmt
from intarsia_runtime.size import Dim

from .gemm import GemmLoops, TileArithmetic


class PipelinedGemm(GemmLoops):
    """A kernel whose device copies asynchronously; arguments are those of the base."""

    def _buffers(self, steps: int | None) -> int:
        return self.t.stages if steps is None else min(self.t.stages, steps + 1)

    def _steps(self, first: PrimExpr, work: TileArithmetic) -> Stmt:
        assert self.traits is not None, "the device copies asynchronously"
        assert self.traits.copies is not None, "the device copies asynchronously"
        kind, copies, ahead = self.traits.kind, self.traits.copies, self.halves - 1
        copied = [each for each in self.operands if each.copied_by]
        fetched = [each for each in self.operands if not each.copied_by]
        commit = Invoke(kind, copies.commit, ())
        arrived = Invoke(kind, copies.wait, (), (index(ahead - 1),))

        def fill(n: PrimExpr) -> Stmt:
            k = first + n * self.t.depth
            through = [part for each in fetched for part in (each.fetch(k), each.put(n))]
            return seq(*[each.copy(k, n) for each in copied], commit, *through)

        def step(number: PrimExpr) -> Stmt:
            later = number + ahead
            k, buffer = first + later * self.t.depth, later % self.halves
            more = later < self.steps
            if not isinstance(self.steps, Dim) and self.steps <= ahead:
                return seq(arrived, Barrier(), commit, work.multiply(number % self.halves))
            started = [each.copy(k, buffer) for each in copied]
            loads = guarded(more, seq(*started, *[each.fetch(k) for each in fetched]))
            parts = [arrived, Barrier(), loads, commit, work.multiply(number % self.halves)]
            if fetched:
                parts.append(guarded(more, seq(*[each.put(buffer) for each in fetched])))
            return seq(*parts)

        # Not written out: the places of open convolutions take long to compile.
        return seq(serial(ahead, fill, "filled"), serial(self.steps, step, "step"))
