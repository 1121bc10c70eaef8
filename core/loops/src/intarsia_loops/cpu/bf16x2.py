# SPDX-License-Identifier: Apache-2.0
"""Operators on bfloat16 for a matrix unit: operands packed as Bf16x2.

Two neighbouring channels of a pixel are packed in one 32-bit word, and so are two weights (the VNNI
layout); accumulators are float32. ``bf16_storage.py`` decides which values are stored in
bfloat16, ``layout.py`` makes these operators of them.
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
from .packing import conv_deferred

Array = np.ndarray
BF16_PER_WORD = 2
"""Products that a matrix unit adds up for each 32 bits of its registers."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def padded_channels(channels: int) -> int:
    """Return how many channels there are if one is added to an odd number."""
    return channels + channels % BF16_PER_WORD


def bf16x2_conv_deferred(weight: Array, groups: int, width: int) -> DeferredArray:
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
    return DeferredArray(shape, _BFLOAT16, partial(_fill_conv, weight, groups), weight)


def _fill_conv(weight: Array, groups: int, packed: Array) -> None:
    if weight.shape[1] % BF16_PER_WORD:
        weight = np.pad(weight, ((0, 0), (0, 1), (0, 0), (0, 0)))
    wide = conv_deferred(weight, groups, packed.shape[2] // BF16_PER_WORD).array()
    for rows, block in zip(wide, packed, strict=True):
        _interleave(rows, block)


def bf16x2_dense_deferred(weight: Array, width: int) -> DeferredArray:
    """Return what becomes ``weight[K, N]``, ``K`` even, as ``cpu.pair_dense`` has it."""
    depth, outputs = weight.shape
    shape = (-(-outputs // width), depth // BF16_PER_WORD, width * BF16_PER_WORD)
    return DeferredArray(shape, _BFLOAT16, partial(_fill_dense, weight), weight)


def _fill_dense(weight: Array, packed: Array) -> None:
    width = packed.shape[2] // BF16_PER_WORD
    for number, block in enumerate(packed):
        columns = weight[:, number * width : (number + 1) * width]
        if columns.shape[1] < width:
            columns = np.pad(columns, ((0, 0), (0, width - columns.shape[1])))
        _interleave(columns, block)


def _interleave(rows: Array, bf16x2: Array) -> None:
    """Write ``rows[depth, width]``, rounded, as ``bf16x2[depth / 2, width * 2]``."""
    bits = rows.astype(_BFLOAT16).view(np.uint16)
    both = bf16x2.view(np.uint32)
    np.left_shift(bits[1::BF16_PER_WORD], 16, out=both, dtype=np.uint32)
    np.bitwise_or(both, bits[::BF16_PER_WORD], out=both)


def unpack_bf16x2(packed: Array) -> Array:
    """Return packed weights ``[blocks, depth, width]`` in float32."""
    blocks, half, both = packed.shape
    split = packed.reshape(blocks, half, both // BF16_PER_WORD, BF16_PER_WORD).swapaxes(2, 3)
    return split.reshape(blocks, half * BF16_PER_WORD, both // BF16_PER_WORD).astype(np.float32)


def _wide(data: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the operands as those of the operator on float32."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return cast(data[indices], DType.FLOAT32)

    def taken(block: PrimExpr, depth: PrimExpr, column: PrimExpr) -> PrimExpr:
        return cast(
            weight[block, depth // BF16_PER_WORD, column * BF16_PER_WORD + depth % BF16_PER_WORD],
            DType.FLOAT32,
        )

    blocks, half, both = weight.shape
    return (
        compute(data.shape, element, name="wide_data"),
        compute((blocks, half * BF16_PER_WORD, both // BF16_PER_WORD), taken, name="wide_weight"),
    )


@operator("cpu.pair_conv", OpKind.ANCHOR)
class Bf16x2Conv(Op):
    """``cpu.conv`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]`` in float32."""
        return TensorType(PackedConv.type_rule(attrs, data, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The convolution of the rounded operands."""
        return PackedConv.reference(attrs, data.astype(np.float32), unpack_bf16x2(weight))

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        return PackedConv.compute(attrs, *_wide(data, weight))


@operator("cpu.pair_dense", OpKind.ANCHOR)
class Bf16x2Dense(Op):
    """``cpu.dense`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = Dense.Attrs

    @staticmethod
    def type_rule(attrs: Dense.Attrs, a: TensorType, weight: TensorType) -> TensorType:
        """``[..., outputs]`` in float32."""
        return TensorType(Dense.type_rule(attrs, a, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: Dense.Attrs, a: Array, weight: Array) -> Array:
        """The product of the rounded operands."""
        return Dense.reference(attrs, a.astype(np.float32), unpack_bf16x2(weight))

    @staticmethod
    def compute(attrs: Dense.Attrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        return Dense.compute(attrs, *_wide(a, weight))
