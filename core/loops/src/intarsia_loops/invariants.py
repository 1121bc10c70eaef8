# SPDX-License-Identifier: Apache-2.0
"""Places that a loop reads a table for, and that are the same in each of its iterations.

``out[i, j] = x[rows[i], columns[j]]`` reads ``rows[i]`` in front of the loop over ``j``. A compiler
often does not: it must know first that every path through the loop reads it, and an index that is
clamped has several.
"""

from __future__ import annotations

from intarsia_ir.tir.expr import IfThenElse, Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import LetStmt, Stmt
from intarsia_ir.tir.walk import children, post_order, rewrite


def hoisted_places(value: PrimExpr, var: TirVar) -> tuple[PrimExpr, dict[TirVar, PrimExpr]]:
    """Return a value with names for invariant parts of its places, and what these stand for.

    Args:
        value: What a loop over ``var`` stores. One that is evaluated in parts is left as it is: a
            table may end where a condition says so.
        var: The loop variable.
    """
    nodes = tuple(post_order(value))
    if any(isinstance(node, IfThenElse) for node in nodes):
        return value, {}
    names: dict[PrimExpr, PrimExpr] = {}
    bound: dict[TirVar, PrimExpr] = {}
    for node in nodes:
        stack = list(node.indices) if isinstance(node, Load) and node.lanes == 1 else []
        while stack:
            part = stack.pop()
            below = tuple(post_order(part))
            if part in names or not any(isinstance(each, Load) for each in below):
                continue
            if var in below:
                stack += children(part)
            else:
                name = TirVar("place", part.dtype)
                names[part], bound[name] = name, part
    return (rewrite(value, _same, names) if names else value), bound


def with_places(body: Stmt, bound: dict[TirVar, PrimExpr]) -> Stmt:
    """Return ``body`` with the names of places."""
    for name, place in bound.items():
        body = LetStmt(name, place, body)
    return body


def _same(_node: PrimExpr) -> None:
    return None
