# SPDX-License-Identifier: Apache-2.0
"""The table of derivatives: a rule that carries one back, or the operators it is made of.

Rules are formulas over :class:`~intarsia_ir.ops.terms.Term`. Where a function has no derivative
(``abs`` at 0, a limit of ``clip``), a value between those of the two sides stands for it: 0 for
``abs`` and ``relu``, one half for equal operands of ``maximum``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct

from ..graph.op import Op
from ..graph.rule_table import RuleTable, guarded_rule

if TYPE_CHECKING:
    from .terms import Contributions, Term

Adjoint: TypeAlias = "Callable[..., Contributions | None]"
"""``rule(step, attrs)`` with the operator's attributes; ``None`` if it has none for them."""

Expand: TypeAlias = "Callable[..., Term | None]"
"""``expand(args, attrs)``: the same by other operators that have rules, if it can be said so."""

AdjointT = TypeVar("AdjointT", bound=Adjoint)
ExpandT = TypeVar("ExpandT", bound=Expand)


class Derivative(Struct, frozen=True):
    """A rule that makes derivatives by the operands from that by the result."""

    adjoint: Adjoint


class Expansion(Struct, frozen=True):
    """An operator that is differentiated as the operators it is made of."""

    expand: Expand


DERIVATIVES: RuleTable[Derivative | Expansion] = RuleTable("derivative")
"""What is known of the derivative of each operator."""


def derivative(*ops: type[Op]) -> Callable[[AdjointT], AdjointT]:
    """Register the decorated function as how derivatives are carried back through operators."""

    def register(rule: AdjointT) -> AdjointT:
        DERIVATIVES.give(Derivative(guarded_rule(rule, "the derivative of an operator")), *ops)
        return rule

    return register


def expansion(*ops: type[Op]) -> Callable[[ExpandT], ExpandT]:
    """Register the decorated function as what operators are made of, to differentiate that."""

    def register(expand: ExpandT) -> ExpandT:
        DERIVATIVES.give(Expansion(guarded_rule(expand, "the derivative of an operator")), *ops)
        return expand

    return register
