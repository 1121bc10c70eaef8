# SPDX-License-Identifier: Apache-2.0
"""Operators as batches of matrix products: ``matmul``, and convolutions as implicit GEMM.

A backend says how elements of a type are multiplied, and writes the loops: see
:mod:`intarsia_loops.gpu.gemm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import load, store, unflatten
from intarsia_ir.tir.expr import PrimExpr, all_of, cast, const, if_then_else, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType

from ..epilogue import Epilogue, epilogue
from ..typical import typical
from .gemm import BatchedGemm, ProductKernel

_SMALLEST = 8
"""Rows, columns or terms below which a tile would be mostly empty."""


class ProductTypes(Struct, frozen=True):
    """The types in which elements are multiplied and added.

    Attributes:
        elements: Type of the operands as they lie in shared memory.
        sums: Type in which products are added.
        mode: As :attr:`~intarsia_loops.gpu.gemm.BatchedGemm.mode`.
    """

    elements: DType
    sums: DType
    mode: str = ""


class GroupProduct(Struct, frozen=True):
    """A fused group whose anchor is a batch of products.

    Attributes:
        group: The group.
        fused: Its epilogue.
        product: The products.
    """

    group: FusedGroup
    fused: Epilogue
    product: BatchedGemm

    def kernel(self, loops: Callable[[BatchedGemm], ProductKernel | None]) -> PrimFunc | None:
        """Return the kernel; ``None`` if tiles do not pay, or ``loops`` gives none.

        Args:
            loops: Writes the loops of the products.
        """
        product = self.product
        whole = product.dtype in (DType.INT32, DType.INT64)
        if not (product.dtype.is_float or whole):
            return None
        if min(map(typical, (product.rows, product.columns, product.depth))) < _SMALLEST:
            return None
        kernel = loops(product)
        if kernel is None:
            return None
        body, scratch = kernel
        buffers = (*self.fused.buffers, *scratch)
        return PrimFunc(self.group.name, buffers, self.fused.outputs, body, len(scratch))


ProductTypesOf: TypeAlias = "Callable[[DType], ProductTypes]"
"""How a backend multiplies elements of a type."""


def matmul_product(group: FusedGroup, types: ProductTypesOf) -> GroupProduct | None:
    """``matmul``: a batch of products, whose leading dimensions broadcast."""
    fused = epilogue(group)
    a, b = fused.anchor_args
    if a is None or b is None or group.anchor is None:
        return None
    attrs = group.anchor.attrs
    if not isinstance(attrs, Matmul.Attrs):
        return None
    *batch, rows, columns = fused.output.shape
    depth = a.shape[-2 if attrs.transpose_a else -1]
    own = [rows]
    if prod(b.shape[:-2]) == 1 and a.shape[:-2] == tuple(batch) and not attrs.transpose_a:
        # All multiply the same matrix: one product, whose rows are those of all.
        own, batch = [*batch, rows], []

    def left(number: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        if len(own) > 1:
            return load(a, *unflatten(i, own), k)
        return _element(a, batch, number, (k, i) if attrs.transpose_a else (i, k))

    def right(number: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        place = (j, k) if attrs.transpose_b else (k, j)
        if len(own) > 1:
            return load(b, *[index(0)] * len(b.shape[:-2]), *place)
        return _element(b, batch, number, place)

    def store_result(number: PrimExpr, i: PrimExpr, j: PrimExpr, value: PrimExpr) -> Stmt:
        place = (*unflatten(number, batch), *unflatten(i, own), j)
        return _epilogue_store(fused, a.dtype, value, place)

    chosen = types(a.dtype)
    product = BatchedGemm(
        prod(batch), prod(own), columns, depth, left, right,
        not attrs.transpose_a, attrs.transpose_b, store_result,
        chosen.elements, chosen.sums, chosen.mode, a.shape[-1], b.shape[-1],
    )  # fmt: skip
    return GroupProduct(group, fused, product)


def conv_product(group: FusedGroup, types: ProductTypesOf) -> GroupProduct | None:
    """``nn.conv`` as a product of the weights and the windows, which are read where they lie."""
    fused = epilogue(group)
    if any(arg is None for arg in fused.anchor_args) or group.anchor is None:
        return None
    attrs = group.anchor.attrs
    if not isinstance(attrs, Conv.Attrs):
        return None
    data, weight, *bias = [arg for arg in fused.anchor_args if arg is not None]
    outputs, inner, *kernel = weight.shape
    count, _, *spatial = fused.output.shape
    own = outputs // attrs.groups

    def left(number: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(weight, number * own + i, *unflatten(k, (inner, *kernel)))

    def right(number: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        channel, *taps = unflatten(k, (inner, *kernel))
        n, *place = unflatten(j, (count, *spatial))
        at = [
            p * stride + tap * dilation - before
            for p, tap, stride, dilation, (before, _) in zip(
                place, taps, attrs.strides, attrs.dilation, attrs.padding, strict=True
            )
        ]
        value = load(data, n, number * inner + channel, *at)
        edges = [
            condition
            for p, size, padding in zip(at, data.shape[2:], attrs.padding, strict=True)
            if padding != (0, 0)
            for condition in (p >= 0, p < size)
        ]
        return if_then_else(all_of(edges), value, const(0, data.dtype)) if edges else value

    def store_result(number: PrimExpr, i: PrimExpr, j: PrimExpr, value: PrimExpr) -> Stmt:
        channel = number * own + i
        n, *place = unflatten(j, (count, *spatial))
        if bias:
            value = value + cast(load(bias[0], channel), value.dtype)
        return _epilogue_store(fused, data.dtype, value, (n, channel, *place))

    # Of 1 x 1 windows at every place, neighbouring columns are neighbours in memory.
    pointwise = prod(kernel) == 1 and tuple(data.shape[2:]) == tuple(spatial)
    chosen = types(data.dtype)
    product = BatchedGemm(
        attrs.groups, own, count * prod(spatial), inner * prod(kernel), left, right,
        True, False, store_result, chosen.elements, chosen.sums, chosen.mode,
        inner * prod(kernel), prod(spatial) if pointwise else 1,
    )  # fmt: skip
    return GroupProduct(group, fused, product)


def _element(
    buffer: Buffer, batch: Sequence[int], number: PrimExpr, inner: Sequence[PrimExpr]
) -> PrimExpr:
    """Read an element of the matrix that broadcasting puts at ``number`` of a batch."""
    own = buffer.shape[:-2]
    outer = unflatten(number, batch)[len(batch) - len(own) :]
    leading = [index(0) if size == 1 else at for size, at in zip(own, outer, strict=True)]
    return load(buffer, *leading, *inner)


def _epilogue_store(
    fused: Epilogue, dtype: DType, value: PrimExpr, indices: Sequence[PrimExpr]
) -> Stmt:
    """Store what the calls behind the product make of its element."""
    applied = fused.apply(cast(value, dtype), tuple(indices))
    return store(fused.output, indices, applied)
