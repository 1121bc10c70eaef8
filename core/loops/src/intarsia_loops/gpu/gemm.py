# SPDX-License-Identifier: Apache-2.0
"""GEMM on a GPU: a block of threads computes a tile of C from tiles of A and B in shared memory.

Loops: a block for each tile of C, or for each part of K of one; for each step of K, all threads
load the tiles of the next step into registers, multiply those of this one, store the registers to
the other of two buffers in shared memory, and synchronize. So memory is read while the arithmetic
runs, and one barrier serves a step. In registers (:class:`InRegisters`), 256 threads have a 64 x 64
tile of C, 16 of K: each thread has 4 x 4 accumulators + 4 A + 4 B = 24 registers, and 8 for the
next step; 128 x 128 with 8 x 8 accumulators where there is work for :data:`BUSY` such blocks. 32 x
32 x 32 where M or N is at most 32, or accumulators are 64 bits. The rows of a thread, and its
columns, lie four by four, for loads of 16 bytes from shared memory, for which A is transposed. A
backend whose device has a matrix unit gives :class:`TileArithmetic` of its own.

Shared memory: 2 x (16 x 68 + 16 x 68) x 4 bytes = 17 KiB, 33 KiB for 128 x 128; 16 bytes of each
row are padding, which puts neighbouring rows into different banks. The scheme is that of Volkov and
Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008), and of CUTLASS' thread-block
tiles.

Where C has few tiles and K is long, K is cut into parts (split-K, :mod:`.split_k`): every part is a
block that stores its sums to scratch memory, and a second launch adds them up, in order, and
applies the epilogue. Of open sizes, their number is an expression, and 1 where there are many
tiles: then the blocks apply the epilogue, and the second launch has none.

Where rows are open, tiles of 32 x 32 stand in front of larger ones: the host starts the former for
at most 32 rows (a token that a decoder writes), the latter for more. For tensor cores, the number
of tiles decides between two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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
from intarsia_ir.tir.expr import PrimExpr, TirVar, cast, const, index
from intarsia_ir.tir.stmt import Barrier, IfStmt, Stmt, Thread
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, floor_divide, maximum, minimum

from ..typical import typical
from .grid import bound, chunks
from .operand import TileOperand, inside_of
from .split_k import THREADS, PartialSums
from .traits import GridTraits

Element: TypeAlias = "Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]"
"""``element(batch, i, j)`` of a matrix, for indices inside it."""

BUSY = 128
"""Blocks that keep a GPU busy: about the number of multiprocessors of a large one."""

ENOUGH = 80
"""Blocks of a tensor core's tile that are better than more of a smaller one. Measured on an H100:
197 x 768 of ViT-B takes 6.2 us in 84 blocks of 32 x 64, 7.9 in 48 of 64 x 64, and 7.1 in 168 of
32 x 32."""

LEAST_STEPS = 8
"""Steps of a part of K, below which it would wait for memory more than it multiplies."""

FEW = 32  # rows of a small tile
GROUP = 4  # neighbouring rows or columns of a thread


class BatchedGemm(Struct, frozen=True):
    """A batch of products of matrices.

    Attributes:
        batch: Number of products.
        rows: Rows of the left matrix and of the result.
        columns: Columns of the right matrix and of the result.
        depth: What is summed over.
        left: Element ``(batch, row, k)``, of type ``dtype``.
        right: Element ``(batch, k, column)``, of type ``dtype``.
        left_by_depth: Whether elements of neighbouring ``k`` are neighbours in memory.
        right_by_depth: The same of the right matrix.
        epilogue: ``epilogue(batch, row, column, value)`` stores an element of type ``total``.
        dtype: Type of the elements as they lie in shared memory.
        total: Type in which they are summed.
        mode: How a matrix unit of the backend multiplies; empty for registers of threads.
        left_run: Elements of the left matrix that lie side by side, along K or along the rows: from
            each multiple of a divisor of it, so many do. Memory begins at a multiple of 16 bytes.
        right_run: The same of the right matrix, along K or along the columns.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    left: Element
    right: Element
    left_by_depth: bool
    right_by_depth: bool
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt]
    dtype: DType
    total: DType
    mode: str = ""
    left_run: int = 1
    right_run: int = 1


