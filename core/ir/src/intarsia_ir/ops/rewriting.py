# SPDX-License-Identifier: Apache-2.0
"""Tables of rewrite rules: simplifications that always hold, and formulas that spell an operator.

Both are found by the operator of the call that gives the result. A simplification's docstring is
its ``before --> after``. No rule promises the sign of a zero: ``-0.0 + 0.0`` is ``0.0``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct

from ..graph.expr import Call, Expr
from ..graph.op import Op
from ..graph.pattern import Match, Pattern
from ..graph.rule_table import RuleLists, guarded_rule
from ..graph.walk import RewriteRule

Build: TypeAlias = Callable[[Match, "Sequence[Expr]"], "Call | None"]
"""``build(match, values)`` with the values of the named wildcards: ``x`` first, then by name."""

RuleT = TypeVar("RuleT", bound=RewriteRule)


class Formula(Struct, frozen=True):
    """A way of spelling an operator out.

    Attributes:
        pattern: How.
        build: Given a match and the rewritten operands, the operator; ``None`` if a number differs.
    """

    pattern: Pattern
    build: Build


SIMPLIFICATIONS: RuleLists[RewriteRule] = RuleLists("simplification")
"""Rules tried on calls of an operator, in order; each gives the simpler call or ``None``."""

FORMULAS: RuleLists[Formula] = RuleLists("formula")
"""How models spell an operator that is one of ours; the largest formula first."""


def simplification(*ops: type[Op]) -> Callable[[RuleT], RuleT]:
    """Register the decorated rule for calls of operators."""

    def register(rule: RuleT) -> RuleT:
        SIMPLIFICATIONS.give(guarded_rule(rule, "a simplification of an operator"), *ops)
        return rule

    return register


def spelled(op: type[Op], build: Build, *patterns: Pattern) -> None:
    """Register formulas that spell ``op``, larger ones first."""
    guarded = guarded_rule(build, f"a formula of operator '{op.name}'")
    for pattern in patterns:
        FORMULAS.give(Formula(pattern, guarded), op)
