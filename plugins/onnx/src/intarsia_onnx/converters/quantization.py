# SPDX-License-Identifier: Apache-2.0
"""Quantization: both ONNX forms become the same operators.

QuantizeLinear and DequantizeLinear around float operators (QDQ) are imported as they stand; the
pass ``fuse-quantize`` finds the operators between them. QLinear operators are those already.
"""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Constant, Expr, tensor_type
from intarsia_ir.ops import binary, compare, nn, qnn, qnn_linear, reduce, unary
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import Narrow, NodeContext
from ..tensors import element_type, stored_name
from .linear import product
from .narrow import dequantize_narrow, quantize_narrow
from .stored_weight import stored_weight
from .window import padded, read_window


def dequantize(node: NodeContext) -> Expr:
    """Convert DequantizeLinear: ``(x - zero) * scale`` in the scale's type."""
    x, scale = node.input(0), node.input(1)
    stored = node.stored(0)
    output = node.integer("output_dtype", 0)
    wanted = element_type(output, str(node.span)) if output else dtype_of(scale)
    found = stored_weight(node, wanted, _parameter)
    if found is not None:
        return found
    scale = _parameter(node, scale)
    if stored is not None:
        zero = None if node.optional(2) is None else _parameter(node, node.input(2))
        return node.cast(dequantize_narrow(node, x, scale, zero), wanted)
    _check_stored(node, dtype_of(x))
    value = node.call(qnn.Dequantize, x, scale, _zero_point(node, 2, dtype_of(x)))
    return node.cast(value, wanted)


def quantize(node: NodeContext) -> Expr | Narrow:
    """Convert QuantizeLinear: ``clip(round(x / scale) + zero)``, rounding half to even."""
    x, zero = node.input(0), node.optional(2)
    code = node.integer("output_dtype", 0)
    own = node.stored(2)
    name = stored_name(code) if own is None else own.name
    if name:
        divisor = _parameter(node, _converted(node, node.input(1), DType.FLOAT32))
        return quantize_narrow(
            node, name, divisor, None if zero is None else _parameter(node, zero)
        )
    if zero is not None:
        dtype = dtype_of(zero)
    else:
        dtype = element_type(code, str(node.span)) if code else DType.UINT8
    _check_stored(node, dtype)
    if not dtype_of(x).is_float:
        x = node.cast(x, DType.FLOAT32)
    scale = _parameter(node, _converted(node, node.input(1), DType.FLOAT32))
    return node.call(qnn.Quantize, x, scale, _zero_point(node, 2, dtype))


def _check_stored(node: NodeContext, dtype: DType) -> None:
    if not qnn.is_stored(dtype):
        raise node.unsupported(f"{node.op_type} of a tensor stored as {dtype}")


def _zero_point(node: NodeContext, index: int, dtype: DType) -> Expr:
    """Return the zero point in the shape of the scale; 0 if it is left out."""
    zero = node.optional(index)
    return node.scalar(0, dtype) if zero is None else _parameter(node, zero)


def _converted(node: NodeContext, x: Expr, dtype: DType) -> Expr:
    """Convert a parameter, at once if it is stored."""
    if isinstance(x, Constant) and dtype_of(x) is not dtype:
        return node.array(x.data.astype(numpy_dtype(dtype)))
    return node.cast(x, dtype)


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


def _scalar(node: NodeContext, index: int) -> Expr:
    """Return a scale or zero point of a whole tensor; a scale as float32."""
    value = node.input(index)
    if tensor_type(value).elements != 1:
        raise node.unsupported(f"{node.op_type} with parameters of input {index} along an axis")
    value = node.reshape(value, ())
    return _converted(node, value, DType.FLOAT32) if dtype_of(value).is_float else value


def _vector(node: NodeContext, index: int) -> Expr:
    """Return a scale or zero point of a weight: a scalar, or one for each channel."""
    value = node.input(index)
    count = tensor_type(value).elements
    value = node.reshape(value, () if count == 1 else (count,))
    return _converted(node, value, DType.FLOAT32) if dtype_of(value).is_float else value