def is_open(product: BatchedGemm) -> bool:
    """Whether a size of a product is only known at run time."""
    sizes = (product.batch, product.rows, product.columns, product.depth)
    return any(isinstance(size, Dim) for size in sizes)


class Tile(Struct, frozen=True):
    """Sizes of the tiles of a block.

    Attributes:
        rows: Of the result.
        columns: Of the result.
        depth: Of one step.
        threads: That work on them.
        parts: Of K, each in a block of its own; an expression where sizes are open.
        stages: Tiles of an operand in shared memory, where several are on their way at once.
        a_by_depth: Whether neighbours along K lie side by side in the tile of A.
        b_by_depth: The same of the tile of B.
        a_padding: Bytes behind a row of the tile of A.
        b_padding: Bytes behind a row of the tile of B.
    """

    rows: int
    columns: int
    depth: int
    threads: int
    parts: int = 1
    stages: int = 2
    a_by_depth: bool = False
    b_by_depth: bool = False
    a_padding: int = 16
    b_padding: int = 16

    def grid(self, product: BatchedGemm) -> int:
        """Return how many tiles the results of a product have; an expression if sizes are open."""
        down, across = chunks(product.rows, self.rows), chunks(product.columns, self.columns)
        return product.batch * down * across

    def blocks(self, product: BatchedGemm) -> int:
        """Return how many tiles the results of a product have; of open sizes, typical ones."""
        return typical(self.grid(product))

    def in_parts(
        self, product: BatchedGemm, least: int = LEAST_STEPS, enough: int = 2 * BUSY
    ) -> Tile:
        """Return the tile with as many parts of K as keep a GPU busy.

        Args:
            product: What to compute.
            least: Steps of a part.
            enough: Blocks, at most twice :data:`BUSY`.
        """
        steps = chunks(product.depth, self.depth)
        blocks = self.grid(product)
        if isinstance(steps, Dim) or steps < 2 * least:
            return self
        if isinstance(blocks, Dim):
            wanted = minimum(floor_divide(enough, blocks), steps // least)
            return replace(self, parts=extents((maximum(wanted, 1),))[0])
        wanted = min(enough // blocks, steps // least)
        if blocks >= BUSY or wanted < 2:
            return self
        # As many steps in every part, so that none is empty.
        return replace(self, parts=chunks(steps, chunks(steps, wanted)))


SMALL = Tile(FEW, FEW, FEW, THREADS)
"""The tile of few rows or columns, and of accumulators of 64 bits."""

LARGE, MEDIUM = Tile(128, 128, 16, THREADS), Tile(64, 64, 16, THREADS)

ProductKernel: TypeAlias = "tuple[Stmt, tuple[Buffer, ...]]"
"""Loops, and the scratch memory that they need."""


class TileArithmetic(Protocol):
    """Multiplies the tiles in shared memory; each thread has a part of the sums."""

    def buffers(self) -> list[Buffer]:
        """Registers of a thread."""
        ...

    def clear(self) -> Stmt:
        """Start from 0."""
        ...

    def multiply(self, half: PrimExpr) -> Stmt:
        """Add the product of the tiles in one of the two buffers of shared memory."""
        ...

    def epilogue(self) -> Stmt:
        """Store the results."""
        ...


def register_tile(product: BatchedGemm, most_threads: int) -> Tile | None:
    """Return the sizes for :class:`InRegisters`; ``None`` if a block may have too few threads."""
    if most_threads < THREADS:
        return None
    if min(typical(product.rows), typical(product.columns)) <= FEW or product.total.bytes > 4:
        return SMALL.in_parts(product)
    many = LARGE.blocks(product)
    covered = many * LARGE.rows * LARGE.columns
    full = covered <= 1.25 * MEDIUM.blocks(product) * MEDIUM.rows * MEDIUM.columns
    return LARGE if many >= BUSY and full else MEDIUM.in_parts(product)


def product_loops(
    product: BatchedGemm,
    tile: Tile,
    arithmetic: Callable[[GemmLoops], TileArithmetic] | None = None,
    traits: GridTraits | None = None,
    loops_of: type[GemmLoops] | None = None,
    small: Tile | None = None,
) -> ProductKernel:
    """Return the kernel, and its scratch memory.

    Args:
        product: What to compute.
        tile: Sizes of the tiles of a block.
        arithmetic: Multiplies the tiles; :class:`InRegisters` if ``None``.
        traits: Of the device, to load 16 bytes at once where they lie side by side.
        loops_of: How tiles get into shared memory; :class:`GemmLoops` if ``None``.
        small: Sizes for runs that have fewer tiles of the other than :data:`ENOUGH`.
    """
    made = GemmLoops if loops_of is None else loops_of
    work = InRegisters if arithmetic is None else arithmetic
    sizes = _shares(product, tile, small, few=arithmetic is None)
    loops = [made(product, size, traits, share=share) for size, share in sizes]
    kernels = [part for each in loops for part in each.kernels(work(each))]
    return seq(*kernels), tuple([each.parts.sums for each in loops if each.parts is not None])


def _shares(
    product: BatchedGemm, tile: Tile, small: Tile | None, *, few: bool
) -> list[tuple[Tile, int]]:
    """Return the tiles that a product needs, each with 1 where the sizes are for it, else 0."""
    if few and tile == LARGE and isinstance(tile.grid(product), Dim):
        small = MEDIUM.in_parts(product)
    found = [(tile, 1)]
    if small is not None:
        many = minimum(floor_divide(tile.grid(product), ENOUGH), 1)
        found = list(zip((small, tile), extents((1 - many, many)), strict=True))
    if not (few and isinstance(product.rows, Dim) and tile.rows > FEW):
        return found
    some = minimum(product.rows // (FEW + 1), 1)  # 0 for few rows, else 1
    # Of few rows, there is one row of tiles, whose number is often known.
    short = SMALL.in_parts(replace(product, rows=FEW))
    first = (SMALL if isinstance(short.parts, Dim) else short, extents((1 - some,))[0])
    return [first, *[(size, extents((some * share,))[0]) for size, share in found]]


class GemmLoops:
    """Variables and buffers of one kernel.

    Args:
        product: What it computes.
        tile: Sizes of the tiles of a block.
        traits: Of the device; elements are loaded one by one without.
        share: 0 where the sizes are for another kernel, so that no block is started; else 1.

    Attributes:
        thread: Number of the thread in its block.
        parts: Sums of parts of K, if it is cut.
        halves: Tiles of each operand in shared memory: one is multiplied, others are on their way.
        a: Tiles of A in shared memory, ``[half, depth, rows + padding]``; rows and depth in turn
            if the tile says so.
        b: Tiles of B in shared memory, ``[half, depth, columns + padding]``; likewise.
        operands: How A and B get there.
    """

    def __init__(
        self,
        product: BatchedGemm,
        tile: Tile,
        traits: GridTraits | None = None,
        *,
        share: int = 1,
    ) -> None:
        self.p, self.t, self.traits, self.share = product, tile, traits, share
        down, across = chunks(product.rows, tile.rows), chunks(product.columns, tile.columns)
        self.tiles = (product.batch, down, across)
        self.parts = self._partial_sums()
        self._partial = False
        self.number, self.thread = TirVar("number"), TirVar("thread")
        self.batch, self.row, self.column = TirVar("batch"), TirVar("row0"), TirVar("column0")
        self.part = TirVar("part")
        steps = chunks(chunks(product.depth, tile.depth), tile.parts)
        # Nothing to sum is a step of zeros.
        self.steps = extents((maximum(steps, 1),))[0]
        known = None if isinstance(self.steps, Dim) else self.steps
        self.halves = self._buffers(known)
        # Where a part of K ends behind the last one, its last steps add nothing.
        self.whole_depth = product.depth == self.steps * tile.depth * tile.parts
        self.a = self._tile("tile_a", tile.rows, tile.a_padding, by_depth=tile.a_by_depth)
        self.b = self._tile("tile_b", tile.columns, tile.b_padding, by_depth=tile.b_by_depth)
        self.operands = (
            self._operand(
                lambda x, k: product.left(self.batch, x, k), self.row, product.rows, self.a,
                "next_a", tile.rows, product.left_run,
                by_depth=product.left_by_depth, tile_by_depth=tile.a_by_depth,
            ),
            self._operand(
                lambda x, k: product.right(self.batch, k, x), self.column, product.columns, self.b,
                "next_b", tile.columns, product.right_run,
                by_depth=product.right_by_depth, tile_by_depth=tile.b_by_depth,
            ),
        )  # fmt: skip

    def _buffers(self, steps: int | None) -> int:
        """Return how many tiles of an operand shared memory holds; ``None`` steps are open."""
        return 2 if steps is None else min(2, steps)

    def _operand(
        self,
        element: Callable[[PrimExpr, PrimExpr], PrimExpr],
        first: PrimExpr,
        count: int,
        shared: Buffer,
        name: str,
        size: int,
        run: int,
        *,
        by_depth: bool,
        tile_by_depth: bool,
    ) -> TileOperand:
        p, t = self.p, self.t
        shape = (size * t.depth // t.threads,)
        registers = Buffer(name, shape, p.dtype, MemoryScope.REGISTER)
        return TileOperand(
            element, first, count, p.depth, self.whole_depth, by_depth, run,
            shared, tile_by_depth, registers, size, t.depth, t.threads, self.thread, self.traits,
        )  # fmt: skip

    def _tile(self, name: str, size: int, padding: int, *, by_depth: bool) -> Buffer:
        pad, depth = padding // self.p.dtype.bytes, self.t.depth
        flat = (size, depth + pad) if by_depth else (depth, size + pad)
        return Buffer(name, (self.halves, *flat), self.p.dtype, MemoryScope.SHARED)

    def _partial_sums(self) -> PartialSums | None:
        p, t = self.p, self.t
        if not isinstance(t.parts, Dim) and t.parts < 2:
            return None
        blocks = t.parts * self.tiles[0] * self.tiles[1] * self.tiles[2]
        if isinstance(blocks, Dim):  # of few rows, there is one row of tiles
            few = t.parts * self.tiles[0] * self.tiles[2]
            blocks = 2 * BUSY if isinstance(few, Dim) else few
        sums = Buffer("parts", (blocks, t.rows, t.columns), p.total)
        shape = (p.batch, p.rows, p.columns)
        return PartialSums(sums, t.parts, shape, self.tiles, self.share)

    def kernels(self, work: TileArithmetic) -> list[Stmt]:
        """Return the loops over blocks, threads and steps, and those that add parts up."""
        t, (batch, down, across) = self.t, self.tiles
        first = index(0) if self.parts is None else self.part * (self.steps * t.depth)
        registers = [*work.buffers(), *[each.fetched for each in self.operands]]
        steps = seq(work.clear(), self._steps(first, work), self._results(work))
        numbers = unflatten(self.number, (t.parts, batch, down, across))
        values = [numbers[0], numbers[1], numbers[2] * t.rows, numbers[3] * t.columns]
        names = [self.part, self.batch, self.row, self.column]
        body = lets(names, values, allocate(registers, steps))
        body = bound(Thread.THREAD_X, self.thread, t.threads, body)
        body = allocate([self.a, self.b], body)
        blocks = self.share * t.parts * batch * down * across
        body = bound(Thread.BLOCK_X, self.number, blocks, body)
        return [body] if self.parts is None else [body, self.parts.added_up(self.p.epilogue)]

    def _results(self, work: TileArithmetic) -> Stmt:
        """Store the tile of the result, or of sums of a part of K."""
        if self.parts is None:
            return work.epilogue()
        self._partial = True
        partial = work.epilogue()
        self._partial = False
        if not isinstance(self.t.parts, Dim):
            return partial
        return IfStmt(index(1) < index(self.t.parts), partial, work.epilogue())

    def _steps(self, first: PrimExpr, work: TileArithmetic) -> Stmt:
        """Multiply tile after tile, from ``first`` along K on."""
        a, b = self.operands

        def step(number: PrimExpr) -> Stmt:
            k = first + (number + 1) * self.t.depth
            this, other = number % 2, (number + 1) % 2
            fetched = seq(a.fetch(k), b.fetch(k))
            return seq(fetched, work.multiply(this), a.put(other), b.put(other), Barrier())

        zero = index(0)
        parts = [a.fetch(first), b.fetch(first), a.put(zero), b.put(zero), Barrier()]
        if isinstance(self.steps, Dim) or self.steps > 1:
            parts.append(serial(self.steps - 1, step, "step"))
        return seq(*parts, work.multiply(index((self.steps - 1) % 2)))

    def stored(self, row: PrimExpr, column: PrimExpr, value: PrimExpr) -> Stmt:
        """Store an element of the tile, unless it lies outside of the matrix."""
        p, t = self.p, self.t
        if self._partial and self.parts is not None:
            return store(self.parts.sums, (self.number, row, column), value)
        i, j = TirVar("m"), TirVar("n")
        inside = inside_of((i, p.rows, t.rows), (j, p.columns, t.columns))
        body = guarded(inside, p.epilogue(self.batch, i, j, value))
        return lets([i, j], [self.row + row, self.column + column], body)


def unrolled_pairs(rows: int, columns: int, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
    """Write out ``body(i, j)`` for all rows and columns of a thread's sums."""

    def row(i: PrimExpr) -> Stmt:
        return unrolled(columns, lambda j: body(i, j), "v")

    return unrolled(rows, row, "u")


class InRegisters:
    """Every thread multiplies a small tile of its own.

    Args:
        loops: The kernel around it; the number of its threads is a square.
    """

    def __init__(self, loops: GemmLoops) -> None:
        self.loops = loops
        tile, total = loops.t, loops.p.total
        self.side = isqrt(tile.threads)  # threads of a block in each direction
        self.m, self.n = tile.rows // self.side, tile.columns // self.side
        self.sums = Buffer("sums", (self.m, self.n), total, MemoryScope.REGISTER)
        self.left = Buffer("left", (self.m,), total, MemoryScope.REGISTER)
        self.right = Buffer("right", (self.n,), total, MemoryScope.REGISTER)

    def buffers(self) -> list[Buffer]:
        """Registers of a thread."""
        return [self.sums, self.left, self.right]

    def _each(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        return unrolled_pairs(self.m, self.n, body)

    def clear(self) -> Stmt:
        """Start from 0."""
        zero = const(0, self.sums.dtype)
        return self._each(lambda i, j: store(self.sums, (i, j), zero))

    def multiply(self, half: PrimExpr) -> Stmt:
        """Add the product of the tiles in one buffer of shared memory."""
        loops, total = self.loops, self.sums.dtype

        def step(k: PrimExpr) -> Stmt:
            def row(i: PrimExpr) -> Stmt:
                value = load(loops.a, half, k, self._row(i))
                return store(self.left, (i,), cast(value, total))

            def column(j: PrimExpr) -> Stmt:
                value = load(loops.b, half, k, self._column(j))
                return store(self.right, (j,), cast(value, total))

            def add(i: PrimExpr, j: PrimExpr) -> Stmt:
                product = load(self.left, i) * load(self.right, j)
                return store(self.sums, (i, j), load(self.sums, i, j) + product)

            return seq(unrolled(self.m, row, "u"), unrolled(self.n, column, "v"), self._each(add))

        return unrolled(loops.t.depth, step, "k")

    def _row(self, i: PrimExpr) -> PrimExpr:
        return self._place(self.loops.thread // self.side, i, self.m)

    def _column(self, j: PrimExpr) -> PrimExpr:
        return self._place(self.loops.thread % self.side, j, self.n)

    def _place(self, own: PrimExpr, at: PrimExpr, count: int) -> PrimExpr:
        """Where the rows or columns of a thread lie: in groups of neighbours, far apart."""
        size = min(GROUP, count)
        return own * size + at % size + at // size * (self.side * size)

    def epilogue(self) -> Stmt:
        """Store the results."""
        return self._each(
            lambda i, j: self.loops.stored(self._row(i), self._column(j), load(self.sums, i, j))
        )
