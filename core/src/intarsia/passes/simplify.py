# SPDX-License-Identifier: Apache-2.0
"""Simplify: apply the rules of :mod:`intarsia.passes.rules` to every call until none fires."""

from __future__ import annotations

from ..ir.module import IRModule
from ..ir.walk import RewriteRule
from .base import Pass, Remarks, first_rule, rewrite
from .rules.arithmetic import ARITHMETIC
from .rules.clipping import CLIPPING
from .rules.reductions import REDUCTIONS
from .rules.shapes import SHAPES


def simplify(module: IRModule, _remarks: Remarks) -> IRModule:
    """Drop calls that change nothing, merge chains, and bring equal things to one form."""
    return rewrite(module, first_rule(_by_operator()))


def _by_operator() -> dict[str, list[RewriteRule]]:
    rules: dict[str, list[RewriteRule]] = {}
    for name, rule in (*ARITHMETIC, *CLIPPING, *REDUCTIONS, *SHAPES):
        rules.setdefault(name, []).append(rule)
    return rules


SIMPLIFY = Pass("simplify", simplify)
