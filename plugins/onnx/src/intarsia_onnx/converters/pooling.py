# SPDX-License-Identifier: Apache-2.0
"""Pools over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from types import MappingProxyType

from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, pooling, reduce, unary
from intarsia_ir.ops.elements import accumulator
from intarsia_ir.ops.windows import Windows
from intarsia_ir.tir.tensor import extents, lowest

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .folding import max_pool_places
from .wide import in_float32
from .window import NodeWindow, Padding, padded, read_window


def max_pool(node: NodeContext) -> tuple[Expr, ...]:
    """Convert MaxPool; the places of its elements are looked for only if they are used."""
    window = read_window(node, None, may_be_open=not node.wants(1))
    rounds_up = _is_cut_at_the_end(window)
    attrs = pooling.PoolAttrs(
        kernel=window.kernel,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        ceil_mode=_ceil_mode(node) or rounds_up,
    )
    x = node.input(0)
    if not rounds_up:
        x = padded(node, x, window, lowest(dtype_of(x)))
    pooled = node.call(pooling.MaxPool, x, attrs=attrs)
    return (pooled, max_pool_places(node, pooled)) if node.wants(1) else (pooled,)


def average_pool(node: NodeContext) -> Expr:
    """Convert AveragePool."""
    return average_of(node, node.input(0))


def average_of(node: NodeContext, x: Expr) -> Expr:
    """Average ``x``, which has the shape of the node's first operand, over the node's windows.

    Padding that only the run knows is zeros that count; where it should not, what it counts for is
    the average of ones in the place of the elements.
    """
    window = read_window(node, None, may_be_open=True)
    attrs = pooling.AvgPool.Attrs(
        kernel=window.kernel,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        ceil_mode=_ceil_mode(node),
        count_include_pad=bool(node.integer("count_include_pad", 0)),
    )
    if not window.open:
        return node.call(pooling.AvgPool, x, attrs=attrs)
    attrs = replace(attrs, count_include_pad=True)
    data = node.cast(x, accumulator(dtype_of(x)))
    average = node.call(pooling.AvgPool, padded(node, data, window, 0.0), attrs=attrs)
    if not node.integer("count_include_pad", 0):
        ones = node.full(extents((1, 1, *sizes_of(x)[2:])), 1, dtype_of(data))
        part = node.call(pooling.AvgPool, padded(node, ones, window, 0.0), attrs=attrs)
        average = node.call(binary.Divide, average, part)
    return node.cast(average, dtype_of(x))


def _is_cut_at_the_end(window: NodeWindow) -> bool:
    """Whether padding that only the run knows is one element behind an odd size.

    Then the last window begins inside and ends behind it, as windows do if their number is rounded
    up.
    """
    sizes = list(zip(window.extent, window.strides, window.padding, strict=True))
    at_the_end = all(padding.most[0] == 0 for padding in window.open.values())
    return (
        bool(window.open)
        and at_the_end
        and all((extent, stride, padding) == (2, 2, (0, 0)) for extent, stride, padding in sizes)
    )


def _ceil_mode(node: NodeContext) -> bool:
    """Read ``ceil_mode``; with automatic padding the output size is fixed already."""
    return bool(node.integer("ceil_mode", 0)) and node.string("auto_pad", "NOTSET") == "NOTSET"


@in_float32
def lp_pool(node: NodeContext) -> Expr:
    """Convert LpPool: the root of the sum of powers, the sum being an average times the window."""
    window = read_window(node, None, may_be_open=True)
    attrs = pooling.AvgPool.Attrs(
        kernel=window.kernel,
        strides=window.strides,
        padding=_ceil_padding(node, window) if _ceil_mode(node) else window.padding,
        dilation=window.dilation,
        ceil_mode=False,
        count_include_pad=True,
    )
    powers = padded(node, _powers(node, node.input(0)), window, 0.0)
    average = node.call(pooling.AvgPool, powers, attrs=attrs)
    count = node.scalar(math.prod(window.kernel), dtype_of(average))
    return _root(node, node.call(binary.Multiply, average, count))


def _ceil_padding(node: NodeContext, window: NodeWindow) -> Padding:
    """Return a padding with room for the windows that begin inside and end behind it."""
    sizes = node.static_shape(0)[2:]
    windows = Windows(window.kernel, window.strides, window.padding, window.dilation, True)
    counts = windows.output_shape(node.op_type, sizes)
    rows = zip(sizes, counts, window.strides, window.extent, window.padding, strict=True)
    return tuple(
        (low, max(high, (count - 1) * stride + extent - size - low))
        for size, count, stride, extent, (low, high) in rows
        if isinstance(count, int)
    )


def global_pool(node: NodeContext) -> Expr:
    """Convert GlobalAveragePool and GlobalMaxPool as reductions over the spatial dimensions."""
    op = reduce.Mean if node.op_type == "GlobalAveragePool" else reduce.Max
    axes = _spatial_axes(node)
    return node.call(op, node.input(0), attrs=op.Attrs(axes=axes, keepdims=True))


@in_float32
def global_lp_pool(node: NodeContext) -> Expr:
    """Convert GlobalLpPool."""
    powers = _powers(node, node.input(0))
    attrs = reduce.Sum.Attrs(axes=_spatial_axes(node), keepdims=True)
    return _root(node, node.call(reduce.Sum, powers, attrs=attrs))


def _spatial_axes(node: NodeContext) -> tuple[int, ...]:
    rank = rank_of(node.input(0))
    if rank < 3:
        raise node.model_error(f"needs spatial dimensions, got {node.type_of(0)}")
    return tuple(range(2, rank))


def _powers(node: NodeContext, x: Expr) -> Expr:
    if node.integer("p", 2) < 1:
        raise node.model_error(f"p={node.integer('p')} must be positive")
    size = node.call(unary.Abs, x)
    return node.call(binary.Power, size, node.scalar(node.integer("p", 2), dtype_of(x)))


def _root(node: NodeContext, x: Expr) -> Expr:
    return node.call(binary.Power, x, node.scalar(1.0 / node.integer("p", 2), dtype_of(x)))


CONVERTERS = MappingProxyType(
    {
        "AveragePool": average_pool,
        "GlobalAveragePool": global_pool,
        "GlobalLpPool": global_lp_pool,
        "GlobalMaxPool": global_pool,
        "LpPool": lp_pool,
        "MaxPool": max_pool,
    }
)
