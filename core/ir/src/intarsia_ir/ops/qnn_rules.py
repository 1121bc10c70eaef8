# SPDX-License-Identifier: Apache-2.0
"""Operators that have an operator of their own on integers, between dequantize and quantize.

A rule gets the float call and the scale and zero point that its result is quantized with. It
returns the integer call, or ``None`` if there is none that computes the same within one quantum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..graph.expr import Call, Constant, Expr, call, constant, tensor_type
from ..graph.op import Op
from . import (
    binary,
    nn,
    normalization,
    pooling,
    qnn,
    qnn_elements,
    qnn_linear,
    qnn_normalization,
    reduce,
    softmax,
)
from .arrays import Array
from .constants import per_channel
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS, Parameters, quantized_form
from .nn import Conv, ConvTranspose, Matmul
from .pooling import AvgPool
from .reduce import ReduceOp
from .stored import largest, stored

_ACCUMULATOR = 2**31 - 1


@quantized_form(nn.Conv)
def _conv(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.conv(dequantize(x), dequantize(w), b)) --> qnn.conv(x, w, b)"""
    data, weight, *bias = expr.args
    if not isinstance(expr.attrs, Conv.Attrs):
        return None
    depth = prod(tensor_type(weight).static_shape[1:])
    operands = _linear(data, weight, 0, bias, depth, result)
    return None if operands is None else _call(qnn_linear.Conv, expr, operands)


