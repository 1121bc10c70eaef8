# SPDX-License-Identifier: Apache-2.0
"""Products of tiles in shared memory on tensor cores: ``mma.m16n8k16``, for tf32 ``m16n8k8``.

A block has 4 warps, two by two, each with a quarter of the tile of C: 32 x 32 of 64 x 64 (32
accumulators a thread), or 64 x 32 of 128 x 64 (64) where there are enough such tiles to keep the
GPU busy. A step has 32 of K, 16 of tf32. ``ldmatrix`` brings 16 x 16 halves, or 16 x 8 words, from
shared memory to the registers that an instruction wants them in ("Matrix fragments for
mma.m16n8k16" of PTX). Tiles lie as their matrices do: ``ldmatrix.trans`` turns halves that lie
along the rows or columns; words of tf32 that do are loaded one by one. 16 bytes behind each row
(32 for words loaded one by one) put what a warp reads at once into different banks.

From sm_80 on, tiles are copied asynchronously, three steps ahead (two of the larger tile), see
:mod:`intarsia_loops.gpu.pipeline`. Shared memory: 4 x (5 + 5) KiB, 3 x (10 + 5) KiB.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import load, seq, store, unrolled
from intarsia_ir.tir.expr import PrimExpr, const, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.gpu.gemm import BUSY, BatchedGemm, GemmLoops, Tile, is_open, unrolled_pairs
from intarsia_loops.gpu.grid import chunks
from intarsia_runtime.dtype import DType

from ..spelling import KIND, LDMATRIX, LDMATRIX_TRANSPOSED, MMA
from ..target import WARP, CudaOptions

WARPS = 4  # of a block, two by two
MMA_ROWS, MMA_COLUMNS = 16, 8

LEAST_STEPS = 6
"""Steps of a part of K."""

SPLIT_COST = 20
"""Steps that a second launch, which adds parts up, takes as long as."""


def tensor_core_tile(product: BatchedGemm, options: CudaOptions) -> Tile | None:
    """Return the sizes; ``None`` if a block may not have enough threads."""
    if options.max_threads_per_block < WARPS * WARP:
        return None
    wide = product.mode == "tf32"
    a_by_depth, b_by_depth = product.left_by_depth, product.right_by_depth
    tile = Tile(
        64, 64, 32, WARPS * WARP,
        a_by_depth=a_by_depth,
        b_by_depth=b_by_depth,
        a_padding=32 if wide and not a_by_depth else 16,
        b_padding=32 if wide and not b_by_depth else 16,
    )  # fmt: skip
    if options.capability < 80:
        return tile.in_parts(product)
    tile = replace(tile, depth=16 if wide else 32, stages=4)
    large = replace(tile, rows=128, stages=3)
    covered = large.blocks(product) * large.rows
    if large.blocks(product) >= 2 * BUSY and covered <= 1.25 * tile.blocks(product) * tile.rows:
        return large
    return _in_parts(tile, product)


def _in_parts(tile: Tile, product: BatchedGemm) -> Tile:
    """Cut K where that saves more steps than the second launch costs."""
    if is_open(product):
        return tile
    blocks, steps = tile.blocks(product), chunks(product.depth, tile.depth)
    wanted = min(2 * BUSY // blocks, steps // LEAST_STEPS)
    if wanted < 2 or steps - steps // wanted <= SPLIT_COST:
        return tile
    return replace(tile, parts=chunks(steps, chunks(steps, wanted)))


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
        self.lane = loops.thread % WARP
        self.group, self.member = self.lane // 4, self.lane % 4
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

    def multiply(self, half: PrimExpr) -> Stmt:
        """Add the product of the tiles in one of the buffers of shared memory."""
        name = MMA[self.loops.p.mode]

        def step(k: PrimExpr) -> Stmt:
            depth = k * self.deep

            def add(i: PrimExpr, j: PrimExpr) -> Stmt:
                operands = (load(self.sums, i, j, 0), load(self.left, i, 0), load(self.right, j, 0))
                return Invoke(KIND, name, operands)

            return seq(self._left(half, depth), self._right(half, depth), self._each(add))

        return unrolled(self.loops.t.depth // self.deep, step, "k")

    def _left(self, half: PrimExpr, depth: PrimExpr) -> Stmt:
        """Load the pieces of A: along the rows first, then along K."""
        a, far = self.loops.a, self.deep // 2  # half a piece along K

        def piece(i: PrimExpr) -> Stmt:
            row, to = self.row + i * MMA_ROWS, load(self.left, i, 0)
            if self.loops.t.a_by_depth:
                at = (row + self.lane % 16, depth + self.lane // 16 * far)
                return Invoke(KIND, LDMATRIX, (to, load(a, half, *at)))
            if not self.wide:
                at = (depth + self.lane // 16 * far + self.lane % 8, row + self.lane // 8 % 2 * 8)
                return Invoke(KIND, LDMATRIX_TRANSPOSED, (to, load(a, half, *at)))
            parts: list[Stmt] = []
            for n in range(4):
                at = (depth + self.member + n // 2 * far, row + self.group + n % 2 * 8)
                parts.append(store(self.left, (i, n), load(a, half, *at)))
            return seq(*parts)

        return unrolled(self.m, piece, "u")

    def _right(self, half: PrimExpr, depth: PrimExpr) -> Stmt:
        """Load the pieces of B, two at a time: along K first, then along the columns."""
        b, far = self.loops.b, self.deep // 2

        def pieces(pair: PrimExpr) -> Stmt:
            column, to = self.column + pair * (2 * MMA_COLUMNS), load(self.right, pair * 2, 0)
            if self.loops.t.b_by_depth:
                across = column + self.lane // 16 * 8 + self.lane % 8
                at = (across, depth + self.lane // 8 % 2 * far)
                return Invoke(KIND, LDMATRIX, (to, load(b, half, *at)))
            if not self.wide:
                at = (
                    depth + self.lane // 8 % 2 * far + self.lane % 8,
                    column + self.lane // 16 * 8,
                )
                return Invoke(KIND, LDMATRIX_TRANSPOSED, (to, load(b, half, *at)))
            parts: list[Stmt] = []
            for n in range(4):
                at = (depth + self.member + n % 2 * far, column + n // 2 * 8 + self.group)
                place = (pair * 2 + n // 2, n % 2)
                parts.append(store(self.right, place, load(b, half, *at)))
            return seq(*parts)

        return unrolled(self.n // 2, pieces, "v")

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
