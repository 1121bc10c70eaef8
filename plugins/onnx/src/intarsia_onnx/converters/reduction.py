# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes, which are an attribute in old operator sets and an operand in new ones."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.op import Op
from intarsia_ir.ops import binary, compare, reduce, unary
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import NodeContext
from .wide import in_float32

_PLAIN: MappingProxyType[str, type[Op]] = MappingProxyType(
    {
        "ReduceSum": reduce.Sum,
        "ReduceMean": reduce.Mean,
        "ReduceProd": reduce.Prod,
        "ReduceMax": reduce.Max,
        "ReduceMin": reduce.Min,
    }
)


def _axes(node: NodeContext) -> tuple[int, ...] | None:
    """Return the axes to reduce; ``None`` if the node asks for no reduction at all."""
    rank = rank_of(node.input(0))
    if node.has("axes"):
        given: tuple[int, ...] | None = node.integers("axes")
    elif node.optional(1) is not None:
        given = node.required_ints(1, "the axes")
    else:
        given = None
    if given:
        return node.normal_axes(given, rank)
    return None if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))


def _reduced(node: NodeContext, op: type[Op], x: Expr, axes: tuple[int, ...]) -> Expr:
    keepdims = bool(node.integer("keepdims", 1))
    return node.call(op, x, attrs=reduce.Sum.Attrs(axes=axes, keepdims=keepdims))


def reduce_plain(node: NodeContext) -> Expr:
    """Convert a reduction that has the same meaning here; max and min of bools are any and all."""
    x, axes = node.input(0), _axes(node)
    if axes is None:
        return x
    op = _PLAIN[node.op_type]
    if dtype_of(x) is DType.BOOL:
        op = {"ReduceMax": reduce.Any, "ReduceMin": reduce.All}.get(node.op_type, op)
    return _reduced(node, op, x, axes)


def reduce_l1(node: NodeContext) -> Expr:
    """Convert ReduceL1: the sum of absolute values."""
    axes = _axes(node)
    size = node.call(unary.Abs, node.input(0))
    return size if axes is None else _reduced(node, reduce.Sum, size, axes)


@in_float32
def reduce_sum_square(node: NodeContext) -> Expr:
    """Convert ReduceSumSquare."""
    x, axes = node.input(0), _axes(node)
    square = node.call(binary.Multiply, x, x)
    return square if axes is None else _reduced(node, reduce.Sum, square, axes)


@in_float32
def reduce_l2(node: NodeContext) -> Expr:
    """Convert ReduceL2: the root of the sum of squares, in float for integers."""
    total = reduce_sum_square(node)
    dtype = dtype_of(total)
    if dtype.is_float:
        return node.call(unary.Sqrt, total)
    return node.cast(node.call(unary.Sqrt, node.cast(total, DType.FLOAT64)), dtype)


@in_float32
def reduce_log_sum(node: NodeContext) -> Expr:
    """Convert ReduceLogSum, with the logarithm of integers in float64."""
    x, axes = node.input(0), _axes(node)
    total = x if axes is None else _reduced(node, reduce.Sum, x, axes)
    dtype = dtype_of(total)
    if dtype.is_float:
        return node.call(unary.Log, total)
    return node.cast(node.call(unary.Log, node.cast(total, DType.FLOAT64)), dtype)


@in_float32
def reduce_log_sum_exp(node: NodeContext) -> Expr:
    """Convert ReduceLogSumExp, of integers in float64."""
    x, axes = node.input(0), _axes(node)
    dtype = dtype_of(x)
    if axes is None:
        return x
    if dtype.is_float:
        return _log_sum_exp(node, x, axes)
    return node.cast(_log_sum_exp(node, node.cast(x, DType.FLOAT64), axes), dtype)


def _log_sum_exp(node: NodeContext, x: Expr, axes: tuple[int, ...]) -> Expr:
    """Logarithm of the sum of exponentials; the maximum is subtracted, so that none overflows."""
    if 0 in node.type_of(0).shape:
        total = _reduced(node, reduce.Sum, node.call(unary.Exp, x), axes)
        return node.call(unary.Log, total)
    top = node.call(reduce.Max, x, attrs=reduce.Max.Attrs(axes=axes, keepdims=True))
    zero = node.scalar(0, dtype_of(x))
    finite = node.call(compare.Where, node.call(unary.Isinf, top), zero, top)
    exps = node.call(unary.Exp, node.call(binary.Subtract, x, finite))
    total = node.call(reduce.Sum, exps, attrs=reduce.Sum.Attrs(axes=axes, keepdims=True))
    result = node.call(binary.Add, node.call(unary.Log, total), finite)
    if node.integer("keepdims", 1):
        return result
    sizes = node.static_shape(0)
    return node.reshape(result, [s for axis, s in enumerate(sizes) if axis not in axes])


def arg_extreme(node: NodeContext) -> Expr:
    """Convert ArgMax and ArgMin."""
    x = node.input(0)
    op = reduce.Argmax if node.op_type == "ArgMax" else reduce.Argmin
    attrs = op.Attrs(
        axis=node.axis("axis", rank_of(x), 0),
        keepdims=bool(node.integer("keepdims", 1)),
        last=bool(node.integer("select_last_index", 0)),
    )
    return node.call(op, x, attrs=attrs)


CONVERTERS = MappingProxyType(
    {
        **dict.fromkeys(_PLAIN, reduce_plain),
        "ArgMax": arg_extreme,
        "ArgMin": arg_extreme,
        "ReduceL1": reduce_l1,
        "ReduceL2": reduce_l2,
        "ReduceLogSum": reduce_log_sum,
        "ReduceLogSumExp": reduce_log_sum_exp,
        "ReduceSumSquare": reduce_sum_square,
    }
)
