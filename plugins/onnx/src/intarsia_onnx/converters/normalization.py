# SPDX-License-Identifier: Apache-2.0
"""Normalizations and softmax."""

from __future__ import annotations

import math
from types import MappingProxyType

from intarsia_ir.graph.expr import Call, Expr, tensor_type
from intarsia_ir.ops import binary, compare, normalization, pooling, reduce, unary
from intarsia_ir.ops import softmax as softmaxes
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .indexing import hot
from .wide import in_float32

FLOAT16_MAX = 65504


def softmax(node: NodeContext) -> Expr:
    """Convert Softmax and LogSoftmax; before opset 13 dimensions from the axis on are one."""
    op = softmaxes.Softmax if node.op_type == "Softmax" else softmaxes.LogSoftmax

    def along_axis(x: Expr, axis: int) -> Expr:
        if op is softmaxes.Softmax and _asks_for_half(x, axis):
            return _softmax_in_half(node, x, axis)
        return node.call(op, x, attrs=op.Attrs(axis=axis))

    x = node.input(0)
    rank = rank_of(x)
    if rank == 0:
        return node.reshape(along_axis(node.reshape(x, (1,)), 0), ())
    if node.opset >= 13:
        return along_axis(x, node.axis("axis", rank, -1))
    axis = node.axis("axis", rank, 1 if rank > 1 else 0)
    if all(size == 1 for size in sizes_of(x)[axis + 1 :]):
        return along_axis(x, axis)
    sizes = node.static_shape(0)
    flat = node.reshape(x, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))
    return node.reshape(along_axis(flat, 1), sizes)


def _asks_for_half(x: Expr, axis: int) -> bool:
    """Whether float16 is the precision of a softmax, and not just what its operand is stored in.

    ONNX's body of Attention says so by a Cast to ``softmax_precision``, which is a Cast to the same
    type if the attribute is not set. Sums of more elements than float16 has numbers overflow.
    """
    size = sizes_of(x)[axis]
    match x:
        case Call("cast", (inner,)) if dtype_of(x) is dtype_of(inner) is DType.FLOAT16:
            return isinstance(size, int) and size <= FLOAT16_MAX
        case _:
            return False


def _softmax_in_half(node: NodeContext, x: Expr, axis: int) -> Expr:
    """Return ONNX's body of Softmax: every step rounded to the element type."""
    attrs = reduce.ReduceOp.Attrs(axes=(axis,), keepdims=True)
    largest = node.call(reduce.Max, x, attrs=attrs)
    grown = node.call(unary.Exp, node.call(binary.Subtract, x, largest))
    total = node.call(reduce.Sum, grown, attrs=attrs)
    return node.call(binary.Divide, grown, total)


def hardmax(node: NodeContext) -> Expr:
    """Convert Hardmax: one at the first greatest element, zero elsewhere."""
    x = node.input(0)
    sizes = node.static_shape(0)
    if 0 in sizes:
        return x
    if node.opset >= 13:
        axis = node.axis("axis", len(sizes), -1)
    else:
        axis = 1
        cut = node.axis("axis", len(sizes), 1)
        x = node.reshape(x, (math.prod(sizes[:cut]), math.prod(sizes[cut:])))
    attrs = reduce.Argmax.Attrs(axis=axis, keepdims=False, last=False)
    best = node.call(reduce.Argmax, x, attrs=attrs)
    depth = tensor_type(x).static_shape[axis]
    result = hot(node, best, axis, depth, dtype_of(x))
    return node.reshape(result, sizes)


def batch_normalization(node: NodeContext) -> Expr | tuple[Expr, ...]:
    """Convert BatchNormalization, by the running statistics or by those of the batch."""
    if node.opset < 9 and not node.integer("spatial", 1):
        raise node.unsupported("BatchNormalization with spatial=0")
    if node.integer("training_mode", 0):
        return _batch_statistics(node)
    node.only_first_output()
    x = node.input(0)
    parameters = [node.cast(node.input(index), dtype_of(x)) for index in range(1, 5)]
    attrs = normalization.BatchNorm.Attrs(epsilon=node.number("epsilon", 1e-5))
    return node.call(normalization.BatchNorm, x, *parameters, attrs=attrs)


def _batch_statistics(node: NodeContext) -> tuple[Expr, ...]:
    """Normalize by mean and variance of the batch itself, and move the running ones."""
    x, rank = node.input(0), rank_of(node.input(0))
    kind = DType.FLOAT64 if dtype_of(x) is DType.FLOAT64 else DType.FLOAT32
    wide, axes = node.cast(x, kind), (0, *range(2, rank))
    attrs = reduce.Mean.Attrs(axes=axes, keepdims=False)
    mean = node.call(reduce.Mean, wide, attrs=attrs)
    apart = node.call(binary.Subtract, wide, node.along(mean, 1, rank))
    spread = node.call(reduce.Mean, node.call(binary.Multiply, apart, apart), attrs=attrs)
    scale, bias = (node.cast(node.input(index), kind) for index in (1, 2))
    epsilon = normalization.BatchNorm.Attrs(epsilon=node.number("epsilon", 1e-5))
    result = node.call(normalization.BatchNorm, wide, scale, bias, mean, spread, attrs=epsilon)
    keep = node.number("momentum", 0.9)
    running = [
        node.call(
            binary.Add,
            node.call(binary.Multiply, node.cast(node.input(n), kind), node.scalar(keep, kind)),
            node.call(binary.Multiply, now, node.scalar(1 - keep, kind)),
        )
        for n, now in ((3, mean), (4, spread))
    ]
    moved = (node.cast(t, dtype_of(node.input(n))) for t, n in zip(running, (3, 4), strict=True))
    return node.cast(result, dtype_of(x)), *moved


def layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert LayerNormalization; mean and inverse deviation are computed only if they are used."""
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    sizes = node.static_shape(0)
    axis = node.axis("axis", len(sizes), -1)
    epsilon = node.number("epsilon", 1e-5)
    inner = sizes[axis:]
    scale = node.broadcast(scale, inner)
    bias = node.full(inner, 0.0, dtype_of(x)) if bias is None else node.broadcast(bias, inner)
    attrs = normalization.LayerNorm.Attrs(axis=axis, epsilon=epsilon)
    result = node.call(normalization.LayerNorm, x, scale, bias, attrs=attrs)
    if not node.wants(1) and not node.wants(2):
        return (result,)
    wide = node.cast(x, DType.FLOAT32) if dtype_of(x).bits < 32 else x
    axes = reduce.Mean.Attrs(axes=tuple(range(axis, len(sizes))), keepdims=True)
    mean = node.call(reduce.Mean, wide, attrs=axes)
    centred = node.call(binary.Subtract, wide, mean)
    variance = node.call(reduce.Mean, node.call(binary.Multiply, centred, centred), attrs=axes)
    shifted = node.call(binary.Add, variance, node.scalar(epsilon, dtype_of(variance)))
    return result, mean, node.call(unary.Rsqrt, shifted)


def rms_normalization(node: NodeContext) -> Expr:
    """Convert RMSNormalization."""
    x = node.input(0)
    sizes = node.static_shape(0)
    axis = node.axis("axis", len(sizes), -1)
    scale = node.broadcast(node.cast(node.input(1), dtype_of(x)), sizes[axis:])
    attrs = normalization.RmsNorm.Attrs(axis=axis, epsilon=node.number("epsilon", 1e-5))
    return node.call(normalization.RmsNorm, x, scale, attrs=attrs)


def instance_normalization(node: NodeContext) -> Expr:
    """Convert InstanceNormalization."""
    attrs = normalization.InstanceNorm.Attrs(epsilon=node.number("epsilon", 1e-5))
    return node.call(
        normalization.InstanceNorm, node.input(0), node.input(1), node.input(2), attrs=attrs
    )


def group_normalization(node: NodeContext) -> Expr:
    """Convert GroupNormalization; before opset 21 scale and bias are given for each group."""
    x, scale, bias = node.input(0), node.input(1), node.input(2)
    groups = node.integer("num_groups")
    channels = node.static_shape(0)[1] if rank_of(x) > 1 else 0
    if groups < 1 or channels == 0 or channels % groups:
        raise node.model_error(f"{channels} channels in {groups} groups")
    if node.opset < 21 and groups != channels:
        scale, bias = (
            node.reshape(
                node.broadcast(node.reshape(v, (groups, 1)), (groups, channels // groups)),
                (channels,),
            )
            for v in (scale, bias)
        )
    attrs = normalization.GroupNorm.Attrs(groups=groups, epsilon=node.number("epsilon", 1e-5))
    return node.call(normalization.GroupNorm, x, scale, bias, attrs=attrs)


def lrn(node: NodeContext) -> Expr:
    """Convert LRN."""
    attrs = pooling.Lrn.Attrs(
        size=node.integer("size"),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )
    return node.call(pooling.Lrn, node.input(0), attrs=attrs)


@in_float32
def lp_normalization(node: NodeContext) -> Expr:
    """Convert LpNormalization; a vector of norm zero stays zero."""
    x = node.input(0)
    axis = node.axis("axis", rank_of(x), -1)
    p = node.integer("p", 2)
    if p not in (1, 2):
        raise node.model_error(f"p={p} is neither 1 nor 2")
    attrs = reduce.Sum.Attrs(axes=(axis,), keepdims=True)
    if p == 1:
        norm = node.call(reduce.Sum, node.call(unary.Abs, x), attrs=attrs)
    else:
        total = node.call(reduce.Sum, node.call(binary.Multiply, x, x), attrs=attrs)
        norm = node.call(unary.Sqrt, total)
    zero, one = node.scalar(0, dtype_of(x)), node.scalar(1, dtype_of(x))
    is_zero = node.call(compare.Equal, norm, zero)
    return node.call(binary.Divide, x, node.call(compare.Where, is_zero, one, norm))


@in_float32
def mean_variance_normalization(node: NodeContext) -> Expr:
    """Convert MeanVarianceNormalization, over all dimensions but the channels by default."""
    x = node.input(0)
    axes = node.normal_axes(node.integers("axes", (0, 2, 3)), rank_of(x))
    attrs = reduce.Mean.Attrs(axes=axes, keepdims=True)
    centred = node.call(binary.Subtract, x, node.call(reduce.Mean, x, attrs=attrs))
    variance = node.call(reduce.Mean, node.call(binary.Multiply, centred, centred), attrs=attrs)
    deviation = node.call(unary.Sqrt, variance)
    epsilon = node.scalar(1e-9, dtype_of(x))
    return node.call(binary.Divide, centred, node.call(binary.Add, deviation, epsilon))


CONVERTERS = MappingProxyType(
    {
        "BatchNormalization": batch_normalization,
        "GroupNormalization": group_normalization,
        "Hardmax": hardmax,
        "InstanceNormalization": instance_normalization,
        "LRN": lrn,
        "LayerNormalization": layer_normalization,
        "LogSoftmax": softmax,
        "LpNormalization": lp_normalization,
        "MeanVarianceNormalization": mean_variance_normalization,
        "RMSNormalization": rms_normalization,
        "Softmax": softmax,
    }
)
