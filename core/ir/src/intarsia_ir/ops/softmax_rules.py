# SPDX-License-Identifier: Apache-2.0
"""What is known of softmax and its logarithm: derivatives, batch axes."""

from __future__ import annotations

from . import softmax, unary
from .derivative import derivative
from .integer_forms import INTEGER_FORMS
from .terms import Contributions, DerivativeStep


@derivative(softmax.Softmax)
def _softmax_derivative(step: DerivativeStep, attrs: softmax.Softmax.Attrs) -> Contributions:
    """``y * (dy - sum(dy * y))``."""
    weighted = step.adjoint * step.result
    total = weighted.sum((attrs.axis,), keepdims=True)
    return [weighted - step.result * total]


@derivative(softmax.LogSoftmax)
def _log_softmax_derivative(step: DerivativeStep, attrs: softmax.LogSoftmax.Attrs) -> Contributions:
    """``dy - softmax(x) * sum(dy)``."""
    total = step.adjoint.sum((attrs.axis,), keepdims=True)
    return [step.adjoint - step.result.apply(unary.Exp) * total]


INTEGER_FORMS.refuse("its logarithms are not kept in 8 bits", softmax.LogSoftmax)
