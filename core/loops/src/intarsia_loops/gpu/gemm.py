# SPDX-License-Identifier: Apache-2.0
"""GEMM on a GPU: a block of threads computes a tile of C from tiles of A and B in shared memory.

Loops: a block for each tile of C; for each step of K, all threads copy a tile of A and one of B to
shared memory, synchronize, and multiply. In registers (:class:`InRegisters`), 256 threads have a
64 x 64 tile of C, 16 of K: each thread has 4 x 4 accumulators + 4 A + 4 B = 24 registers. 32 x 32 x
32 where M or N is at most 32, or accumulators are 64 bits. A backend whose device has a matrix unit
gives :class:`TileArithmetic` of its own.

Shared memory: (64 x 20 + 16 x 68) x 4 bytes = 9.25 KiB; 16 bytes of each row are padding, which
puts neighbouring rows into different banks. The scheme is that of Volkov and Demmel, "Benchmarking
GPUs to tune dense linear algebra" (SC 2008), and of CUTLASS' thread-block tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Protocol, TypeAlias

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
    unrolled,
)
from intarsia_ir.tir.expr import PrimExpr, TirVar, all_of, cast, const
from intarsia_ir.tir.stmt import Barrier, IfStmt, Stmt, Thread
from intarsia_runtime.dtype import DType

from .grid import bound, chunks

Element: TypeAlias = "Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]"
"""``element(batch, i, j)`` of a matrix, for indices inside it."""

THREADS = 256


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


class Tile(Struct, frozen=True):
    """Sizes of the tiles of a block.

    Attributes:
        rows: Of the result.
        columns: Of the result.
        depth: Of one step.
        threads: That work on them.
    """

    rows: int
    columns: int
    depth: int
    threads: int


class TileArithmetic(Protocol):
    """Multiplies the tiles in shared memory; each thread has a part of the sums."""

    def buffers(self) -> list[Buffer]:
        """Registers of a thread."""
        ...

    def clear(self) -> Stmt:
        """Start from 0."""
        ...

    def multiply(self) -> Stmt:
        """Add the product of the tiles in shared memory."""
        ...

    def epilogue(self) -> Stmt:
        """Store the results."""
        ...


def register_tile(product: BatchedGemm, most_threads: int) -> Tile | None:
    """Return the sizes for :class:`InRegisters`; ``None`` if a block may have too few threads."""
    if most_threads < THREADS:
        return None
    small = min(product.rows, product.columns) <= 32 or product.total.bytes > 4
    return Tile(32, 32, 32, THREADS) if small else Tile(64, 64, 16, THREADS)


def product_loops(
    product: BatchedGemm,
    tile: Tile,
    arithmetic: Callable[[GemmLoops], TileArithmetic] | None = None,
) -> Stmt:
    """Return the kernel.

    Args:
        product: What to compute.
        tile: Sizes of the tiles of a block.
        arithmetic: Multiplies the tiles; :class:`InRegisters` if ``None``.
    """
    loops = GemmLoops(product, tile)
    return loops.kernel(InRegisters(loops) if arithmetic is None else arithmetic(loops))


class GemmLoops:
    """Variables and buffers of one kernel.

    Args:
        product: What it computes.
        tile: Sizes of the tiles of a block.

    Attributes:
        thread: Number of the thread in its block.
        a: Tile of A in shared memory, ``[rows, depth + padding]``.
        b: Tile of B in shared memory, ``[depth, columns + padding]``.
    """

    def __init__(self, product: BatchedGemm, tile: Tile) -> None:
        self.p, self.t = product, tile
        self.number, self.thread = TirVar("number"), TirVar("thread")
        self.batch, self.row, self.column = TirVar("batch"), TirVar("row0"), TirVar("column0")
        pad = 16 // product.dtype.bytes  # rows of a tile start in different memory banks
        self.a = Buffer("tile_a", (tile.rows, tile.depth + pad), product.dtype, MemoryScope.SHARED)
        self.b = Buffer(
            "tile_b", (tile.depth, tile.columns + pad), product.dtype, MemoryScope.SHARED
        )

    def kernel(self, work: TileArithmetic) -> Stmt:
        """Return the loops over blocks, threads and steps."""
        p, t = self.p, self.t
        down, across = chunks(p.rows, t.rows), chunks(p.columns, t.columns)
        steps = chunks(p.depth, t.depth)

        def step(k: PrimExpr) -> Stmt:
            parts = [self._fill(k * t.depth), Barrier(), work.multiply()]
            # The next step overwrites the tiles that this one reads.
            return seq(*parts, Barrier()) if steps > 1 else seq(*parts)

        body = seq(work.clear(), serial(steps, step, "step"), work.epilogue())
        body = allocate(work.buffers(), body)
        operands = unflatten(self.number, (p.batch, down, across))
        values = [operands[0], operands[1] * t.rows, operands[2] * t.columns]
        body = lets([self.batch, self.row, self.column], values, body)
        body = bound(Thread.THREAD_X, self.thread, t.threads, body)
        body = allocate([self.a, self.b], body)
        return bound(Thread.BLOCK_X, self.number, p.batch * down * across, body)

    def _fill(self, k: PrimExpr) -> Stmt:
        """Copy the tiles of one step; what lies outside the matrices is 0."""
        p, t = self.p, self.t

        def left(i: PrimExpr, j: PrimExpr) -> Stmt:
            inside = _inside((self.row + i, p.rows, t.rows), (k + j, p.depth, t.depth))
            value = p.left(self.batch, self.row + i, k + j)
            return _copied(self.a, (i, j), value, inside)

        def right(i: PrimExpr, j: PrimExpr) -> Stmt:
            inside = _inside((k + i, p.depth, t.depth), (self.column + j, p.columns, t.columns))
            value = p.right(self.batch, k + i, self.column + j)
            return _copied(self.b, (i, j), value, inside)

        return seq(
            self._shared_out(t.rows, t.depth, left, by_row=not p.left_by_depth),
            self._shared_out(t.depth, t.columns, right, by_row=p.right_by_depth),
        )

    def _shared_out(
        self, rows: int, columns: int, item: Callable[[PrimExpr, PrimExpr], Stmt], *, by_row: bool
    ) -> Stmt:
        """Run ``item(i, j)`` for all, neighbouring threads along the rows or the columns."""
        i, j = TirVar("i"), TirVar("j")

        def piece(n: PrimExpr) -> Stmt:
            at = n * self.t.threads + self.thread
            values = [at % rows, at // rows] if by_row else [at // columns, at % columns]
            return lets([i, j], values, item(i, j))

        return unrolled(rows * columns // self.t.threads, piece, "piece")

    def stored(self, row: PrimExpr, column: PrimExpr, value: PrimExpr) -> Stmt:
        """Store an element of the tile, unless it lies outside of the matrix."""
        p, t = self.p, self.t
        i, j = TirVar("m"), TirVar("n")
        inside = _inside((i, p.rows, t.rows), (j, p.columns, t.columns))
        body = guarded(inside, p.epilogue(self.batch, i, j, value))
        return lets([i, j], [self.row + row, self.column + column], body)


def _inside(*parts: tuple[PrimExpr, int, int]) -> PrimExpr | None:
    """Whether every place is below its limit; ``None`` where whole tiles fit."""
    conditions = [at < limit for at, limit, size in parts if limit % size]
    return all_of(conditions) if conditions else None


def _copied(
    tile: Buffer, at: tuple[PrimExpr, PrimExpr], value: PrimExpr, inside: PrimExpr | None
) -> Stmt:
    copy = store(tile, at, cast(value, tile.dtype))
    if inside is None:
        return copy
    return IfStmt(inside, copy, store(tile, at, const(0, tile.dtype)))


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
        def row(i: PrimExpr) -> Stmt:
            return unrolled(self.n, lambda j: body(i, j), "v")

        return unrolled(self.m, row, "u")

    def clear(self) -> Stmt:
        """Start from 0."""
        zero = const(0, self.sums.dtype)
        return self._each(lambda i, j: store(self.sums, (i, j), zero))

    def multiply(self) -> Stmt:
        """Add the product of the tiles in shared memory."""
        loops, total = self.loops, self.sums.dtype

        def step(k: PrimExpr) -> Stmt:
            def row(i: PrimExpr) -> Stmt:
                value = load(loops.a, self._row(i), k)
                return store(self.left, (i,), cast(value, total))

            def column(j: PrimExpr) -> Stmt:
                value = load(loops.b, k, self._column(j))
                return store(self.right, (j,), cast(value, total))

            def add(i: PrimExpr, j: PrimExpr) -> Stmt:
                product = load(self.left, i) * load(self.right, j)
                return store(self.sums, (i, j), load(self.sums, i, j) + product)

            return seq(unrolled(self.m, row, "u"), unrolled(self.n, column, "v"), self._each(add))

        return unrolled(loops.t.depth, step, "k")

    def _row(self, i: PrimExpr) -> PrimExpr:
        return self.loops.thread // self.side + i * self.side

    def _column(self, j: PrimExpr) -> PrimExpr:
        return self.loops.thread % self.side + j * self.side

    def epilogue(self) -> Stmt:
        """Store the results."""
        return self._each(
            lambda i, j: self.loops.stored(self._row(i), self._column(j), load(self.sums, i, j))
        )
