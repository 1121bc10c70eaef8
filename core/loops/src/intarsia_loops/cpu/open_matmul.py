# SPDX-License-Identifier: Apache-2.0
"""Batched GEMM of two activations of open sizes: ``C[M, N] = A[M, K] @ B``, as in attention.

The register tile and the forms of B are those of ``matmul.py``. What is open is covered by pieces
of one size, of which the last one overlaps the one before: rows by tiles of the version that
computes the fewest (``open_dense.py``), columns by blocks of ``width``. Results that two pieces
compute are equal, so it does not matter which one is written last.

- ``B[K, N]``: K may be open, too; a block of columns is read where it lies.
- ``B[N, K]`` (transposed, as the keys of attention), K known: a block of ``width`` rows of B is
  transposed into a panel ``[K, width]`` on the stack, at most 512 KiB, by squares in registers.
- Fewer columns than a block has: one element at a time. So are products of other forms, by default
  loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import IntImm, PrimExpr, const, index, minimum
from intarsia_ir.tir.stmt import Allocate, IfStmt, Stmt
from intarsia_runtime.size import Dim

from .loops import EpilogueStore, cut, for_parts, load, parallel, seq, serial, store, unflatten
from .matmul import PANEL_BYTES, Product, matrix_element, transpose_into_panel
from .micro_kernel import register_tile
from .open_dense import tile_versions
from .tiling import CpuTiling, best_rows, block_width


def open_matmul_loops(tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> Stmt | None:
    """Return the loops; ``None`` if default loops have to compute the product."""
    width = 2 * tiling.lanes
    if not isinstance(product.n, Dim):
        width = block_width(product.n, tiling)
        if product.n < width:
            return None
    if product.transpose_b and not _fits_panel(tiling, product, width):
        return None
    blocks = _Blocks(tiling, product, epilogue, width)
    wide = blocks.loops()
    columns = index(product.n)
    if isinstance(columns, IntImm):
        return wide
    return IfStmt(columns >= width, wide, blocks.single_elements())


def _fits_panel(tiling: CpuTiling, product: Product, width: int) -> bool:
    """Whether a block of a transposed matrix can be turned round on the stack."""
    if isinstance(product.k, Dim) or tiling.transpose_registers is None:
        return False
    return product.k >= tiling.lanes and product.k * width * product.b.dtype.bytes <= PANEL_BYTES


class _Blocks:
    """The loops of one product.

    Args:
        tiling: Register tile.
        product: Operands.
        epilogue: Stores an element.
        width: Columns of a block.
    """

    def __init__(
        self, tiling: CpuTiling, product: Product, epilogue: EpilogueStore, width: int
    ) -> None:
        self._tiling = tiling
        self._product = product
        self._epilogue = epilogue
        self._width = width

    def loops(self) -> Stmt:
        """Compute all blocks of columns of all products of the batch."""
        product, width = self._product, self._width
        columns = index(product.n)
        blocks = (columns + (width - 1)) // width

        def item(p: PrimExpr) -> Stmt:
            first = minimum((p % blocks) * width, columns - width)
            return self._block(p // blocks, first)

        return parallel(index(prod(product.batch)) * blocks, item)

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

    def _block(self, number: PrimExpr, first: PrimExpr) -> Stmt:
        """Compute a block of columns of one product."""
        tiling, product, width = self._tiling, self._product, self._width
        outer, a_element, b_element = self._elements(number)
        largest = tiling.rows_for(width // tiling.lanes)
        copied = product.transpose_b
        panel: Buffer | None = None
        if copied:
            panel = Buffer("panel", (product.k, width), product.b.dtype, MemoryScope.STACK)

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

        body = self._rows(largest, tile)
        if panel is None:
            return body
        filled = transpose_into_panel(
            tiling, product, panel, (0, width), lambda k, c: b_element(k, first + c)
        )
        return Allocate(panel, seq(filled, body))

    def _rows(self, largest: int, tile: Callable[[PrimExpr, int], Stmt]) -> Stmt:
        """Cover the rows with tiles."""
        rows = index(self._product.m)
        if isinstance(rows, IntImm):
            limit = best_rows(rows.value, largest)
            return for_parts(cut(rows.value, limit), tile, "m")

        def version(size: int) -> Stmt:
            count = (rows + (size - 1)) // size
            return serial(count, lambda n: tile(minimum(n * size, rows - size), size), "m")

        return tile_versions(rows, largest, version)

    def single_elements(self) -> Stmt:
        """Compute a product of few columns, element by element."""
        product = self._product
        rows, columns = index(product.m), index(product.n)

        def item(p: PrimExpr) -> Stmt:
            outer, a_element, b_element = self._elements(p // rows)
            row = p % rows
            total = Buffer("total", (1,), product.a.dtype, MemoryScope.REGISTER)
            at = (index(0),)

            def column(c: PrimExpr) -> Stmt:
                def add(k: PrimExpr) -> Stmt:
                    value = load(total, 0) + a_element(row, k) * b_element(k, c)
                    return store(total, at, value)

                return Allocate(
                    total,
                    seq(
                        store(total, at, const(0, total.dtype)),
                        serial(index(product.k), add, "k"),
                        self._epilogue(load(total, 0), (*outer, row, c)),
                    ),
                )

            return serial(columns, column, "n")

        return parallel(index(prod(product.batch)) * rows, item)
