# SPDX-License-Identifier: Apache-2.0
"""``<math.h>``: what the C family calls machine functions, and rules for what it has not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from intarsia_ir.tir.expr import PrimExpr, cast, const, intrinsic, select
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

MATH: Mapping[Intrinsic, str] = MappingProxyType(
    {
        Intrinsic.ABS: "fabs",
        Intrinsic.ACOS: "acos",
        Intrinsic.ACOSH: "acosh",
        Intrinsic.ASIN: "asin",
        Intrinsic.ASINH: "asinh",
        Intrinsic.ATAN: "atan",
        Intrinsic.ATAN2: "atan2",
        Intrinsic.ATANH: "atanh",
        Intrinsic.CBRT: "cbrt",
        Intrinsic.CEIL: "ceil",
        Intrinsic.COPYSIGN: "copysign",
        Intrinsic.COS: "cos",
        Intrinsic.COSH: "cosh",
        Intrinsic.ERF: "erf",
        Intrinsic.ERFC: "erfc",
        Intrinsic.EXP: "exp",
        Intrinsic.EXP2: "exp2",
        Intrinsic.EXPM1: "expm1",
        Intrinsic.FDIM: "fdim",
        Intrinsic.FLOOR: "floor",
        Intrinsic.FMA: "fma",
        Intrinsic.FMAX: "fmax",
        Intrinsic.FMIN: "fmin",
        Intrinsic.HYPOT: "hypot",
        Intrinsic.LOG: "log",
        Intrinsic.LOG10: "log10",
        Intrinsic.LOG2: "log2",
        Intrinsic.LOG1P: "log1p",
        Intrinsic.POW: "pow",
        Intrinsic.ROUND: "rint",
        Intrinsic.SIN: "sin",
        Intrinsic.SINH: "sinh",
        Intrinsic.SQRT: "sqrt",
        Intrinsic.TAN: "tan",
        Intrinsic.TANH: "tanh",
        Intrinsic.TRUNC: "trunc",
    }
)
"""Machine function to its name for ``double``; that for ``float`` ends with an ``f`` more."""


def by_type(names: Mapping[Intrinsic, str]) -> Mapping[tuple[Intrinsic, DType], str]:
    """Return machine function and type of its value to the function's name."""
    return MappingProxyType(
        {(function, DType.FLOAT64): name for function, name in names.items()}
        | {(function, DType.FLOAT32): f"{name}f" for function, name in names.items()}
    )


def of_both_types(names: Iterable[str]) -> frozenset[str]:
    """Return the names with those of the same functions for ``float``."""
    return frozenset(f"{name}{suffix}" for name in names for suffix in ("", "f"))


def widened(x: PrimExpr) -> PrimExpr:
    """Return a 16-bit float as float32, so that only the result of a rule is rounded to it."""
    return x if x.dtype is DType.FLOAT64 else cast(x, DType.FLOAT32)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """The rule of ``sigmoid``: ``exp`` only of what is not positive, so that nothing overflows."""
    wide = widened(x)
    small = intrinsic(Intrinsic.EXP, -intrinsic(Intrinsic.ABS, wide))
    return cast(select(wide >= 0.0, const(1.0, wide.dtype), small) / (small + 1.0), x.dtype)
