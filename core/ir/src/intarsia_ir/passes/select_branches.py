# SPDX-License-Identifier: Apache-2.0
"""Select branches: compute both branches of an ``If`` and keep one of the results.

A static plan has no jumps. Every operator is pure and total, so computing the branch that is not
taken changes nothing but the time.
"""

from __future__ import annotations

from ..graph.expr import Expr, If, call, get_item, make_tuple
from ..graph.module import IRModule
from ..graph.types import TensorType, TupleType
from ..ops.compare import Where
from ..ops.shape import Reshape
from .base import Pass, Remarks, rewrite


def select_branches(module: IRModule, remarks: Remarks) -> IRModule:
    """Replace every ``If`` on tensors, or on flat tuples of them, by element-wise selection."""

    def select(expr: Expr) -> Expr | None:
        """if (c) a else b --> where(c, a, b)"""
        if not isinstance(expr, If) or not _is_flat(expr):
            return None
        remarks.add("select-branches", "both branches are computed", expr.span)
        return _select(expr)

    return rewrite(module, select)


def _is_flat(expr: If) -> bool:
    same = expr.then_branch.type == expr.else_branch.type == expr.type
    parts = expr.type.fields if isinstance(expr.type, TupleType) else (expr.type,)
    return same and all(isinstance(part, TensorType) for part in parts)


def _select(expr: If) -> Expr:
    flag = expr.condition
    if isinstance(flag.type, TensorType) and flag.type.rank:
        flag = call(Reshape, flag, attrs=Reshape.Attrs(shape=()), span=expr.span)
    a, b = expr.then_branch, expr.else_branch
    if not isinstance(expr.type, TupleType):
        return call(Where, flag, a, b, span=expr.span)
    return make_tuple(
        [
            call(Where, flag, get_item(a, i), get_item(b, i), span=expr.span)
            for i in range(len(expr.type.fields))
        ],
        span=expr.span,
    )


SELECT_BRANCHES = Pass("select-branches", select_branches)
