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
    ATAN2 = "atan2"  # atan2(y, x): the angle of the point x, y
    ATANH = "atanh"
    CBRT = "cbrt"
    CEIL = "ceil"
    COPYSIGN = "copysign"  # the size of the first with the sign of the second
    COS = "cos"
    COSH = "cosh"
    ERF = "erf"
    ERFC = "erfc"
    EXP = "exp"
    EXP10 = "exp10"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    FDIM = "fdim"  # what the first is above the second, else 0
    FLOOR = "floor"
    FMA = "fma"  # fma(a, b, c) = a * b + c, rounded once
    FMAX = "fmax"  # the larger; of a number and NaN the number
    FMIN = "fmin"
    HYPOT = "hypot"
    ISFINITE = "isfinite"
    ISINF = "isinf"
    ISNAN = "isnan"
    LOG = "log"
    LOG10 = "log10"
    LOG2 = "log2"
    LOG1P = "log1p"
    POW = "pow"
    ROUND = "round"  # to nearest, ties to even
    RSQRT = "rsqrt"
    SIGMOID = "sigmoid"
    SIGNBIT = "signbit"
    SIN = "sin"
    SINH = "sinh"
    SQRT = "sqrt"
    TAN = "tan"
    TANH = "tanh"
    TRUNC = "trunc"

    @property
    def operands(self) -> int:
        """How many operands it takes, all of one type."""
        return 3 if self is Intrinsic.FMA else 2 if self in _OF_TWO else 1

    @property
    def is_predicate(self) -> bool:
        """Whether it gives bool; others give the type of their operands."""
        return self in _PREDICATES


_OF_TWO = frozenset(
    {Intrinsic.ATAN2, Intrinsic.COPYSIGN, Intrinsic.FDIM, Intrinsic.FMAX, Intrinsic.FMIN}
    | {Intrinsic.HYPOT, Intrinsic.POW}
)
_PREDICATES = frozenset({Intrinsic.ISFINITE, Intrinsic.ISINF, Intrinsic.ISNAN, Intrinsic.SIGNBIT})


IntrinsicRule: TypeAlias = "Callable[..., PrimExpr]"
"""``rule(*args: PrimExpr) -> PrimExpr``: expresses an intrinsic in others the backend has."""
