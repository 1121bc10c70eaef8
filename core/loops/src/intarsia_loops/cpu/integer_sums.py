# SPDX-License-Identifier: Apache-2.0
"""``qnn.conv_integer`` and ``qnn.matmul_integer`` as Int8x4 operators.

The zero point of the data may be known only at run time, as in dynamic quantization. The sums then
use the bytes without it, and its share is subtracted afterwards:
``sum((x - zero) * w) = sum(x * w) - zero * sum(w)``. This requires an element for every tap, so
data with padding gets a border of elements that equal the zero point.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Constant, Expr, call, constant, tensor_type
from intarsia_ir.ops import qnn_linear
from intarsia_ir.ops.binary import Add, Multiply, Subtract
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.slicing import Pad
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType

from .quantize import (
    Array,
    ByteWeight,
    centred,
    conv_sums,
    counted_zero,
    dense_sums,
    flipped,
    has_whole_groups,
    is_depthwise_weight,
    linear_of,
    takes_rest,
)
from .tiling import CpuTiling


def conv_sums_of(node: Call, source: Expr, zero: Expr, tiling: CpuTiling) -> Expr | None:
    """Return ``qnn.conv_integer`` over channels-last ``source``; ``None`` if it is not ours.

    Args:
        node: The convolution of an image.
        source: Its data, channels last.
        zero: Their zero point, which need not be a constant.
        tiling: Register tile of the machine.
    """
    weight, attrs = _centred_weight(node, 0), node.attrs
    if weight is None or not isinstance(attrs, Conv.Attrs):
        return None
    if isinstance(zero, Constant):
        made = conv_sums(attrs, source, (weight, int(zero.data)), tiling, node.span)
        return None if made is None else _plus(made[0], made[1], node)
    kind = tensor_type(source).dtype
    bordered = _with_border(source, zero, attrs)
    plain = replace(attrs, padding=((0, 0),) * len(attrs.padding))
    moved = counted_zero(0, kind, tiling)
    if is_depthwise_weight(attrs, weight.bytes):
        moved = 0
    made = conv_sums(plain, bordered, (weight, -moved), tiling, node.span)
    if made is None:
        return None
    sums: Array = weight.bytes.astype(np.int64).sum(axis=tuple(range(1, weight.bytes.ndim)))
    if weight.rest is not None:
        sums = sums + weight.rest * weight.bytes[0].size
    return _less_zero(_plus(made[0], made[1], node), zero, moved, sums)


def dense_sums_of(node: Call, source: Expr, zero: Expr, tiling: CpuTiling) -> Expr | None:
    """Return ``qnn.matmul_integer`` of ``source``; ``None`` if it is not ours.

    Args:
        node: The product.
        source: Its left operand.
        zero: The zero point of that, which need not be a constant.
        tiling: Register tile of the machine.
    """
    is_flipped = flipped(node, node.args[2])
    if is_flipped is None:
        return None
    weight = _centred_weight(node, 0 if is_flipped else 1)
    if weight is None:
        return None
    total, sums = dense_sums(node, source, weight, tiling, is_flipped=is_flipped)
    moved = counted_zero(0, tensor_type(source).dtype, tiling)
    if isinstance(zero, Constant):
        return _plus(total, -(int(zero.data) + moved) * sums, node)
    return _less_zero(total, zero, moved, sums)


def is_quantized_linear(node: Call) -> bool:
    """Whether a call is a quantized convolution or product, or the accumulator of one."""
    return _is_sum(node) or node.op in (qnn_linear.Conv, qnn_linear.Matmul)


def multiplies_bytes(node: Call) -> bool:
    """Whether a call with constant weights becomes one of Int8x4 operands."""
    source, weight = tensor_type(node.args[0]), node.args[2 if _is_sum(node) else 3]
    if node.op in (qnn_linear.Conv, qnn_linear.ConvInteger):
        counted = source.rank in (3, 4) and isinstance(source.shape[1], int)
        counted = counted and _has_loops(node, weight)
        channel_axis = 0
    else:
        counted = isinstance(source.shape[-1], int)
        is_flipped = flipped(node, weight)
        if is_flipped is None:
            return False
        channel_axis = 0 if is_flipped else 1
    if not counted:
        return False
    if _is_sum(node):
        found = _centred_weight(node, channel_axis)
    else:
        linear = linear_of(node, channel_axis)
        found = None if linear is None else linear.weight
    return found is not None and takes_rest(node.attrs, found)


def _is_sum(node: Call) -> bool:
    return node.op in (qnn_linear.ConvInteger, qnn_linear.MatmulInteger)


def _has_loops(node: Call, weight: Expr) -> bool:
    attrs = node.attrs
    if not isinstance(attrs, Conv.Attrs) or not isinstance(weight, Constant):
        return False
    return has_whole_groups(attrs, weight.data)


def _centred_weight(node: Call, channel_axis: int) -> ByteWeight | None:
    """Return the constant weights of a sum, less their zero point; ``None`` if they are not."""
    weight, zero = node.args[2:]
    if not isinstance(weight, Constant) or not isinstance(zero, Constant):
        return None
    return centred(weight.data, zero.data, channel_axis)


def _with_border(source: Expr, zero: Expr, attrs: Conv.Attrs) -> Expr:
    """Put elements that are the zero point around channels-last data, as many as padding asks.

    Bytes less the zero point are padded with zeros, and the zero point is added again: all of it
    modulo 256, in one pass.
    """
    if not any(before or after for before, after in attrs.padding):
        return source
    widths = ((0, 0), *attrs.padding, (0, 0))
    moved = call(Subtract, source, zero)
    return call(Add, call(Pad, moved, attrs=Pad.Attrs(widths=widths, value=0.0)), zero)


def _plus(total: Expr, lacking: Array, node: Call) -> Expr:
    """Add a number to each channel; channels are last."""
    if not lacking.any():
        return total
    return call(Add, total, constant(lacking.astype(np.int32)), span=node.span)


def _less_zero(total: Expr, zero: Expr, moved: int, sums: Array) -> Expr:
    """Take off what the zero point of the run adds to each channel."""
    unsigned = call(Cast, zero, attrs=Cast.Attrs(dtype=DType.INT32))
    if moved:
        unsigned = call(Add, unsigned, constant(np.array(moved, np.int32)))
    lacking = call(Multiply, unsigned, constant((-sums).astype(np.int32)))
    return call(Add, total, lacking)
