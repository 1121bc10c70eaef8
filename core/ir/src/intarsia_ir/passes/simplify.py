# SPDX-License-Identifier: Apache-2.0
"""Simplify: apply the simplifications of every operator to its calls until none fires."""

from __future__ import annotations

from ..graph.module import IRModule
from ..ops.rewriting import SIMPLIFICATIONS
from .base import Pass, Remarks, first_rule, rewrite


def simplify(module: IRModule, _remarks: Remarks) -> IRModule:
    """Drop calls that change nothing, merge chains, and bring equal things to one form."""
    return rewrite(module, first_rule(SIMPLIFICATIONS.of))


SIMPLIFY = Pass("simplify", simplify)
