# SPDX-License-Identifier: Apache-2.0
"""Products of tiles in shared memory on tensor cores: ``mma.m16n8k16``, for tf32 ``m16n8k8``.

A block has 4 warps, two by two, each with 32 x 32 of the 64 x 64 tile of C, 32 of K. PTX assigns
the registers of an instruction to the threads of a warp ("Matrix fragments for mma.m16n8k16"). A
thread reads its share of A and B as words of 32 bits, for which B of 16-bit floats is transposed;
padding puts the words that a warp reads at once into 32 different banks. Shared memory: 20 KiB for
16-bit floats, 36 KiB for tf32.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import load, seq, store, unrolled
from intarsia_ir.tir.expr import PrimExpr, const, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.gpu.gemm import BatchedGemm, GemmLoops, Tile, unrolled_pairs
from intarsia_runtime.dtype import DType

from ..spelling import KIND, MMA
from ..target import WARP

WARPS = 4  # of a block, two by two
MMA_ROWS, MMA_COLUMNS = 16, 8


def tensor_core_tile(product: BatchedGemm, most_threads: int) -> Tile | None:
    """Return the sizes; ``None`` if a block may not have enough threads."""
    if most_threads < WARPS * WARP:
        return None
    wide = product.mode == "tf32"
    tile = Tile(64, 64, 32, WARPS * WARP, a_by_depth=True, b_by_depth=not wide)
    # Of tf32, four rows of eight words of B are read at once. Halves of B are also stored one by
    # one, along a column of the tile, whose rows 17 words long put them into different banks.
    return replace(tile, b_padding=32 if wide else 4).in_parts(product)


class OnTensorCores:
    """Four warps, each on a quarter of the tile, in pieces of 16 x 8.

    Args:
        loops: The kernel around it.
    """

    def __init__(self, loops: GemmLoops) -> None:
        self.loops = loops
        tile = loops.t
        self.m, self.n = tile.rows // 2 // MMA_ROWS, tile.columns // 2 // MMA_COLUMNS
        kind = loops.p.dtype
        self.sums = Buffer("sums", (self.m, self.n, 4), DType.FLOAT32, MemoryScope.REGISTER)
        self.wide = loops.p.mode == "tf32"
        self.deep = 8 if self.wide else 16
        self.left = Buffer("left", (self.m, self.deep // 2), kind, MemoryScope.REGISTER)
        self.right = Buffer("right", (self.n, self.deep // 4), kind, MemoryScope.REGISTER)
        lane = loops.thread % WARP
        self.group, self.member = lane // 4, lane % 4
        warp = loops.thread // WARP
        self.row = warp // 2 * (tile.rows // 2)
        self.column = warp % 2 * (tile.columns // 2)

    def buffers(self) -> list[Buffer]:
        """Registers of a thread: its share of the pieces of a warp."""
        return [self.sums, self.left, self.right]

    def _each(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        return unrolled_pairs(self.m, self.n, body)

    def clear(self) -> Stmt:
        """Start from 0."""
        zero = const(0, DType.FLOAT32)
        return self._each(
            lambda i, j: unrolled(4, lambda e: store(self.sums, (i, j, e), zero), "e")
        )

    def _place(self, register: int, *, rows: int) -> tuple[int, PrimExpr]:
        """Return which of two rows a register of a thread holds, and which of the depth's steps.

        As PTX says: words along the rows first, then along K; a word holds one tf32, or two halves.
        """
        word = register if self.wide else register // 2
        lower, far = word % rows, word // rows
        if self.wide:
            return lower, self.member + far * 4
        return lower, self.member * 2 + register % 2 + far * 8

    def multiply(self, half: PrimExpr) -> Stmt:
        """Add the product of the tiles in one of the two buffers of shared memory."""
        loops, name = self.loops, MMA[self.loops.p.mode]

        def step(k: PrimExpr) -> Stmt:
            depth = k * self.deep

            def row(i: PrimExpr) -> Stmt:
                parts: list[Stmt] = []
                for n in range(self.left.shape[1]):
                    lower, along = self._place(n, rows=2)
                    at = self.row + i * MMA_ROWS + self.group + lower * 8
                    parts.append(store(self.left, (i, n), load(loops.a, half, at, depth + along)))
                return seq(*parts)

            def column(j: PrimExpr) -> Stmt:
                at = self.column + j * MMA_COLUMNS + self.group
                parts: list[Stmt] = []
                for n in range(self.right.shape[1]):
                    _, along = self._place(n, rows=1)
                    place = (at, depth + along) if loops.t.b_by_depth else (depth + along, at)
                    parts.append(store(self.right, (j, n), load(loops.b, half, *place)))
                return seq(*parts)

            def add(i: PrimExpr, j: PrimExpr) -> Stmt:
                operands = (load(self.sums, i, j, 0), load(self.left, i, 0), load(self.right, j, 0))
                return Invoke(KIND, name, operands)

            return seq(unrolled(self.m, row, "u"), unrolled(self.n, column, "v"), self._each(add))

        return unrolled(loops.t.depth // self.deep, step, "k")

    def epilogue(self) -> Stmt:
        """Store the results, each thread its own."""

        def piece(i: PrimExpr, j: PrimExpr) -> Stmt:
            parts: list[Stmt] = []
            for n in range(4):
                row = self.row + i * MMA_ROWS + self.group + n // 2 * 8
                column = self.column + j * MMA_COLUMNS + self.member * 2 + n % 2
                value = load(self.sums, i, j, index(n))
                parts.append(self.loops.stored(row, column, value))
            return seq(*parts)

        return self._each(piece)
