# SPDX-License-Identifier: Apache-2.0
"""Panels of ``B`` that a product of two activations copies, ``[K, width]`` on the stack.

Three reasons to copy a block of columns (the loops are in ``matmul.py``):

- ``B`` is transposed: its squares are transposed in registers, or element by element.
- It is the last block, and no vector reads behind the last column: it is filled up with zeros.
- Its rows are far apart, and a tile reads a cache line of each (:func:`_is_distant`). Copied, lines
  follow each other, in one page. On AVX2 (AMD Zen 4) 256 channels of 56 x 56 pixels to 128 take
  0.85 of the time, 64 x 64 pixels, whose rows fall into one set, 0.57, K = 40 with N = 1024 0.49.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Load, PrimExpr, Ramp, const, index, minimum
from intarsia_ir.tir.stmt import IfStmt, Stmt, Store
from intarsia_runtime.size import Dim

from .aliased_rows import most_rows
from .loops import copy_rows, seq, serial, store, vectorized
from .panel import LINE
from .tiling import CpuTiling, block_width

PANEL_BYTES = 512 * 1024
"""Most memory of a panel on the stack."""

_PAGE = 4096
"""Bytes of a page of memory."""

_TRANSLATIONS = 64
"""Pages that a core translates at once without a miss, at least."""

_FEW_LINES = 32
"""Rows that the cache holds if they fall into few of its sets."""

_CACHE_LINES = 512
"""Lines of a first-level cache, at least: 32 KiB."""

_FEW_SETS_PASSES, _PAGES_PASSES, _PASSES = 4, 16, 40
"""Tiles that must read a copied block for the copy to pay: where rows fall into few sets, where
each is in another page, and elsewhere (AVX2 on AMD Zen 4)."""


class Product(Struct, frozen=True):
    """Operands of a batch of products.

    Attributes:
        a: ``[..., M, K]``, or ``[..., K, M]`` if transposed.
        b: ``[..., K, N]``, or ``[..., N, K]`` if transposed.
        batch: Leading dimensions of the result.
        m: Rows of the result.
        n: Columns of the result.
        k: Extent of the sum.
        transpose_a: Whether ``a`` is transposed.
        transpose_b: Whether ``b`` is transposed.
    """

    a: Buffer
    b: Buffer
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool

    @property
    def is_row_by_rows(self) -> bool:
        """Whether all of one row's elements meet those of rows of ``b``: no column is needed."""
        return self.m == 1 and self.transpose_b and not self.transpose_a


def transposes_panels(tiling: CpuTiling, b: TensorType, batch: Sequence[int]) -> bool:
    """Whether :func:`matmul_loops` turns a transposed matrix round by itself, a panel at a time.

    Not one that several products share: each of them would turn it round again.

    Args:
        tiling: Register tile.
        b: Type of the transposed matrices.
        batch: Leading dimensions of the result.
    """
    *own, columns, depth = b.static_shape
    width = block_width(columns, tiling)
    return (
        tiling.transpose_registers is not None
        and min(columns, depth) >= tiling.lanes
        and prod(own) == prod(batch)
        and depth * (width + tiling.lanes) * b.dtype.bytes <= PANEL_BYTES
    )


class CopiedBlocks(Struct, frozen=True):
    """Blocks of columns of ``b`` that an item of work copies.

    Attributes:
        panel: ``[blocks * K, before + width]``, one block below the other.
        before: Columns in front that are not used: squares at the end overlap those before, and of
            the first columns some lie before the block.
        used: Columns of the last block that are there.
        is_distant: Whether blocks are copied as they are; otherwise it is a single one.
    """

    panel: Buffer
    before: int
    used: int
    is_distant: bool

    def filled(
        self,
        tiling: CpuTiling,
        product: Product,
        blocks: PrimExpr | int,
        element: Callable[[PrimExpr, PrimExpr], PrimExpr],
    ) -> Stmt:
        """Return the loops that copy.

        Args:
            tiling: Register tile.
            product: All operands.
            blocks: How many, side by side.
            element: ``element(k, column)`` of ``b``, from the first block on.
        """
        if self.is_distant:
            return _side_by_side(tiling, product.k, self.panel, blocks, element)
        if _turns_panels(tiling, product):
            columns = (self.before, self.used)
            return transpose_into_panel(tiling, product, self.panel, columns, element)
        return _fill(product, self.panel, self.used, element)


def copied_blocks(
    tiling: CpuTiling, product: Product, columns: tuple[int, int], blocks: int, passes: int
) -> CopiedBlocks | None:
    """Return what an item of work copies; ``None`` if ``b`` is read where it lies.

    Args:
        tiling: Register tile.
        product: All operands.
        columns: Of a block, and how many of the last one are there.
        blocks: How many blocks the item has, at most.
        passes: Tiles that read a block.
    """
    width, used = columns
    is_distant = used == width and _is_distant(tiling, product, width, passes)
    if not (product.transpose_b or used < width or is_distant):
        return None
    before = tiling.lanes if _turns_panels(tiling, product) and used % tiling.lanes else 0
    shape = (blocks * product.k, before + width)
    panel = Buffer("panel", shape, product.b.dtype, MemoryScope.STACK)
    return CopiedBlocks(panel, before, used, is_distant)


