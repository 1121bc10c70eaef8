# SPDX-License-Identifier: Apache-2.0
"""What is known of comparisons and choices: derivatives, simplifications."""

from __future__ import annotations

from ..graph.expr import Call, Expr
from ..graph.op import OpAttrs
from .binary_rules import drop_broadcast_before_elementwise
from .compare import ComparisonOp, Where
from .constants import scalar_value
from .derivative import DERIVATIVES, derivative
from .integer_forms import Parameters, each_operand, quantized_form
from .rewriting import SIMPLIFICATIONS, simplification
from .terms import Contributions, DerivativeStep


@derivative(Where)
def _where_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """To the operand that was taken."""
    condition, a, b = step.args
    taken = step.adjoint.where(condition, 0.0).summed_to(a.sizes)
    left = step.adjoint.number(0.0).where(condition, step.adjoint).summed_to(b.sizes)
    return [None, taken, left]


@simplification(Where)
def drop_known_where(expr: Expr) -> Expr | None:
    """where(true, a, b) --> a;  where(c, a, a) --> a"""
    match expr:
        case Call("where", (_, a, b)) if a is b and a.type == expr.type:
            return a
        case Call("where", (flag, a, b)):
            value = scalar_value(flag)
            chosen = a if value else b
            return chosen if value is not None and chosen.type == expr.type else None
        case _:
            return None


SIMPLIFICATIONS.give(drop_broadcast_before_elementwise, Where)


@quantized_form(Where)
def _quantized_choice(expr: Call, result: Parameters) -> Expr | None:
    """quantize(where(c, dequantize(x), dequantize(y))) --> where(c, x, y under the new scale)"""
    return each_operand(expr, result, first=1)


DERIVATIVES.refuse("truth values have no slope", ComparisonOp)
