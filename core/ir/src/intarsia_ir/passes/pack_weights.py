# SPDX-License-Identifier: Apache-2.0
"""Pack weights: multiply floats with weights of 4 and 8 bits as they are stored.

A model whose weights alone are quantized dequantizes them in front of a product with floats::

    matmul(x, reshape(dequantize(codes, scales, zeros))) --> nn.block_matmul(x, words, scales)

Floats in their place would be four or eight times the bytes, which a product of one row reads at
the speed of memory. Scales vary along the columns of the result and, in whole blocks, along K.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from ..graph.module import IRModule
from ..graph.types import TensorType
from ..graph.walk import children, post_order, with_children
from ..ops.arrays import Array
from ..ops.block_matmul import BlockMatmul, pack_block_words
from ..ops.block_product import WORD_BITS, middle_of
from ..ops.block_tiles import COLUMNS
from ..ops.nn import Matmul
from ..ops.reduce import Sum
from ..ops.shape import Reshape, Transpose
from ..ops.slicing import Pad, StridedSlice
from ..tir.tensor import extents
from .base import Pass, Remarks, map_functions

_FEWEST_COLUMNS = COLUMNS // 2
"""Columns of a product from which on its weight is packed: at most half of the codes are unused."""


class _Weight(Struct, frozen=True):
    """A weight by columns of the result.

    Attributes:
        codes: ``[N, K]``, uint8.
        scales: ``[N, blocks]``, float32.
        shifts: What is subtracted from a weight, as scales; ``None`` if it is 0.
        bits: Of a code.
    """

    codes: Array
    scales: Array
    shifts: Array | None
    bits: int


def pack_weights(module: IRModule, remarks: Remarks) -> IRModule:
    """Rewrite products of floats with dequantized constants; each node is looked at once."""

    def change(function: Function) -> Function:
        renamed: dict[Expr, Expr] = {}
        packed: dict[tuple[Expr, bool], _Operands | None] = {}
        for node in post_order(function.body):
            rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
            found = _packed(rebuilt, packed)
            if found is not None:
                remarks.add("pack-weights", "the weight stays quantized", node.span)
            renamed[node] = rebuilt if found is None else found
        body = renamed[function.body]
        return function if body is function.body else replace(function, body=body)

    return map_functions(module, change)


class _Operands(Struct, frozen=True):
    """The constants of a product, and its columns."""

    words: Constant
    scales: Constant
    shifts: Constant | None
    bits: int
    depth: int
    columns: int


def _packed(node: Expr, known: dict[tuple[Expr, bool], _Operands | None]) -> Expr | None:
    """Return a product with a packed weight; ``None`` if it has none."""
    match node:
        case Call("matmul", (x, weight), Matmul.Attrs(transpose_a=False, transpose_b=turned)):
            pass
        case _:
            return None
    match tensor_type(x):
        case TensorType(dtype=DType.FLOAT32, shape=(_, *_, int())):
            pass
        case _:
            return None
    place = weight, turned
    if place not in known:
        known[place] = _operands(weight, columns_first=turned)
    given = known[place]
    return None if given is None else _product(node, x, given)


def _product(node: Call, x: Expr, given: _Operands) -> Expr:
    """Multiply the rows of ``x``, flattened and filled up with zeros."""
    *outer, depth = tensor_type(x).shape
    rows = prod(outer)
    flat = call(Reshape, x, attrs=Reshape.Attrs(shape=extents((rows, depth))), span=node.span)
    if given.depth != depth:
        widths = ((0, 0), (0, given.depth - int(depth)))
        flat = call(Pad, flat, attrs=Pad.Attrs(widths=widths), span=node.span)
    operands: list[Expr] = [flat, given.words, given.scales]
    if given.shifts is not None:
        blocks = given.scales.data.shape[1]
        split = Reshape.Attrs(shape=extents((rows, blocks, given.depth // blocks)))
        parts = call(Reshape, flat, attrs=split, span=node.span)
        sums = call(Sum, parts, attrs=Sum.Attrs(axes=(2,), keepdims=False), span=node.span)
        operands += [given.shifts, sums]
    attrs = BlockMatmul.Attrs(bits=given.bits)
    result = call(BlockMatmul, *operands, attrs=attrs, span=node.span)
    columns = tensor_type(node).shape[-1]
    if tensor_type(result).shape[-1] != columns:
        cut = StridedSlice.Attrs(begin=(0, 0), end=extents((rows, columns)), strides=(1, 1))
        result = call(StridedSlice, result, attrs=cut, span=node.span)
    whole = Reshape.Attrs(shape=extents((*outer, columns)))
    return call(Reshape, result, attrs=whole, span=node.span)


def _operands(weight: Expr, *, columns_first: bool) -> _Operands | None:
    """Return the constants of a weight ``[K, N]`` or ``[N, K]``; ``None`` if it stays as it is."""
    if tensor_type(weight).rank != 2 or not tensor_type(weight).is_static:
        return None
    shape = tensor_type(weight).static_shape
    match weight:
        case Call("transpose", (inner,), Transpose.Attrs(axes=(1, 0))):
            return _operands(inner, columns_first=not columns_first)
        case Call("reshape", (inner,)):
            weight = inner
        case _:
            pass
    found = _by_columns(weight, shape, columns_first=columns_first)
    if found is None:
        return None
    (columns, depth), blocks = found.codes.shape, found.scales.shape[1]
    each = WORD_BITS // found.bits
    missing = -depth % each if blocks == 1 else 0
    if columns < _FEWEST_COLUMNS or (depth + missing) % (each * blocks):
        return None
    more = -columns % COLUMNS
    codes = np.pad(found.codes, ((0, more), (0, missing)))

    def by_stripe(table: Array) -> Constant:
        parts = np.pad(table, ((0, more), (0, 0))).reshape(-1, COLUMNS, blocks)
        return constant(np.ascontiguousarray(parts.transpose(0, 2, 1)))

    shifts = None if found.shifts is None else by_stripe(found.shifts)
    words = constant(pack_block_words(codes, found.bits))
    scales = by_stripe(found.scales)
    return _Operands(words, scales, shifts, found.bits, depth + missing, columns)


def _by_columns(weight: Expr, shape: tuple[int, ...], *, columns_first: bool) -> _Weight | None:
    """Return codes and scales of dequantized bytes; ``None`` if scales vary within a block."""
    match weight:
        case Call("qnn.dequantize", (Constant() as value, Constant() as scale, Constant() as zero)):
            pass
        case _:
            return None
    is_real = scale.type.dtype is DType.FLOAT32 and bool(np.isfinite(scale.data).all())
    if not is_real or value.type.dtype.bits != 8 or not value.data.size:
        return None
    sizes = _split(value.data.shape, shape, columns_first=columns_first)
    if sizes is None:
        return None
    rank, tables = value.data.ndim, list[Array]()
    for parameter in (scale, zero):
        data = parameter.data.reshape((1,) * (rank - parameter.data.ndim) + parameter.data.shape)
        if data.ndim == 2:
            data = data[:, None] if columns_first else data[None]
        if data.shape[2 if columns_first else 1] != 1:
            return None
        wanted = (sizes[0], sizes[1], 1) if columns_first else (sizes[0], 1, sizes[2])
        table = np.broadcast_to(data, wanted)
        tables.append(table[..., 0] if columns_first else table[:, 0].T)
    codes = value.data.reshape(shape)
    codes = codes if columns_first else codes.T
    return _with_codes(codes, np.ascontiguousarray(tables[0]), tables[1])


def _split(
    sizes: tuple[int, ...], shape: tuple[int, ...], *, columns_first: bool
) -> tuple[int, int, int] | None:
    """Return the sizes of a weight as ``[N, blocks, block]`` or ``[blocks, block, N]``."""
    if len(sizes) == 2:
        rows, columns = sizes
        return (rows, 1, columns) if columns_first else (1, rows, columns)
    whole = len(sizes) == 3 and sizes[0 if columns_first else 2] == shape[0 if columns_first else 1]
    return (sizes[0], sizes[1], sizes[2]) if whole else None


def _with_codes(numbers: Array, scales: Array, zeros: Array) -> _Weight:
    """Return numbers of a byte as codes that begin at 0: of 4 bits if all of them fit."""
    low, high = int(numbers.min()), int(numbers.max())
    if low >= -8 and high <= 7:
        bits, least = 4, -8
    elif low >= 0 and high <= 15:
        bits, least = 4, 0
    else:
        bits, least = 8, -128 if numbers.dtype == np.int8 else 0
    codes = (numbers.astype(np.int16) - least).astype(np.uint8)
    apart = zeros.astype(np.int32) - (least + middle_of(bits))
    shifts = (apart * scales).astype(np.float32) if np.any(apart) else None
    return _Weight(codes, scales.astype(np.float32), shifts, bits)


PACK_WEIGHTS = Pass("pack-weights", pack_weights)
