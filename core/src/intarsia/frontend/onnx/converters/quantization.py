# SPDX-License-Identifier: Apache-2.0
"""Quantisation, written out as element-wise arithmetic so that a pass may fuse it again."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from ....dtype import DType
from ....errors import UnsupportedError
from ....ir.expr import Constant, Expr, tensor_type
from ....ops import binary, nn, unary
from ....ops.arrays import numpy_dtype
from ..builder import dtype_of, rank_of
from ..context import NodeContext
from ..tensors import element_type
from .linear import product
from .window import read_window


def dequantize(node: NodeContext) -> Expr:
    """Convert DequantizeLinear: ``(x - zero) * scale`` in the scale's type."""
    x, scale = node.input(0), node.input(1)
    dtype = dtype_of(scale)
    wide = DType.FLOAT32 if dtype.bits < 32 else dtype
    scale = _parameter(node, node.cast(scale, wide))
    value = node.cast(x, wide)
    zero = node.optional(2)
    if zero is not None and not _is_zero(node, 2):
        value = node.call(binary.Subtract, value, _parameter(node, _converted(node, zero, wide)))
    value = node.call(binary.Multiply, value, scale)
    output = node.integer("output_dtype", 0)
    return node.cast(value, element_type(output, str(node.span)) if output else dtype)


