# SPDX-License-Identifier: Apache-2.0
"""Products of two activations with fewer columns than a vector, along a K that only the run knows.

A part of K at a time is copied to a panel whose rows are filled up with zeros to a vector: 256 x 16
floats are 16 KiB, half of a first-level cache. It serves 64 rows, whose sums are on the stack, 4
KiB: so a copied element is used up to 64 times. Tiles are 8 rows x 1 vector, 8 accumulators + 1 B +
1 A = 10 of 32 zmm, which hide the latency of two multiply-add units; 4 rows, 6 of 16 ymm, where
tiles of the machine are smaller. All tiles are alike, so there is one version of them: behind the
last row they read that row again, and these sums are not stored. Computed one element at a time, a
sum waits for the latency of each addition: 500 x 600 by 600 x 12 took 28 times as long as in ONNX
Runtime (AVX-512), and takes as long now. Blocking K is Goto and van de Geijn's (ACM TOMS 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, const, index, minimum
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt

from .loops import EpilogueStore, let_all, load, parallel, seq, serial, store, vectorized
from .micro_kernel import register_tile
from .product_panels import Product
from .row_tiles import cover_rows
from .tiling import CpuTiling

_ROWS, _PART = 64, 256
"""Rows of an item of work, and elements along K of a panel."""

_FEW_ROWS = 4
"""Rows of a tile where K is known: where columns are few, rows nearly always are."""

Element: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]
"""Reads an element of a matrix at a row and a column."""


def few_columns_in_parts(
    tiling: CpuTiling,
    product: Product,
    elements: Callable[[PrimExpr], tuple[list[PrimExpr], Element, Element]],
    epilogue: EpilogueStore,
) -> Stmt:
    """Return the loops.

    Args:
        tiling: Register tile, of more than one lane.
        product: Operands.
        elements: ``elements(number)``: the place of a product in the batch, and what reads A and B.
        epilogue: Stores an element.
    """
    lanes = tiling.lanes
    panel = Buffer("panel", (_PART, lanes), product.b.dtype, MemoryScope.STACK)
    sums = Buffer("sums", (_ROWS, lanes), product.a.dtype, MemoryScope.STACK)
    rows, number, first, count = index(product.m), *map(TirVar, ("number", "first", "count"))
    blocks = (rows + (_ROWS - 1)) // _ROWS
    item = _Item(tiling, product, panel, sums, first, count)

    def computed(p: PrimExpr) -> Stmt:
        outer, a, b = elements(number)

        def stored(r: PrimExpr) -> Stmt:
            place = (*outer, first + r)
            return serial(item.columns, lambda c: epilogue(load(sums, r, c), (*place, c)), "n")

        begin = serial(_ROWS, lambda r: cleared(sums, r), "r")
        body = seq(begin, item.parts(a, b), serial(count, stored, "r"))
        start = p % blocks * _ROWS
        bound = [(number, p // blocks), (first, start), (count, minimum(rows - start, _ROWS))]
        return let_all(bound, Allocate(panel, Allocate(sums, body)))

    return parallel(index(prod(product.batch)) * blocks, computed)


def few_columns_at_once(
    tiling: CpuTiling,
    product: Product,
    elements: Callable[[PrimExpr], tuple[list[PrimExpr], Element, Element]],
    epilogue: EpilogueStore,
) -> Stmt:
    """Return the loops where all of a known K fits a panel; arguments of the function above."""
    lanes = tiling.lanes
    # The bound says that there is nothing to vectorize.
    rows, columns = index(product.m), minimum(index(product.n), lanes - 1)
    panel = Buffer("panel", (product.k, lanes), product.b.dtype, MemoryScope.STACK)
    limit = min(_FEW_ROWS, tiling.rows)

    def item(number: PrimExpr) -> Stmt:
        outer, a_element, b_element = elements(number)
        sums = Buffer("sums", (limit, lanes), product.a.dtype, MemoryScope.STACK)

        def row(k: PrimExpr) -> Stmt:
            return serial(columns, lambda c: store(panel, (k, c), b_element(k, c)), "n")

        def tile(start: PrimExpr, count: int) -> Stmt:
            def stored(r: PrimExpr) -> Stmt:
                def element(c: PrimExpr) -> Stmt:
                    return epilogue(load(sums, r, c), (*outer, start + r, c))

                return serial(columns, element, "n")

            made = register_tile(
                tiling,
                rows=count,
                columns=lanes,
                largest=(limit, lanes),
                steps=(index(product.k),),
                left=lambda r, k: a_element(start + r, k[0]),
                right=lambda k, c: load(panel, k[0], c),
                epilogue=lambda r, c, value: store(sums, (r, c), value),
                dtype=product.a.dtype,
            )
            return seq(made, serial(count, stored, "r"))

        filled = serial(product.k, lambda k: seq(cleared(panel, k), row(k)), "k")
        return Allocate(panel, Allocate(sums, seq(filled, cover_rows(rows, limit, tile, 1))))

    return parallel(index(prod(product.batch)), item)


class _Item(Struct, frozen=True):
    """Rows of one product, ``count`` of them from ``first`` on."""

    tiling: CpuTiling
    product: Product
    panel: Buffer
    sums: Buffer
    first: PrimExpr
    count: PrimExpr

    @property
    def columns(self) -> PrimExpr:
        """How many columns there are; the bound says that there is nothing to vectorize."""
        return minimum(index(self.product.n), self.tiling.lanes - 1)

    def parts(self, a: Element, b: Element) -> Stmt:
        """Add the products of all parts of K to the sums of the rows."""
        panel, begin, depth = self.panel, TirVar("begin"), TirVar("depth")
        height = 8 if self.tiling.rows >= 8 else 4

        def copied(k: PrimExpr) -> Stmt:
            row = serial(self.columns, lambda c: store(panel, (k, c), b(begin + k, c)), "n")
            return seq(cleared(panel, k), row)

        def part(p: PrimExpr) -> Stmt:
            tiles = (self.count + (height - 1)) // height
            tile = partial(self._tile, a, height, begin, depth)
            body = seq(serial(depth, copied, "k"), serial(tiles, tile, "m"))
            length = minimum(index(self.product.k) - begin, _PART)
            return LetStmt(begin, p * _PART, LetStmt(depth, length, body))

        return serial((index(self.product.k) + (_PART - 1)) // _PART, part, "part")

    def _tile(
        self, a: Element, height: int, begin: PrimExpr, depth: PrimExpr, number: PrimExpr
    ) -> Stmt:
        """Add the products of ``depth`` elements of rows and of the panel."""
        lanes, last, top = self.tiling.lanes, index(self.product.m) - 1, number * height
        return register_tile(
            self.tiling,
            rows=height,
            columns=lanes,
            largest=(height, lanes),
            steps=(depth,),
            left=lambda r, k: a(minimum(self.first + top + r, last), begin + k[0]),
            right=lambda k, c: load(self.panel, k[0], c),
            epilogue=lambda r, c, value: store(self.sums, (top + r, c), value),
            dtype=self.product.a.dtype,
            initial=lambda r, c: load(self.sums, top + r, c),
        )


def cleared(buffer: Buffer, row: PrimExpr, first: int = 0, count: int = 0) -> Stmt:
    """Write zeros to a row, or to ``count`` columns of it."""
    zero, lanes = const(0, buffer.dtype), count or buffer.shape[1]
    return vectorized(lanes, lambda c: store(buffer, (row, c + first), zero))
