# SPDX-License-Identifier: Apache-2.0
"""Operators between dequantization and quantization, as operators on integers.

A rule gets the float call and the scale and zero point that its result is quantised with. It
returns the integer call, or ``None`` if there is none that computes the same within one quantum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ...ir.expr import Call, Constant, Expr, call, constant, tensor_type
from ...ir.op import Op, OpKind
from ...ir.types import TensorType
from ...ir.walk import post_order
from ...ops import qnn_elements, qnn_linear, qnn_normalization
from ...ops.arrays import Array
from ...ops.nn import Conv, ConvTranspose, Matmul
from ...ops.pooling import AvgPool
from ...ops.qnn import Lookup, Requantize, quantized, table_inputs
from ...ops.reduce import ReduceOp
from .constants import per_channel
from .stored import Stored, equal, largest, stored

Parameters: TypeAlias = tuple[Constant, Constant]
Rule: TypeAlias = Callable[[Call, Parameters], "Expr | None"]

_ACCUMULATOR = 2**31 - 1
MAX_TABLE_NODES = 64


def as_integers(expr: Expr, result: Parameters) -> Expr | None:
    """quantize(expr) --> an operator on integers"""
    if not isinstance(expr, Call):
        return None
    source = stored(expr)
    if source is not None:
        return _requantized(expr, source, result)
    rule = RULES.get(expr.name)
    found = None if rule is None else rule(expr, result)
    if found is None and expr.op.kind is OpKind.ELEMWISE:
        return _as_table(expr, result)
    return found


def _requantized(expr: Call, source: Stored, result: Parameters) -> Expr | None:
    """quantize(dequantize(x)) --> x, or x under the new scale"""
    own = source.scalars
    same = own is not None and equal(own[0], result[0]) and equal(own[1], result[1])
    if same and source.dtype.bits <= 16:
        return source.value
    return call(Requantize, source.value, source.scale, source.zero, *result, span=expr.span)


def _conv(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.conv(dequantize(x), dequantize(w), b)) --> qnn.conv(x, w, b)"""
    data, weight, *bias = expr.args
    if not isinstance(expr.attrs, Conv.Attrs):
        return None
    depth = prod(tensor_type(weight).static_shape[1:])
    operands = _linear(data, weight, 0, bias, depth, result)
    return None if operands is None else _call(qnn_linear.Conv, expr, operands)


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


def _matmul(expr: Call, result: Parameters) -> Expr | None:
    """quantize(matmul(dequantize(a), dequantize(b))) --> qnn.matmul(a, b)"""
    return _product(expr, expr, [], result)


def _product(expr: Call, product: Call, bias: Sequence[Expr], result: Parameters) -> Expr | None:
    if not isinstance(product.attrs, Matmul.Attrs):
        return None
    a, b = product.args
    rank = tensor_type(b).rank
    flipped = product.attrs.transpose_b
    depth = tensor_type(b).shape[rank - (1 if flipped else 2)]
    if not isinstance(depth, int):
        return None
    axis = rank - (2 if flipped else 1)
    operands = _linear(a, b, axis, bias, depth, result)
    return None if operands is None else _call(qnn_linear.Matmul, product, operands, expr)


