# SPDX-License-Identifier: Apache-2.0
"""Machine functions that a code generator lowers: to an instruction, a library call or a rule."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError

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
    BITS = "bits"  # of a float32 or float64, as a signed integer
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
    FROM_BITS = "from_bits"  # the float32 or float64 that an integer has the bits of
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
        """Whether it gives bool."""
        return self in _PREDICATES

    @property
    def keeps_bits(self) -> bool:
        """Whether it reads bits as another type, exactly; all others are functions of numbers."""
        return self in _OF_BITS

    def result(self, operand: DType) -> DType:
        """Return the element type of the result for that of the first operand.

        Raises:
            VerifyError: It does not read bits of this type.
        """
        if self.is_predicate:
            return DType.BOOL
        if not self.keeps_bits:
            return operand
        found = _OF_BITS[self].get(operand)
        if found is None:
            raise VerifyError(f"intrinsic '{self.value}' of {operand} has no meaning")
        return found


_OF_TWO = frozenset(
    {Intrinsic.ATAN2, Intrinsic.COPYSIGN, Intrinsic.FDIM, Intrinsic.FMAX, Intrinsic.FMIN}
    | {Intrinsic.HYPOT, Intrinsic.POW}
)
_PREDICATES = frozenset({Intrinsic.ISFINITE, Intrinsic.ISINF, Intrinsic.ISNAN, Intrinsic.SIGNBIT})
_OF_BITS = MappingProxyType(
    {
        Intrinsic.BITS: {DType.FLOAT32: DType.INT32, DType.FLOAT64: DType.INT64},
        Intrinsic.FROM_BITS: {
            **dict.fromkeys((DType.INT32, DType.UINT32), DType.FLOAT32),
            **dict.fromkeys((DType.INT64, DType.UINT64), DType.FLOAT64),
        },
    }
)
"""Type of the result by type of the operand, of what reads bits as another type."""


IntrinsicRule: TypeAlias = "Callable[..., PrimExpr]"
"""``rule(*args: PrimExpr) -> PrimExpr``: expresses an intrinsic in others the backend has."""
