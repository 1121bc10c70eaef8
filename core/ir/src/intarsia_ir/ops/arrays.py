# SPDX-License-Identifier: Apache-2.0
"""What NumPy references share: half precision in float32, conversions as in the loop IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import ml_dtypes
import numpy as np

from intarsia_runtime.dtype import DType

Array: TypeAlias = np.ndarray

# W. J. Cody, "Rational Chebyshev approximations for the error function", 1969.
_ERF_NUMERATOR = (
    1.85777706184603153e-1,
    3.16112374387056560e00,
    1.13864154151050156e02,
    3.77485237685302021e02,
    3.20937758913846947e03,
)
_ERF_DENOMINATOR = (
    1.0,
    2.36012909523441209e01,
    2.44024637934444173e02,
    1.28261652607737228e03,
    2.84423683343917062e03,
)
_ERFC_NUMERATOR = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e00,
    6.61191906371416295e01,
    2.98635138197400131e02,
    8.81952221241769090e02,
    1.71204761263407058e03,
    2.05107837782607147e03,
    1.23033935479799725e03,
)
_ERFC_DENOMINATOR = (
    1.0,
    1.57449261107098347e01,
    1.17693950891312499e02,
    5.37181101862009858e02,
    1.62138957456669019e03,
    3.29079923573345963e03,
    4.36261909014324716e03,
    3.43936767414372164e03,
    1.23033935480374942e03,
)


def numpy_dtype(dtype: DType) -> np.dtype:
    """Return the NumPy element type."""
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def is_half(array: Array) -> bool:
    """Whether the elements are float16 or bfloat16."""
    return array.dtype.name in ("float16", "bfloat16")


def widen(array: Array) -> Array:
    """Return half-precision elements as float32, all others as they are."""
    return array.astype(np.float32) if is_half(array) else array


def is_floating(array: Array) -> bool:
    """Whether the elements are of a floating-point type, bfloat16 included."""
    return array.dtype.kind == "f" or is_half(array)


def in_float32(function: Callable[..., Array], *arrays: Array) -> Array:
    """Apply ``function``, in float32 for half precision, and return the first array's element type.

    Floating-point warnings are off: infinities and NaN are results like others.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(function(*(widen(array) for array in arrays)))
    return result.astype(arrays[0].dtype, copy=False)


def convert(array: Array, dtype: DType) -> Array:
    """Return the elements as ``dtype``: floats truncate and saturate, NaN is 0, integers wrap."""
    wanted = numpy_dtype(dtype)
    source = widen(array)
    if dtype is DType.BOOL:
        return source != 0
    if not (dtype.is_integer and source.dtype.kind == "f"):
        with np.errstate(all="ignore"):
            return source.astype(wanted)
    limits = np.iinfo(wanted)
    low, high = float(limits.min), float(limits.max)
    with np.errstate(all="ignore"):
        whole = np.trunc(source)
        above, below = whole >= high, whole <= low
        inside = np.where(above | below | np.isnan(whole), 0, whole).astype(wanted)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(wanted)


def erf(x: Array) -> Array:
    """The error function, within a few units in the last place of float64."""
    wide = x.astype(np.float64)
    size = np.minimum(np.abs(wide), 6.0)
    square = size * size
    near = wide * np.polyval(_ERF_NUMERATOR, np.minimum(square, 0.25))
    near = near / np.polyval(_ERF_DENOMINATOR, np.minimum(square, 0.25))
    tail = np.exp(-square) * np.polyval(_ERFC_NUMERATOR, size)
    far = np.copysign(1.0 - tail / np.polyval(_ERFC_DENOMINATOR, size), wide)
    return np.where(size <= 0.46875, near, far).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """The logistic function, without overflow for large negative elements."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``, without overflow."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)
