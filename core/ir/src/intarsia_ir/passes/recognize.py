# SPDX-License-Identifier: Apache-2.0
"""Recognize: put one operator where a model spells it out in many.

Exporters write GELU, SiLU, hard swish and layer normalization as their formulas. As one operator
they are what accelerators have kernels for, and what the fallback computes without storing the
steps between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..graph.expr import Call, Expr, Function
from ..graph.match import match_pattern, root_operators
from ..graph.module import IRModule
from ..graph.op import Op
from ..graph.pattern import Match
from ..graph.walk import children, count_uses, post_order, with_children
from ..ops.rewriting import FORMULAS, Formula
from .base import Pass, Remarks, map_functions

_Formulas: TypeAlias = Mapping[str, Sequence[tuple[type[Op], Formula]]]
"""By the operator of the call that gives the result: what is spelled, and how."""


def recognize(module: IRModule, remarks: Remarks) -> IRModule:
    """Replace formulas by the operators they spell."""
    formulas: dict[str, list[tuple[type[Op], Formula]]] = {}
    for spelled, formula in FORMULAS.all():
        for root in root_operators(formula.pattern) or ():
            formulas.setdefault(root, []).append((spelled, formula))

    def change(function: Function) -> Function:
        return _recognize(function, formulas, remarks)

    return map_functions(module, change)


def _recognize(function: Function, formulas: _Formulas, remarks: Remarks) -> Function:
    """Match from the results backwards, so that the largest formula wins; then rebuild once."""
    uses = count_uses((function.body,))
    order = list(post_order(function.body))
    found: dict[Expr, tuple[type[Op], Formula, Match]] = {}
    taken: set[Call] = set()
    for node in reversed(order):
        if not isinstance(node, Call) or node in taken:
            continue
        for spelled, formula in formulas.get(node.name, ()):
            match = match_pattern(formula.pattern, node, uses)
            if match is not None and taken.isdisjoint(match.calls):
                if formula.build(match, _values(match)) is None:
                    continue
                found[node] = (spelled, formula, match)
                taken.update(match.calls)
                break
    renamed: dict[Expr, Expr] = {}
    for node in order:
        rebuilt: Expr | None = None
        if node in found:
            spelled, formula, match = found[node]
            rebuilt = formula.build(match, [renamed[value] for value in _values(match)])
            remarks.add("recognize", f"{len(match.calls)} calls are {spelled.name}", node.span)
        if rebuilt is None:
            rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
        renamed[node] = rebuilt
    body = renamed[function.body]
    return function if body is function.body else replace(function, body=body)


def _values(match: Match) -> list[Expr]:
    """Return ``x``, and the bound constants by name."""
    return [match.bound[name] for name in sorted(match.bound, key=_x_first)]


def _x_first(name: str) -> tuple[bool, str]:
    return name != "x", name


RECOGNIZE = Pass("recognize", recognize)
