# SPDX-License-Identifier: Apache-2.0
"""Eliminate dead code: branches that cannot be taken, and functions that nothing calls."""

from __future__ import annotations

from ..graph.expr import CallFunction, Constant, Expr, Function, If
from ..graph.module import IRModule
from ..graph.walk import post_order
from .base import Pass, Remarks, rewrite


def eliminate_dead_code(module: IRModule, _remarks: Remarks) -> IRModule:
    """Drop what cannot be reached from ``main``.

    A function is a graph, so a call that nothing uses is not in it in the first place.
    """
    return _drop_functions(rewrite(module, choose_branch))


def choose_branch(expr: Expr) -> Expr | None:
    """if (true) a else b --> a"""
    match expr:
        case If(condition=Constant(data=data)):
            chosen = expr.then_branch if bool(data.all()) else expr.else_branch
            return chosen if chosen.type == expr.type else None
        case _:
            return None


def _drop_functions(module: IRModule) -> IRModule:
    reached = {"main"}
    todo: list[Function] = [module.main]
    while todo:
        for node in post_order(todo.pop().body):
            if isinstance(node, CallFunction) and node.function.name not in reached:
                reached.add(node.function.name)
                todo.append(module.function(node.function))
    kept = {name: f for name, f in module.functions.items() if name in reached}
    return module if len(kept) == len(module.functions) else module.with_functions(kept)


ELIMINATE_DEAD_CODE = Pass("eliminate-dead-code", eliminate_dead_code)
