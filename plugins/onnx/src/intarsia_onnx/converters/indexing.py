# SPDX-License-Identifier: Apache-2.0
"""Operators that read elements at computed places, and scans along an axis."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import compare, indexing
from intarsia_ir.ops import cumulative as running
from intarsia_runtime.dtype import DType

from ..builder import Builder, dtype_of, rank_of
from ..context import NodeContext


def gather(node: NodeContext) -> Expr:
    """Convert Gather."""
    axis = node.axis("axis", rank_of(node.input(0)), 0)
    check_indices(node, axis)
    return node.call(
        indexing.Take, node.input(0), node.input(1), attrs=indexing.Take.Attrs(axis=axis)
    )


def gather_elements(node: NodeContext) -> Expr:
    """Convert GatherElements."""
    axis = node.axis("axis", rank_of(node.input(0)), 0)
    check_indices(node, axis)
    attrs = indexing.GatherElements.Attrs(axis=axis)
    return node.call(indexing.GatherElements, node.input(0), node.input(1), attrs=attrs)


def check_indices(node: NodeContext, axis: int) -> None:
    """Refuse indices that are known and out of range."""
    size, indices = node.type_of(0).shape[axis], node.constant_value(1)
    if not isinstance(size, int) or indices is None or indices.size == 0:
        return
    if indices.min() < -size or indices.max() >= size:
        raise node.model_error(f"an index is outside of the {size} elements of axis {axis}")


def gather_nd(node: NodeContext) -> Expr:
    """Convert GatherND."""
    attrs = indexing.GatherNd.Attrs(batch_dims=node.integer("batch_dims", 0))
    return node.call(indexing.GatherNd, node.input(0), node.input(1), attrs=attrs)


def one_hot(node: NodeContext) -> Expr:
    """Convert OneHot; depth must be known, the two values need not be."""
    depth = node.required_integer(1, "the depth")
    if depth < 1:
        raise node.model_error(f"depth {depth} must be positive")
    indices = node.cast(node.input(0), DType.INT64)
    axis = node.axis("axis", rank_of(indices) + 1, -1)
    dtype = dtype_of(node.input(2))
    if node.static_shape(2) != (2,):
        raise node.model_error(f"the values must be two, got {node.type_of(2)}")
    values = node.constant_value(2)
    if values is not None and dtype is not DType.BOOL:
        off, on = (float(value) for value in values.astype(np.float64))
        return hot(node, indices, axis, depth, dtype, on=on, off=off)
    is_hot = node.cast(hot(node, indices, axis, depth, DType.INT32), DType.BOOL)
    off_value, on_value = (node.item(node.input(2), 0, index) for index in range(2))
    return node.call(compare.Where, is_hot, on_value, off_value)


def hot(
    node: Builder,
    indices: Expr,
    axis: int,
    depth: int,
    dtype: DType,
    *,
    on: float = 1.0,
    off: float = 0.0,
) -> Expr:
    """Spread indices over a new axis: ``on`` where the index is, ``off`` elsewhere."""
    attrs = indexing.OneHot.Attrs(depth=depth, axis=axis, on_value=on, off_value=off, dtype=dtype)
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
