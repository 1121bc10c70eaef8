# SPDX-License-Identifier: Apache-2.0
"""Prepacked weights: constants in the order in which register tiles read them.

``[blocks, K, width]``: a block of ``width`` output columns is contiguous, so a tile streams through
it with unit stride and the hardware prefetcher follows (the packed B of BLIS; the blocked
``OIhw16i16o`` family of layouts). Packing happens when the constant is first asked for
(:class:`~intarsia_ir.writing.deferred.DeferredArray`), so a build never holds all of them.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.writing.deferred import DeferredArray
from intarsia_runtime.dtype import DType

Array = np.ndarray
INT8_PER_WORD = 4
"""Products that one instruction adds up."""


def pack_dense(weight: Array, width: int) -> Array:
    """Return ``weight[K, N]`` as ``[blocks, K, width]``."""
    return dense_deferred(weight, width).array()


def dense_deferred(weight: Array, width: int) -> DeferredArray:
    """Return what becomes :func:`pack_dense`."""
    depth, outputs = weight.shape
    shape = (-(-outputs // width), depth, width)
    return DeferredArray(shape, weight.dtype, partial(_fill_dense, weight), weight)


def _fill_dense(weight: Array, packed: Array) -> None:
    width = packed.shape[2]
    for number, block in enumerate(packed):
        columns = weight[:, number * width : (number + 1) * width]
        block[:, : columns.shape[1]] = columns
        block[:, columns.shape[1] :] = 0


def unpack_dense(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_dense`."""
    blocks, depth, width = packed.shape
    return packed.transpose(1, 0, 2).reshape(depth, blocks * width)[:, :outputs]


def pack_conv(weight: Array, groups: int, width: int) -> Array:
    """Return ``weight[O, I, KH, KW]`` as ``[groups * blocks, KH * KW * I, width]``."""
    return conv_deferred(weight, groups, width).array()


def conv_deferred(weight: Array, groups: int, width: int) -> DeferredArray:
    """Return what becomes :func:`pack_conv`."""
    outputs, inner, height, breadth = weight.shape
    blocks = -(-(outputs // groups) // width)
    shape = (groups * blocks, height * breadth * inner, width)
    return DeferredArray(shape, weight.dtype, partial(_fill_conv, weight, groups), weight)


def _fill_conv(weight: Array, groups: int, packed: Array) -> None:
    outputs, inner, height, breadth = weight.shape
    width = packed.shape[2]
    own, blocks = outputs // groups, len(packed) // groups
    rows = weight.reshape(groups, own, inner, height, breadth)
    if own % width:
        rows = np.zeros((groups, blocks * width, inner, height, breadth), weight.dtype)
        rows[:, :own] = weight.reshape(groups, own, inner, height, breadth)
    parts = rows.reshape(groups * blocks, width, inner, height, breadth).transpose(0, 3, 4, 2, 1)
    np.copyto(packed.reshape(parts.shape), parts)


def unpack_conv(packed: Array, outputs: int, kernel: tuple[int, int], groups: int) -> Array:
    """Undo :func:`pack_conv`."""
    own = outputs // groups
    parts = np.split(packed, groups)
    matrix = np.stack([unpack_dense(part, own).T for part in parts]).reshape(outputs, *kernel, -1)
    return np.ascontiguousarray(matrix.transpose(0, 3, 1, 2))


_TRANSFORM = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_BACK = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]])


def pack_winograd(weight: Array, width: int) -> Array:
    """Return ``G g G^T`` of ``weight[O, I, 3, 3]`` as ``[blocks, 16, I, width]``."""
    return winograd_deferred(weight, width).array()


