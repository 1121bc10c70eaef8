# SPDX-License-Identifier: Apache-2.0
"""Eliminate dead code: branches that cannot be taken, and functions that nothing calls."""

from __future__ import annotations

from ..graph.control import called_by
from ..graph.expr import Constant, Expr, Function, GlobalVar, If
from ..graph.module import IRModule
from ..graph.walk import post_order
from .base import Pass, Remarks, rewrite


def eliminate_dead_code(module: IRModule, _remarks: Remarks) -> IRModule:
    """Drop what cannot be reached from ``main``.

    A function is a graph, so a call that nothing uses is not in it in the first place.
    """
    return drop_functions(rewrite(module, choose_branch))


def choose_branch(expr: Expr) -> Expr | None:
    """if (true) a else b --> a"""
    match expr:
        case If(condition=Constant(data=data)):
            chosen = expr.then_branch if bool(data.all()) else expr.else_branch
            return chosen if chosen.type == expr.type else None
        case _:
            return None


def drop_functions(module: IRModule) -> IRModule:
    """Return the module without the functions that ``main`` does not reach."""
    reached = {"main"}
    todo: list[Function] = [module.main]
    while todo:
        for node in post_order(todo.pop().body):
            for name in called_by(node):
                if name not in reached:
                    reached.add(name)
                    todo.append(module.function(GlobalVar(name)))
    kept = {name: f for name, f in module.functions.items() if name in reached}
    return module if len(kept) == len(module.functions) else module.with_functions(kept)


ELIMINATE_DEAD_CODE = Pass("eliminate-dead-code", eliminate_dead_code)
