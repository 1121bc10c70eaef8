# SPDX-License-Identifier: Apache-2.0
"""From quantised operators to those for CPUs: packed weights, and one chain that rescales.

An int32 accumulator becomes the result by canonical operators that fuse behind it, in the order of
the reference: ``cast(round(float(accumulator + bias) * factor) + zero)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...dtype import DType
from ...ir.expr import Call, Constant, Expr, call, constant, tensor_type
from ...ops import qnn_linear
from ...ops.binary import Add, Multiply
from ...ops.nn import Conv, Matmul
from ...ops.slicing import Pad
from ...ops.unary import Cast, Round
from .packing import pack_depthwise
from .quantised import (
    QUAD,
    QuadConv,
    QuadDense,
    QuantConvAttrs,
    QuantDepthwise,
    pack_quad_conv,
    pack_quad_dense,
)
from .tile import Shape, quad_width

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Linear:
    """The constants of a quantised convolution or product.

    Attributes:
        weight: Less its zero point, int8, as the operator has it.
        factor: What takes the accumulator to the units of the result; a scalar, or one a channel.
        bias: For each channel, int64.
        x_zero: Zero point of the data.
        y_zero: Zero point of the result, in its type.
    """

    weight: Array
    factor: Array
    bias: Array
    x_zero: int
    y_zero: Array


def linear_of(node: Call, channel_axis: int) -> Linear | None:
    """Return the constants of a call; ``None`` if one is not known, or weights need nine bits."""
    arrays = [arg.data for arg in node.args[1:] if isinstance(arg, Constant)]
    if len(arrays) != len(node.args) - 1 or tensor_type(node).dtype.bits != 8:
        return None
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, *bias = arrays
    along = [1] * weight.ndim
    along[channel_axis] = -1
    centred = weight.astype(np.int32) - w_zero.astype(np.int32).reshape(
        along if w_zero.ndim else ()
    )
    if centred.size == 0 or centred.min() < -128 or centred.max() > 127:
        return None
    with np.errstate(all="ignore"):
        factor = np.asarray((x_scale * w_scale) / y_scale)
    outputs = weight.shape[channel_axis]
    total = bias[0].astype(np.int64) if bias else np.zeros(outputs, np.int64)
    return Linear(centred.astype(np.int8), factor, total, int(x_zero), y_zero)


def conv_of(node: Call, source: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.conv`` over channels-last ``source``, channels last; ``None`` if it is not ours.

    Args:
        node: The convolution of a picture.
        source: Its data, channels last.
        shape: Register tile of the machine.
    """
    plain, found = node.attrs, linear_of(node, 0)
    if found is None or not isinstance(plain, Conv.Attrs):
        return None
    outputs, inner, kh, kw = found.weight.shape
    deep = plain.groups == 1 or inner % QUAD == 0
    depthwise = plain.groups == outputs and inner == 1 and outputs > 1
    if not deep and not depthwise:
        return None
    kind = tensor_type(source).dtype
    attrs = QuantConvAttrs(
        outputs=outputs,
        kernel=(kh, kw),
        strides=(plain.strides[0], plain.strides[1]),
        padding=plain.padding,
        dilation=(plain.dilation[0], plain.dilation[1]),
        groups=plain.groups,
        zero=found.x_zero if depthwise else _unsigned_zero(found, kind),
    )
    if depthwise:
        packed = constant(pack_depthwise(found.weight), span=node.span)
        total = call(QuantDepthwise, source, packed, attrs=attrs, span=node.span)
        return _rescaled(node, total, found, found.bias)
    weight = _whole_quads(found.weight, 1)
    width = quad_width(outputs // plain.groups, shape)
    packed = constant(pack_quad_conv(weight, plain.groups, width), span=node.span)
    source = _padded(source, weight.shape[1] * plain.groups, found.x_zero)
    total = call(QuadConv, source, packed, attrs=attrs, span=node.span)
    sums = found.weight.astype(np.int64).sum(axis=(1, 2, 3))
    return _rescaled(node, total, found, found.bias - attrs.zero * sums)


def dense_of(node: Call, source: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.matmul`` of ``source`` and a constant matrix; ``None`` if it is not ours."""
    weight, given = node.args[3], node.attrs
    if not isinstance(weight, Constant) or weight.data.ndim != 2:
        return None
    if not isinstance(given, Matmul.Attrs) or given.transpose_a:
        return None
    flipped = given.transpose_b
    found = linear_of(node, 0 if flipped else 1)
    if found is None:
        return None
    matrix = _whole_quads(found.weight.T if flipped else found.weight, 0)
    outputs = matrix.shape[1]
    packed = constant(pack_quad_dense(matrix, quad_width(outputs, shape)), span=node.span)
    zero = _unsigned_zero(found, tensor_type(source).dtype)
    source = _padded(source, matrix.shape[0], found.x_zero)
    attrs = QuadDense.Attrs(outputs=outputs)
    total = call(QuadDense, source, packed, attrs=attrs, span=node.span)
    sums = matrix.astype(np.int64).sum(axis=0)
    return _rescaled(node, total, found, found.bias - zero * sums)


def is_quantised_linear(node: Call) -> bool:
    """Whether a call is a quantised convolution or product."""
    return node.op in (qnn_linear.Conv, qnn_linear.Matmul)


def _unsigned_zero(found: Linear, kind: DType) -> int:
    return found.x_zero + (128 if kind.is_signed else 0)


def _whole_quads(weight: Array, axis: int) -> Array:
    """Add zeros behind the last weight along ``axis`` up to a multiple of 4."""
    missing = -weight.shape[axis] % QUAD
    widths = [(0, missing if d == axis else 0) for d in range(weight.ndim)]
    return np.pad(weight, widths) if missing else weight


def _padded(source: Expr, channels: int, zero: int) -> Expr:
    """Add channels behind the last one of ``source``; their weights are zeros."""
    kind = tensor_type(source)
    missing = channels - kind.static_shape[-1]
    if missing == 0:
        return source
    widths = (*((0, 0),) * (kind.rank - 1), (0, missing))
    return call(Pad, source, attrs=Pad.Attrs(widths=widths, value=float(zero)), span=source.span)


def _rescaled(node: Call, total: Expr, found: Linear, bias: Array) -> Expr:
    """Append what takes an accumulator to the result; channels are last."""
    span = node.span
    wrapped = bias.astype(np.int32)
    value = total
    if wrapped.any():
        value = call(Add, value, constant(wrapped), span=span)
    value = call(Cast, value, attrs=Cast.Attrs(dtype=DType.FLOAT32), span=span)
    value = call(Multiply, value, constant(found.factor.astype(np.float32)), span=span)
    value = call(Round, value, span=span)
    if int(found.y_zero):
        value = call(Add, value, constant(found.y_zero.astype(np.float32)), span=span)
    return call(Cast, value, attrs=Cast.Attrs(dtype=tensor_type(node).dtype), span=span)