def winograd_deferred(weight: Array, width: int) -> DeferredArray:
    """Return what becomes :func:`pack_winograd`."""
    outputs, inner = weight.shape[:2]
    shape = (-(-outputs // width), 16, inner, width)
    return DeferredArray(shape, weight.dtype, partial(_fill_winograd, weight), weight)


def _fill_winograd(weight: Array, packed: Array) -> None:
    _, _, inner, width = packed.shape
    taps = pack_conv(weight, 1, width)
    transform = np.kron(_TRANSFORM, _TRANSFORM)
    for source, result in zip(taps, packed, strict=True):  # a block of outputs stays in the cache
        # Small products, one an input channel: threads for larger ones cost more than they save.
        rows = source.reshape(9, inner, width).transpose(1, 0, 2)
        np.matmul(transform, rows, result.transpose(1, 0, 2), casting="same_kind")


def unpack_winograd(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_winograd`, but for rounding."""
    _, elements, inner, _ = packed.shape
    wide = np.stack([unpack_dense(packed[:, e], outputs) for e in range(elements)])
    wide = wide.reshape(4, 4, inner, outputs)
    return np.einsum("ya,xb,abio->oiyx", _BACK, _BACK, wide).astype(packed.dtype)


def pack_depthwise(weight: Array) -> Array:
    """Return ``weight[C, 1, KH, KW]`` as ``[KH, KW, C]``."""
    return depthwise_deferred(weight).array()


def depthwise_deferred(weight: Array) -> DeferredArray:
    """Return what becomes :func:`pack_depthwise`."""
    parts = weight[:, 0].transpose(1, 2, 0)
    return DeferredArray(parts.shape, weight.dtype, partial(_fill_depthwise, parts), weight)


def _fill_depthwise(parts: Array, packed: Array) -> None:
    np.copyto(packed, parts)


def unpack_depthwise(packed: Array) -> Array:
    """Undo :func:`pack_depthwise`."""
    return np.ascontiguousarray(packed.transpose(2, 0, 1)[:, None])


def pack_int8x4(weight: Array, word: DType = DType.INT32) -> Array:
    """Return ``[..., depth, width]`` of int8 as ``[..., depth / 4, width]`` of int32.

    Words of int16 hold two each: ``[..., depth / 2, width]``.
    """
    *outer, depth, width = weight.shape
    split = weight.reshape(*outer, depth // word.bytes, word.bytes, width)
    bytes_last = np.ascontiguousarray(np.moveaxis(split, -2, -1))
    return bytes_last.view(f"<i{word.bytes}").reshape(*outer, depth // word.bytes, width)


def pair_columns(words: Array) -> Array:
    """Return ``[..., words, width]`` as instructions take it that multiply by two columns.

    Words are even, and the width a multiple of 4: two words of columns ``c`` and ``c + 1`` are in
    the first of two rows, those of ``c + 2`` and ``c + 3`` in the second one (``row_pairs.py``).
    """
    *outer, depth, width = words.shape
    split = words.reshape(-1, depth // 2, 2, width // 4, 2, 2)  # word, columns, half, column
    return np.ascontiguousarray(split.transpose(0, 1, 4, 3, 5, 2)).reshape(*outer, depth, width)


def unpair_columns(words: Array) -> Array:
    """Undo :func:`pair_columns`."""
    *outer, depth, width = words.shape
    split = words.reshape(-1, depth // 2, 2, width // 4, 2, 2)  # half, columns, column, word
    return np.ascontiguousarray(split.transpose(0, 1, 5, 3, 2, 4)).reshape(*outer, depth, width)


def paired_position(word: PrimExpr, column: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return where :func:`pair_columns` puts the word of a column."""
    half, first = column // 2 % 2, column // 4 * 4
    return word // 2 * 2 + half, first + column % 2 * 2 + word % 2


def unpack_int8x4(packed: Array) -> Array:
    """Undo :func:`pack_int8x4`."""
    *outer, words, width = packed.shape
    size = packed.dtype.itemsize
    split = np.ascontiguousarray(packed).view(np.int8).reshape(*outer, words, width, size)
    joined = np.moveaxis(split, -1, -2).reshape(*outer, words * size, width)
    return np.ascontiguousarray(joined)
