# SPDX-License-Identifier: Apache-2.0
"""GEMM with prepacked constant weights on the left: ``C[O, P] = W[O, K] @ B[K, P]``.

A 1x1 convolution in the model's layout, NCHW, has ``P`` pixels. Their number seldom fills vectors
(196 are 12.25 of 16 lanes), and output channels nearly always do: the register tile has pixels as
rows, whose elements are broadcast, and channels as columns, and is transposed when it is stored::

    parallel: batch x panels of pixels x groups of blocks of channels
      copy the pixels of the panel, channel by channel    # if their rows lie a page apart
      for block of channels:                              # packed weights [K, width]
        for tile of pixels:                               # micro_kernel.py: all of K in registers
          store the sums to the stack, transpose them by squares of registers
          for channel of the block: epilogue(pixels of the tile)

- Registers: 6 x 2 accumulators + 2 of W + 1 broadcast = 15 of 16 ymm, 14 x 2 + 2 + 1 = 31 of 32
  zmm. Transposed, a square is 8 + 2 ymm or 16 + 2 zmm.
- Caches: a panel is at most ``panel_bytes`` and stays in the second-level cache while all blocks of
  weights pass. It is copied where rows of ``B`` are a page apart or more, as of 32 x 32 pixels:
  2048 of them take 0.89 of the time of the other form then, and 1.11 as they lie (AMD Zen 4).
- Weights of 1024 channels, 4096 bytes, would all begin in one set of a first-level cache if they
  were broadcast (``aliased_rows.py``). Of 1024 channels and 14 x 14 pixels this form takes 0.78 of
  the time of the other one, of 256 channels and 3 x 3 pixels 0.7 (AMD Zen 4).
- Prefetch: the next block of weights, shared by the tiles (``prefetch.py``).

The tile is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM
TOMS 2008), computed for the transposed result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Call, Expr, call, tensor_type
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Load, PrimExpr, Ramp, index
from intarsia_ir.tir.stmt import Allocate, Stmt, Store
from intarsia_ir.tir.tensor import Reduction, Tensor, compute, reduce_axis, sum_over
from intarsia_runtime.dtype import DType

from .aliased_rows import copied_rows, most_rows
from .dense import panel_rows, share_panels
from .loops import (
    EpilogueStore,
    RangePart,
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
from .packing import unpack_dense
from .panel import LINE, Matrix
from .prefetch import prefetch_next_block
from .tiling import CpuTiling, best_rows

Array = np.ndarray

Pixel: TypeAlias = "Callable[[PrimExpr, PrimExpr], PrimExpr]"
"""``pixel(channel, i)``: an element of a panel."""

_PAGE_BYTES = 4096
"""Rows so long that the lines of a tile are of as many pages as it has steps."""

_ALIASED, _MANY_PAGES, _GAIN = 1.1, 1.08, 0.97
"""What broadcast weights in one set of a cache cost, and pixels of many pages; a gain in time."""

_PAGES = 1024
"""Pages that are many: more than a first-level translation cache holds."""


@operator("cpu.column_dense", OpKind.ANCHOR)
class ColumnDense(Op):
    """Product of packed ``weight[blocks, K, width]``, as the matrix ``[outputs, K]``, and
    ``b[..., K, P]``.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``outputs``: rows of the result, which packing hides."""

        outputs: int

    @staticmethod
    def type_rule(attrs: Attrs, b: TensorType, _weight: TensorType) -> TensorType:
        """``[..., outputs, P]``."""
        return b.with_shape((*b.shape[:-2], attrs.outputs, b.shape[-1]))

    @staticmethod
    def reference(attrs: Attrs, b: Array, weight: Array) -> Array:
        """The product with the unpacked matrix."""
        return np.matmul(unpack_dense(weight, attrs.outputs).T, b)

    @staticmethod
    def compute(attrs: Attrs, b: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        k, width = reduce_axis(b.shape[-2]), weight.shape[2]

        def element(*indices: PrimExpr) -> Reduction:
            *outer, o, p = indices
            return sum_over(weight[o // width, k.var, o % width] * b[(*outer, k.var, p)], (k,))

        shape = (*b.shape[:-2], attrs.outputs, b.shape[-1])
        return compute(shape, element, name="cpu_column_dense")


class ColumnProduct(Struct, frozen=True):
    """Operands of the product.

    Attributes:
        b: ``[..., K, P]``.
        weight: Packed ``[blocks, K, width]``.
        outputs: Rows of the result.
        epilogue: ``epilogue(value, (..., output, pixel))`` stores a result.
    """

    b: Buffer
    weight: Source
    outputs: int
    epilogue: EpilogueStore


def column_dense_loops(tiling: CpuTiling, work: ColumnProduct) -> Stmt:
    """Return the loops; panels of pixels and groups of blocks are shared between threads."""
    *outer, depth, pixels = work.b.shape
    blocks, _, width = work.weight.shape
    tile = best_rows(pixels, tiling.rows_for(width // tiling.lanes))
    size = panel_rows(pixels, depth, tile, blocks, tiling.panel_bytes)
    matrix = Matrix(prod(outer) * pixels, depth, lambda _row, k: k, pixels * work.b.dtype.bytes)
    stmts: list[Stmt] = []
    for part in cut(pixels, size):

        def item(
            number: PrimExpr,
            _one: int,
            first: PrimExpr,
            count: int,
            used: int,
            part: RangePart = part,
        ) -> Stmt:
            image = unflatten(number // part.count, outer) if outer else []
            start = part.start_of(number % part.count)
            panel = _Panel(tiling, work, image, (start, part.size, tile), (first, count, used))
            return panel.loops()

        numbers = [RangePart(0, prod(outer) * part.count, 1)]
        stmts.append(share_panels(numbers, matrix, work.weight, work.outputs, item))
    return seq(*stmts)


class _Panel(Struct, frozen=True):
    """Some pixels of an image and some blocks of weights.

    Attributes:
        tiling: Register tile.
        work: The product.
        image: Indices of the image.
        pixels: The first one, how many, and how many a tile has.
        columns: First block, how many, and how many columns of each are there.
    """

    tiling: CpuTiling
    work: ColumnProduct
    image: list[PrimExpr]
    pixels: tuple[PrimExpr, int, int]
    columns: tuple[PrimExpr, int, int]

    def loops(self) -> Stmt:
        """Multiply, block by block, pixels that are copied if their rows lie a page apart."""
        work, (start, size, _), (first, blocks, _) = self.work, self.pixels, self.columns
        *_, depth, pixels = work.b.shape

        def given(k: PrimExpr | int, i: PrimExpr) -> PrimExpr:
            return load(work.b, *self.image, k, start + i)

        def multiplied(pixel: Pixel) -> Stmt:
            return serial(blocks, lambda n: self._block(pixel, first + n), "n")

        if pixels * work.b.dtype.bytes < _PAGE_BYTES:
            return multiplied(given)
        panel = Buffer("panel", (depth, size), work.b.dtype, MemoryScope.STACK)
        filled = copied_rows(panel, (depth, size), self.tiling.lanes, given)
        return Allocate(panel, seq(filled, multiplied(lambda k, i: load(panel, k, i))))

    def _block(self, pixel: Pixel, number: PrimExpr) -> Stmt:
        """Compute all pixels of the panel for a block of channels."""
        tiling, weight, (_, size, largest) = self.tiling, self.work.weight, self.pixels
        depth, width = weight.shape[1:]
        lanes = tiling.lanes

        def tile(row: PrimExpr, count: int) -> Stmt:
            squares = -(-count // lanes)
            sums = Buffer("sums", (squares * lanes, width), weight.dtype, MemoryScope.STACK)
            summed = register_tile(
                tiling,
                rows=count,
                columns=width,
                largest=(largest, width),
                steps=(depth,),
                left=lambda r, k: pixel(k[0], row + r),
                right=lambda k, c: load(weight, number, k[0], c),
                epilogue=lambda r, c, value: store(sums, (r, c), value),
                dtype=weight.dtype,
                weight_prefetch=prefetch_next_block(
                    tiling.prefetch, weight, (number + 1, 0), depth, (row, size), count
                ),
            )
            return Allocate(sums, seq(summed, self._stores(sums, (row, count), number * width)))

        return for_parts(cut(size, largest), tile, "m")

    def _stores(self, sums: Buffer, rows: tuple[PrimExpr, int], channel: PrimExpr) -> Stmt:
        """Transpose the sums of a tile, and store them channel by channel."""
        (row, count), lanes, used = rows, self.tiling.lanes, self.columns[2]
        turned = Buffer("turned", (sums.shape[1], sums.shape[0]), sums.dtype, MemoryScope.STACK)
        transpose_registers = self.tiling.transpose_registers
        assert transpose_registers is not None  # as of who has vectors

        def square(down: int, right: int) -> Stmt:
            def vector(r: int) -> PrimExpr:  # rows behind the last one are not stored
                line = index(min(down + r, count - 1))
                return Load(sums, (line, Ramp(index(right), 1, lanes)), sums.dtype, lanes)

            def write(number: int, value: PrimExpr) -> Stmt:
                return Store(turned, (index(right + number), Ramp(index(down), 1, lanes)), value)

            return transpose_registers([vector(r) for r in range(lanes)], write)

        squares = [
            square(down, right)
            for down in range(0, count, lanes)
            for right in range(0, used, lanes)
        ]

        def stored(c: PrimExpr) -> Stmt:
            def element(i: PrimExpr) -> Stmt:
                place = (*self.image, channel + c, self.pixels[0] + row + i)
                return self.work.epilogue(load(turned, c, i), place)

            return copy_rows(count, lanes, element)

        return Allocate(turned, seq(*squares, serial(used, stored, "column")))


def suits_column_dense(node: Call, attrs: Matmul.Attrs, tiling: CpuTiling) -> bool:
    """Whether a product with a constant on the left takes less time so.

    Args:
        node: The product, of known sizes.
        attrs: Its attributes.
        tiling: Register tile of the machine.
    """
    a, b = (tensor_type(arg) for arg in node.args)
    outputs, pixels = tensor_type(node).static_shape[-2:]
    if a.rank != 2 or b.rank < 2 or attrs.transpose_b or a.dtype is not DType.FLOAT32:
        return False
    if tiling.transpose_registers is None or tiling.left_lanes is not None or 0 in b.shape:
        return False
    depth, lanes, rows = b.static_shape[-2], tiling.lanes, tiling.rows_for(2)
    by_pixels = float(outputs * -(-pixels // lanes) * depth)
    if rows > most_rows(depth * a.dtype.bytes):
        by_pixels *= _ALIASED
    exchanges = -(-pixels // rows) * lanes * (lanes.bit_length() - 1)
    by_channels = -(-outputs // lanes) * (pixels * depth + exchanges)
    if pixels * a.dtype.bytes >= _PAGE_BYTES:
        by_channels += pixels * depth  # the copy: a load and a store for a vector
        # The other form copies pixels too where vectors are shorter than a cache line.
        if depth >= _PAGES and lanes * a.dtype.bytes >= LINE:
            by_pixels *= _MANY_PAGES
    return by_channels < _GAIN * by_pixels


def column_dense(node: Call, b: Expr, packed: Expr) -> Expr:
    """Return a product of ``b`` and the packed constant on its left."""
    attrs = ColumnDense.Attrs(outputs=tensor_type(node).static_shape[-2])
    return call(ColumnDense, b, packed, attrs=attrs, span=node.span)
