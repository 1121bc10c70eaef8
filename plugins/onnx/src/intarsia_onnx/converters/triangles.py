# SPDX-License-Identifier: Apache-2.0
"""Trilu: the part of matrices above or below a diagonal."""

from __future__ import annotations

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, generate
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import NodeContext


def trilu(node: NodeContext) -> Expr:
    """Convert Trilu; a diagonal that only the run knows is compared with each place."""
    if node.optional(1) is not None and node.constant_value(1) is None:
        return _triangle_at(node)
    diagonal = 0 if node.optional(1) is None else node.required_integer(1, "the diagonal")
    attrs = generate.Triangular.Attrs(upper=bool(node.integer("upper", 1)), diagonal=diagonal)
    return node.call(generate.Triangular, node.input(0), attrs=attrs)


def _triangle_at(node: NodeContext) -> Expr:
    """Keep what lies above or below a diagonal that is data."""
    x = node.input(0)
    rank, sizes = rank_of(x), node.static_shape(0)
    if rank < 2:
        raise node.model_error(f"needs rank 2 or more, got {node.type_of(0)}")

    def places(axis: int) -> Expr:
        attrs = generate.Arange.Attrs(start=0, stop=sizes[axis], step=1, dtype=DType.INT64)
        return node.along(node.call(generate.Arange, attrs=attrs), axis, rank)

    diagonal = node.reshape(node.cast(node.input(1), DType.INT64), (1,) * rank)
    border = node.call(binary.Add, places(rank - 2), diagonal)
    op = compare.GreaterEqual if node.integer("upper", 1) else compare.LessEqual
    kept = node.call(op, places(rank - 1), border)
    return node.call(compare.Where, kept, x, node.scalar(0, dtype_of(x)))
