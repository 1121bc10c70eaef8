# SPDX-License-Identifier: Apache-2.0
"""Derivatives of activation functions: slopes that know the operator's attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from ...ir.op import OpAttrs
from ...ops import activation, binary, unary
from .terms import Contributions, Rule, Step, Term


def _times(step: Step, slope: Term) -> Contributions:
    return [step.adjoint * slope]


def _shrunk(x: Term) -> Term:
    """Return ``exp(x)`` for x below 0, which is all it is used for: greater ones might overflow."""
    return x.apply(binary.Minimum, 0.0).apply(unary.Exp)


def celu(step: Step, attrs: activation.Celu.Attrs) -> Contributions:
    """1, and ``exp(x / alpha)`` below 0."""
    (x,) = step.args
    bent = (x.apply(binary.Minimum, 0.0) / attrs.alpha).apply(unary.Exp)
    return _times(step, bent.where(x.below(0.0), 1.0))


def elu(step: Step, attrs: activation.Elu.Attrs) -> Contributions:
    """1, and ``alpha * exp(x)`` below 0."""
    (x,) = step.args
    return _times(step, (_shrunk(x) * attrs.alpha).where(x.below(0.0), 1.0))


def selu(step: Step, attrs: activation.Selu.Attrs) -> Contributions:
    """``gamma``, and ``gamma * alpha * exp(x)`` up to 0."""
    (x,) = step.args
    scaled = _shrunk(x) * (attrs.gamma * attrs.alpha)
    return _times(step, x.number(attrs.gamma).where(x.above(0.0), scaled))


def gelu(step: Step, attrs: activation.Gelu.Attrs) -> Contributions:
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


def hard_sigmoid(step: Step, attrs: activation.HardSigmoid.Attrs) -> Contributions:
    """``alpha`` between the limits, else 0."""
    (x,) = step.args
    line = x * attrs.alpha + attrs.beta
    return _times(step, x.number(attrs.alpha).where(line.equals(step.result), 0.0))


def hard_swish(step: Step, attrs: OpAttrs) -> Contributions:
    """0 up to -3, 1 from 3 on, ``x / 3 + 0.5`` between."""
    (x,) = step.args
    line = x * (1 / 3) + 0.5
    upper = x.number(1.0).where(x.above(3.0), line)
    return _times(step, x.number(0.0).where(x.below(-3.0), upper))


def leaky_relu(step: Step, attrs: activation.LeakyRelu.Attrs) -> Contributions:
    """1, and ``alpha`` below 0."""
    (x,) = step.args
    return _times(step, x.number(attrs.alpha).where(x.below(0.0), 1.0))


def mish(step: Step, attrs: OpAttrs) -> Contributions:
    """``t + x * (1 - t**2) * sigmoid(x)`` with ``t = tanh(softplus(x))``."""
    (x,) = step.args
    t = x.apply(activation.Softplus).apply(unary.Tanh)
    return _times(step, t + x * (1.0 - t * t) * x.apply(unary.Sigmoid))


def relu(step: Step, attrs: OpAttrs) -> Contributions:
    """1 above 0, else 0."""
    (x,) = step.args
    return [step.adjoint.where(x.above(0.0), 0.0)]


def silu(step: Step, attrs: OpAttrs) -> Contributions:
    """``s + y * (1 - s)`` with ``s = sigmoid(x)``."""
    (x,) = step.args
    s = x.apply(unary.Sigmoid)
    return _times(step, s + step.result * (1.0 - s))


def softplus(step: Step, attrs: OpAttrs) -> Contributions:
    """The logistic function."""
    (x,) = step.args
    return _times(step, x.apply(unary.Sigmoid))


def softsign(step: Step, attrs: OpAttrs) -> Contributions:
    """``1 / (1 + abs(x))**2``."""
    (x,) = step.args
    size = x.apply(unary.Abs) + 1.0
    return _times(step, 1.0 / (size * size))


def thresholded_relu(step: Step, attrs: activation.ThresholdedRelu.Attrs) -> Contributions:
    """1 above the threshold, else 0."""
    (x,) = step.args
    return [step.adjoint.where(x.above(attrs.alpha), 0.0)]


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "nn.celu": celu,
        "nn.elu": elu,
        "nn.gelu": gelu,
        "nn.hard_sigmoid": hard_sigmoid,
        "nn.hard_swish": hard_swish,
        "nn.leaky_relu": leaky_relu,
        "nn.mish": mish,
        "nn.relu": relu,
        "nn.selu": selu,
        "nn.silu": silu,
        "nn.softplus": softplus,
        "nn.softsign": softsign,
        "nn.thresholded_relu": thresholded_relu,
    }
)
