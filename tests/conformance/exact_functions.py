# SPDX-License-Identifier: Apache-2.0
"""The exact values of the machine functions, by mpmath, and where to look at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mpmath
import numpy as np

from intarsia_ir.tir.evaluate_intrinsic import apply_intrinsic
from intarsia_ir.tir.intrinsic import Intrinsic

PRECISION = 160  # bits: three times those of float64
EDGES = (
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 10.0),
    *(
        1e-45,
        -1e-45,
        1e-40,
        -1e-40,
        5e-324,
        2.0**-1022,
        2.0**-126,
        6e-8,
        88.7,
        -87.4,
        709.7,
        -745.1,
    ),
    *(0.999999, 1.000001, 1.4142135, 0.70710678, 1e30, -1e30, 65504.0),
)


def _sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


def _rsqrt(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / mpmath.sqrt(x)


def _cbrt(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def _exp10(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.power(10, x)


def _exp2(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.power(2, x)


def _log2(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(x) / mpmath.log(2)


def _fma(a: mpmath.mpf, b: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    return mpmath.fadd(mpmath.fmul(a, b, exact=True), c)


def _fdim(a: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    return max(mpmath.mpf(0), a - b)


FUNCTIONS: Mapping[Intrinsic, Callable[..., Any]] = MappingProxyType(
    {
        Intrinsic.ACOS: mpmath.acos,
        Intrinsic.ACOSH: mpmath.acosh,
        Intrinsic.ASIN: mpmath.asin,
        Intrinsic.ASINH: mpmath.asinh,
        Intrinsic.ATAN: mpmath.atan,
        Intrinsic.ATAN2: mpmath.atan2,
        Intrinsic.ATANH: mpmath.atanh,
        Intrinsic.CBRT: _cbrt,
        Intrinsic.COS: mpmath.cos,
        Intrinsic.COSH: mpmath.cosh,
        Intrinsic.ERF: mpmath.erf,
        Intrinsic.ERFC: mpmath.erfc,
        Intrinsic.EXP: mpmath.exp,
        Intrinsic.EXP10: _exp10,
        Intrinsic.EXP2: _exp2,
        Intrinsic.EXPM1: mpmath.expm1,
        Intrinsic.FDIM: _fdim,
        Intrinsic.FMA: _fma,
        Intrinsic.HYPOT: mpmath.hypot,
        Intrinsic.LOG: mpmath.log,
        Intrinsic.LOG10: mpmath.log10,
        Intrinsic.LOG1P: mpmath.log1p,
        Intrinsic.LOG2: _log2,
        Intrinsic.POW: mpmath.power,
        Intrinsic.RSQRT: _rsqrt,
        Intrinsic.SIGMOID: _sigmoid,
        Intrinsic.SIN: mpmath.sin,
        Intrinsic.SINH: mpmath.sinh,
        Intrinsic.SQRT: mpmath.sqrt,
        Intrinsic.TAN: mpmath.tan,
        Intrinsic.TANH: mpmath.tanh,
    }
)
"""What rounds; the others (abs, ceil, fmax ...) give one of their operands or a whole number."""

_BOUNDED = MappingProxyType(
    {Intrinsic.ERF: 30.0, Intrinsic.ERFC: 1000.0, Intrinsic.TANH: 1000.0, Intrinsic.SIGMOID: 1e5}
)
"""Beyond which mpmath toils for a limit that NumPy knows."""


def sweep(function: Intrinsic, dtype: np.dtype[Any], points: int) -> tuple[np.ndarray, ...]:
    """Operands: every edge, then patterns of bits over the whole range, and numbers people use.

    A sweep of fewer points is the beginning of one of more: of each kind a part.
    """
    edges = np.array(EDGES, np.float64)
    with np.errstate(all="ignore"):
        edges = edges.astype(dtype)
    count = function.operands
    grids = np.meshgrid(*([edges] * count)) if count == 2 else [edges] * count
    columns: list[np.ndarray] = []
    for number in range(count):
        drawn = [np.random.default_rng((number, kind)).random(points) for kind in range(3)]
        bits = np.random.default_rng((number, 3)).integers(0, 2**64, points, dtype=np.uint64)
        pattern = (bits >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
        ranges = (drawn[0] * 2 - 1, drawn[1] * 200 - 100, _signed_powers(drawn[2]))
        with np.errstate(over="ignore"):
            kinds = [pattern.view(dtype), *(one.astype(dtype) for one in ranges)]
        # Operands of one call are of different kinds.
        mixed = np.stack(np.roll(np.array(kinds), number, axis=0), 1).reshape(-1)[:points]
        columns.append(np.concatenate([np.asarray(grids[number]).reshape(-1), mixed]))
    # Arithmetic makes no signalling NaN, for which C's fmax may give NaN.
    return tuple(np.where(column != column, dtype.type(np.nan), column) for column in columns)


def _signed_powers(drawn: np.ndarray) -> np.ndarray:
    """Numbers from 1e-5 to 1e5 with either sign, evenly by exponent."""
    centred = drawn * 2 - 1
    return np.sign(centred) * 10.0 ** (10 * np.abs(centred) - 5)


def exact(function: Intrinsic, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The values rounded to the operands' type, and what rounding cut off, in units of the last
    place.
    """
    dtype = operands[0].dtype
    with np.errstate(all="ignore"):
        wide = [column.astype(np.float64) for column in operands]
        own = operands if function not in FUNCTIONS else wide
        want = np.array(apply_intrinsic(function, own)).astype(dtype)
    rest = np.zeros(want.shape, np.float64)
    if function not in FUNCTIONS:
        return want, rest
    with mpmath.workprec(PRECISION):
        for at, numbers in enumerate(zip(*wide, strict=True)):
            if not all(np.isfinite(number) and number != 0 for number in numbers):
                continue  # IEEE 754 says, and NumPy follows
            if abs(numbers[0]) > _BOUNDED.get(function, np.inf):
                continue
            value = _value(function, numbers)
            if value is not None:
                want[at], rest[at] = _rounded(value, dtype)
    return want, rest


