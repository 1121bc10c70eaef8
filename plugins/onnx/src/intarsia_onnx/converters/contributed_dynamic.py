# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain ``com.microsoft`` whose data are quantized when they run.

The bytes of the data are multiplied with those of the weight, and the accumulators by both scales.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.ops import binary, compare, generate, nn, qnn, qnn_linear, reduce
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .linear import product
from .open_recurrent import QuantizedProducts
from .quantization import dynamically_quantized
from .recurrent import layer


def dynamic_quantize_matmul(node: NodeContext) -> Expr:
    """Convert DynamicQuantizeMatMul: ``A`` is quantized as one tensor."""
    bytes_, scale, zero = dynamically_quantized(node, node.input(0))
    parameters = (node.input(2), node.optional(3))
    return _with_bias(node, scaled_product(node, (bytes_, scale, zero), 1, *parameters), 4)


def matmul_integer_to_float(node: NodeContext) -> Expr:
    """Convert MatMulIntegerToFloat: the accumulators times both scales, plus a bias."""
    data = (node.input(0), node.input(2), node.optional(4))
    for index in (2, 4):
        if node.optional(index) is not None and node.type_of(index).elements != 1:
            raise node.unsupported(f"MatMulIntegerToFloat with several scales of A (input {index})")
    result = scaled_product(node, data, 1, node.input(3), node.optional(5))
    return _with_bias(node, result, 6)


def _with_bias(node: NodeContext, x: Expr, index: int) -> Expr:
    bias = node.optional(index)
    return x if bias is None else node.call(binary.Add, x, bias)


def scaled_product(
    node: NodeContext,
    data: tuple[Expr, Expr, Expr | None],
    index: int,
    scale: Expr,
    zero: Expr | None,
) -> Expr:
    """Return the product of quantized tensors in the type of the scales.

    Args:
        node: The node.
        data: Bytes, scale and zero point of the tensor on the left; the latter are one number.
        index: Operand with the weight.
        scale: Scale of the weight: one number, or one for each column.
        zero: Zero point of the weight, of the scale's shape; 0 if there is none.
    """
    return weighted(node, data, node.input(index), scale, zero)


def weighted(
    node: NodeContext,
    data: tuple[Expr, Expr, Expr | None],
    weight: Expr,
    scale: Expr,
    zero: Expr | None,
) -> Expr:
    """Return the product of quantized data with a quantized weight; see :func:`scaled_product`."""
    x, x_scale, x_zero = data
    zeros = [
        node.scalar(0, dtype_of(bytes_)) if point is None else _columns(node, point)
        for bytes_, point in ((x, x_zero), (weight, zero))
    ]
    scales = [_columns(node, each) for each in (x_scale, scale)]
    if rank_of(x) < 2 or rank_of(weight) < 2 or rank_of(zeros[1]) > 1 or rank_of(scales[1]) > 1:
        return _in_floats(node, (x, x_scale, x_zero), weight, scale, zero)
    total = node.call(
        qnn_linear.MatmulInteger, x, zeros[0], weight, zeros[1], attrs=nn.Matmul.Attrs()
    )
    factor = node.folded(node.call(binary.Multiply, *scales))
    return node.call(binary.Multiply, node.cast(total, dtype_of(scale)), factor)


def _in_floats(
    node: NodeContext,
    data: tuple[Expr, Expr, Expr | None],
    weight: Expr,
    scale: Expr,
    zero: Expr | None,
) -> Expr:
    """Multiply real values: of vectors, and of weights whose scales have several dimensions."""
    parts: list[Expr] = []
    for x, factor, point in (data, (weight, scale, zero)):
        shift = node.scalar(0, dtype_of(x)) if point is None else _columns(node, point)
        parts.append(node.call(qnn.Dequantize, x, _columns(node, factor), shift))
    return product(node, *parts)


def _columns(node: NodeContext, parameter: Expr) -> Expr:
    """Give a scale or zero point of one number no dimensions."""
    return node.reshape(parameter, ()) if tensor_type(parameter).elements == 1 else parameter


