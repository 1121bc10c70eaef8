# SPDX-License-Identifier: Apache-2.0
"""Product of two matrices that are both known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ...tir.buffer import Buffer, Scope
from ...tir.expr import PrimExpr, const, index
from ...tir.stmt import Allocate, Stmt
from .dense import unflatten
from .loops import Finish, cut, for_parts, load, parallel, seq, serial, store, vectorized
from .tile import Shape, best_rows, block_width, column_parts, register_tile

_PANEL_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Product:
    """Operands of a batch of products.

    Attributes:
        a: ``[..., M, K]``, or ``[..., K, M]`` if transposed.
        b: ``[..., K, N]``, or ``[..., N, K]`` if transposed.
        batch: Leading dimensions of the result.
        rows: M.
        columns: N.
        depth: K.
        transpose_a: Whether ``a`` is transposed.
        transpose_b: Whether ``b`` is transposed.
    """

    a: Buffer
    b: Buffer
    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    transpose_a: bool
    transpose_b: bool


def matmul_loops(shape: Shape, product: Product, finish: Finish) -> Stmt | None:
    """Return the loops; ``None`` if a panel of ``b`` would not fit on the stack."""
    width = block_width(product.columns, shape)
    if product.depth * width * product.b.dtype.bytes > _PANEL_BYTES:
        return None
    stmts: list[Stmt] = []
    for first, blocks, used in column_parts(product.columns, width):

        def item(p: PrimExpr, f: int = first, b: int = blocks, u: int = used) -> Stmt:
            return _block(shape, product, (p // b, p % b + f), (width, u), finish)

        stmts.append(parallel(prod(product.batch) * blocks, item))
    return seq(*stmts)


def _block(
    shape: Shape,
    product: Product,
    place: tuple[PrimExpr, PrimExpr],
    columns: tuple[int, int],
    finish: Finish,
) -> Stmt:
    """Compute one block of columns of one product of the batch."""
    number, block = place
    width, used = columns
    outer = unflatten(number, list(product.batch)) if product.batch else []
    a_at = _matrix(product.a, outer, product.batch, flipped=product.transpose_a)
    b_at = _matrix(product.b, outer, product.batch, flipped=product.transpose_b)
    first = block * width
    copied = product.transpose_b or used < width
    panel = Buffer("panel", (product.depth, width), product.b.dtype, Scope.STACK)

    def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
        return load(panel, k[0], c) if copied else b_at(k[0], first + c)

    limit = best_rows(product.rows, shape.rows_for(width // shape.lanes))

    def tiled(start: PrimExpr, count: int) -> Stmt:
        return register_tile(
            shape,
            rows=count,
            columns=used,
            largest=(limit, width),
            steps=(product.depth,),
            left=lambda r, k: a_at(start + r, k[0]),
            right=right,
            finish=lambda r, c, value: finish(value, (*outer, start + r, first + c)),
            dtype=product.a.dtype,
        )

    body = for_parts(cut(product.rows, limit), tiled, "m")
    if not copied:
        return body
    return Allocate(panel, seq(_fill(product, panel, used, lambda k, c: b_at(k, first + c)), body))


def _fill(
    product: Product, panel: Buffer, used: int, element: Callable[[PrimExpr, PrimExpr], PrimExpr]
) -> Stmt:
    """Copy a block of ``b`` into the panel; columns behind the last are 0."""
    width = panel.shape[1]
    zero = const(0, panel.dtype)

    def row(k: PrimExpr) -> Stmt:
        own = vectorized(used, lambda c: store(panel, (k, c), element(k, c)))
        if product.transpose_b:
            own = serial(used, lambda c: store(panel, (k, c), element(k, c)))
        if used == width:
            return own
        rest = vectorized(width - used, lambda c: store(panel, (k, c + used), zero))
        return seq(own, rest)

    return serial(product.depth, row, "k")


def _matrix(
    buffer: Buffer, outer: Sequence[PrimExpr], batch: Sequence[int], *, flipped: bool
) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Return ``element(i, j)`` of the matrix that broadcasting puts at ``outer``."""
    own = buffer.shape[:-2]
    skip = len(batch) - len(own)
    leading = [index(0) if size == 1 else at for size, at in zip(own, outer[skip:], strict=True)]

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return load(buffer, *leading, *((j, i) if flipped else (i, j)))

    return element
