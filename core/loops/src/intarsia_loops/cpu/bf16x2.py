# SPDX-License-Identifier: Apache-2.0
"""Operators on bfloat16: operands packed as Bf16x2.

Two neighbouring channels of a pixel are packed in one 32-bit word, and so are two weights (the VNNI
layout); accumulators are float32. For ``BFMMLA``, words of weights lie as ``packing.pair_columns``
has them. ``bf16_storage.py`` decides which values are stored in bfloat16, ``layout.py`` makes these
operators of them.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

from intarsia_ir.graph.op import Op, OpKind, operator
from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.expr import PrimExpr, cast
from intarsia_ir.tir.tensor import Tensor, compute
from intarsia_ir.writing.deferred import DeferredArray
from intarsia_runtime.dtype import DType

from .operators import ConvAttrs, Dense, PackedConv
from .packing import conv_deferred, pair_columns, paired_position, unpair_columns

Array = np.ndarray
BF16_PER_WORD = 2
"""Products that a matrix unit adds up for each 32 bits of its registers."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def padded_channels(channels: int) -> int:
    """Return how many channels there are if one is added to an odd number."""
    return channels + channels % BF16_PER_WORD


class Bf16ConvAttrs(ConvAttrs, frozen=True, kw_only=True):
    """As of ``cpu.conv``; ``is_paired``: whether :func:`~.packing.pair_columns` packed weights."""

    is_paired: bool = False


class Bf16DenseAttrs(Dense.Attrs, frozen=True, kw_only=True):
    """As of ``cpu.dense``; ``is_paired`` as of :class:`Bf16ConvAttrs`."""

    is_paired: bool = False


def bf16x2_conv_deferred(
    weight: Array, groups: int, width: int, *, is_paired: bool = False
) -> DeferredArray:
    """Return what becomes ``weight[O, I, KH, KW]`` as ``cpu.pair_conv`` has it.

    If ``I`` is odd, there are weights of zero for one more channel.
    """
    outputs, inner, height, breadth = weight.shape
    blocks = groups * -(-(outputs // groups) // width)
    shape = (
        blocks,
        height * breadth * padded_channels(inner) // BF16_PER_WORD,
        width * BF16_PER_WORD,
    )
    fill = partial(_fill_conv, weight, groups, is_paired)
    return DeferredArray(shape, _BFLOAT16, fill, weight)


def _fill_conv(weight: Array, groups: int, is_paired: bool, packed: Array) -> None:
    if weight.shape[1] % BF16_PER_WORD:
        weight = np.pad(weight, ((0, 0), (0, 1), (0, 0), (0, 0)))
    wide = conv_deferred(weight, groups, packed.shape[2] // BF16_PER_WORD).array()
    for rows, block in zip(wide, packed, strict=True):
        _interleave(rows, block, is_paired=is_paired)


def bf16x2_dense_deferred(weight: Array, width: int, *, is_paired: bool = False) -> DeferredArray:
    """Return what becomes ``weight[K, N]``, ``K`` even, as ``cpu.pair_dense`` has it."""
    depth, outputs = weight.shape
    shape = (-(-outputs // width), depth // BF16_PER_WORD, width * BF16_PER_WORD)
    return DeferredArray(shape, _BFLOAT16, partial(_fill_dense, weight, is_paired), weight)


def _fill_dense(weight: Array, is_paired: bool, packed: Array) -> None:
    width = packed.shape[2] // BF16_PER_WORD
    for number, block in enumerate(packed):
        columns = weight[:, number * width : (number + 1) * width]
        if columns.shape[1] < width:
            columns = np.pad(columns, ((0, 0), (0, width - columns.shape[1])))
        _interleave(columns, block, is_paired=is_paired)


def _interleave(rows: Array, bf16x2: Array, *, is_paired: bool) -> None:
    """Write ``rows[depth, width]``, rounded, as ``bf16x2[depth / 2, width * 2]``."""
    bits = rows.astype(_BFLOAT16).view(np.uint16)
    both = bf16x2.view(np.uint32)
    np.left_shift(bits[1::BF16_PER_WORD], 16, out=both, dtype=np.uint32)
    np.bitwise_or(both, bits[::BF16_PER_WORD], out=both)
    if is_paired:
        both[:] = pair_columns(both)


def unpack_bf16x2(packed: Array, *, is_paired: bool = False) -> Array:
    """Return packed weights ``[blocks, depth, width]`` in float32."""
    blocks, half, both = packed.shape
    if is_paired:
        packed = unpair_columns(packed.view(np.uint32)).view(packed.dtype)
    split = packed.reshape(blocks, half, both // BF16_PER_WORD, BF16_PER_WORD).swapaxes(2, 3)
    return split.reshape(blocks, half * BF16_PER_WORD, both // BF16_PER_WORD).astype(np.float32)


def _wide(data: Tensor, weight: Tensor, *, is_paired: bool) -> tuple[Tensor, Tensor]:
    """Return the operands as those of the operator on float32."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return cast(data[indices], DType.FLOAT32)

    def taken(block: PrimExpr, depth: PrimExpr, column: PrimExpr) -> PrimExpr:
        word = depth // BF16_PER_WORD
        if is_paired:
            word, column = paired_position(word, column)
        part = weight[block, word, column * BF16_PER_WORD + depth % BF16_PER_WORD]
        return cast(part, DType.FLOAT32)

    blocks, half, both = weight.shape
    return (
        compute(data.shape, element, name="wide_data"),
        compute((blocks, half * BF16_PER_WORD, both // BF16_PER_WORD), taken, name="wide_weight"),
    )


@operator("cpu.pair_conv", OpKind.ANCHOR)
class Bf16x2Conv(Op):
    """``cpu.conv`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = Bf16ConvAttrs

    @staticmethod
    def type_rule(attrs: Bf16ConvAttrs, data: TensorType, weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]`` in float32."""
        return TensorType(PackedConv.type_rule(attrs, data, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: Bf16ConvAttrs, data: Array, weight: Array) -> Array:
        """The convolution of the rounded operands."""
        wide = unpack_bf16x2(weight, is_paired=attrs.is_paired)
        return PackedConv.reference(attrs, data.astype(np.float32), wide)

    @staticmethod
    def compute(attrs: Bf16ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        return PackedConv.compute(attrs, *_wide(data, weight, is_paired=attrs.is_paired))


@operator("cpu.pair_dense", OpKind.ANCHOR)
class Bf16x2Dense(Op):
    """``cpu.dense`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = Bf16DenseAttrs

    @staticmethod
    def type_rule(attrs: Bf16DenseAttrs, a: TensorType, weight: TensorType) -> TensorType:
        """``[..., outputs]`` in float32."""
        return TensorType(Dense.type_rule(attrs, a, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: Bf16DenseAttrs, a: Array, weight: Array) -> Array:
        """The product of the rounded operands."""
        wide = unpack_bf16x2(weight, is_paired=attrs.is_paired)
        return Dense.reference(attrs, a.astype(np.float32), wide)

    @staticmethod
    def compute(attrs: Bf16DenseAttrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        return Dense.compute(attrs, *_wide(a, weight, is_paired=attrs.is_paired))
