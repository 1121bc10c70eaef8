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


def _expm1_element(x: PrimExpr) -> PrimExpr:
    """exp(x) - 1 by the exponential and the logarithm, which every backend has.

    With ``u = exp(x)`` rounded, ``(u - 1) / log(u)`` changes slowly, so that times x it has the
    digits that ``u - 1`` lost. Beyond 1/2 on both sides ``u - 1`` has them. (Kahan; see
    :func:`_log1p_element`.)
    """
    u = tir.intrinsic(Intrinsic.EXP, x)
    difference = u - 1.0
    near = difference * (x / tir.intrinsic(Intrinsic.LOG, u))
    is_near = tir.intrinsic(Intrinsic.ABS, x) < 0.5
    return tir.select(is_near, tir.select(tir.equal(u, 1.0), x, near), difference)


@operator("expm1", OpKind.ELEMWISE)
class Expm1(unary.UnaryOp):
    """exp(x) - 1, to the last digit of small results too."""

    function = staticmethod(np.expm1)
    element = staticmethod(_expm1_element)


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
