# SPDX-License-Identifier: Apache-2.0
"""NumPy meanings of the machine functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import ml_dtypes
import numpy as np

from intarsia_runtime.dtype import DType

from .intrinsic import Intrinsic

Array: TypeAlias = np.ndarray
"""Elements of one type: an array, or a NumPy scalar, which behaves as one of rank 0."""

_UFUNCS = {
    Intrinsic.ABS: np.abs,
    Intrinsic.ACOS: np.arccos,
    Intrinsic.ACOSH: np.arccosh,
    Intrinsic.ASIN: np.arcsin,
    Intrinsic.ASINH: np.arcsinh,
    Intrinsic.ATAN: np.arctan,
    Intrinsic.ATAN2: np.arctan2,
    Intrinsic.ATANH: np.arctanh,
    Intrinsic.CBRT: np.cbrt,
    Intrinsic.CEIL: np.ceil,
    Intrinsic.COPYSIGN: np.copysign,
    Intrinsic.COS: np.cos,
    Intrinsic.COSH: np.cosh,
    Intrinsic.EXP: np.exp,
    Intrinsic.EXP2: np.exp2,
    Intrinsic.EXPM1: np.expm1,
    Intrinsic.FLOOR: np.floor,
    Intrinsic.FMAX: np.fmax,
    Intrinsic.FMIN: np.fmin,
    Intrinsic.HYPOT: np.hypot,
    Intrinsic.ISFINITE: np.isfinite,
    Intrinsic.ISINF: np.isinf,
    Intrinsic.ISNAN: np.isnan,
    Intrinsic.LOG: np.log,
    Intrinsic.LOG10: np.log10,
    Intrinsic.LOG2: np.log2,
    Intrinsic.LOG1P: np.log1p,
    Intrinsic.ROUND: np.rint,
    Intrinsic.SIGNBIT: np.signbit,
    Intrinsic.SIN: np.sin,
    Intrinsic.SINH: np.sinh,
    Intrinsic.SQRT: np.sqrt,
    Intrinsic.TAN: np.tan,
    Intrinsic.TANH: np.tanh,
    Intrinsic.TRUNC: np.trunc,
}


def numpy_dtype(dtype: DType) -> np.dtype:
    """Return the NumPy type of an element type."""
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def apply_intrinsic(function: Intrinsic, args: Sequence[Array]) -> Array:
    """Apply a machine function to arrays or scalars, keeping the element type of the first.

    Predicates give bool, and what reads bits as another type gives that.
    """
    first = args[0]
    if function.keeps_bits:
        return first.view(numpy_dtype(function.result(DType(first.dtype.name))))
    if function in _UFUNCS:
        result = _UFUNCS[function](*args)
        return result if result.dtype == np.bool_ else result.astype(first.dtype)
    if function is Intrinsic.POW and np.issubdtype(first.dtype, np.integer):
        return _integer_power(first, args[1])
    wide = [np.asarray(arg).astype(np.float64) for arg in args]
    match function:
        case Intrinsic.ERF:
            result = np.vectorize(math.erf, otypes=[np.float64])(wide[0])
        case Intrinsic.ERFC:
            result = np.vectorize(math.erfc, otypes=[np.float64])(wide[0])
        case Intrinsic.EXP10:
            result = np.power(10.0, wide[0])
        case Intrinsic.FDIM:
            result = np.where(wide[0] <= wide[1], 0.0, wide[0] - wide[1])
        case Intrinsic.FMA:
            result = wide[0] * wide[1] + wide[2]
        case Intrinsic.RSQRT:
            result = 1.0 / np.sqrt(wide[0])
        case Intrinsic.SIGMOID:
            result = 1.0 / (1.0 + np.exp(-wide[0]))
        case _:
            result = np.power(wide[0], wide[1])
    return result.astype(first.dtype)[()]


def _integer_power(a: Array, b: Array) -> Array:
    """Power that wraps; a negative exponent gives the inverse, truncated."""
    raised = np.power(a, np.maximum(b, 0))
    odd = (b & 1) == 1
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, raised)[()]
