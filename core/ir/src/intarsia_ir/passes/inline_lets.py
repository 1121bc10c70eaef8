# SPDX-License-Identifier: Apache-2.0
"""Inline lets: ``let %v = value; body`` is ``body`` over ``value``, for values are pure."""

from __future__ import annotations

from dataclasses import replace

from ..graph.expr import Expr, Function, Let, Var
from ..graph.module import IRModule
from ..graph.walk import children, post_order, with_children
from .base import Pass, Remarks, map_functions


def inline_lets(module: IRModule, _remarks: Remarks) -> IRModule:
    """Replace every bound variable by its value; sharing stays, so nothing is computed twice."""
    return map_functions(module, _inline)


def _inline(function: Function) -> Function:
    values = {n.var: n.value for n in post_order(function.body) if isinstance(n, Let)}
    if not values:
        return function
    renamed: dict[Expr, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(function.body, False)]
    while stack:
        node, ready = stack.pop()
        if node in renamed:
            continue
        operands = _operands(node, values)
        if not ready:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(operands) if child not in renamed)
            continue
        if isinstance(node, Let) or node in values:
            renamed[node] = renamed[operands[0]]
        else:
            renamed[node] = with_children(node, tuple(renamed[child] for child in operands))
    return replace(function, body=renamed[function.body])


def _operands(node: Expr, values: dict[Var, Expr]) -> tuple[Expr, ...]:
    """What ``node`` is made of: a bound variable of its value, a let of its body."""
    match node:
        case Let(body=body):
            return (body,)
        case Var():
            return (values[node],) if node in values else ()
        case _:
            return children(node)


INLINE_LETS = Pass("inline-lets", inline_lets)
