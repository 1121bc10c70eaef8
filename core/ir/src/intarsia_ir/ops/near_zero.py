# SPDX-License-Identifier: Apache-2.0
"""Functions of one operand that keep their digits near 0, where ``log(1 + x)`` would lose them."""

from __future__ import annotations

import numpy as np

from ..graph.op import OpAttrs, OpKind, operator
from ..tir import expr as tir
from ..tir.expr import PrimExpr
from ..tir.intrinsic import Intrinsic
from . import unary
from .derivative import derivative
from .terms import Contributions, DerivativeStep


@operator("expm1", OpKind.ELEMWISE)
class Expm1(unary.IntrinsicOp):
    """exp(x) - 1, to the last digit of small results too."""

    function = staticmethod(np.expm1)
    intrinsic = Intrinsic.EXPM1


@derivative(Expm1)
def _expm1_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """exp(x) is the result plus 1."""
    return [step.adjoint * (step.result + 1.0)]


def _log1p_element(x: PrimExpr) -> PrimExpr:
    """log(1 + x) by the logarithm alone.

    ``u = 1 + x`` is rounded; ``log(u)`` times ``x / (u - 1)`` takes the error of ``u`` back,
    because ``log(u) / (u - 1)`` changes slowly. Where ``u - 1`` is x, ``u`` is exact; there
    infinity ends too. (Goldberg, What Every Computer Scientist Should Know About Floating-Point
    Arithmetic, theorem 4.)
    """
    u = x + 1.0
    logarithm = tir.intrinsic(Intrinsic.LOG, u)
    rounded = u - 1.0
    return tir.select(
        tir.equal(u, 1.0),
        x,
        tir.select(tir.equal(rounded, x), logarithm, logarithm * (x / rounded)),
    )


@operator("log1p", OpKind.ELEMWISE)
class Log1p(unary.UnaryOp):
    """log(1 + x), to the last digit of small x too; NaN below -1, minus infinity at -1."""

    function = staticmethod(np.log1p)
    element = staticmethod(_log1p_element)


@derivative(Log1p)
def _log1p_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """1 / (1 + x)."""
    (x,) = step.args
    return [step.adjoint / (x + 1.0)]