@quantized_form(nn.ConvTranspose)
def _conv_transpose(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.conv_transpose(dequantize(x), dequantize(w))) --> qnn.conv_transpose(x, w)"""
    data, weight, *bias = expr.args
    attrs = expr.attrs
    if not isinstance(attrs, ConvTranspose.Attrs):
        return None
    inputs, _, *kernel = tensor_type(weight).static_shape
    found = stored(weight)
    if attrs.groups > 1 and (found is None or found.scalars is None or bias):
        return None
    depth = inputs // attrs.groups * prod(kernel)
    operands = _linear(data, weight, 1, bias, depth, result)
    return None if operands is None else _call(qnn_linear.ConvTranspose, expr, operands)


@quantized_form(nn.Matmul)
def _matmul(expr: Call, result: Parameters) -> Expr | None:
    """quantize(matmul(dequantize(a), dequantize(b))) --> qnn.matmul(a, b)"""
    return _product(expr, expr, [], result)


def _product(expr: Call, matmul: Call, bias: Sequence[Expr], result: Parameters) -> Expr | None:
    if not isinstance(matmul.attrs, Matmul.Attrs):
        return None
    a, b = matmul.args
    rank = tensor_type(b).rank
    flipped = matmul.attrs.transpose_b
    depth = tensor_type(b).shape[rank - (1 if flipped else 2)]
    if not isinstance(depth, int):
        return None
    axis = rank - (2 if flipped else 1)
    operands = _linear(a, b, axis, bias, depth, result)
    return None if operands is None else _call(qnn_linear.Matmul, matmul, operands, expr)


def _linear(
    data: Expr,
    weight: Expr,
    channel_axis: int,
    bias: Sequence[Expr],
    depth: int,
    result: Parameters,
) -> list[Expr] | None:
    """Return the operands of a quantized convolution or product.

    Args:
        data: Its first operand.
        weight: Its second.
        channel_axis: Dimension of the weight that is the output channel.
        bias: What is added, if anything.
        depth: Products in one element of the result.
        result: Scale and zero point of the result.
    """
    x, w = stored(data), stored(weight)
    if x is None or w is None or not x.is_byte or not w.is_byte or x.scalars is None:
        return None
    parameters = w.vectors(channel_axis)
    if parameters is None:
        return None
    operands = [x.value, *x.scalars, w.value, *parameters, *result]
    reach = depth * largest(x.value, x.dtype, x.zero.data) * largest(w.value, w.dtype, w.zero.data)
    if bias:
        channels = tensor_type(weight).shape[channel_axis]
        scale = x.scale.data.reshape(()).astype(np.float64) * parameters[0].data
        vector = _bias(bias[0], channels, scale)
        if vector is None:
            return None
        reach += int(np.abs(vector.data.astype(np.int64)).max(initial=0))
        operands.append(vector)
    return operands if reach <= _ACCUMULATOR else None


def _bias(bias: Expr, channels: object, scale: Array) -> Constant | None:
    """Return a bias that varies along its last dimension only in units of the accumulator."""
    real = _real_constant(bias)
    if real is None or not isinstance(channels, int):
        return None
    rank = max(real.ndim, 1)
    vector = per_channel(constant(real), rank, rank - 1, channels)
    if vector is None:
        return None
    units = np.rint(vector / scale)
    if not bool((np.abs(units) <= _ACCUMULATOR).all()):
        return None
    return constant(np.ascontiguousarray(units.astype(np.int32)), span=bias.span)


def _real_constant(expr: Expr) -> Array | None:
    """Return the real numbers that a constant, quantized or not, stands for, in float64."""
    if isinstance(expr, Constant):
        return expr.data.astype(np.float64)
    found = stored(expr)
    if found is None or not isinstance(found.value, Constant):
        return None
    whole = found.value.data.astype(np.float64) - found.zero.data
    return np.asarray(whole * found.scale.data.astype(np.float64))


@quantized_form(binary.Add)
def _add(expr: Call, result: Parameters) -> Expr | None:
    """quantize(add(matmul(a, b), c)) --> qnn.matmul(a, b, c); add(x, y) --> qnn.add(x, y)"""
    for factor, bias in (expr.args, expr.args[::-1]):
        match factor:
            case Call("matmul") if factor.type == expr.type:
                found = _product(expr, factor, [bias], result)
                if found is not None:
                    return found
            case _:
                pass
    return _binary(qnn_elements.Add, expr, result)


@quantized_form(binary.Subtract)
def _subtract(expr: Call, result: Parameters) -> Expr | None:
    """quantize(subtract(dequantize(x), dequantize(y))) --> qnn.subtract(x, y)"""
    return _binary(qnn_elements.Subtract, expr, result)


@quantized_form(binary.Multiply)
def _multiply(expr: Call, result: Parameters) -> Expr | None:
    """quantize(multiply(dequantize(x), dequantize(y))) --> qnn.multiply(x, y)"""
    return _binary(qnn_elements.Multiply, expr, result)


def _binary(op: type[Op], expr: Call, result: Parameters) -> Expr | None:
    operands: list[Expr] = []
    for arg in expr.args:
        found = stored(arg)
        if found is None or found.triple is None:
            return None
        operands += found.triple
    return _call(op, expr, [*operands, *result], with_attrs=False)


@quantized_form(reduce.Mean)
def _mean(expr: Call, result: Parameters) -> Expr | None:
    """quantize(mean(dequantize(x))) --> qnn.mean(x)"""
    if not isinstance(expr.attrs, ReduceOp.Attrs):
        return None
    found = stored(expr.args[0])
    if found is None or found.triple is None:
        return None
    sizes = [tensor_type(found.value).shape[axis] for axis in expr.attrs.axes]
    numbers = [size for size in sizes if isinstance(size, int)]
    reach = prod(numbers) * largest(found.value, found.dtype, found.zero.data)
    if len(numbers) != len(sizes) or reach > _ACCUMULATOR:
        return None
    return _call(qnn_elements.Mean, expr, [*found.triple, *result])


@quantized_form(pooling.AvgPool)
def _avg_pool(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.avg_pool(dequantize(x))) --> qnn.avg_pool(x)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None or not isinstance(expr.attrs, AvgPool.Attrs):
        return None
    return _call(qnn_elements.AvgPool, expr, [*found.triple, *result])


@quantized_form(softmax.Softmax)
def _softmax(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.softmax(dequantize(x))) --> qnn.softmax(x)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None:
        return None
    return _call(qnn_normalization.Softmax, expr, [*found.triple, *result])


@quantized_form(normalization.LayerNorm)
def _layer_norm(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.layer_norm(dequantize(x), scale, bias)) --> qnn.layer_norm(x, scale, bias)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None:
        return None
    operands = [*found.triple, *result, *expr.args[1:]]
    return _call(qnn_normalization.LayerNorm, expr, operands)


def _call(
    op: type[Op],
    expr: Call,
    operands: Sequence[Expr],
    place: Call | None = None,
    *,
    with_attrs: bool = True,
) -> Expr:
    span = (place or expr).span
    if with_attrs:
        return call(op, *operands, attrs=expr.attrs, span=span)
    return call(op, *operands, span=span)


_ON_INTEGERS: tuple[type[Op], ...] = (
    *(qnn_linear.ConvInteger, qnn_linear.Conv, qnn_linear.ConvTranspose),
    *(qnn_linear.MatmulInteger, qnn_linear.Matmul),
    *(qnn_elements.QuantizedBinary, qnn_elements.Mean, qnn_elements.AvgPool),
    *(qnn_normalization.Softmax, qnn_normalization.LayerNorm),
    *(qnn.Quantize, qnn.Dequantize, qnn.Requantize, qnn.Lookup),
)
DERIVATIVES.refuse("integers change by jumps: train the model before quantizing it", *_ON_INTEGERS)
INTEGER_FORMS.refuse("it is one already", *_ON_INTEGERS)
