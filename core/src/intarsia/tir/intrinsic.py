# SPDX-License-Identifier: Apache-2.0
"""Machine functions that a code generator lowers: to an instruction, a library call or a rule."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .expr import PrimExpr


class Intrinsic(Enum):
    """A pure scalar function; the value is its name in text. Vector arguments apply it per lane."""

    ABS = "abs"
    ACOS = "acos"
    ACOSH = "acosh"
    ASIN = "asin"
    ASINH = "asinh"
    ATAN = "atan"
    ATANH = "atanh"
    CEIL = "ceil"
    COS = "cos"
    COSH = "cosh"
    ERF = "erf"
    EXP = "exp"
    FLOOR = "floor"
    FMA = "fma"  # fma(a, b, c) = a * b + c, rounded once
    ISINF = "isinf"
    ISNAN = "isnan"
    LOG = "log"
    LOG1P = "log1p"
    POW = "pow"
    ROUND = "round"  # to nearest, ties to even
    RSQRT = "rsqrt"
    SIGMOID = "sigmoid"
    SIN = "sin"
    SINH = "sinh"
    SQRT = "sqrt"
    TAN = "tan"
    TANH = "tanh"
    TRUNC = "trunc"


IntrinsicRule: TypeAlias = "Callable[..., PrimExpr]"
"""``rule(*args: PrimExpr) -> PrimExpr``: expresses an intrinsic in others the backend has."""
