# SPDX-License-Identifier: Apache-2.0
"""Products with a transposed matrix of few rows or columns and an open K: dot products.

``C[m, n] = A[m, :] . B[n, :]`` reads both operands in order, and B once for each row of A. Packing
B into panels (``open_matmul.py``) takes as long as two or three of these passes. A dot product has
four vectors of sums, which hide the latency of multiply-adds: 4 sums + 1 A + 1 B = 6 of 16
registers; then one vector at a time, and single elements.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, Load, PrimExpr, Ramp, ReduceLanes, const, index, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt

from .loops import (
    EpilogueStore,
    load,
    parallel,
    seq,
    serial,
    store,
    unflatten,
    unrolled,
    vectorized,
)
from .matmul import matrix_element
from .product_panels import Product
from .tiling import CpuTiling

_VECTORS = 4

Elements: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]
"""Returns an element of a matrix."""


def open_dot_loops(tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> Stmt:
    """Return the loops; A is not transposed, and B is."""
    lanes, dtype, depth = tiling.lanes, product.a.dtype, index(product.k)
    rows, columns = index(product.m), index(product.n)
    step = _VECTORS * lanes

    def item(p: PrimExpr) -> Stmt:
        outer = unflatten(p // rows, list(product.batch)) if product.batch else []
        a = matrix_element(product.a, outer, product.batch, flipped=False)
        b = matrix_element(product.b, outer, product.batch, flipped=True)
        row = p % rows
        return serial(columns, lambda n: dot(outer, (row, n), (a, b)), "n")

    def dot(
        outer: list[PrimExpr], at: tuple[PrimExpr, PrimExpr], operands: tuple[Elements, Elements]
    ) -> Stmt:
        sums = Buffer("sums", (_VECTORS, lanes), dtype, MemoryScope.REGISTER)
        rest = Buffer("rest", (1,), dtype, MemoryScope.REGISTER)
        (row, column), (a, b) = at, operands

        def product_at(k: PrimExpr) -> PrimExpr:
            return a(row, k) * b(k, column)

        def add(first: PrimExpr, v: PrimExpr) -> Stmt:
            return vectorized(
                lanes,
                lambda i: store(sums, (v, i), load(sums, v, i) + product_at(first + v * lanes + i)),
            )

        def several(k: PrimExpr) -> Stmt:
            return unrolled(_VECTORS, lambda v: add(k * step, v), "v")

        def cleared(v: PrimExpr) -> Stmt:
            return vectorized(lanes, lambda i: store(sums, (v, i), const(0, dtype)))

        def single(k: PrimExpr) -> Stmt:
            value = product_at(depth // lanes * lanes + k)
            return store(rest, (index(0),), load(rest, 0) + value)

        def total() -> PrimExpr:
            parts = [_vector(sums, v) for v in range(_VECTORS)]
            whole = (parts[0] + parts[1]) + (parts[2] + parts[3])
            return ReduceLanes(BinaryOp.ADD, whole, dtype) + load(rest, 0)

        body = seq(
            unrolled(_VECTORS, cleared, "v"),
            store(rest, (index(0),), const(0, dtype)),
            serial(depth // step, several, "k"),
            serial(
                minimum(depth % step // lanes, _VECTORS - 1),
                lambda k: add(depth // step * step + k * lanes, index(0)),
                "k",
            ),
            serial(minimum(depth % lanes, lanes - 1), single, "k"),
            epilogue(total(), (*outer, row, column)),
        )
        return Allocate(sums, Allocate(rest, body))

    return parallel(index(prod(product.batch)) * rows, item)


def _vector(sums: Buffer, row: int) -> PrimExpr:
    return Load(sums, (index(row), Ramp(index(0), 1, sums.shape[1])), sums.dtype, sums.shape[1])