def _linear(
    data: Expr,
    weight: Expr,
    channel_axis: int,
    bias: Sequence[Expr],
    depth: int,
    result: Parameters,
) -> list[Expr] | None:
    """Return the operands of a quantised convolution or product.

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
    """Return the real numbers that a constant, quantised or not, stands for, in float64."""
    if isinstance(expr, Constant):
        return expr.data.astype(np.float64)
    found = stored(expr)
    if found is None or not isinstance(found.value, Constant):
        return None
    whole = found.value.data.astype(np.float64) - found.zero.data
    return np.asarray(whole * found.scale.data.astype(np.float64))


def _add(expr: Call, result: Parameters) -> Expr | None:
    """quantize(add(matmul(a, b), c)) --> qnn.matmul(a, b, c); add(x, y) --> qnn.add(x, y)"""
    for product, bias in (expr.args, expr.args[::-1]):
        match product:
            case Call("matmul") if product.type == expr.type:
                found = _product(expr, product, [bias], result)
                if found is not None:
                    return found
            case _:
                pass
    return _binary(qnn_elements.Add, expr, result)


def _subtract(expr: Call, result: Parameters) -> Expr | None:
    """quantize(subtract(dequantize(x), dequantize(y))) --> qnn.subtract(x, y)"""
    return _binary(qnn_elements.Subtract, expr, result)


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


def _avg_pool(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.avg_pool(dequantize(x))) --> qnn.avg_pool(x)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None or not isinstance(expr.attrs, AvgPool.Attrs):
        return None
    return _call(qnn_elements.AvgPool, expr, [*found.triple, *result])


def _softmax(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.softmax(dequantize(x))) --> qnn.softmax(x)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None:
        return None
    return _call(qnn_normalization.Softmax, expr, [*found.triple, *result])


def _layer_norm(expr: Call, result: Parameters) -> Expr | None:
    """quantize(nn.layer_norm(dequantize(x), scale, bias)) --> qnn.layer_norm(x, scale, bias)"""
    found = stored(expr.args[0])
    if found is None or found.triple is None:
        return None
    operands = [*found.triple, *result, *expr.args[1:]]
    return _call(qnn_normalization.LayerNorm, expr, operands)


def _each(expr: Call, result: Parameters) -> Expr | None:
    """quantize(op(dequantize(x), ...)) --> op(x under the new scale, ...)

    For operators whose result is one of their operands' elements: rounding never swaps two numbers.
    """
    chosen = expr.args[:1] if expr.name == "where" else ()
    parts: list[Expr] = []
    for arg in expr.args[len(chosen) :]:
        found = stored(arg)
        part = None if found is None else _requantized(expr, found, result)
        if part is None:
            return None
        parts.append(part)
    return call(expr.op, *chosen, *parts, attrs=expr.attrs, span=expr.span)


def _as_table(expr: Call, result: Parameters) -> Expr | None:
    """quantize(f(dequantize(x))) --> qnn.lookup(x, f of all 256 numbers)"""
    nodes: list[Call] = []
    leaf: Expr | None = None
    todo: list[Expr] = [expr]
    seen: set[Expr] = set()
    while todo:
        node = todo.pop()
        if node in seen or (isinstance(node, Constant) and node.data.size == 1):
            continue
        seen.add(node)
        if stored(node) is not None:
            if leaf is not None:
                return None
            leaf = node
            continue
        if not isinstance(node, Call) or node.op.kind is not OpKind.ELEMWISE:
            return None
        nodes.append(node)
        todo.extend(node.args)
        if len(nodes) > MAX_TABLE_NODES:
            return None
    source = None if leaf is None else stored(leaf)
    if leaf is None or source is None or source.scalars is None or not source.is_byte:
        return None
    if not isinstance(leaf.type, TensorType) or tensor_type(expr).shape != leaf.type.shape:
        return None
    table = _table(expr, leaf, source, set(nodes))
    packed = constant(quantized(table, result[0].data, result[1].data), span=expr.span)
    return call(Lookup, source.value, packed, span=expr.span)


def _table(root: Call, leaf: Expr, source: Stored, inside: set[Call]) -> Array:
    """Evaluate an element-wise expression of one quantised tensor for all its numbers."""
    scale, zero = source.scale.data.reshape(()), source.zero.data.reshape(())
    whole = table_inputs(source.dtype).astype(np.int32) - zero.astype(np.int32)
    values: dict[Expr, Array] = {leaf: np.asarray(whole.astype(np.float32) * scale)}
    for node in post_order(root):
        if isinstance(node, Constant) and node.data.size == 1:
            values[node] = node.data.reshape(())
        elif isinstance(node, Call) and node in inside:
            with np.errstate(all="ignore"):
                found = node.op.reference(node.attrs, *(values[arg] for arg in node.args))
            values[node] = np.asarray(found)
    return np.broadcast_to(values[root], (256,))


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


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "add": _add,
        "concatenate": _each,
        "matmul": _matmul,
        "maximum": _each,
        "minimum": _each,
        "mean": _mean,
        "multiply": _multiply,
        "nn.avg_pool": _avg_pool,
        "nn.conv": _conv,
        "nn.conv_transpose": _conv_transpose,
        "nn.layer_norm": _layer_norm,
        "nn.softmax": _softmax,
        "subtract": _subtract,
        "where": _each,
    }
)
"""Float operator to its rule."""
