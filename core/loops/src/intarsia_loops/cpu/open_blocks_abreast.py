# SPDX-License-Identifier: Apache-2.0
"""Blocks of an open number of columns side by side, as of weights by the pixels of an image.

Rows of the result, as many as channels, lie an image apart. Written a block at a time, each row is
a stream of its own that begins anew for every block; written row by row for some blocks, as in
``matmul.py``, stores are in order and hardware prefetchers follow (64 to 256 channels of 56 x 56
pixels 0.92 of the time, AVX-512). The register tile is that of ``matmul.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia_ir.tir.expr import PrimExpr, TirVar, index, minimum
from intarsia_ir.tir.stmt import LetStmt, Stmt

from .loops import EpilogueStore, serial
from .micro_kernel import register_tile
from .product_panels import Product
from .row_tiles import cover_rows
from .tiling import CpuTiling


def blocks_abreast(
    tiling: CpuTiling,
    product: Product,
    elements: tuple[
        list[PrimExpr],
        Callable[[PrimExpr, PrimExpr], PrimExpr],
        Callable[[PrimExpr, PrimExpr], PrimExpr],
    ],
    epilogue: EpilogueStore,
    blocks: tuple[PrimExpr, PrimExpr],
) -> Stmt:
    """Compute some blocks of two vectors of columns, of all rows of one product.

    Args:
        tiling: Register tile.
        product: Operands; rows and K are known.
        elements: The place of the product in the batch, and what reads A and B.
        epilogue: Stores an element.
        blocks: The first one, and how many; the last of all overlaps the one before.
    """
    (outer, a_element, b_element), (begin, count) = elements, blocks
    columns, width = index(product.n), 2 * tiling.lanes

    def tile(start: PrimExpr, rows: int) -> Stmt:
        def block(n: PrimExpr) -> Stmt:
            first = TirVar("first")
            made = register_tile(
                tiling,
                rows=rows,
                columns=width,
                largest=(tiling.rows, width),
                steps=(product.k,),
                left=lambda r, k: a_element(start + r, k[0]),
                right=lambda k, c: b_element(k[0], first + c),
                epilogue=lambda r, c, value: epilogue(value, (*outer, start + r, first + c)),
                dtype=product.a.dtype,
            )
            return LetStmt(first, minimum((begin + n) * width, columns - width), made)

        return serial(count, block, "n")

    return cover_rows(index(product.m), tiling.rows, tile, 1)
