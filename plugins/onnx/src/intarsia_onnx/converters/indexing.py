# SPDX-License-Identifier: Apache-2.0
"""Operators that read elements at computed places, and scans along an axis."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import is_collecting, require_at_most, require_equal
from intarsia_ir.graph.types import Size
from intarsia_ir.ops import compare, indexing
from intarsia_ir.ops import cumulative as running
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from ..builder import Builder, dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .computed import Numbers
from .index_range import in_range, in_range_of_many


def gather(node: NodeContext) -> Expr:
    """Convert Gather."""
    x, axis = node.input(0), node.axis("axis", rank_of(node.input(0)), 0)
    indices = in_range(node, node.input(1), sizes_of(x)[axis])
    return node.call(indexing.Take, x, indices, attrs=indexing.Take.Attrs(axis=axis))


def gather_elements(node: NodeContext) -> Expr:
    """Convert GatherElements."""
    x, axis = node.input(0), node.axis("axis", rank_of(node.input(0)), 0)
    indices = in_range(node, node.input(1), sizes_of(x)[axis])
    attrs = indexing.GatherElements.Attrs(axis=axis)
    return node.call(indexing.GatherElements, x, indices, attrs=attrs)


def gather_nd(node: NodeContext) -> Expr:
    """Convert GatherND."""
    x, batch = node.input(0), node.integer("batch_dims", 0)
    indices = in_range_of_many(node, x, node.input(1), batch)
    attrs = indexing.GatherNd.Attrs(batch_dims=batch)
    return node.call(indexing.GatherNd, x, indices, attrs=attrs)


def one_hot(node: NodeContext) -> Expr:
    """Convert OneHot; the depth may be a size of the run, and the two values need not be known."""
    depth = _depth(node)
    if not require_at_most(1, depth, f"{node.span}: the depth of OneHot must be positive"):
        raise node.model_error(f"depth {depth} must be positive")
    indices = node.cast(node.input(0), DType.INT64)
    axis = node.axis("axis", rank_of(indices) + 1, -1)
    dtype = dtype_of(node.input(2))
    count, why = sizes_of(node.input(2)), "the values must be two"
    if len(count) != 1 or not require_equal(count[0], 2, f"{node.span}: {why}"):
        raise node.model_error(f"{why}, got {node.type_of(2)}")
    values = node.constant_value(2)
    if values is not None and dtype is not DType.BOOL:
        off, on = (float(value) for value in values.astype(np.float64))
        return hot(node, indices, axis, depth, dtype, on=on, off=off)
    is_hot = node.cast(hot(node, indices, axis, depth, DType.INT32), DType.BOOL)
    off_value, on_value = (node.item(node.input(2), 0, index) for index in range(2))
    return node.call(compare.Where, is_hot, on_value, off_value)


def _depth(node: NodeContext) -> Size:
    """Return the depth of OneHot, a number of any type."""
    if not is_collecting() or node.is_fixed(1) or product(sizes_of(node.input(1))) != 1:
        return node.required_integer(1, "the depth")
    value = node.reshape(node.input(1), (1,))
    return Numbers(node).as_size(node.cast(value, DType.INT64))


def hot(
    node: Builder,
    indices: Expr,
    axis: int,
    depth: Size,
    dtype: DType,
    *,
    on: float = 1.0,
    off: float = 0.0,
) -> Expr:
    """Spread indices over a new axis: ``on`` where the index is, ``off`` elsewhere."""
    (size,) = extents((depth,))
    attrs = indexing.OneHot.Attrs(depth=size, axis=axis, on_value=on, off_value=off, dtype=dtype)
    return node.call(indexing.OneHot, indices, attrs=attrs)


def cumulative(node: NodeContext) -> Expr:
    """Convert CumSum and CumProd along a known axis."""
    axis = node.normal_axis(node.required_integer(1, "the axis"), rank_of(node.input(0)))
    attrs = running.RunningAttrs(
        axis=axis,
        exclusive=bool(node.integer("exclusive", 0)),
        reverse=bool(node.integer("reverse", 0)),
    )
    op = running.Cumprod if node.op_type == "CumProd" else running.Cumsum
    return node.call(op, node.input(0), attrs=attrs)


CONVERTERS = MappingProxyType(
    {
        "CumProd": cumulative,
        "CumSum": cumulative,
        "Gather": gather,
        "GatherElements": gather_elements,
        "GatherND": gather_nd,
        "OneHot": one_hot,
    }
)
