# SPDX-License-Identifier: Apache-2.0
"""Products of tiles in shared memory on tensor cores: ``mma.m16n8k16``, for tf32 ``m16n8k8``.

A block has 4 warps, two by two, each with a quarter of the tile of C: of 64 x 64, 32 x 32 (32
accumulators of a thread and 2 x 16 registers of A and B); of 128 x 64, 64 x 32 (64). 128 x 128 have
8 warps of 64 x 32. A step has 64 of K, 32 of tf32.
``ldmatrix`` brings 16 x 16 halves, or 16 x 8 words, from shared memory to the registers that an
instruction wants them in ("Matrix fragments for mma.m16n8k16" of PTX), one piece of K ahead. Tiles
lie as their matrices do: ``ldmatrix.trans`` turns halves that lie along the rows or columns; words
of tf32 that do are loaded one by one. 16 bytes behind each row (32 for words loaded one by one) put
what a warp reads at once into different banks.

From sm_80 on, tiles are copied asynchronously, up to three steps ahead, see
:mod:`intarsia_loops.gpu.pipeline`: 4 x (9 + 9) KiB of shared memory for 64 x 64. More stages than 4
gained nothing on an H100. A block takes at most half of a multiprocessor's, so that two fit. Where
an operand goes through registers, tiles are 64 x 64 x 32, and two in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import guarded, load, seq, store, unrolled
from intarsia_ir.tir.expr import PrimExpr, const, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.gpu.gemm import (
    BUSY,
    ENOUGH,
    FEW,
    BatchedGemm,
    GemmLoops,
    Tile,
    is_open,
    unrolled_pairs,
)
from intarsia_loops.typical import typical
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..occupancy import limits_of
from ..spelling import KIND, LDMATRIX, LDMATRIX_TRANSPOSED, MMA, grid_traits
from ..target import WARP, CudaOptions

_KIB = 1024
WARPS = 4  # of a block, two by two
MMA_ROWS, MMA_COLUMNS = 16, 8

DEPTH = 128
"""Bytes of a step along K: 64 halves, 32 words."""

LEAST_STAGES, MOST_STAGES = 3, 4

MOST = 128 * 128
TILES = ((128, 128), (128, 64), (64, 64), (32, 64))
"""Tiles of a block, the larger first: 8 warps for the first, 4 for the others."""

LEAST = (32, 32)
"""The tile where none of the others has :data:`~intarsia_loops.gpu.gemm.ENOUGH` blocks."""

WASTE = 1.34
"""How much more than with the least tile may be computed outside of the matrix."""

LONG, PART, PARTS = 1536, 192, 112
"""K from which it is cut into parts, what a part has of it, and blocks that all parts are."""


class TileChoice(Struct, frozen=True):
    """Tiles for a product.

    Attributes:
        tile: The tile.
        small: That for runs with too few of them; only of open sizes.
        pipelined: Whether tiles are copied asynchronously.
    """

    tile: Tile
    small: Tile | None = None
    pipelined: bool = True


def tensor_core_tiles(product: BatchedGemm, options: CudaOptions) -> TileChoice | None:
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
    copied = all(each.copied_by for each in GemmLoops(product, tile, grid_traits(options)).operands)
    if not copied:
        return TileChoice(tile.in_parts(product), pipelined=False)
    tile = replace(tile, depth=DEPTH // product.dtype.bytes)
    budget = limits_of(options.capability).shared_bytes // 2 - _KIB
    sized = [_sized(tile, size, product, budget) for size in (*TILES, LEAST)]
    most = WASTE * _covered(sized[-1], product)
    threads = options.max_threads_per_block
    fit = [t for t in sized if _covered(t, product) <= most and t.threads <= threads]
    return _choice(fit, product)


def _choice(fit: Sequence[Tile], product: BatchedGemm) -> TileChoice:
    """Choose by the number of blocks; where K is long, 64 x 64 are cut along it before smaller."""
    small, long = next(t for t in fit if t.rows <= FEW), typical(product.depth) >= LONG
    if long:
        square = next((t for t in fit if t.rows <= 64), small)
        small = square.in_parts(product, PART // square.depth, PARTS)
    if is_open(product):
        large = next((t for t in fit if t.rows * t.columns < MOST), small)
        alone = large == small or not isinstance(large.grid(product), Dim)
        return TileChoice(large, None if alone else small)
    for tile in fit:
        size = tile.rows * tile.columns
        if long and size < small.rows * small.columns:
            break
        if tile.blocks(product) >= (BUSY if size == MOST else ENOUGH):
            return TileChoice(tile)
    return TileChoice(small if long else fit[-1])


def _covered(tile: Tile, product: BatchedGemm) -> int:
    return tile.blocks(product) * tile.rows * tile.columns


def _sized(tile: Tile, size: tuple[int, int], product: BatchedGemm, budget: int) -> Tile:
    warps = 2 * WARPS if size == TILES[0] else WARPS
    sized = replace(tile, rows=size[0], columns=size[1], threads=warps * WARP)
    return _staged(sized, product, budget)


def _staged(tile: Tile, product: BatchedGemm, budget: int) -> Tile:
    """Return a tile with as many stages as shared memory has room for; half as deep if for few."""
    stages = budget // _stage_bytes(tile, product.dtype.bytes)
    if stages < LEAST_STAGES:
        tile = replace(tile, depth=tile.depth // 2)
        stages = budget // _stage_bytes(tile, product.dtype.bytes)
    return replace(tile, stages=min(stages, MOST_STAGES))


def _stage_bytes(tile: Tile, size: int) -> int:
    """Return the bytes of the tiles of A and B for one step, whose elements have ``size``."""
    total = 0
    for count, by_depth, padding in (
        (tile.rows, tile.a_by_depth, tile.a_padding),
        (tile.columns, tile.b_by_depth, tile.b_padding),
    ):
        lines, line = (count, tile.depth) if by_depth else (tile.depth, count)
        total += lines * (line * size + padding)
    return total


class OnTensorCores:
    """Four warps, each on a quarter of the tile, in pieces of 16 x 8.

    Args:
        loops: The kernel around it.
    """

    def __init__(self, loops: GemmLoops) -> None:
        self.loops = loops
        tile = loops.t
        down, across = 2, tile.threads // WARP // 2  # warps
        self.m, self.n = tile.rows // down // MMA_ROWS, tile.columns // across // MMA_COLUMNS
        kind = loops.p.dtype
        self.sums = Buffer("sums", (self.m, self.n, 4), DType.FLOAT32, MemoryScope.REGISTER)
        self.wide = loops.p.mode == "tf32"
        self.deep = 8 if self.wide else 16
        # Two of each: the next ones are loaded while these are multiplied.
        self.left = Buffer("left", (2, self.m, self.deep // 2), kind, MemoryScope.REGISTER)
        self.right = Buffer("right", (2, self.n, self.deep // 4), kind, MemoryScope.REGISTER)
        self.lane = loops.thread % WARP
        self.group, self.member = self.lane // 4, self.lane % 4
        warp = loops.thread // WARP
        self.row = warp // across * (tile.rows // down)
        self.column = warp % across * (tile.columns // across)

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

        last = self.loops.t.depth // self.deep - 1

        def step(k: PrimExpr) -> Stmt:
            def add(i: PrimExpr, j: PrimExpr) -> Stmt:
                left, right = load(self.left, k % 2, i, 0), load(self.right, k % 2, j, 0)
                return Invoke(KIND, name, (load(self.sums, i, j, 0), left, right))

            return seq(guarded(k < last, self._pieces(half, k + 1)), self._each(add))

        return seq(self._pieces(half, index(0)), unrolled(last + 1, step, "k"))

    def _pieces(self, half: PrimExpr, k: PrimExpr) -> Stmt:
        depth = k * self.deep
        return seq(self._left(half, depth, k % 2), self._right(half, depth, k % 2))

    def _left(self, half: PrimExpr, depth: PrimExpr, parity: PrimExpr) -> Stmt:
        """Load the pieces of A: along the rows first, then along K."""
        a, far = self.loops.a, self.deep // 2  # half a piece along K

        def piece(i: PrimExpr) -> Stmt:
            row, to = self.row + i * MMA_ROWS, load(self.left, parity, i, 0)
            if self.loops.t.a_by_depth:
                at = (row + self.lane % 16, depth + self.lane // 16 * far)
                return Invoke(KIND, LDMATRIX, (to, load(a, half, *at)))
            if not self.wide:
                at = (depth + self.lane // 16 * far + self.lane % 8, row + self.lane // 8 % 2 * 8)
                return Invoke(KIND, LDMATRIX_TRANSPOSED, (to, load(a, half, *at)))
            parts: list[Stmt] = []
            for n in range(4):
                at = (depth + self.member + n // 2 * far, row + self.group + n % 2 * 8)
                parts.append(store(self.left, (parity, i, n), load(a, half, *at)))
            return seq(*parts)

        return unrolled(self.m, piece, "u")

    def _right(self, half: PrimExpr, depth: PrimExpr, parity: PrimExpr) -> Stmt:
        """Load the pieces of B, two at a time: along K first, then along the columns."""
        b, far = self.loops.b, self.deep // 2

        def pieces(pair: PrimExpr) -> Stmt:
            column, to = (
                self.column + pair * (2 * MMA_COLUMNS),
                load(self.right, parity, pair * 2, 0),
            )
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
                place = (parity, pair * 2 + n // 2, n % 2)
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
