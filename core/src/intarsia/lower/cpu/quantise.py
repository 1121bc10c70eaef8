# SPDX-License-Identifier: Apache-2.0
"""From quantised operators to those for CPUs: packed weights, and one chain that rescales.

An int32 accumulator becomes the result by canonical operators that fuse behind it, in the order of
the reference: ``cast(round(float(accumulator + bias) * factor) + zero)``.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

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


class Linear(Struct, frozen=True):
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
    centred = _centred(weight, w_zero, channel_axis)
    if centred is None:
        return None
    with np.errstate(all="ignore"):
        factor = np.asarray((x_scale * w_scale) / y_scale)
    outputs = weight.shape[channel_axis]
    total = bias[0].astype(np.int64) if bias else np.zeros(outputs, np.int64)
    return Linear(centred, factor, total, int(x_zero), y_zero)


def _centred(weight: Array, zero: Array, channel_axis: int) -> Array | None:
    """Return weights less their zero point, in int8; ``None`` if there are none or one needs more.

    Args:
        weight: 8-bit integers.
        zero: A scalar, or one for each channel.
        channel_axis: Where weights have their channels.
    """
    along = [1] * weight.ndim
    along[channel_axis] = -1
    centred = weight.astype(np.int32) - zero.astype(np.int32).reshape(along if zero.ndim else ())
    if centred.size == 0 or centred.min() < -128 or centred.max() > 127:
        return None
    return centred.astype(np.int8)


def conv_of(node: Call, source: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.conv`` over channels-last ``source``, channels last; ``None`` if it is not ours.

    Args:
        node: The convolution of a picture.
        source: Its data, channels last.
        shape: Register tile of the machine.
    """
    found = linear_of(node, 0)
    made = None if found is None else _conv_sums(node, source, (found.weight, found.x_zero), shape)
    if found is None or made is None:
        return None
    return _rescaled(node, made[0], found, found.bias + made[1])


def conv_sums_of(node: Call, source: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.conv_integer`` as :func:`conv_of` returns ``qnn.conv``."""
    zeros_and_weight = [arg.data for arg in node.args[1:] if isinstance(arg, Constant)]
    if len(zeros_and_weight) != 3:
        return None
    x_zero, weight, w_zero = zeros_and_weight
    centred = _centred(weight, w_zero, 0)
    if centred is None:
        return None
    made = _conv_sums(node, source, (centred, int(x_zero)), shape)
    if made is None or not made[1].any():
        return None if made is None else made[0]
    return call(Add, made[0], constant(made[1].astype(np.int32)), span=node.span)


def _conv_sums(
    node: Call, source: Expr, known: tuple[Array, int], shape: Shape
) -> tuple[Expr, Array] | None:
    """Return sums of products, and what each output channel lacks; ``None`` if it is not ours.

    Args:
        node: A convolution with attributes of ``nn.conv``.
        source: Its data, channels last.
        known: Weights less their zero point, and the zero point of the data.
        shape: Register tile of the machine.
    """
    plain, (weight, x_zero) = node.attrs, known
    if not isinstance(plain, Conv.Attrs):
        return None
    outputs, inner, kh, kw = weight.shape
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
        zero=x_zero if depthwise else _unsigned_zero(x_zero, kind),
    )
    if depthwise:
        packed = constant(pack_depthwise(weight), span=node.span)
        total = call(QuantDepthwise, source, packed, attrs=attrs, span=node.span)
        return total, np.zeros(outputs, np.int64)
    whole = _whole_quads(weight, 1)
    width = quad_width(outputs // plain.groups, shape)
    packed = constant(pack_quad_conv(whole, plain.groups, width), span=node.span)
    source = padded(source, whole.shape[1] * plain.groups, x_zero)
    total = call(QuadConv, source, packed, attrs=attrs, span=node.span)
    return total, -attrs.zero * whole.astype(np.int64).sum(axis=(1, 2, 3))


def dense_of(node: Call, source: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.matmul`` of ``source`` and a constant matrix; ``None`` if it is not ours."""
    flipped = _flipped(node, node.args[3])
    found = None if flipped is None else linear_of(node, 0 if flipped else 1)
    if found is None:
        return None
    total, sums = _dense_sums(node, source, found.weight.T if flipped else found.weight, shape)
    zero = _unsigned_zero(found.x_zero, tensor_type(source).dtype)
    return _rescaled(node, total, found, found.bias - zero * sums)


def dense_sums_of(node: Call, source: Expr, zero: Expr, shape: Shape) -> Expr | None:
    """Return ``qnn.matmul_integer`` of ``source``, as :func:`dense_of` returns ``qnn.matmul``.

    Args:
        node: The product.
        source: Its left operand.
        zero: The zero point of that, which need not be a constant.
        shape: Register tile of the machine.
    """
    weight, w_zero = node.args[2:]
    flipped = _flipped(node, weight)
    if flipped is None or not isinstance(weight, Constant) or not isinstance(w_zero, Constant):
        return None
    centred = _centred(weight.data, w_zero.data, 0 if flipped else 1)
    if centred is None:
        return None
    total, sums = _dense_sums(node, source, centred.T if flipped else centred, shape)
    moved = 128 if tensor_type(source).dtype.is_signed else 0
    if isinstance(zero, Constant):
        lacking = -(int(zero.data) + moved) * sums
        if not lacking.any():
            return total
        return call(Add, total, constant(lacking.astype(np.int32)), span=node.span)
    unsigned = call(Cast, zero, attrs=Cast.Attrs(dtype=DType.INT32))
    if moved:
        unsigned = call(Add, unsigned, constant(np.array(moved, np.int32)))
    lacking = call(Multiply, unsigned, constant((-sums).astype(np.int32)))
    return call(Add, total, lacking, span=node.span)


def _flipped(node: Call, weight: Expr) -> bool | None:
    """Whether a product's constant matrix is transposed; ``None`` if the product is not ours."""
    given = node.attrs
    if not isinstance(weight, Constant) or weight.data.ndim != 2:
        return None
    if not isinstance(given, Matmul.Attrs) or given.transpose_a:
        return None
    return given.transpose_b


def _dense_sums(node: Call, source: Expr, weight: Array, shape: Shape) -> tuple[Expr, Array]:
    """Return sums of products with the bytes of ``source`` taken as unsigned, and of weights."""
    matrix = _whole_quads(weight, 0)
    outputs = matrix.shape[1]
    packed = constant(pack_quad_dense(matrix, quad_width(outputs, shape)), span=node.span)
    source = padded(source, matrix.shape[0], 0)
    attrs = QuadDense.Attrs(outputs=outputs)
    total = call(QuadDense, source, packed, attrs=attrs, span=node.span)
    return total, matrix.astype(np.int64).sum(axis=0)


def is_quantised_linear(node: Call) -> bool:
    """Whether a call is a quantised convolution or product, or the accumulator of one."""
    return node.op in (
        qnn_linear.Conv,
        qnn_linear.ConvInteger,
        qnn_linear.Matmul,
        qnn_linear.MatmulInteger,
    )


def _unsigned_zero(zero: int, kind: DType) -> int:
    return zero + (128 if kind.is_signed else 0)


def _whole_quads(weight: Array, axis: int) -> Array:
    """Add zeros behind the last weight along ``axis`` up to a multiple of 4."""
    missing = -weight.shape[axis] % QUAD
    widths = [(0, missing if d == axis else 0) for d in range(weight.ndim)]
    return np.pad(weight, widths) if missing else weight


def padded(source: Expr, channels: int, zero: int) -> Expr:
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
