# SPDX-License-Identifier: Apache-2.0
"""Powers and logarithms of two and ten, roots, and choices that look at the sign or at NaN.

Rules take float64 unless they say otherwise; float32 goes through float64 and back.
"""

from __future__ import annotations

import math

from intarsia_ir.tir.expr import PrimExpr, equal, maximum, minimum

from .exponential import EXP_DOUBLE, exp, fma, log, log_twofold, power_of_two
from .polynomial import (
    bits_of,
    choose,
    copy_sign,
    horner,
    is_nan,
    magnitude,
    number,
    root,
    shift_right,
)

_MAGIC = 6755399441055744.0  # 1.5 * 2**52: rounds to integers
_LOG10_2 = (3.01025390625e-1, 4.60503898119521373889e-6)
_LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
_LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
_EXPM1 = tuple(1.0 / math.factorial(n) for n in range(21, 1, -1))


def exp2(x: PrimExpr) -> PrimExpr:
    """``2**n * e**(r log 2)`` with ``r`` at most a half."""
    inside = minimum(maximum(x, -1080.0), 1025.0)
    shifted = inside + _MAGIC
    rest = inside - (shifted - _MAGIC)
    return _scaled(horner(rest * math.log(2.0), EXP_DOUBLE), shifted)


def exp10(x: PrimExpr) -> PrimExpr:
    """``2**n * e**(r log 10)``, where ``r`` is what ``n`` times the logarithm of 2 leaves."""
    inside = minimum(maximum(x, -330.0), 310.0)
    shifted = inside * math.log2(10.0) + _MAGIC
    whole = shifted - _MAGIC
    rest = inside - whole * _LOG10_2[0] - whole * _LOG10_2[1]
    return _scaled(horner(rest * math.log(10.0), EXP_DOUBLE), shifted)


def _scaled(value: PrimExpr, shifted: PrimExpr) -> PrimExpr:
    """Multiply by two to the power that rounding left in ``shifted``, in two steps."""
    n = bits_of(shifted) - bits_of(number(_MAGIC, shifted))
    half = shift_right(n, 1)
    return value * power_of_two(half, 52, 1023) * power_of_two(n - half, 52, 1023)


def expm1(x: PrimExpr) -> PrimExpr:
    """A series up to 1, the exponential minus 1 further out."""
    near = x * x * horner(x, _EXPM1) + x
    value = choose(magnitude(x) < 1.0, near, exp(x) - 1.0)
    return choose(equal(x, number(0.0, x)), x, value)


def log2(x: PrimExpr) -> PrimExpr:
    """The logarithm as a sum of two, so that powers of two give whole numbers."""
    return _logarithm(x, _LOG2_E)


def log10(x: PrimExpr) -> PrimExpr:
    """The logarithm as a sum of two, so that powers of ten give whole numbers."""
    return _logarithm(x, _LOG10_E)


def _logarithm(x: PrimExpr, factor: tuple[float, float]) -> PrimExpr:
    high, low = log_twofold(x)
    scale = number(factor[0], x)
    product = high * scale
    rest = fma(high, scale, number(0.0, x) - product) + (low * scale + high * factor[1])
    finite = (x > 0.0) & (x < math.inf)
    return choose(finite, product + rest, log(x))


def cbrt(x: PrimExpr) -> PrimExpr:
    """A third of the logarithm, and a step of Newton's."""
    size = magnitude(x)
    guess = exp(log(size) * (1.0 / 3.0))
    value = guess - (guess - size / (guess * guess)) * (1.0 / 3.0)
    proper = (size > 0.0) & (size < math.inf)
    return choose(proper, copy_sign(value, x), x)


def hypot(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The larger one times the root of one plus the square of the ratio."""
    a, b = magnitude(x), magnitude(y)
    large, small = maximum(a, b), minimum(a, b)
    ratio = small / large
    value = choose(equal(large, number(0.0, x)), large, large * root(ratio * ratio + 1.0))
    infinity = number(math.inf, x)
    return choose(equal(a, infinity) | equal(b, infinity), infinity, value)


def copysign(size: PrimExpr, sign: PrimExpr) -> PrimExpr:
    """An instruction; float32 or float64."""
    return copy_sign(size, sign)


def fdim(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The difference, or 0 if it were negative; float32 or float64."""
    return choose(x <= y, number(0.0, x), x - y)


def fmax(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The maximum, which passes NaN by; any float."""
    return choose(is_nan(x), y, choose(is_nan(y), x, maximum(x, y)))


def fmin(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The minimum, which passes NaN by; any float."""
    return choose(is_nan(x), y, choose(is_nan(y), x, minimum(x, y)))


def isfinite(x: PrimExpr) -> PrimExpr:
    """Whether the magnitude is below infinity; any float."""
    return magnitude(x) < math.inf


def signbit(x: PrimExpr) -> PrimExpr:
    """Whether 1 with this sign is below 0; float32 or float64."""
    return copy_sign(number(1.0, x), x) < 0.0