def _is_distant(tiling: CpuTiling, product: Product, width: int, passes: int) -> bool:
    """Whether rows of ``b`` are so far apart that a block of columns is better copied.

    A block that is read where it lies takes a cache line of each row. They do not stay in a
    first-level cache whose sets hold fewer, nor can rows that lie in pages of their own be
    translated without a miss. Vectors as long as a cache line hide that: a step of their tiles
    takes twice as long, and there are half as many passes (copied, 1.03 of the time on Zen 4).

    Args:
        tiling: Register tile.
        product: All operands.
        width: Columns of a block.
        passes: Tiles that read a block.
    """
    stride = product.n * product.b.dtype.bytes
    kept = min(most_rows(stride), _CACHE_LINES) * LINE // (width * product.b.dtype.bytes)
    least = _FEW_SETS_PASSES if kept <= _FEW_LINES else _PASSES
    if stride >= _PAGE:
        kept, least = min(kept, _TRANSLATIONS), min(least, _PAGES_PASSES)
    if product.transpose_b or not LINE > tiling.lanes * product.b.dtype.bytes > LINE // 8:
        return False
    fits = product.k * width * product.b.dtype.bytes <= PANEL_BYTES
    return fits and passes >= least and product.k > kept


def _side_by_side(
    tiling: CpuTiling,
    depth: int,
    panel: Buffer,
    blocks: PrimExpr | int,
    element: Callable[[PrimExpr, PrimExpr], PrimExpr],
) -> Stmt:
    """Copy blocks of columns, which are side by side in a row, one below the other."""
    width = panel.shape[1]

    def row(k: PrimExpr) -> Stmt:
        def piece(n: PrimExpr) -> Stmt:
            def vector(c: PrimExpr) -> Stmt:
                return store(panel, (n * depth + k, c), element(k, n * width + c))

            return copy_rows(width, tiling.lanes, vector)

        return serial(blocks, piece, "n")

    return serial(depth, row, "k")


def _turns_panels(tiling: CpuTiling, product: Product) -> bool:
    """Whether panels are filled by squares that are transposed in registers."""
    kind = TensorType(product.b.shape, product.b.dtype)
    return product.transpose_b and transposes_panels(tiling, kind, product.batch)


def transpose_into_panel(
    tiling: CpuTiling,
    product: Product,
    panel: Buffer,
    columns: tuple[int, int],
    element: Callable[[PrimExpr, PrimExpr], PrimExpr],
) -> Stmt:
    """Fill the panel with squares of ``b`` turned round; columns behind the last are 0."""
    transpose_registers, lanes, depth = tiling.transpose_registers, tiling.lanes, index(product.k)
    before, used = columns
    assert transpose_registers is not None  # or panels are filled element by element
    starts = [min(c, used - lanes) for c in range(0, used, lanes)]

    def vector(work_item: PrimExpr) -> PrimExpr:
        assert isinstance(work_item, Load)  # as of every element
        *outer, last = work_item.indices
        return Load(work_item.buffer, (*outer, Ramp(last, 1, lanes)), work_item.dtype, lanes)

    def square(k: PrimExpr, c: int) -> Stmt:
        def write(number: int, value: PrimExpr) -> Stmt:
            return Store(panel, (k + number, Ramp(index(c + before), 1, lanes)), value)

        return transpose_registers([vector(element(k, index(c + i))) for i in range(lanes)], write)

    def strip(k: PrimExpr) -> Stmt:
        return seq(*(square(k, c) for c in starts))

    stmts: list[Stmt] = []
    rest = panel.shape[1] - before - used
    if rest:
        zero = const(0, panel.dtype)

        def clear(k: PrimExpr) -> Stmt:
            return vectorized(rest, lambda c: store(panel, (k, c + before + used), zero))

        stmts.append(serial(depth, clear, "k"))
    stmts.append(serial(depth // lanes, lambda k: strip(k * lanes), "k"))
    if not isinstance(product.k, Dim):
        return seq(*stmts, *((strip(depth - lanes),) if product.k % lanes else ()))
    stmts.append(IfStmt(depth % lanes > 0, strip(depth - lanes)))

    def row(k: PrimExpr) -> Stmt:
        return serial(used, lambda c: store(panel, (k, c), element(k, c)), "n")

    # Fewer rows than a square has are copied one by one.
    few = serial(minimum(depth, lanes - 1), row, "k")
    return IfStmt(depth >= lanes, seq(*stmts), few)


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

    return serial(product.k, row, "k")


def fits_panel(tiling: CpuTiling, product: Product, width: int) -> bool:
    """Whether a block of a transposed matrix can be transposed, on the stack or in the workspace.

    One of an open K is in the workspace, whatever it takes there.
    """
    if tiling.transpose_registers is None:
        return False
    if isinstance(product.k, Dim):
        return True
    return product.k >= tiling.lanes and product.k * width * product.b.dtype.bytes <= PANEL_BYTES