def _parameters(node: NodeContext, first: int) -> list[Expr]:
    """Return scale and zero point at inputs ``first`` and ``first + 1`` as scalars."""
    return [_scalar(node, first), _scalar(node, first + 1)]


def qlinear_matmul(node: NodeContext) -> Expr:
    """Convert QLinearMatMul: an int32 product, then one rescaling."""
    if rank_of(node.input(4)) > 1:
        raise node.unsupported("QLinearMatMul with scales of more than one dimension")
    a, b = node.input(0), node.input(3)
    row, column = rank_of(a) == 1, rank_of(b) == 1
    if tensor_type(node.input(1)).elements != 1 or row or column:
        return _rows_rescaled(node, a, b)
    operands = [a, *_parameters(node, 1), b, _vector(node, 4), _vector(node, 5)]
    attrs = nn.Matmul.Attrs()
    return node.call(qnn_linear.Matmul, *operands, *_parameters(node, 6), attrs=attrs)


def _rows_rescaled(node: NodeContext, a: Expr, b: Expr) -> Expr:
    """A product of vectors, or of rows with scales of their own, in float32."""
    axis = rank_of(a) - 2
    parts: list[Expr] = []
    for value, first, along in ((a, 1, axis), (b, 4, rank_of(b) - 1)):
        scale, zero = (_spread(node, first + n, along, rank_of(value)) for n in range(2))
        parts.append(node.call(qnn.Dequantize, value, scale, zero))
    return node.call(qnn.Quantize, product(node, *parts), *_parameters(node, 6))


def _spread(node: NodeContext, index: int, axis: int, rank: int) -> Expr:
    value = node.input(index)
    if tensor_type(value).elements == 1:
        return _scalar(node, index)
    value = node.along(value, axis, rank)
    return _converted(node, value, DType.FLOAT32) if dtype_of(value).is_float else value


def qlinear_conv(node: NodeContext) -> Expr:
    """Convert QLinearConv: an int32 convolution, then one rescaling for each channel."""
    shape = node.static_shape(3)
    if len(shape) < 3:
        raise node.model_error(f"weight {node.type_of(3)}")
    zero = _known_zero(node)
    window = read_window(node, shape[2:], may_be_open=zero is not None)
    attrs = nn.Conv.Attrs(
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=max(node.integer("group", 1), 1),
    )
    data = [padded(node, node.input(0), window, zero or 0.0), *_parameters(node, 1)]
    weight = [node.input(3), _vector(node, 4), _vector(node, 5)]
    bias = node.optional(8)
    operands = [*data, *weight, *_parameters(node, 6), *([] if bias is None else [bias])]
    return node.call(qnn_linear.Conv, *operands, attrs=attrs)


def _known_zero(node: NodeContext) -> float | None:
    """Return the zero point of a convolution's data, operand 2, if it is known."""
    if node.optional(2) is None:
        return 0.0
    known = node.constant_value(2)
    return None if known is None else float(known.reshape(()))


def dynamic_quantize(node: NodeContext) -> tuple[Expr, ...]:
    """Convert DynamicQuantizeLinear."""
    return dynamically_quantized(node, node.input(0))