def dynamic_quantize_lstm(node: NodeContext) -> tuple[Expr, ...]:
    """Convert DynamicQuantizeLSTM.

    The sequence is quantized as one tensor. Each row of the state is quantized for each step with
    a scale of its own; ONNX Runtime shares one between the rows that a thread computes.
    """
    for index in (1, 2):
        node.ranked_shape(index, 3)
    weights = [_real_weight(node, index, first) for index, first in ((1, 8), (2, 10))]
    given = [node.optional(index) for index in range(8)]
    given[1:3] = weights

    def gates(x: Expr, direction: int) -> Expr:
        data = dynamically_quantized(node, _within(node, x))
        taken = [_of_direction(node, index, direction) for index in (1, 8, 9)]
        return weighted(node, data, *taken)

    products = QuantizedProducts(
        gates, lambda way: _recurrent(node, way), lambda h: _rounded_rows(node, h)
    )
    return layer(node.as_standard("LSTM", given), products)


def _recurrent(node: NodeContext, direction: int) -> tuple[Expr, Expr]:
    """Return the recurrent weight of a direction less its zero point, and each column's scale."""
    columns = node.static_shape(2)[2]
    scale = _of_direction(node, 10, direction)
    scale = node.reshape(scale, (columns if rank_of(scale) else 1,))
    scale = node.folded(node.broadcast(scale, (columns,)))
    weight, zero = node.constant_value(2), node.constant_value(11)
    if weight is None or zero is None:
        parts = (_of_direction(node, index, direction) for index in (2, 11))
        return node.call(binary.Subtract, *(node.cast(x, DType.FLOAT32) for x in parts)), scale
    whole = weight[direction].astype(np.int16) - zero[direction].astype(np.int16)
    fits = whole.size == 0 or (whole.min() >= -128 and whole.max() <= 127)
    return node.array(whole.astype(np.int8) if fits else whole), scale


def _of_direction(node: NodeContext, index: int, direction: int) -> Expr:
    return node.folded(node.item(node.input(index), 0, direction))


def _real_weight(node: NodeContext, index: int, first: int) -> Expr:
    """Return a weight ``[directions, rows, 4 * hidden]`` as floats in the layout of LSTM's."""
    directions, _, columns = node.static_shape(index)
    parameters: list[Expr] = []
    for operand in (first, first + 1):
        shape = node.static_shape(operand)
        if shape not in ((directions,), (directions, columns)):
            raise node.model_error(
                f"input {operand} must have shape ({directions},) or ({directions}, {columns}),"
                f" got {node.type_of(operand)}"
            )
        last = shape[1] if len(shape) == 2 else 1
        parameters.append(node.reshape(node.input(operand), (directions, 1, last)))
    real = node.call(qnn.Dequantize, node.input(index), *parameters)
    return node.transpose(real, (0, 2, 1))


def _within(node: NodeContext, x: Expr) -> Expr:
    """Set steps behind the end of the longest sequence to 0: they have no part in the scale."""
    lengths = node.optional(4)
    if lengths is None:
        return x
    steps = sizes_of(x)[0]
    longest = node.call(reduce.Max, lengths, attrs=reduce.ReduceOp.Attrs(axes=(0,), keepdims=True))
    places = node.reshape(counted(node, 0, steps), (steps, 1, 1))
    inside = node.call(compare.Less, places, node.cast(longest, DType.INT32))
    return node.call(compare.Where, inside, x, node.scalar(0, dtype_of(x)))


def counted(node: NodeContext, start: Size, stop: Size) -> Expr:
    """Return the numbers from ``start`` to ``stop`` (exclusive) as int32; sizes may be open."""
    first, last = extents((start, stop))
    attrs = generate.Arange.Attrs(start=first, stop=last, step=1, dtype=DType.INT32)
    return node.call(generate.Arange, attrs=attrs)


def _rounded_rows(node: NodeContext, h: Expr) -> Expr:
    return node.call(qnn.Dequantize, *dynamically_quantized(node, h, (1,)))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::{name}": converter
        for name, converter in {
            "DynamicQuantizeLSTM": dynamic_quantize_lstm,
            "DynamicQuantizeMatMul": dynamic_quantize_matmul,
            "MatMulIntegerToFloat": matmul_integer_to_float,
        }.items()
    }
)
"""Converters by domain and name."""
