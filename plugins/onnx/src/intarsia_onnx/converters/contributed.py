# SPDX-License-Identifier: Apache-2.0
"""Quantized operators of the domain ``com.microsoft``, which ONNX Runtime's quantizer writes.

Each is its float operator between dequantization and quantization; the pass ``fuse-quantize`` finds
the operators on integers that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.op import Op, OpAttrs
from intarsia_ir.ops import activation, binary, compare, qnn, reduce, softmax, unary
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import NodeContext
from .pooling import average_of
from .quantization import QDQ, qlinear_conv

DOMAIN = "com.microsoft"


def _real(node: NodeContext, first: int, axis: int | None = None) -> Expr:
    """Dequantize input ``first``, whose scale and zero point follow it."""
    x, scale, zero = node.input(first), node.input(first + 1), node.optional(first + 2)
    if zero is None:
        zero = node.scalar(0, dtype_of(x))
    return node.call(qnn.Dequantize, x, *(_shaped(node, p, x, axis) for p in (scale, zero)))


def _stored(node: NodeContext, x: Expr, first: int, like: DType) -> Expr:
    """Quantize with the scale at input ``first`` and the zero point that follows it."""
    zero = node.optional(first + 1)
    point = node.scalar(0, like) if zero is None else zero
    parameters = (_shaped(node, p, x, None) for p in (node.input(first), point))
    return node.call(qnn.Quantize, x, *parameters)


def _shaped(node: NodeContext, parameter: Expr, x: Expr, axis: int | None) -> Expr:
    if tensor_type(parameter).elements == 1:
        return node.reshape(parameter, ())
    if axis is None:
        raise node.unsupported(f"{node.op_type} with scales along an axis")
    return node.along(parameter, axis, rank_of(x))


def qlinear_add(node: NodeContext) -> Expr:
    """Convert QLinearAdd: ``a + b``."""
    return _pair(node, binary.Add)


def qlinear_mul(node: NodeContext) -> Expr:
    """Convert QLinearMul: ``a * b``."""
    return _pair(node, binary.Multiply)


def _pair(node: NodeContext, op: type[Op]) -> Expr:
    made = node.call(op, _real(node, 0), _real(node, 3))
    return _stored(node, made, 6, dtype_of(node.input(0)))


def qlinear_concat(node: NodeContext) -> Expr:
    """Convert QLinearConcat: scale and zero point of the result, then each part with its own."""
    first = node.input(2)
    axis = node.axis("axis", rank_of(first))
    parts = [_real(node, start) for start in range(2, len(node.args), 3)]
    return _stored(node, node.concat(parts, axis), 0, dtype_of(first))


def qlinear_average_pool(node: NodeContext) -> Expr:
    """Convert QLinearAveragePool."""
    last = node.integer("channels_last", 0)
    return channels_first(node, _average_pool) if last else _average_pool(node)


def _average_pool(node: NodeContext) -> Expr:
    return _stored(node, average_of(node, _real(node, 0)), 3, dtype_of(node.input(0)))


def qlinear_where(node: NodeContext) -> Expr:
    """Convert QLinearWhere: each operand with its own scale."""
    made = node.call(compare.Where, node.input(0), _real(node, 1), _real(node, 4))
    return _stored(node, made, 7, dtype_of(node.input(1)))


def qlinear_global_average_pool(node: NodeContext) -> Expr:
    """Convert QLinearGlobalAveragePool."""
    rank, last = rank_of(node.input(0)), node.integer("channels_last", 0)
    axes = tuple(range(1, rank - 1)) if last else tuple(range(2, rank))
    attrs = reduce.Mean.Attrs(axes=axes, keepdims=True)
    return _stored(
        node, node.call(reduce.Mean, _real(node, 0), attrs=attrs), 3, dtype_of(node.input(0))
    )


def qlinear_sigmoid(node: NodeContext) -> Expr:
    """Convert QLinearSigmoid."""
    return _unary(node, unary.Sigmoid)


def qlinear_leaky_relu(node: NodeContext) -> Expr:
    """Convert QLinearLeakyRelu."""
    attrs = activation.LeakyRelu.Attrs(alpha=node.number("alpha", 0.01))
    return _unary(node, activation.LeakyRelu, attrs)


def qlinear_softmax(node: NodeContext) -> Expr:
    """Convert QLinearSoftmax along one axis."""
    rank = rank_of(node.input(0))
    axis = node.axis("axis", rank, -1)
    if node.integer("opset", 13) < 13 and axis != rank - 1:
        raise node.unsupported("QLinearSoftmax of an old operator set over several axes")
    return _unary(node, softmax.Softmax, softmax.Softmax.Attrs(axis=axis))


def _unary(node: NodeContext, op: type[Op], attrs: OpAttrs | None = None) -> Expr:
    made = node.call(op, _real(node, 0), attrs=attrs)
    return _stored(node, made, 3, dtype_of(node.input(0)))


def qgemm(node: NodeContext) -> Expr:
    """Convert QGemm: ``alpha * a' * b' + c`` with ``c`` in units of the products."""
    if node.number("alpha", 1.0) != 1.0:
        raise node.unsupported(f"QGemm with alpha={node.number('alpha', 1.0)}")
    flipped = bool(node.integer("transB", 0))
    a, b = _real(node, 0), _real(node, 3, 0 if flipped else 1)
    turned = bool(node.integer("transA", 0))
    made = node.matmul(a, b, transpose_a=turned, transpose_b=flipped)
    bias = node.optional(6)
    if bias is not None:
        units = node.folded(
            node.call(binary.Multiply, node.reshape(node.input(1), ()), node.input(4))
        )
        zero = node.scalar(0, DType.INT32)
        scale = _shaped(node, units, bias, rank_of(bias) - 1)
        made = node.call(binary.Add, made, node.call(qnn.Dequantize, bias, scale, zero))
    if node.optional(7) is None:
        return made
    return _stored(node, made, 7, dtype_of(node.input(0)))


def qlinear_conv_of_layout(node: NodeContext) -> Expr:
    """Convert QLinearConv, which in this domain may have its channels last."""
    last = node.integer("channels_last", 0)
    return channels_first(node, qlinear_conv) if last else qlinear_conv(node)


def channels_first(
    node: NodeContext, convert: Callable[[NodeContext], Expr], operands: Sequence[int] = (0,)
) -> Expr:
    """Convert a node with channels last as one with channels first, between transpositions.

    Args:
        node: The node.
        convert: Converter of the node with its channels first.
        operands: Operands that have the layout, as the result does.
    """
    inner, given = copy(node), list(node.args)
    for index in operands:
        x = node.optional(index)
        if x is not None:
            given[index] = node.transpose(x, (0, rank_of(x) - 1, *range(1, rank_of(x) - 1)))
    inner.args = given
    result = convert(inner)
    return node.transpose(result, (0, *range(2, rank_of(result)), 1))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::{name}": converter
        for name, converter in {
            **QDQ,
            "QGemm": qgemm,
            "QLinearAdd": qlinear_add,
            "QLinearAveragePool": qlinear_average_pool,
            "QLinearConcat": qlinear_concat,
            "QLinearConv": qlinear_conv_of_layout,
            "QLinearGlobalAveragePool": qlinear_global_average_pool,
            "QLinearLeakyRelu": qlinear_leaky_relu,
            "QLinearMul": qlinear_mul,
            "QLinearSigmoid": qlinear_sigmoid,
            "QLinearSoftmax": qlinear_softmax,
            "QLinearWhere": qlinear_where,
        }.items()
    }
)
"""Converters by domain and name."""