def quantize(node: NodeContext) -> Expr:
    """Convert QuantizeLinear: ``clip(round(x / scale) + zero)``, rounding half to even."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    code = node.integer("output_dtype", 0)
    if zero is not None:
        dtype = dtype_of(zero)
    else:
        dtype = element_type(code, str(node.span)) if code else DType.UINT8
    if not dtype.is_integer:
        raise node.unsupported(f"QuantizeLinear to {dtype}")
    wide = DType.FLOAT64 if dtype_of(x) is DType.FLOAT64 else DType.FLOAT32
    scaled = node.call(
        binary.Divide, node.cast(x, wide), _parameter(node, _converted(node, scale, wide))
    )
    rounded = node.call(unary.Round, scaled)
    if zero is not None and not _is_zero(node, 2):
        rounded = node.call(binary.Add, rounded, _parameter(node, _converted(node, zero, wide)))
    return _saturated(node, rounded, dtype)


def _saturated(node: NodeContext, x: Expr, dtype: DType) -> Expr:
    if not dtype.is_integer:
        raise node.model_error(f"cannot quantise to {dtype}")
    limits = np.iinfo(numpy_dtype(dtype))
    attrs = unary.Clip.Attrs(min=float(limits.min), max=float(limits.max))
    return node.cast(node.call(unary.Clip, x, attrs=attrs), dtype)


def _converted(node: NodeContext, x: Expr, dtype: DType) -> Expr:
    """Convert a parameter, at once if it is stored."""
    if isinstance(x, Constant) and dtype_of(x) is not dtype:
        return node.array(x.data.astype(numpy_dtype(dtype)))
    return node.cast(x, dtype)


def _is_zero(node: NodeContext, index: int) -> bool:
    value = node.constant_value(index)
    return value is not None and not value.astype(np.float64).any()


def _parameter(node: NodeContext, parameter: Expr) -> Expr:
    """Give a scale or zero point a shape that broadcasts: per tensor, per axis or per block."""
    rank = rank_of(node.input(0))
    block = node.integer("block_size", 0)
    type_ = tensor_type(parameter)
    if block:
        return _blocked(node, parameter, block)
    if type_.rank == 0 or (type_.rank == 1 and type_.shape == (1,)):
        return node.reshape(parameter, ())
    if type_.rank != 1:
        raise node.model_error(f"scale and zero point must be vectors, got {type_}")
    axis = node.axis("axis", rank, 1)
    if node.type_of(0).shape[axis] not in type_.shape and isinstance(
        node.type_of(0).shape[axis], int
    ):
        raise node.model_error(f"{type_.shape[0]} scales for axis {axis} of {node.type_of(0)}")
    return node.along(parameter, axis, rank)


def _blocked(node: NodeContext, parameter: Expr, block: int) -> Expr:
    sizes, shape = node.static_shape(0), tensor_type(parameter).static_shape
    axis = node.axis("axis", len(sizes), 1)
    if len(shape) != len(sizes) or block < 1 or -(-sizes[axis] // block) != shape[axis]:
        raise node.model_error(f"block_size {block} for shape {sizes} with scales {shape}")
    spread = (*shape[: axis + 1], block, *shape[axis + 1 :])
    split = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    repeated = node.broadcast(node.reshape(parameter, split), spread)
    whole = (*shape[:axis], shape[axis] * block, *shape[axis + 1 :])
    return node.slice(node.reshape(repeated, whole), axis, 0, sizes[axis])


def _rescaled(node: NodeContext, x: Expr, first: int, axis: int) -> Expr:
    """Bring an int32 accumulator to the output's scale and type.

    Args:
        node: A node with scales at inputs ``first``, ``first + 3`` and ``first + 5``.
        x: The accumulator.
        first: Input of the first operand's scale.
        axis: Dimension along which the second scale may vary.
    """
    left, right, out = (
        node.cast(node.input(index), DType.FLOAT32) for index in (first, first + 3, first + 5)
    )
    for scale in (left, out):
        if tensor_type(scale).elements != 1:
            raise UnsupportedError("scales of data that vary along an axis", where=str(node.span))
    if tensor_type(right).elements > 1:
        right = node.along(right, axis, rank_of(x))
    else:
        right = node.reshape(right, ())
    factor = node.call(binary.Multiply, node.reshape(left, ()), right)
    factor = node.folded(node.call(binary.Divide, factor, node.reshape(out, ())))
    scaled = node.call(binary.Multiply, node.cast(x, DType.FLOAT32), factor)
    zero = node.input(first + 6)
    wide = node.reshape(_converted(node, zero, DType.FLOAT32), ())
    rounded = node.call(binary.Add, node.call(unary.Round, scaled), wide)
    return _saturated(node, rounded, dtype_of(zero))


def _centred(node: NodeContext, index: int, axis: int) -> Expr:
    """Take the zero point at input ``index + 2`` off input ``index``, in int32."""
    value = node.cast(node.input(index), DType.INT32)
    zero = _converted(node, node.input(index + 2), DType.INT32)
    count = math.prod(tensor_type(zero).static_shape)
    zero = node.reshape(zero, ()) if count == 1 else node.along(zero, axis, rank_of(value))
    return node.call(binary.Subtract, value, zero)


def qlinear_matmul(node: NodeContext) -> Expr:
    """Convert QLinearMatMul: an int32 product, then one rescaling."""
    if rank_of(node.input(4)) > 1:
        raise node.unsupported("QLinearMatMul with scales of more than one dimension")
    a = _centred(node, 0, rank_of(node.input(0)) - 2)
    b = _centred(node, 3, rank_of(node.input(3)) - 1)
    result = product(node, a, b)
    return _rescaled(node, result, 1, rank_of(result) - 1)


def qlinear_conv(node: NodeContext) -> Expr:
    """Convert QLinearConv: an int32 convolution, then one rescaling for each channel."""
    shape = node.static_shape(3)
    if len(shape) < 3:
        raise node.model_error(f"weight {node.type_of(3)}")
    window = read_window(node, shape[2:])
    attrs = nn.Conv.Attrs(
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=max(node.integer("group", 1), 1),
    )
    operands = [_centred(node, 0, 1), _centred(node, 3, 0)]
    bias = node.optional(8)
    if bias is not None:
        operands.append(bias)
    return _rescaled(node, node.call(nn.Conv, *operands, attrs=attrs), 1, 1)


CONVERTERS = MappingProxyType(
    {
        "DequantizeLinear": dequantize,
        "QLinearConv": qlinear_conv,
        "QLinearMatMul": qlinear_matmul,
        "QuantizeLinear": quantize,
    }
)