def _value(function: Intrinsic, numbers: Sequence[float]) -> mpmath.mpf | None:
    """The value; NaN where there is none of real numbers, ``None`` at a pole."""
    try:
        value = FUNCTIONS[function](*(mpmath.mpf(float(number)) for number in numbers))
    except (ValueError, ZeroDivisionError):
        return None
    if isinstance(value, mpmath.mpc):
        return mpmath.mpf("nan") if value.imag != 0 else value.real
    return value if not mpmath.isinf(value) else None


def _rounded(value: mpmath.mpf, dtype: np.dtype[Any]) -> tuple[Any, float]:
    with np.errstate(all="ignore"):
        try:
            nearest = dtype.type(float(value))
        except OverflowError:
            nearest = dtype.type(np.inf if value > 0 else -np.inf)
        if not np.isfinite(nearest):
            return nearest, 0.0
        step = mpmath.mpf(float(np.spacing(np.abs(nearest))))
        return nearest, float((value - mpmath.mpf(float(nearest))) / step)


def units(got: np.ndarray, want: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """How far results are from the exact values, in units of the last place of their type.

    A NaN, an infinity or the sign of a zero where it should be another is infinitely far.
    """
    if want.dtype == np.bool_:
        return np.where(got == want, 0.0, np.inf)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        step = np.spacing(np.abs(want)).astype(np.float64)
        apart = np.abs((a - b) / step - rest)
    same = (np.isnan(a) & np.isnan(b)) | (np.isinf(b) & (a == b))
    apart = np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    signs = (a == 0) & (b == 0) & (rest == 0) & (np.signbit(a) != np.signbit(b))
    return np.where(signs, np.inf, apart)
