# SPDX-License-Identifier: Apache-2.0
"""C99's names of types and machine functions."""

from __future__ import annotations

from types import MappingProxyType

from intarsia.codegen.spelling import STDINT, Spelling
from intarsia.dtype import DType
from intarsia.tir.intrinsic import Intrinsic

_INTEGERS = {dtype: f"{dtype.value}_t" for dtype in DType if dtype.is_integer}
_MATH = {
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
_MORE = ("fmod", "lgamma", "nextafter", "remainder", "tgamma")

C99 = Spelling(
    kind="c",
    values=MappingProxyType(
        _INTEGERS
        | {
            DType.BOOL: "int",
            DType.FLOAT16: "float",
            DType.BFLOAT16: "float",
            DType.FLOAT32: "float",
            DType.FLOAT64: "double",
        }
    ),
    memory=STDINT,
    intrinsics=MappingProxyType(
        {(function, DType.FLOAT64): name for function, name in _MATH.items()}
        | {(function, DType.FLOAT32): f"{name}f" for function, name in _MATH.items()}
    ),
    functions=frozenset(
        f"{name}{suffix}" for name in (*_MATH.values(), *_MORE) for suffix in ("", "f")
    ),
)
"""What portable C calls things; nothing beyond ``<stdint.h>`` and ``<math.h>``."""
