# SPDX-License-Identifier: Apache-2.0
"""Operators that choose elements by their order, or put elements where indices say."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.ops import indexing, scatter, selection
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.size import numbers

from ..builder import rank_of, sizes_of
from ..context import NodeContext
from .index_range import in_range, in_range_of_many


def top_k(node: NodeContext) -> tuple[Expr, ...]:
    """Convert TopK with a known count; what is chosen is always sorted."""
    axis = node.axis("axis", rank_of(node.input(0)), -1)
    known = node.integer("k") if node.has("k") else _count(node)
    size = node.type_of(0).shape[axis]
    both = numbers((known, size))
    if len(both) == 2 and not 0 <= both[0] <= both[1]:
        raise node.model_error(f"{known} of {size} elements are asked for")
    attrs = selection.TopK.Attrs(count=known, axis=axis, largest=bool(node.integer("largest", 1)))
    chosen = node.call(selection.TopK, node.input(0), attrs=attrs)
    return get_item(chosen, 0), get_item(chosen, 1)


def _count(node: NodeContext) -> int:
    """Return how many elements are wanted; a size that only the run knows counts as a number."""
    found = node.required_sizes(1, "the count")
    if len(found) != 1:
        raise node.model_error(f"the count must be one number, got {len(found)}")
    return extents(found)[0]


def scatter_elements(node: NodeContext) -> Expr:
    """Convert ScatterElements, and Scatter as it was called before."""
    x, axis = node.input(0), node.axis("axis", rank_of(node.input(0)), 0)
    attrs = scatter.ScatterElements.Attrs(axis=axis, reduction=_reduction(node))
    indices = in_range(node, node.input(1), sizes_of(x)[axis])
    return node.call(scatter.ScatterElements, x, indices, node.input(2), attrs=attrs)


def scatter_nd(node: NodeContext) -> Expr:
    """Convert ScatterND."""
    attrs = scatter.ScatterNd.Attrs(reduction=_reduction(node))
    indices = in_range_of_many(node, node.input(0), node.input(1))
    return node.call(scatter.ScatterNd, node.input(0), indices, node.input(2), attrs=attrs)


def _reduction(node: NodeContext) -> str:
    reduction = node.string("reduction", "none")
    if reduction not in scatter.REDUCTIONS:
        raise node.model_error(f"reduction='{reduction}' is not defined")
    return reduction


def tensor_scatter(node: NodeContext) -> Expr:
    """Convert TensorScatter; starts that are left out are 0."""
    cache, update = node.input(0), node.input(1)
    mode = node.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.model_error(f"mode='{mode}' is not defined")
    axis = node.axis("axis", rank_of(cache), -2)
    starts = node.optional(2)
    if starts is None:
        starts = node.array(np.zeros(node.static_shape(0)[:1], np.int64))
    attrs = scatter.TensorScatter.Attrs(axis=axis, circular=mode == "circular")
    return node.call(scatter.TensorScatter, cache, update, starts, attrs=attrs)


def reverse_sequence(node: NodeContext) -> Expr:
    """Convert ReverseSequence."""
    rank = rank_of(node.input(0))
    attrs = indexing.ReverseSequence.Attrs(
        time=node.axis("time_axis", rank, 0), batch=node.axis("batch_axis", rank, 1)
    )
    return node.call(indexing.ReverseSequence, node.input(0), node.input(1), attrs=attrs)


CONVERTERS = MappingProxyType(
    {
        "ReverseSequence": reverse_sequence,
        "Scatter": scatter_elements,
        "ScatterElements": scatter_elements,
        "ScatterND": scatter_nd,
        "TensorScatter": tensor_scatter,
        "TopK": top_k,
    }
)
