# SPDX-License-Identifier: Apache-2.0
"""Batched GEMM of two activations: ``C[M, N] = A[M, K] @ B[K, N]``, B not known at compile time.

Three forms:

- ``B[K, N]`` is read where it lies, or copied where its rows are far apart
  (``product_panels.py``): the register tile of ``micro_kernel.py``, 6 x 2 accumulators + 2 B + 1 A
  = 15 of 16 ymm (14 x 2 + 2 + 1 = 31 of 32 zmm). With M = 1 the tile is 1 row of up to 8 vectors: 8
  accumulators + 8 B + 1 A = 17 is above 16 registers, but B is a memory operand of the multiply-add
  then, which leaves 8 + 1.
- ``B[N, K]`` (transposed, as the keys of attention): a block of ``width`` columns is transposed
  into a packed panel ``[K, width]`` of at most 512 KiB on the stack, by squares in registers
  (:attr:`~.tiling.CpuTiling.transpose_registers`), then multiplied. The panel stays in the
  second-level cache for all rows. If several products of the batch share B, it is transposed once,
  by a kernel of its own (``layout.py``).
- M = 1 and ``B[N, K]``: dot products along K, 8 rows of B at a time: 8 accumulators + 1 A + 1 B =
  10 of 16; lanes are reduced at the end. Eight sums hide the latency of two multiply-add units.

An item of work computes several blocks of columns side by side if the result is wide, because
stores of a row in order are followed by the hardware prefetcher, stores of one block of a row are
not. Packing B into panels is Goto and van de Geijn's (ACM TOMS 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    const,
    index,
    minimum,
    select,
)
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt, Store
from intarsia_runtime.size import numbers

from .aliased_rows import Rows, with_rows_apart
from .dense import ITEMS
from .loops import (
    EpilogueStore,
    cut,
    for_parts,
    load,
    parallel,
    seq,
    serial,
    unflatten,
)
from .micro_kernel import register_tile
from .product_panels import PANEL_BYTES, Product, copied_blocks
from .tiling import CpuTiling, best_rows, block_width, column_parts

_MOST_VECTORS = 8
_DOT_ROWS = 8


def matmul_loops(tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> Stmt | None:
    """Return the loops; ``None`` if a panel of ``b`` would not fit on the stack."""
    if product.is_row_by_rows and product.k >= tiling.lanes > 1:
        return _dots(tiling, product, epilogue)
    width = _width(tiling, product)
    if not _fits(product, width):
        return None
    stmts: list[Stmt] = []
    for first, blocks, used in column_parts(product.n, width):
        blocks_per_item = _blocks_per_item(tiling, product, blocks, width) if used == width else 1

        def item(
            p: PrimExpr, f: int = first, b: int = blocks, u: int = used, n: int = blocks_per_item
        ) -> Stmt:
            pieces = -(-b // n)
            start = p % pieces * n
            count = n if b % n == 0 else minimum(index(n), b - start)
            work_item = _MatmulWorkItem(p // pieces, start + f, count, n)
            return _blocks(tiling, product, work_item, (width, u), epilogue)

        pieces = -(-blocks // blocks_per_item)
        stmts.append(parallel(index(prod(product.batch)) * pieces, item))
    return seq(*stmts)


def _blocks_per_item(tiling: CpuTiling, product: Product, blocks: int, width: int) -> int:
    """Return how many blocks of columns an item computes side by side.

    A result whose rows are written a block at a time waits for memory: caches fetch ahead what is
    written in order.
    """
    few_rows = product.m <= tiling.rows_for(width // tiling.lanes)
    if few_rows or product.transpose_b or blocks < 2 * ITEMS or tiling.lanes == 1:
        return 1
    most = max(1, tiling.panel_bytes // (product.k * width * product.b.dtype.bytes))
    items = max(-(-blocks // most), -(-ITEMS // prod(numbers(product.batch))))
    return -(-blocks // items)


def _dots(tiling: CpuTiling, product: Product, epilogue: EpilogueStore) -> Stmt:
    """Multiply a row with rows, some at a time, by vectors along both."""
    lanes, depth, columns = tiling.lanes, product.k, product.n
    dot_rows = min(columns, _DOT_ROWS)
    blocks = -(-columns // dot_rows)
    dtype = product.a.dtype

    def item(p: PrimExpr) -> Stmt:
        outer = unflatten(p // blocks, list(product.batch)) if product.batch else []
        a_element = matrix_element(product.a, outer, product.batch, flipped=False)
        b_element = matrix_element(product.b, outer, product.batch, flipped=True)
        # The last rows overlap those before, if there is no whole number of them.
        first = minimum((p % blocks) * dot_rows, columns - dot_rows)
        sums = Buffer("sums", (dot_rows, lanes), dtype, MemoryScope.REGISTER)

        def vector(element: PrimExpr) -> PrimExpr:
            assert isinstance(element, Load)  # as of every element
            *others, last = element.indices
            return Load(element.buffer, (*others, Ramp(last, 1, lanes)), dtype, lanes)

        def accumulator(n: int) -> tuple[PrimExpr, PrimExpr]:
            return index(n), Ramp(index(0), 1, lanes)

        def add(k: PrimExpr, fresh: PrimExpr | None = None) -> Stmt:
            shared = TirVar("shared", dtype, lanes)
            stmts: list[Stmt] = []
            for n in range(dot_rows):
                value = shared * vector(b_element(k, first + n))
                counted = value if fresh is None else select(fresh, value, const(0, dtype))
                stmts.append(
                    Store(sums, accumulator(n), Load(sums, accumulator(n), dtype, lanes) + counted)
                )
            return LetStmt(shared, vector(a_element(index(0), k)), seq(*stmts))

        zero = Broadcast(const(0, dtype), lanes, dtype)
        parts: list[Stmt] = [Store(sums, accumulator(n), zero) for n in range(dot_rows)]
        parts.append(serial(depth // lanes, lambda k: add(k * lanes), "k"))
        if depth % lanes:
            # Elements that were taken before count as nothing.
            fresh = Ramp(index(0), 1, lanes) >= lanes - depth % lanes
            parts.append(add(index(depth - lanes), fresh))
        for n in range(dot_rows):
            total = ReduceLanes(BinaryOp.ADD, Load(sums, accumulator(n), dtype, lanes), dtype)
            parts.append(epilogue(total, (*outer, index(0), first + n)))
        return Allocate(sums, seq(*parts))

    return parallel(index(prod(product.batch)) * blocks, item)


def _width(tiling: CpuTiling, product: Product) -> int:
    """Return how many columns one pass over the depth computes.

    A single row waits for memory, which is read best as it lies there: many columns at once.
    """
    vectors = min(-(-product.n // tiling.lanes), _MOST_VECTORS)
    least = block_width(product.n, tiling)
    if product.m > 1 or product.transpose_b:
        return least
    wide = (v * tiling.lanes for v in range(vectors, 2, -1))
    return next((width for width in wide if _fits(product, width)), least)


def _fits(product: Product, width: int) -> bool:
    """Whether a panel of so many columns fits on the stack, if there are panels."""
    copied = product.transpose_b or product.n % width
    return not copied or product.k * width * product.b.dtype.bytes <= PANEL_BYTES


class _MatmulWorkItem(Struct, frozen=True):
    """``count`` blocks of columns from ``block`` on, ``most`` at most, of one product."""

    number: PrimExpr
    block: PrimExpr
    count: PrimExpr | int
    most: int


def _blocks(
    tiling: CpuTiling,
    product: Product,
    work_item: _MatmulWorkItem,
    columns: tuple[int, int],
    epilogue: EpilogueStore,
) -> Stmt:
    """Compute some blocks of columns of one product of the batch; a copied one alone."""
    width, used = columns
    outer = unflatten(work_item.number, list(product.batch)) if product.batch else []
    a_element = matrix_element(product.a, outer, product.batch, flipped=product.transpose_a)
    b_element = matrix_element(product.b, outer, product.batch, flipped=product.transpose_b)
    first = work_item.block * width
    limit = best_rows(product.m, tiling.rows_for(width // tiling.lanes))
    copy = copied_blocks(tiling, product, columns, work_item.most, -(-product.m // limit))

    def tile(start: PrimExpr, count: int, n: PrimExpr | int, left: Rows) -> Stmt:
        def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
            if copy is None:
                return b_element(k[0], first + (c + n * width))
            return load(copy.panel, n * product.k + k[0], c + copy.before)

        return register_tile(
            tiling,
            rows=count,
            columns=used,
            largest=(limit, width),
            steps=(product.k,),
            left=lambda r, k: left(r, k[0]),
            right=right,
            epilogue=lambda r, c, value: epilogue(
                value, (*outer, start + r, first + (c + n * width))
            ),
            dtype=product.a.dtype,
        )

    def tiled(start: PrimExpr, count: int) -> Stmt:
        def along(left: Rows) -> Stmt:
            if work_item.count == 1:
                return tile(start, count, 0, left)
            return serial(work_item.count, lambda n: tile(start, count, n, left), "n")

        def row(r: PrimExpr | int, k: PrimExpr) -> PrimExpr:
            return a_element(start + r, k)

        if product.transpose_a or not used > tiling.lanes > 1:
            return along(row)
        return with_rows_apart(row, (count, product.k), product.a.dtype, tiling.lanes, along)

    body = for_parts(cut(product.m, limit), tiled, "m")
    if copy is None:
        return body
    filled = copy.filled(tiling, product, work_item.count, lambda k, c: b_element(k, first + c))
    return Allocate(copy.panel, seq(filled, body))


def matrix_element(
    buffer: Buffer, outer: Sequence[PrimExpr], batch: Sequence[int], *, flipped: bool
) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Return ``element(i, j)`` of the matrix that broadcasting puts at ``outer``."""
    own = buffer.shape[:-2]
    skip = len(batch) - len(own)
    leading = [
        index(0) if size == 1 else position
        for size, position in zip(own, outer[skip:], strict=True)
    ]

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return load(buffer, *leading, *((j, i) if flipped else (i, j)))

    return element
