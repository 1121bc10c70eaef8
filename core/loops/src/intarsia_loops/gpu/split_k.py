# SPDX-License-Identifier: Apache-2.0
"""Split-K: sums of parts of K in scratch memory, and the launch that adds them up.

A block stores its whole tile of sums, at its own number, so no element is masked, and scratch
memory has one tile for each block. Of open sizes that is a number too: K is cut only where all
parts together are at most :data:`~.gemm.BUSY` twice. The order of the sums is that of the parts, so
results do not change from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

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
from intarsia_ir.tir.expr import PrimExpr, TirVar, const, index
from intarsia_ir.tir.stmt import Stmt, Thread
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.size import minimum

from .grid import bound, chunks

THREADS = 256

Epilogue: TypeAlias = "Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt]"
"""``epilogue(batch, row, column, value)`` stores an element of the result."""


class PartialSums(Struct, frozen=True, eq=False):
    """Sums of parts of K.

    Attributes:
        sums: ``[block, row, column]`` of the tiles of all blocks.
        parts: Of K; an expression where sizes are open.
        shape: Of the result: batch, rows, columns.
        tiles: Tiles of the result: of the batch, down, across.
        share: 0 where sizes are for another kernel, else 1.
    """

    sums: Buffer
    parts: int
    shape: tuple[int, int, int]
    tiles: tuple[int, int, int]
    share: int

    def added_up(self, epilogue: Epilogue) -> Stmt:
        """Add up the parts of every result; a thread for each, none if there is one part."""
        count = self.shape[0] * self.shape[1] * self.shape[2]
        block, thread, element = TirVar("block"), TirVar("thread"), TirVar("element")
        at = [TirVar("batch"), TirVar("m"), TirVar("n")]
        total = Buffer("total", (1,), self.sums.dtype, MemoryScope.REGISTER)
        (_, rows, columns), (_, down, across) = self.sums.shape, self.tiles
        tile = (at[0] * down + at[1] // rows) * across + at[2] // columns
        blocks = self.tiles[0] * down * across

        def add(part: PrimExpr) -> Stmt:
            value = load(self.sums, part * blocks + tile, at[1] % rows, at[2] % columns)
            return store(total, (0,), load(total, 0) + value)

        done = epilogue(at[0], at[1], at[2], load(total, 0))
        zero = store(total, (0,), const(0, self.sums.dtype))
        body = seq(zero, serial(self.parts, add, "part"), done)
        body = lets(at, unflatten(element, self.shape), allocate([total], body))
        body = guarded(None if count % THREADS == 0 else element < index(count), body)
        body = lets([element], [block * THREADS + thread], body)
        body = bound(Thread.THREAD_X, thread, THREADS, body)
        (several,) = extents((minimum(self.parts - 1, 1),))  # 0 or 1
        return bound(Thread.BLOCK_X, block, self.share * several * chunks(count, THREADS), body)