def dynamically_quantized(
    node: NodeContext, x: Expr, axes: tuple[int, ...] | None = None
) -> tuple[Expr, Expr, Expr]:
    """Quantize to uint8 with scale and zero point from the smallest and largest element.

    The range of zeros alone counts as 1, as in ONNX's reference: no scale is 0.

    Args:
        node: The node.
        x: float32 tensor.
        axes: Dimensions that share a scale, which keep size 1 in it; all if not given.

    Returns:
        The bytes, scale and zero point.
    """
    keep = axes is not None
    axes = tuple(range(rank_of(x))) if axes is None else axes
    zero = node.scalar(0.0, DType.FLOAT32)
    limits: list[Expr] = []
    for pick, bound in ((reduce.Min, binary.Minimum), (reduce.Max, binary.Maximum)):
        attrs = reduce.ReduceOp.Attrs(axes=axes, keepdims=keep)
        found = node.call(pick, x, attrs=attrs) if axes else x
        limits.append(node.call(bound, found, zero))
    low, high = limits
    span = node.call(binary.Subtract, high, low)
    flat = node.call(compare.Equal, span, zero)
    span = node.call(compare.Where, flat, node.scalar(1.0, DType.FLOAT32), span)
    scale = node.call(binary.Divide, span, node.scalar(255.0, DType.FLOAT32))
    start = node.call(binary.Divide, node.call(binary.Subtract, zero, low), scale)
    clipped = node.call(unary.Clip, start, attrs=unary.Clip.Attrs(min=0.0, max=255.0))
    point = node.cast(node.call(unary.Round, clipped), DType.UINT8)
    return node.call(qnn.Quantize, x, scale, point), scale, point


def matmul_integer(node: NodeContext) -> Expr:
    """Convert MatMulInteger: the accumulator of a quantized product."""
    a, b = node.input(0), node.input(1)
    zeros = [node.optional(2), node.optional(3)]
    plain = all(zero is None or tensor_type(zero).elements == 1 for zero in zeros[:1])
    plain = plain and all(zero is None or rank_of(zero) < 2 for zero in zeros[1:])
    if not plain or rank_of(a) < 2 or rank_of(b) < 2:
        return product(node, _shifted(node, 0, rank_of(a) - 2), _shifted(node, 1, rank_of(b) - 1))
    a_zero = node.scalar(0, dtype_of(a)) if zeros[0] is None else _scalar(node, 2)
    b_zero = node.scalar(0, dtype_of(b)) if zeros[1] is None else _vector(node, 3)
    return node.call(qnn_linear.MatmulInteger, a, a_zero, b, b_zero, attrs=nn.Matmul.Attrs())


def _shifted(node: NodeContext, index: int, axis: int) -> Expr:
    """Take the zero point at input ``index + 2`` off input ``index``, in int32."""
    value = node.cast(node.input(index), DType.INT32)
    zero = node.optional(index + 2)
    if zero is None:
        return value
    zero = _converted(node, zero, DType.INT32)
    if rank_of(zero) == 1:
        zero = node.along(zero, max(axis, 0), rank_of(value))
    return node.call(binary.Subtract, value, zero)


def conv_integer(node: NodeContext) -> Expr:
    """Convert ConvInteger: the accumulator of a quantized convolution."""
    shape = node.static_shape(1)
    if len(shape) != rank_of(node.input(0)) or len(shape) < 3:
        raise node.model_error(f"weight {node.type_of(1)} for data {node.type_of(0)}")
    zero = _known_zero(node)
    window = read_window(node, shape[2:], may_be_open=zero is not None)
    attrs = nn.Conv.Attrs(
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )
    x, w = padded(node, node.input(0), window, zero or 0.0), node.input(1)
    zeros = [_scalar(node, 2) if node.optional(2) is not None else node.scalar(0, dtype_of(x))]
    zeros.append(_vector(node, 3) if node.optional(3) is not None else node.scalar(0, dtype_of(w)))
    return node.call(qnn_linear.ConvInteger, x, zeros[0], w, zeros[1], attrs=attrs)


QDQ = MappingProxyType({"DequantizeLinear": dequantize, "QuantizeLinear": quantize})
"""The two that stand around float operators."""

CONVERTERS = MappingProxyType(
    {
        **QDQ,
        "ConvInteger": conv_integer,
        "DynamicQuantizeLinear": dynamic_quantize,
        "MatMulInteger": matmul_integer,
        "QLinearConv": qlinear_conv,
        "QLinearMatMul": qlinear_matmul,
    }
)
