# SPDX-License-Identifier: Apache-2.0
"""What is known of activation functions: derivatives, simplifications, forms on integers."""

from __future__ import annotations

import math

from ..graph.expr import Call, Expr, call
from ..graph.op import OpAttrs
from . import activation, binary, unary
from .derivative import derivative
from .integer_forms import INTEGER_FORMS, IntegerForm, clipped, real
from .rewriting import SIMPLIFICATIONS, simplification
from .stored import stored
from .terms import Contributions, DerivativeStep, Term
from .unary import Clip
from .unary_rules import drop_repeated


def _times(step: DerivativeStep, slope: Term) -> Contributions:
    return [step.adjoint * slope]


def _shrunk(x: Term) -> Term:
    """Return ``exp(x)`` for x below 0, which is all it is used for: greater ones might overflow."""
    return x.apply(binary.Minimum, 0.0).apply(unary.Exp)


@derivative(activation.Celu)
def _celu_derivative(step: DerivativeStep, attrs: activation.Celu.Attrs) -> Contributions:
    """1, and ``exp(x / alpha)`` below 0."""
    (x,) = step.args
    bent = (x.apply(binary.Minimum, 0.0) / attrs.alpha).apply(unary.Exp)
    return _times(step, bent.where(x.below(0.0), 1.0))


@derivative(activation.Elu)
def _elu_derivative(step: DerivativeStep, attrs: activation.Elu.Attrs) -> Contributions:
    """1, and ``alpha * exp(x)`` below 0."""
    (x,) = step.args
    return _times(step, (_shrunk(x) * attrs.alpha).where(x.below(0.0), 1.0))


@derivative(activation.Selu)
def _selu_derivative(step: DerivativeStep, attrs: activation.Selu.Attrs) -> Contributions:
    """``gamma``, and ``gamma * alpha * exp(x)`` up to 0."""
    (x,) = step.args
    scaled = _shrunk(x) * (attrs.gamma * attrs.alpha)
    return _times(step, x.number(attrs.gamma).where(x.above(0.0), scaled))


@derivative(activation.Gelu)
def _gelu_derivative(step: DerivativeStep, attrs: activation.Gelu.Attrs) -> Contributions:
    """The distribution at x, plus x times its density; or the same of the approximation."""
    (x,) = step.args
    if attrs.approximate:
        factor = math.sqrt(2 / math.pi)
        grown = ((x + x * x * x * 0.044715) * factor).apply(unary.Tanh)
        inner = (x * x * (3 * 0.044715) + 1.0) * factor
        slope = (grown + 1.0) * 0.5 + x * (1.0 - grown * grown) * inner * 0.5
        return _times(step, slope)
    density = (x * x * -0.5).apply(unary.Exp) * (1 / math.sqrt(2 * math.pi))
    distribution = ((x * math.sqrt(0.5)).apply(unary.Erf) + 1.0) * 0.5
    return _times(step, distribution + x * density)


@derivative(activation.HardSigmoid)
def _hard_sigmoid_derivative(
    step: DerivativeStep, attrs: activation.HardSigmoid.Attrs
) -> Contributions:
    """``alpha`` between the limits, else 0."""
    (x,) = step.args
    line = x * attrs.alpha + attrs.beta
    return _times(step, x.number(attrs.alpha).where(line.equals(step.result), 0.0))


@derivative(activation.HardSwish)
def _hard_swish_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """0 up to -3, 1 from 3 on, ``x / 3 + 0.5`` between."""
    (x,) = step.args
    line = x * (1 / 3) + 0.5
    upper = x.number(1.0).where(x.above(3.0), line)
    return _times(step, x.number(0.0).where(x.below(-3.0), upper))


@derivative(activation.LeakyRelu)
def _leaky_relu_derivative(
    step: DerivativeStep, attrs: activation.LeakyRelu.Attrs
) -> Contributions:
    """1, and ``alpha`` below 0."""
    (x,) = step.args
    return _times(step, x.number(attrs.alpha).where(x.below(0.0), 1.0))


@derivative(activation.Mish)
def _mish_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """``t + x * (1 - t**2) * sigmoid(x)`` with ``t = tanh(softplus(x))``."""
    (x,) = step.args
    t = x.apply(activation.Softplus).apply(unary.Tanh)
    return _times(step, t + x * (1.0 - t * t) * x.apply(unary.Sigmoid))


@derivative(activation.Relu)
def _relu_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """1 above 0, else 0."""
    (x,) = step.args
    return [step.adjoint.where(x.above(0.0), 0.0)]


@derivative(activation.Silu)
def _silu_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """``s + y * (1 - s)`` with ``s = sigmoid(x)``."""
    (x,) = step.args
    s = x.apply(unary.Sigmoid)
    return _times(step, s + step.result * (1.0 - s))


@derivative(activation.Softplus)
def _softplus_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """The logistic function."""
    (x,) = step.args
    return _times(step, x.apply(unary.Sigmoid))


@derivative(activation.Softsign)
def _softsign_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """``1 / (1 + abs(x))**2``."""
    (x,) = step.args
    size = x.apply(unary.Abs) + 1.0
    return _times(step, 1.0 / (size * size))


@derivative(activation.ThresholdedRelu)
def _thresholded_relu_derivative(
    step: DerivativeStep, attrs: activation.ThresholdedRelu.Attrs
) -> Contributions:
    """1 above the threshold, else 0."""
    (x,) = step.args
    return [step.adjoint.where(x.above(attrs.alpha), 0.0)]


@derivative(activation.Prelu)
def _prelu_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """1 or the slope; and, below 0, ``x``."""
    x, slope = step.args
    negative = x.below(0.0)
    by_x = step.adjoint * slope.where(negative, 1.0)
    by_slope = (step.adjoint * x).where(negative, 0.0)
    return [by_x, by_slope.summed_to(slope.sizes)]


SIMPLIFICATIONS.give(drop_repeated, activation.Relu)


@simplification(activation.Relu)
def relu_of_clip(expr: Expr) -> Expr | None:
    """nn.relu(clip(x, a, b)) --> clip(x, max(a, 0), b) if b is not negative"""
    match expr:
        case Call("nn.relu", (Call("clip", (x,), Clip.Attrs(min=a, max=b)),)) if b >= 0:
            return call(Clip, x, attrs=Clip.Attrs(min=max(a, 0.0), max=b), span=expr.span)
        case _:
            return None


def _not_negative(_attrs: OpAttrs) -> tuple[float, float]:
    return 0.0, math.inf


def _relu_of_stored(expr: Expr) -> Expr | None:
    """nn.relu(dequantize(x)) --> dequantize(clip(x, zero point, inf))"""
    source = stored(expr.args[0]) if isinstance(expr, Call) else None
    if source is None or source.scalars is None or not isinstance(expr, Call):
        return None
    low = float(source.zero.data.reshape(-1)[0])
    return real(clipped(source.value, low, math.inf, expr), source, expr)


INTEGER_FORMS.give(IntegerForm(move=_relu_of_stored, limits=_not_negative), activation.Relu)
