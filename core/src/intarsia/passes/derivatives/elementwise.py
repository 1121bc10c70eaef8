# SPDX-License-Identifier: Apache-2.0
"""Derivatives of element-wise operators.

Where there is no derivative (``abs`` at 0, a limit of ``clip``), a value between those of the two
sides stands for it: 0 for ``abs`` and ``relu``, one half for equal operands of ``maximum``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from ...ir.op import OpAttrs
from ...ops import compare, unary
from .terms import Contributions, Rule, Step, Term

Slope: TypeAlias = "Callable[[Term, Term], Term | float]"
"""``slope(x, y)`` is the derivative of ``y = f(x)`` by ``x``, element by element."""


def _abs(x: Term, y: Term) -> Term:
    return x.apply(unary.Sign)


def _acos(x: Term, y: Term) -> Term:
    return -_asin(x, y)


def _acosh(x: Term, y: Term) -> Term:
    return (x * x - 1.0).apply(unary.Rsqrt)


def _asin(x: Term, y: Term) -> Term:
    return (1.0 - x * x).apply(unary.Rsqrt)


def _asinh(x: Term, y: Term) -> Term:
    return (x * x + 1.0).apply(unary.Rsqrt)


def _atan(x: Term, y: Term) -> Term:
    return 1.0 / (x * x + 1.0)


def _atanh(x: Term, y: Term) -> Term:
    return 1.0 / (1.0 - x * x)


def _cos(x: Term, y: Term) -> Term:
    return -x.apply(unary.Sin)


def _cosh(x: Term, y: Term) -> Term:
    return x.apply(unary.Sinh)


def _erf(x: Term, y: Term) -> Term:
    return (-(x * x)).apply(unary.Exp) * (2 / math.sqrt(math.pi))


def _exp(x: Term, y: Term) -> Term:
    return y


def _log(x: Term, y: Term) -> Term:
    return 1.0 / x


def _minus_one(x: Term, y: Term) -> float:
    return -1.0


def _one(x: Term, y: Term) -> float:
    return 1.0


def _reciprocal(x: Term, y: Term) -> Term:
    return -(y * y)


def _rsqrt(x: Term, y: Term) -> Term:
    return y * y * y * -0.5


def _sigmoid(x: Term, y: Term) -> Term:
    return y * (1.0 - y)


def _sin(x: Term, y: Term) -> Term:
    return x.apply(unary.Cos)


def _sinh(x: Term, y: Term) -> Term:
    return x.apply(unary.Cosh)


def _sqrt(x: Term, y: Term) -> Term:
    return 0.5 / y


def _tan(x: Term, y: Term) -> Term:
    return y * y + 1.0


def _tanh(x: Term, y: Term) -> Term:
    return 1.0 - y * y


SLOPES = MappingProxyType(
    {
        "abs": _abs,
        "acos": _acos,
        "acosh": _acosh,
        "asin": _asin,
        "asinh": _asinh,
        "atan": _atan,
        "atanh": _atanh,
        "copy": _one,
        "cos": _cos,
        "cosh": _cosh,
        "erf": _erf,
        "exp": _exp,
        "log": _log,
        "negative": _minus_one,
        "reciprocal": _reciprocal,
        "rsqrt": _rsqrt,
        "sigmoid": _sigmoid,
        "sin": _sin,
        "sinh": _sinh,
        "sqrt": _sqrt,
        "tan": _tan,
        "tanh": _tanh,
    }
)
"""Slopes of operators of one operand without attributes."""


def by_slope(step: Step, attrs: OpAttrs) -> Contributions:
    """Multiply by the slope of an operator of one operand."""
    slope: Slope = SLOPES[step.call.name]
    return [step.adjoint * slope(step.args[0], step.result)]


def flat(step: Step, attrs: OpAttrs) -> Contributions:
    """Nothing: the operator is constant but for its jumps."""
    return [None] * len(step.args)


def clip(step: Step, attrs: unary.Clip.Attrs) -> Contributions:
    """Keep what is within the limits, these included."""
    (x,) = step.args
    within = x.equals(step.result)
    return [step.adjoint.where(within, 0.0)]


def cast(step: Step, attrs: unary.Cast.Attrs) -> Contributions:
    """Convert back; nothing goes through integers."""
    (x,) = step.args
    return [step.adjoint.apply(unary.Cast, attrs=unary.Cast.Attrs(dtype=x.type.dtype))]


def add(step: Step, attrs: OpAttrs) -> Contributions:
    """The derivative itself."""
    return _to_operands(step, step.adjoint, step.adjoint)


def subtract(step: Step, attrs: OpAttrs) -> Contributions:
    """The derivative, and its opposite."""
    return _to_operands(step, step.adjoint, -step.adjoint)


def multiply(step: Step, attrs: OpAttrs) -> Contributions:
    """Times the other operand."""
    a, b = step.args
    return _to_operands(step, step.adjoint * b, step.adjoint * a)


def divide(step: Step, attrs: OpAttrs) -> Contributions:
    """``1 / b`` and ``-a / b**2``."""
    _, b = step.args
    share = step.adjoint / b
    return _to_operands(step, share, -(share * step.result))


def power(step: Step, attrs: OpAttrs) -> Contributions:
    """``b * a**(b - 1)``, 0 where ``b`` is; ``a**b * log(a)``, 0 where ``a`` is."""
    a, b = step.args
    by_a = by_b = None
    if step.needed[0]:
        slope = a.apply(step.call.op, b - 1.0) * b
        by_a = step.adjoint * slope.number(0.0).where(b.equals(0.0), slope)
    if step.needed[1]:
        base = a.number(1.0).where(a.equals(0.0), a)
        by_b = step.adjoint * step.result * base.apply(unary.Log)
    return _to_operands(step, by_a, by_b)


def larger(step: Step, attrs: OpAttrs) -> Contributions:
    """To the operand that was taken; of equal ones, half to each."""
    a, b = step.args
    half = a.equals(b)
    shares = [
        step.adjoint * a.number(0.5).where(half, a.number(1.0).where(x.equals(step.result), 0.0))
        for x in (a, b)
    ]
    return _to_operands(step, *shares)


def floor_mod(step: Step, attrs: OpAttrs) -> Contributions:
    """1, and minus the whole number of times that ``b`` fits into ``a``."""
    a, b = step.args
    times = ((a - step.result) / b).apply(unary.Round)
    return _to_operands(step, step.adjoint, -(step.adjoint * times))


def where(step: Step, attrs: OpAttrs) -> Contributions:
    """To the operand that was taken."""
    condition, a, b = step.args
    taken = step.adjoint.where(condition, 0.0).summed_to(a.sizes)
    left = step.adjoint.number(0.0).where(condition, step.adjoint).summed_to(b.sizes)
    return [None, taken, left]


def prelu(step: Step, attrs: OpAttrs) -> Contributions:
    """1 or the slope; and, below 0, ``x``."""
    x, slope = step.args
    negative = x.below(0.0)
    by_x = step.adjoint * slope.where(negative, 1.0)
    by_slope = (step.adjoint * x).where(negative, 0.0)
    return [by_x, by_slope.summed_to(slope.sizes)]


def _to_operands(step: Step, *shares: Term | None) -> Contributions:
    """Sum each share over what its operand was broadcast along."""
    return [
        None if share is None or not wanted else share.summed_to(operand.sizes)
        for share, operand, wanted in zip(shares, step.args, step.needed, strict=True)
    ]


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(SLOPES, by_slope),
        **dict.fromkeys(("ceil", "floor", "round", "sign"), flat),
        "add": add,
        "cast": cast,
        "clip": clip,
        "divide": divide,
        "floor_mod": floor_mod,
        "maximum": larger,
        "minimum": larger,
        "multiply": multiply,
        "nn.prelu": prelu,
        "power": power,
        "subtract": subtract,
        "trunc_mod": floor_mod,
        compare.Where.name: where,
    }
)
