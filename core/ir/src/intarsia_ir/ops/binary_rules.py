# SPDX-License-Identifier: Apache-2.0
"""What is known of the element-wise operators of two operands: derivatives, simplifications."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_runtime.errors import IntarsiaError

from ..graph.expr import Call, Expr, call
from ..graph.op import OpAttrs
from ..graph.types import Type
from . import activation, binary, unary
from .constants import is_float, is_scalar, scalar_value
from .derivative import DERIVATIVES, derivative
from .integer_forms import INTEGER_FORMS, IntegerForm, each_operand
from .rewriting import simplification
from .shape import BroadcastTo
from .terms import Contributions, DerivativeStep
from .unary import Clip


@derivative(binary.Add)
def _add_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """The derivative itself."""
    return step.shares(step.adjoint, step.adjoint)


@derivative(binary.Subtract)
def _subtract_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """The derivative, and its opposite."""
    return step.shares(step.adjoint, -step.adjoint)


@derivative(binary.Multiply)
def _multiply_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """Times the other operand."""
    a, b = step.args
    return step.shares(step.adjoint * b, step.adjoint * a)


@derivative(binary.Divide)
def _divide_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """``1 / b`` and ``-a / b**2``."""
    _, b = step.args
    share = step.adjoint / b
    return step.shares(share, -(share * step.result))


@derivative(binary.Power)
def _power_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """``b * a**(b - 1)``, 0 where ``b`` is; ``a**b * log(a)``, 0 where ``a`` is."""
    a, b = step.args
    by_a = by_b = None
    if step.needed[0]:
        slope = a.apply(step.call.op, b - 1.0) * b
        by_a = step.adjoint * slope.number(0.0).where(b.equals(0.0), slope)
    if step.needed[1]:
        base = a.number(1.0).where(a.equals(0.0), a)
        by_b = step.adjoint * step.result * base.apply(unary.Log)
    return step.shares(by_a, by_b)


@derivative(binary.Maximum, binary.Minimum)
def _larger_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """To the operand that was taken; of equal ones, half to each."""
    a, b = step.args
    half = a.equals(b)
    shares = [
        step.adjoint * a.number(0.5).where(half, a.number(1.0).where(x.equals(step.result), 0.0))
        for x in (a, b)
    ]
    return step.shares(*shares)


@derivative(binary.FloorMod, binary.TruncMod)
def _floor_mod_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """1, and minus the whole number of times that ``b`` fits into ``a``."""
    a, b = step.args
    times = ((a - step.result) / b).apply(unary.Round)
    return step.shares(step.adjoint, -(step.adjoint * times))


@simplification(binary.Add)
def drop_add_zero(expr: Expr) -> Expr | None:
    """add(x, 0) --> x"""
    match expr:
        case Call("add", (x, zero)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case Call("add", (zero, x)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case _:
            return None


@simplification(binary.Subtract)
def drop_subtract_zero(expr: Expr) -> Expr | None:
    """subtract(x, 0) --> x"""
    match expr:
        case Call("subtract", (x, zero)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case _:
            return None


@simplification(binary.Multiply)
def drop_multiply_one(expr: Expr) -> Expr | None:
    """multiply(x, 1) --> x"""
    match expr:
        case Call("multiply", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case Call("multiply", (one, x)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case _:
            return None


@simplification(binary.Divide)
def drop_divide_one(expr: Expr) -> Expr | None:
    """divide(x, 1) --> x"""
    match expr:
        case Call("divide", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case _:
            return None


@simplification(binary.Power)
def expand_power(expr: Expr) -> Expr | None:
    """power(x, 1) --> x;  power(x, 2) --> multiply(x, x)"""
    match expr:
        case Call("power", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case Call("power", (x, two)) if is_scalar(two, 2) and x.type == expr.type and is_float(x):
            return call(binary.Multiply, x, x, span=expr.span)
        case _:
            return None


@simplification(binary.ElementwiseBinaryOp)
def drop_broadcast_before_elementwise(expr: Expr) -> Expr | None:
    """add(broadcast_to(x), y) --> add(x, y) if the result keeps its shape"""
    match expr:
        case Call(args=args) if any(isinstance(a, Call) and a.name == "broadcast_to" for a in args):
            return _without_broadcasts(expr)
        case _:
            return None


def _without_broadcasts(expr: Call) -> Expr | None:
    """Drop every broadcast that the others make up for, from the last to the first."""
    args = list(expr.args)
    changed = False
    for i in reversed(range(len(args))):
        match args[i]:
            case Call("broadcast_to", (x,), BroadcastTo.Attrs()):
                trial = [*args[:i], x, *args[i + 1 :]]
                if _type_over(expr, trial) == expr.type:
                    args = trial
                    changed = True
            case _:
                pass
    return call(expr.op, *args, attrs=expr.attrs, span=expr.span) if changed else None


def _type_over(expr: Call, args: Sequence[Expr]) -> Type | None:
    """Return the type of ``expr`` over other operands, or ``None`` if it does not accept them."""
    try:
        return expr.op.type_rule(expr.attrs, *(arg.type for arg in args))
    except IntarsiaError:
        return None


@simplification(binary.Maximum)
def maximum_to_relu(expr: Expr) -> Expr | None:
    """maximum(x, 0) --> nn.relu(x)"""
    match expr:
        case Call("maximum", (a, b)):
            for x, zero in ((a, b), (b, a)):
                if is_scalar(zero, 0):
                    same = x.type == expr.type and is_float(x)
                    return call(activation.Relu, x, span=expr.span) if same else None
            return None
        case _:
            return None


@simplification(binary.Minimum)
def minimum_to_clip(expr: Expr) -> Expr | None:
    """minimum(nn.relu(x), c) --> clip(x, 0, c) if c is not negative"""
    match expr:
        case Call("minimum", (Call("nn.relu", (x,)) as inner, bound)) | Call(
            "minimum", (bound, Call("nn.relu", (x,)) as inner)
        ) if inner.type == expr.type:
            value = scalar_value(bound)
            if value is None or value < 0:
                return None
            return call(Clip, x, attrs=Clip.Attrs(min=0.0, max=value), span=expr.span)
        case _:
            return None


INTEGER_FORMS.give(IntegerForm(quantized=each_operand), binary.Maximum, binary.Minimum)


DERIVATIVES.refuse("truth values have no slope", binary.LogicalOp)
DERIVATIVES.refuse("integers have no slope", binary.BitwiseOp)
