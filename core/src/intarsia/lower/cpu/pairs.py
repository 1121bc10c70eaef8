# SPDX-License-Identifier: Apache-2.0
"""Operators on bfloat16 for a matrix unit: two products of neighbouring channels at a time.

A pair of a pixel's channels is read as one 32-bit element, and so is a pair of weights. Sums are
float32. ``narrow.py`` says which values are bfloat16, ``layout.py`` makes these operators of them.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

from ...artifact.deferred import DeferredArray
from ...dtype import DType
from ...ir.op import Op, OpKind, operator
from ...ir.types import TensorType
from ...tir.expr import PrimExpr, cast
from ...tir.tensor import Tensor, compute
from .operators import ConvAttrs, Dense, PackedConv
from .packing import conv_deferred

Array = np.ndarray
PAIR = 2
"""Products that a matrix unit adds up for each 32 bits of its registers."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def whole_pairs(channels: int) -> int:
    """Return how many channels there are if one is added to an odd number."""
    return channels + channels % PAIR


def pair_conv_deferred(weight: Array, groups: int, width: int) -> DeferredArray:
    """Return what becomes ``weight[O, I, KH, KW]`` as ``cpu.pair_conv`` has it.

    If ``I`` is odd, there are weights of zero for one more channel.
    """
    outputs, inner, height, breadth = weight.shape
    blocks = groups * -(-(outputs // groups) // width)
    shape = (blocks, height * breadth * whole_pairs(inner) // PAIR, width * PAIR)
    return DeferredArray(shape, _BFLOAT16, partial(_fill_conv, weight, groups), weight)


def _fill_conv(weight: Array, groups: int, packed: Array) -> None:
    if weight.shape[1] % PAIR:
        weight = np.pad(weight, ((0, 0), (0, 1), (0, 0), (0, 0)))
    wide = conv_deferred(weight, groups, packed.shape[2] // PAIR).array()
    for rows, block in zip(wide, packed, strict=True):
        _interleave(rows, block)


def pair_dense_deferred(weight: Array, width: int) -> DeferredArray:
    """Return what becomes ``weight[K, N]``, ``K`` even, as ``cpu.pair_dense`` has it."""
    depth, outputs = weight.shape
    shape = (-(-outputs // width), depth // PAIR, width * PAIR)
    return DeferredArray(shape, _BFLOAT16, partial(_fill_dense, weight), weight)


def _fill_dense(weight: Array, packed: Array) -> None:
    width = packed.shape[2] // PAIR
    for number, block in enumerate(packed):
        columns = weight[:, number * width : (number + 1) * width]
        if columns.shape[1] < width:
            columns = np.pad(columns, ((0, 0), (0, width - columns.shape[1])))
        _interleave(columns, block)


def _interleave(rows: Array, pairs: Array) -> None:
    """Write ``rows[depth, width]``, rounded, as ``pairs[depth / 2, width * 2]``."""
    bits = rows.astype(_BFLOAT16).view(np.uint16)
    both = pairs.view(np.uint32)
    np.left_shift(bits[1::PAIR], 16, out=both, dtype=np.uint32)
    np.bitwise_or(both, bits[::PAIR], out=both)


def from_pairs(packed: Array) -> Array:
    """Return packed weights ``[blocks, depth, width]`` in float32."""
    blocks, half, both = packed.shape
    split = packed.reshape(blocks, half, both // PAIR, PAIR).swapaxes(2, 3)
    return split.reshape(blocks, half * PAIR, both // PAIR).astype(np.float32)


def _wide(data: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the operands as those of the operator on float32."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return cast(data[indices], DType.FLOAT32)

    def taken(block: PrimExpr, depth: PrimExpr, column: PrimExpr) -> PrimExpr:
        return cast(weight[block, depth // PAIR, column * PAIR + depth % PAIR], DType.FLOAT32)

    blocks, half, both = weight.shape
    return (
        compute(data.shape, element, name="wide_data"),
        compute((blocks, half * PAIR, both // PAIR), taken, name="wide_weight"),
    )


@operator("cpu.pair_conv", OpKind.ANCHOR)
class PairConv(Op):
    """``cpu.conv`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]`` in float32."""
        return TensorType(PackedConv.type_rule(attrs, data, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The convolution of the rounded operands."""
        return PackedConv.reference(attrs, data.astype(np.float32), from_pairs(weight))

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        return PackedConv.compute(attrs, *_wide(data, weight))


@operator("cpu.pair_dense", OpKind.ANCHOR)
class PairDense(Op):
    """``cpu.dense`` of bfloat16 and packed pairs of weights, in float32."""

    Attrs = Dense.Attrs

    @staticmethod
    def type_rule(attrs: Dense.Attrs, a: TensorType, weight: TensorType) -> TensorType:
        """``[..., outputs]`` in float32."""
        return TensorType(Dense.type_rule(attrs, a, weight).shape, DType.FLOAT32)

    @staticmethod
    def reference(attrs: Dense.Attrs, a: Array, weight: Array) -> Array:
        """The product of the rounded operands."""
        return Dense.reference(attrs, a.astype(np.float32), from_pairs(weight))

    @staticmethod
    def compute(attrs: Dense.Attrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        return Dense.compute(attrs, *_wide(a, weight))
