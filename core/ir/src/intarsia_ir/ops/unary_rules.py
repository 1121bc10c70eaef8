# SPDX-License-Identifier: Apache-2.0
"""What is known of the element-wise operators of one operand: derivatives, simplifications."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ..graph.expr import Call, Expr, call
from ..graph.op import Op, OpAttrs
from . import activation, shape, unary
from .constants import is_float, is_whole
from .derivative import DERIVATIVES, Derivative, derivative
from .integer_forms import INTEGER_FORMS, IntegerForm
from .rewriting import simplification
from .terms import Contributions, DerivativeStep, Term
from .unary import Cast, Clip

Slope: TypeAlias = "Callable[[Term, Term], Term | float]"
"""``slope(x, y)`` is the derivative of ``y = f(x)`` by ``x``, element by element."""

SlopeT = TypeVar("SlopeT", bound=Slope)


def _slope(*ops: type[Op]) -> Callable[[SlopeT], SlopeT]:
    """Register the slope of operators without attributes."""

    def register(slope: SlopeT) -> SlopeT:
        def rule(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
            return [step.adjoint * slope(step.args[0], step.result)]

        DERIVATIVES.give(Derivative(rule), *ops)
        return slope

    return register


@_slope(unary.Abs)
def _abs(x: Term, y: Term) -> Term:
    return x.apply(unary.Sign)


@_slope(unary.Acos)
def _acos(x: Term, y: Term) -> Term:
    return -_asin(x, y)


@_slope(unary.Acosh)
def _acosh(x: Term, y: Term) -> Term:
    return (x * x - 1.0).apply(unary.Rsqrt)


@_slope(unary.Asin)
def _asin(x: Term, y: Term) -> Term:
    return (1.0 - x * x).apply(unary.Rsqrt)


@_slope(unary.Asinh)
def _asinh(x: Term, y: Term) -> Term:
    return (x * x + 1.0).apply(unary.Rsqrt)


@_slope(unary.Atan)
def _atan(x: Term, y: Term) -> Term:
    return 1.0 / (x * x + 1.0)


@_slope(unary.Atanh)
def _atanh(x: Term, y: Term) -> Term:
    return 1.0 / (1.0 - x * x)


@_slope(unary.Cos)
def _cos(x: Term, y: Term) -> Term:
    return -x.apply(unary.Sin)


@_slope(unary.Cosh)
def _cosh(x: Term, y: Term) -> Term:
    return x.apply(unary.Sinh)


@_slope(unary.Erf)
def _erf(x: Term, y: Term) -> Term:
    return (-(x * x)).apply(unary.Exp) * (2 / math.sqrt(math.pi))


@_slope(unary.Exp)
def _exp(x: Term, y: Term) -> Term:
    return y


@_slope(unary.Log)
def _log(x: Term, y: Term) -> Term:
    return 1.0 / x


@_slope(unary.Negative)
def _minus_one(x: Term, y: Term) -> float:
    return -1.0


@_slope(shape.Copy)
def _one(x: Term, y: Term) -> float:
    return 1.0


@_slope(unary.Reciprocal)
def _reciprocal(x: Term, y: Term) -> Term:
    return -(y * y)


@_slope(unary.Rsqrt)
def _rsqrt(x: Term, y: Term) -> Term:
    return y * y * y * -0.5


@_slope(unary.Sigmoid)
def _sigmoid(x: Term, y: Term) -> Term:
    return y * (1.0 - y)


@_slope(unary.Sin)
def _sin(x: Term, y: Term) -> Term:
    return x.apply(unary.Cos)


@_slope(unary.Sinh)
def _sinh(x: Term, y: Term) -> Term:
    return x.apply(unary.Cosh)


@_slope(unary.Sqrt)
def _sqrt(x: Term, y: Term) -> Term:
    return 0.5 / y


@_slope(unary.Tan)
def _tan(x: Term, y: Term) -> Term:
    return y * y + 1.0


@_slope(unary.Tanh)
def _tanh(x: Term, y: Term) -> Term:
    return 1.0 - y * y


@derivative(unary.Ceil, unary.Floor, unary.Round, unary.Sign)
def _flat(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """Nothing: the operator is constant but for its jumps."""
    return [None] * len(step.args)


@derivative(Clip)
def _clip_derivative(step: DerivativeStep, attrs: unary.Clip.Attrs) -> Contributions:
    """Keep what is within the limits, these included."""
    (x,) = step.args
    within = x.equals(step.result)
    return [step.adjoint.where(within, 0.0)]


@derivative(Cast)
def _cast_derivative(step: DerivativeStep, attrs: unary.Cast.Attrs) -> Contributions:
    """Convert back; nothing goes through integers."""
    (x,) = step.args
    return [step.adjoint.apply(unary.Cast, attrs=unary.Cast.Attrs(dtype=x.type.dtype))]


@simplification(unary.Negative)
def drop_double_negative(expr: Expr) -> Expr | None:
    """negative(negative(x)) --> x"""
    match expr:
        case Call("negative", (Call("negative", (x,)),)):
            return x
        case _:
            return None


@simplification(unary.LogicalNot)
def drop_double_not(expr: Expr) -> Expr | None:
    """logical_not(logical_not(x)) --> x"""
    match expr:
        case Call("logical_not", (Call("logical_not", (x,)),)):
            return x
        case _:
            return None


@simplification(unary.Abs, unary.Floor, unary.Ceil, unary.Round, unary.Sign)
def drop_repeated(expr: Expr) -> Expr | None:
    """f(f(x)) --> f(x) for abs, floor, ceil, round, sign, relu"""
    match expr:
        case Call(outer, (Call(inner, (_,)) as once,)) if outer == inner:
            return once
        case _:
            return None


@simplification(Cast)
def drop_cast_to_same(expr: Expr) -> Expr | None:
    """cast(x, the type x has) --> x"""
    match expr:
        case Call("cast", (x,), Cast.Attrs()) if x.type == expr.type:
            return x
        case _:
            return None


@simplification(Cast)
def drop_quantized_round_trip(expr: Expr) -> Expr | None:
    """cast(cast(clip(round(x), 0, 255), uint8), float32) --> clip(round(x), 0, 255)

    Whole numbers within the range of the integer type come back as they were; only a NaN, which is
    no number in the integer type, stays one.
    """
    match expr:
        case Call(
            "cast",
            (
                Call(
                    "cast",
                    (Call("clip", (x,), Clip.Attrs(min=low, max=high)) as y,),
                    Cast.Attrs(dtype=d),
                ),
            ),
        ) if y.type == expr.type and d.is_integer and is_float(y):
            whole = float(low).is_integer() and float(high).is_integer()
            bottom = -(2.0 ** (d.bits - 1)) if d.is_signed else 0.0
            fits = bottom <= low <= high <= bottom + 2.0**d.bits - 1 and d.bits <= 16
            return y if whole and fits and is_whole(x) else None
        case _:
            return None


@simplification(Clip)
def clip_to_relu(expr: Expr) -> Expr | None:
    """clip(x, 0, inf) --> nn.relu(x);  clip(x, -inf, inf) --> x"""
    match expr:
        case Call("clip", (x,), Clip.Attrs(min=low, max=high)) if math.isinf(high) and high > 0:
            if low == -math.inf:
                return x
            return call(activation.Relu, x, span=expr.span) if low == 0 and is_float(x) else None
        case _:
            return None


@simplification(Clip)
def merge_clips(expr: Expr) -> Expr | None:
    """clip(clip(x, a, b), c, d) --> clip(x, max(a, c), min(b, d)) where the intervals meet"""
    match expr:
        case Call(
            "clip",
            (Call("clip", (x,), Clip.Attrs(min=a, max=b)),),
            Clip.Attrs(min=c, max=d),
        ) if max(a, c) <= min(b, d):
            return _clip(x, max(a, c), min(b, d), expr)
        case _:
            return None


@simplification(Clip)
def clip_of_relu(expr: Expr) -> Expr | None:
    """clip(nn.relu(x), a, b) --> clip(x, max(a, 0), b) if b is not negative"""
    match expr:
        case Call("clip", (Call("nn.relu", (x,)),), Clip.Attrs(min=a, max=b)) if b >= max(a, 0):
            return _clip(x, max(a, 0.0), b, expr)
        case _:
            return None


def _clip(x: Expr, low: float, high: float, at: Expr) -> Expr:
    return call(Clip, x, attrs=Clip.Attrs(min=low, max=high), span=at.span)


def _clip_limits(attrs: OpAttrs) -> tuple[float, float]:
    return (attrs.min, attrs.max) if isinstance(attrs, Clip.Attrs) else (-math.inf, math.inf)


INTEGER_FORMS.give(IntegerForm(limits=_clip_limits), Clip)


DERIVATIVES.refuse("truth values have no slope", unary.Isinf, unary.Isnan, unary.LogicalNot)
