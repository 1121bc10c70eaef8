# SPDX-License-Identifier: Apache-2.0
"""GEMM with several tiles on their way: a ring of buffers in shared memory (multistage).

A step waits for its tile, synchronizes, starts the copies of the tile that is ``stages - 1`` steps
on, and multiplies. That tile takes the buffer of the step before, which all threads have left
behind at the barrier, so one barrier serves a step. Copies are asynchronous and belong to groups,
one for each step: all but the newest ``stages - 2`` must have arrived. With two buffers, a step
waits for memory whenever a tile takes longer to arrive than to multiply; with four, three steps
pass before, which is what a tile from the memory of an H100 takes.

The scheme is the multistage one of CUTLASS.
"""

from __future__ import annotations

from intarsia_ir.tir.build import guarded, seq, serial
from intarsia_ir.tir.expr import PrimExpr, index
from intarsia_ir.tir.stmt import Barrier, Invoke, Stmt
from intarsia_runtime.size import Dim

from .gemm import GemmLoops, TileArithmetic


class PipelinedGemm(GemmLoops):
    """A kernel whose operands are both copied asynchronously; arguments are those of the base."""

    def _buffers(self, steps: int | None) -> int:
        return self.t.stages if steps is None else min(self.t.stages, steps + 1)

    def _steps(self, first: PrimExpr, work: TileArithmetic) -> Stmt:
        assert self.traits is not None, "the device copies asynchronously"
        assert self.traits.copies is not None, "the device copies asynchronously"
        kind, copies, distance = self.traits.kind, self.traits.copies, self.halves - 1
        commit = Invoke(kind, copies.commit, ())
        arrived = Invoke(kind, copies.wait, (), (index(distance - 1),))

        def started(number: PrimExpr, buffer: PrimExpr) -> Stmt:
            k = first + number * self.t.depth
            return seq(*[each.copy(k, buffer) for each in self.operands])

        def fill(number: PrimExpr) -> Stmt:
            return seq(started(number, number), commit)

        def step(number: PrimExpr) -> Stmt:
            later = number + distance
            start: tuple[Stmt, ...] = ()
            if isinstance(self.steps, Dim) or self.steps > distance:
                start = (guarded(later < self.steps, started(later, later % self.halves)),)
            return seq(arrived, Barrier(), *start, commit, work.multiply(number % self.halves))

        # Not written out: the places of open convolutions take long to compile.
        return seq(serial(distance, fill, "filled"), serial(self.steps, step, "step"))
