# SPDX-License-Identifier: Apache-2.0
"""Batched GEMM of two activations of open sizes: ``C[M, N] = A[M, K] @ B``, as in attention.

The register tile and the forms of B are those of ``matmul.py``. An open dimension is covered by
pieces of few sizes; the last one overlaps the one before. Both compute the same results there, so
the order of their stores does not matter.

- Rows: large tiles and small ones behind them (``open_dense.py``), which products of the model
  share where K is not small (``shared_tiles.py``).
- Columns: blocks of two vectors, and one block of one vector for a small remainder. An open number
  below two vectors is covered by blocks of one vector. Shared tiles have blocks of two vectors
  alone: fewer columns are copied, and padded with zeros, if K is known.
- ``B[K, N]``: K may be open, too; a block of columns is read where it lies. Where only N is open,
  as of 1x1 convolutions, blocks side by side are written row by row, as those of known sizes.
- ``B[N, K]`` (transposed, as the keys of attention), K known: a block of ``width`` rows of B is
  transposed into a panel ``[K, width]`` on the stack, at most 512 KiB, by squares in registers.
  If K is open, the panel is in the workspace, and few rows or columns are dot products
  (``open_dots.py``).
- Fewer columns than a vector, K known: B is copied to such a panel and padded with zeros; the sums
  of a tile are on the stack, and elements are stored one by one. If K is open or large, a part of
  it at a time (``open_few_columns.py``). Default loops compute all other forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt
from intarsia_runtime.size import Dim

from .dense import ITEMS
from .loops import (
    EpilogueStore,
    let_all,
    load,
    parallel,
    seq,
    serial,
    store,
    unflatten,
)
from .matmul import matrix_element
from .micro_kernel import register_tile
from .open_blocks_abreast import blocks_abreast
from .open_dots import open_dot_loops
from .open_few_columns import cleared, few_columns_at_once, few_columns_in_parts
from .panel import LINE
from .product_panels import PANEL_BYTES, Product, fits_panel, transpose_into_panel
from .row_tiles import EvenTiles, cover_rows
from .shared_tiles import LEAST_DEPTH, SharedTiles, TileOperands, even_tiles, shares_tiles
from .tile_stores import TileEpilogue
from .tiling import CpuTiling, block_width

_FEW_ROWS = 4
"""Rows from which a panel of a transposed B pays."""


def open_matmul_loops(tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> Stmt | None:
    """Return the loops; ``None`` if default loops have to compute the product."""
    width = 2 * tiling.lanes
    if not isinstance(product.n, Dim):
        width = block_width(product.n, tiling)
        if product.n < width:
            return None
    if product.transpose_b and not fits_panel(tiling, product, width):
        return None
    work = _Blocks(tiling, product, epilogue)
    if product.transpose_b and isinstance(product.k, Dim):
        return None if product.transpose_a else work.transposed(width)
    if not isinstance(product.n, Dim):
        return work.blocks(width)
    columns = index(product.n)
    if work.copies_few:
        return IfStmt(columns >= width, work.blocks(width), work.few_called())
    return IfStmt(columns >= tiling.lanes, work.open_blocks(), work.few_columns())


class _Blocks:
    """The loops of one product.

    Args:
        tiling: Register tile.
        product: Operands.
        epilogue: Stores an element.
    """

    def __init__(self, tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> None:
        self._tiling = tiling
        self._product = product
        self._epilogue = epilogue
        is_deep = isinstance(product.k, Dim) or product.k >= LEAST_DEPTH
        is_plain = is_deep and not product.transpose_a and product.a.dtype is product.b.dtype
        self._even: EvenTiles | None = None
        if isinstance(product.m, Dim) and is_plain and shares_tiles(tiling):
            self._even = even_tiles(index(product.m), tiling.rows)

    def _parallel(self, items: PrimExpr, item: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Share items between threads; what procedures need to know is computed before."""
        loop = parallel(items, item)
        return loop if self._even is None else let_all(self._even.bound(), loop)

    def _called(
        self,
        outer: list[PrimExpr],
        columns: tuple[PrimExpr, int | PrimExpr, int],
        b: tuple[PrimExpr, PrimExpr],
    ) -> Stmt:
        """Multiply all rows with a block by procedures (``shared_tiles.py``).

        Args:
            outer: The place of the product in the batch.
            columns: The first of the block, how many are stored, and how many are computed.
            b: The first element of the block, a load, and elements from row to row of B.
        """
        product, even, first = self._product, self._even, columns[0]
        assert even is not None  # who calls this has seen it
        a = matrix_element(product.a, outer, product.batch, flipped=False)
        depth = index(product.k)
        tiles = SharedTiles(self._tiling, even, columns[1:], product.a.dtype)

        def multiply(start: PrimExpr, call: Callable[[TileOperands], Stmt]) -> Stmt:
            return call(TileOperands(a(start, index(0)), b[0], (depth, b[1]), depth))

        def stored(start: PrimExpr) -> TileEpilogue:
            return lambda r, c, value: self._epilogue(value, (*outer, start + r, first + c))

        def tile(m: PrimExpr) -> Stmt:
            return tiles.tile((index(0), even.large), m, multiply, stored)

        return serial(even.large + even.small, tile, "m")

    def blocks(self, width: int) -> Stmt:
        """Compute all blocks of a known number of columns; the last one overlaps."""
        columns = index(self._product.n)
        blocks = (columns + (width - 1)) // width

        def item(p: PrimExpr) -> Stmt:
            first = minimum((p % blocks) * width, columns - width)
            return self._block(p // blocks, first, width)

        return self._parallel(index(prod(self._product.batch)) * blocks, item)

    def transposed(self, width: int) -> Stmt | None:
        """Compute all columns of a transposed B whose K is open; few rows or columns are dots."""
        rows, columns = self._product.m, self._product.n
        if not isinstance(rows, Dim) and rows < _FEW_ROWS:
            return None
        dots = open_dot_loops(self._tiling, self._product, self._epilogue)
        blocks = self.blocks(width)
        if isinstance(columns, Dim):
            blocks = IfStmt(index(columns) >= width, blocks, dots)
        return IfStmt(index(rows) >= _FEW_ROWS, blocks, dots)

    def open_blocks(self) -> Stmt:
        """Compute all columns, at least a vector of them: wide blocks, then those of a vector.

        Wide ones are computed some side by side where rows are many, as in ``matmul.py``.
        """
        product, lanes = self._product, self._tiling.lanes
        columns, width = index(product.n), 2 * lanes
        full, rest = columns // width, columns % width
        wide, narrow, first, number = (TirVar(n) for n in ("wide", "narrow", "first", "number"))
        behind = maximum(columns - wide * width, 0)
        bound = [
            (wide, full + minimum(full, select(rest > lanes, index(1), index(0)))),
            (narrow, (behind + (lanes - 1)) // lanes),
        ]
        batch = index(prod(product.batch))
        groups: PrimExpr = wide
        each: PrimExpr = index(1)
        if self._has_groups:
            names = TirVar("each"), TirVar("groups")
            share = (wide * batch + (ITEMS - 1)) // ITEMS
            bound += [
                (names[0], maximum(minimum(share, self._most_abreast(width)), 1)),
                (names[1], (wide + names[0] - 1) // names[0]),
            ]
            each, groups = names

        def item(p: PrimExpr) -> Stmt:
            block = p % (groups + narrow)
            in_wide = minimum(block * width, columns - width)
            in_narrow = minimum((block - groups) * lanes + wide * width, columns - lanes)
            made = LetStmt(first, in_wide, self._block(number, first, width))
            if self._has_groups:
                count = minimum(each, wide - block * each)
                made = blocks_abreast(
                    self._tiling,
                    product,
                    self._elements(number),
                    self._epilogue,
                    (block * each, count),
                )
            narrow_made = LetStmt(first, in_narrow, self._block(number, first, lanes))
            return LetStmt(
                number, p // (groups + narrow), IfStmt(block < groups, made, narrow_made)
            )

        return let_all(bound, self._parallel(batch * (groups + narrow), item))

    @property
    def _has_groups(self) -> bool:
        """Whether an item of work computes several blocks side by side (``matmul.py``)."""
        product, tiling = self._product, self._tiling
        if isinstance(product.m, Dim) or isinstance(product.k, Dim) or product.transpose_b:
            return False
        return product.m > tiling.rows and self._most_abreast(2 * tiling.lanes) > 1

    def _most_abreast(self, width: int) -> int:
        """Return how many blocks side by side stay in the second-level cache."""
        product = self._product
        return self._tiling.panel_bytes // (product.k * width * product.b.dtype.bytes)

    @property
    def copies_few(self) -> bool:
        """Whether a product of fewer columns than a block calls the procedure of whole blocks."""
        product = self._product
        if self._even is None or isinstance(product.k, Dim):
            return False
        return product.k * 2 * self._tiling.lanes * product.b.dtype.bytes <= PANEL_BYTES

    def few_called(self) -> Stmt:
        """Compute fewer columns than a block has, by procedures that read a copy of B.

        Blocks of a vector would need a procedure of their own, which took 28 ms of the 540 of
        compiling a decoder.
        """
        product, lanes = self._product, self._tiling.lanes
        width = 2 * lanes
        # The bound says that there is nothing to vectorize.
        columns = minimum(index(product.n), width - 1)
        panel = Buffer("panel", (product.k, width), product.b.dtype, MemoryScope.STACK)

        def item(number: PrimExpr) -> Stmt:
            outer, _, b_element = self._elements(number)

            def copied(k: PrimExpr) -> Stmt:
                row = serial(columns, lambda c: store(panel, (k, c), b_element(k, c)), "n")
                return seq(*(cleared(panel, k, first, lanes) for first in (0, lanes)), row)

            block = load(panel, 0, 0), index(width)
            called = self._called(outer, (index(0), columns, width), block)
            return Allocate(panel, seq(serial(product.k, copied, "k"), called))

        return self._parallel(index(prod(product.batch)), item)

    def few_columns(self) -> Stmt:
        """Compute a product of fewer columns than a vector has elements."""
        product, lanes = self._product, self._tiling.lanes
        if isinstance(product.k, Dim) or product.k * lanes * product.b.dtype.bytes > PANEL_BYTES:
            return few_columns_in_parts(self._tiling, product, self._elements, self._epilogue)
        return few_columns_at_once(self._tiling, product, self._elements, self._epilogue)

    def _elements(
        self, number: PrimExpr
    ) -> tuple[
        list[PrimExpr],
        Callable[[PrimExpr, PrimExpr], PrimExpr],
        Callable[[PrimExpr, PrimExpr], PrimExpr],
    ]:
        """Return the place of a product in the batch, and what reads its operands."""
        product = self._product
        outer = unflatten(number, list(product.batch)) if product.batch else []
        a = matrix_element(product.a, outer, product.batch, flipped=product.transpose_a)
        b = matrix_element(product.b, outer, product.batch, flipped=product.transpose_b)
        return outer, a, b

    def _block(self, number: PrimExpr, first: PrimExpr, width: int) -> Stmt:
        """Compute a block of columns of one product."""
        tiling, product = self._tiling, self._product
        outer, a_element, b_element = self._elements(number)
        # Tiles of a vector have as many rows as those of two: few versions, and enough sums.
        largest = min(tiling.rows, tiling.rows_for(width // tiling.lanes))
        copied = product.transpose_b
        panel: Buffer | None = None
        if copied:
            # In the workspace, rows are whole cache lines.
            whole = LINE // product.b.dtype.bytes if isinstance(product.k, Dim) else 1
            shape = product.k, max(width, whole)
            panel = Buffer("panel", shape, product.b.dtype, MemoryScope.STACK)

        def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
            return b_element(k[0], first + c) if panel is None else load(panel, k[0], c)

        def tile(start: PrimExpr, rows: int) -> Stmt:
            return register_tile(
                tiling,
                rows=rows,
                columns=width,
                largest=(largest, width),
                steps=(index(product.k),),
                left=lambda r, k: a_element(start + r, k[0]),
                right=right,
                epilogue=lambda r, c, value: self._epilogue(value, (*outer, start + r, first + c)),
                dtype=product.a.dtype,
            )

        if self._even is not None:
            stride = index(product.n if panel is None else panel.shape[1])
            block = right((index(0),), index(0)), stride
            body = self._called(outer, (first, width, width), block)
        else:
            # Columns are at least a vector here, and so are rows in attention of a text to itself.
            least = tiling.lanes if product.m == product.n else 1
            body = cover_rows(index(product.m), largest, tile, least)
        if panel is None:
            return body
        filled = transpose_into_panel(
            tiling, product, panel, (0, width), lambda k, c: b_element(k, first + c)
        )
        return Allocate(panel, seq(filled, body))
