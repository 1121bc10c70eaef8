# SPDX-License-Identifier: Apache-2.0
"""A panel of GEMM: rows of A that share one pass over packed B, multiplied tile by tile.

A panel is copied to contiguous memory if the stride of its rows is a multiple of 2 KiB. Such rows
compete for two sets of a first-level cache with 64 sets and 8 ways, which hold 16 lines, and evict
each other, B and C (Goto and van de Geijn pack A for the same reason). Rows of the copy are 16
elements longer than K, which spreads them over the sets. With K split (:meth:`Panel.split_k`), the
partial sums of all blocks are on the stack, ``[blocks, rows, width]``, and are loaded and stored
once for each part.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, const, index
from intarsia_ir.tir.stmt import Allocate, Stmt

from .aliased_rows import APART, copied_rows
from .loops import (
    EpilogueStore,
    Source,
    copy_rows,
    cut,
    for_parts,
    load,
    seq,
    serial,
    store,
    unflatten,
)
from .micro_kernel import register_tile
from .ordered_tiles import OrderedWords
from .prefetch import prefetch_next_block
from .tiling import CpuTiling

LINE = 64
"""Bytes of a cache line."""
_SETS = 32  # a stride of this many cache lines puts rows into one or two sets of a level-1 cache


class Matrix(Struct, frozen=True):
    """Left operand of a product, ``A[M, K]``.

    Attributes:
        m: Rows.
        k: Elements of a row.
        element: ``element(row, k)``.
        stride_bytes: Distance between rows.
        copied: Whether rows must be copied before they are multiplied.
    """

    m: int
    k: int
    element: Callable[[PrimExpr, PrimExpr], PrimExpr]
    stride_bytes: int
    copied: bool = False


def flat_rows(buffer: Source) -> Matrix:
    """Return a buffer of any rank as a matrix over its last dimension."""
    *outer, depth = buffer.shape

    def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(buffer, *unflatten(row, outer), k)

    return Matrix(prod(outer), depth, element, depth * buffer.dtype.bytes)


def needs_copy(left: Matrix) -> bool:
    """Whether rows fall on top of each other in the cache."""
    return left.m > 1 and is_aliased(left)


def is_aliased(left: Matrix) -> bool:
    """Whether rows, if there are several, compete for the same sets of a cache."""
    return left.stride_bytes % (LINE * _SETS) == 0


class _Sums(Struct, frozen=True):
    """What a panel has added up so far.

    Attributes:
        buffer: ``[blocks, rows, width]``.
        first: Number of the first block.
    """

    buffer: Buffer
    first: PrimExpr

    def reader(self, block: PrimExpr, row: PrimExpr) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
        """Return what reads sums of a block from a row on."""
        return lambda r, c: load(self.buffer, block - self.first, row + r, c)

    def writer(
        self, block: PrimExpr, row: PrimExpr
    ) -> Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]:
        """Return what writes them."""
        return lambda r, c, value: store(self.buffer, (block - self.first, row + r, c), value)


class Panel(Struct, frozen=True):
    """A panel of rows and some blocks of weights.

    Attributes:
        tiling: Register tile.
        left: All rows.
        weight: All weights.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        rows: First row, how many, and rows of a tile.
        columns: First block, how many, and how many columns of each are there.
        is_ordered: Whether words of weights are (``ordered_words.py``).
    """

    tiling: CpuTiling
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]
    rows: tuple[PrimExpr, int, int]
    columns: tuple[PrimExpr, int, int]
    is_ordered: bool = False

    def full_k(self) -> Stmt:
        """Multiply, block by block."""
        return self._part(index(0), self.left.k, None)

    def split_k(self, depth: int) -> Stmt:
        """Multiply with so much of all blocks at a time, and add it to sums in memory."""
        _, size, _ = self.rows
        first, blocks, used = self.columns
        width, lanes = self.weight.shape[2], self.tiling.lanes
        kind = self.tiling.sums or self.weight.dtype
        buffer = Buffer("sums", (blocks, size, width), kind, MemoryScope.STACK)
        sums = _Sums(buffer, first)

        def rows(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
            return serial(blocks, lambda n: serial(size, lambda r: body(first + n, r), "r"), "n")

        def clear(block: PrimExpr, row: PrimExpr) -> Stmt:
            zero, write = const(0, buffer.dtype), sums.writer(block, row)
            return copy_rows(width, lanes, lambda c: write(index(0), c, zero))

        def epilogue(block: PrimExpr, row: PrimExpr) -> Stmt:
            read, write = sums.reader(block, row), self._epilogue(block, row)
            return copy_rows(used, lanes, lambda c: write(index(0), c, read(index(0), c)))

        parts = self.left.k // depth
        added = serial(parts, lambda part: self._part(part * depth, depth, sums), "deep")
        return Allocate(buffer, seq(rows(clear), added, rows(epilogue)))

    def _epilogue(
        self, block: PrimExpr, row: PrimExpr
    ) -> Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]:
        """Return what finishes results of a block from a row of the panel on."""
        start, width = self.rows[0] + row, self.weight.shape[2]
        return lambda r, c, value: self.epilogue(
            value, (*unflatten(start + r, self.outer), block * width + c)
        )

    def _words(
        self, block: PrimExpr, left: Callable[[int | PrimExpr, PrimExpr], PrimExpr]
    ) -> OrderedWords | None:
        """Return the words of a block, if they are in an order of their own."""
        dot = self.tiling.ordered if self.is_ordered else None
        return None if dot is None else OrderedWords(dot, self.weight, block, self.left.k, left)

    def _part(self, low: PrimExpr, depth: int, sums: _Sums | None) -> Stmt:
        """Multiply with ``depth`` weights of each column, from the one at ``low`` on.

        Args:
            low: The first of them.
            depth: How many.
            sums: What the products are added to; ``None`` if they are all that there are.
        """
        tiling, left, weight = self.tiling, self.left, self.weight
        start, size, tile = self.rows
        first, blocks, used = self.columns
        wanted = needs_copy(left) if tiling.copies_rows is None else tiling.copies_rows
        packed = left.copied or (wanted and blocks > 1)
        panel = Buffer("panel", (size, depth + APART), weight.dtype, MemoryScope.STACK)

        fetched = weight.shape[1] if self.is_ordered else depth  # with masks and places

        def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
            return load(panel, row, k) if packed else left.element(start + row, low + k)

        def block(number: PrimExpr) -> Stmt:
            def tiled(row: PrimExpr, count: int) -> Stmt:
                return register_tile(
                    tiling,
                    rows=count,
                    columns=used,
                    largest=(tile, weight.shape[2]),
                    steps=(depth,),
                    left=lambda r, k: element(row + r, k[0]),
                    right=lambda k, c: load(weight, number, low + k[0], c),
                    epilogue=(self._epilogue if sums is None else sums.writer)(number, row),
                    dtype=weight.dtype,
                    weight_prefetch=prefetch_next_block(
                        tiling.prefetch,
                        weight,
                        (number + 1, low),
                        fetched,
                        (row, size),
                        count,
                        is_ordered=self.is_ordered,
                    ),
                    initial=None if sums is None else sums.reader(number, row),
                    words=self._words(number, lambda r, place: element(row + r, place)),
                )

            return for_parts(cut(size, tile), tiled, "m")

        body = serial(blocks, lambda n: block(first + n), "n") if blocks > 1 else block(first)
        if not packed:
            return body

        filled = copied_rows(
            panel, (size, depth), tiling.copied_lanes, lambda r, k: left.element(start + r, low + k)
        )
        return Allocate(panel, seq(filled, body))
