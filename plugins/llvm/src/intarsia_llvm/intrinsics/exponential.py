# SPDX-License-Identifier: Apache-2.0
"""Exponential, logarithm, and what is made of them.

Each rule takes float32 or float64 and has one polynomial for each. Polynomials are those of Cephes
and FDLIBM (both free to use).
"""

from __future__ import annotations

import math

from intarsia_ir.tir.expr import (
    BinaryOp,
    PrimExpr,
    binary,
    cast,
    equal,
    intrinsic,
    maximum,
    minimum,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_loops.cpu.exponential import (
    EXP_POLYNOMIAL,
    sigmoid_single,
    softmax_exp,
    tanh_single,
)
from intarsia_runtime.dtype import DType

from .polynomial import (
    bits_of,
    choose,
    copy_sign,
    float_of,
    horner,
    magnitude,
    number,
    root,
    scale,
    shift_left,
    shift_right,
)

_EXP_SINGLE = (*EXP_POLYNOMIAL, 1.0, 1.0)
"""``e**r`` for ``r`` at most half of log 2, to 3e-9 (fitted by least squares, reweighted)."""

EXP_DOUBLE = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))
"""``e**r`` for ``r`` at most half of log 2, in float64, from the highest power down."""

_LOG_SINGLE = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LOG_DOUBLE = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)


def exp(x: PrimExpr) -> PrimExpr:
    """``2**n * e**r`` with ``r`` at most half of log 2; scaling reaches subnormals."""
    single = x.dtype is DType.FLOAT32
    low, high = (-104.0, 89.0) if single else (-746.0, 710.0)
    magic = 12582912.0 if single else 6755399441055744.0  # 1.5 * 2**mantissa: rounds to integers
    ln2 = (
        (0.693359375, -2.12194440e-4)
        if single
        else (6.93145751953125e-1, 1.42860682030941723212e-6)
    )
    inside = minimum(maximum(x, low), high)
    shifted = inside * math.log2(math.e) + magic
    whole = shifted - magic
    rest = inside - whole * ln2[0] - whole * ln2[1]
    value = horner(rest, _EXP_SINGLE if single else EXP_DOUBLE)
    n = bits_of(shifted) - bits_of(number(magic, x))
    return scale(value, whole, n)


def exp_nonpositive(x: PrimExpr) -> PrimExpr:
    """``e**x`` for ``x`` at most 0 or NaN; of float32 that of a softmax, 0 instead of subnormal.

    An operation with a subnormal result takes some 150 cycles, whatever is added to it then.
    """
    return softmax_exp(x) if x.dtype is DType.FLOAT32 else exp(x)


def power_of_two(n: PrimExpr, mantissa: int, bias: int) -> PrimExpr:
    """Return ``2**n`` as floats with so many bits of mantissa and such a bias."""
    return float_of(shift_left(n + bias, mantissa))


def _split(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return ``f, e`` with ``x = 2**e * (1 + f)`` and ``1 + f`` around 1; subnormals are scaled."""
    single = x.dtype is DType.FLOAT32
    mantissa = 23 if single else 52
    small = x < (2.0**-126 if single else 2.0**-1022)
    scaled = choose(small, x * 2.0 ** (mantissa + 2), x)
    bits = bits_of(scaled)
    # Move the border between exponents to sqrt(1/2), so that 1 + f lies in [0.707, 1.414).
    border = number(0x3F3504F3 if single else 0x3FE6A09E667F3BCD, bits)
    exponent = shift_right(bits - border, mantissa)
    m = float_of(bits - shift_left(exponent, mantissa))
    return m - 1.0, cast(exponent, x.dtype) - choose(small, number(mantissa + 2.0, x), 0.0)


def log(x: PrimExpr) -> PrimExpr:
    """``e * log 2 + log(1 + f)``."""
    f, e = _split(x)
    result = _log_single(f, e) if x.dtype is DType.FLOAT32 else _log_double(f, e)
    result = choose(x < math.inf, result, x)  # inf and NaN stay
    result = choose(equal(x, number(0.0, x)), number(-math.inf, x), result)
    return choose(x < 0.0, number(math.nan, x), result)


def _log_single(f: PrimExpr, e: PrimExpr) -> PrimExpr:
    z = f * f
    y = f * z * horner(f, _LOG_SINGLE) + e * -2.12194440e-4 - z * 0.5
    return e * 0.693359375 + (f + y)


def _log_double(f: PrimExpr, e: PrimExpr) -> PrimExpr:
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    r = z * horner(z, _LOG_DOUBLE)
    low = s * (half + r) + e * 1.90821492927058770002e-10
    return e * 6.93147180369123816490e-01 - ((half - low) - f)


def log1p(x: PrimExpr) -> PrimExpr:
    """``log(1 + x)``, the rounding of ``1 + x`` made good (Kahan)."""
    u = x + 1.0
    result = log(u) * (x / (u - 1.0))
    result = choose(equal(u, number(1.0, x)), x, result)
    return choose(u < math.inf, result, u)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + e**-x)`` without overflow on either side."""
    if x.dtype is DType.FLOAT32:
        return sigmoid_single(x)
    power = exp_nonpositive(number(0.0, x) - magnitude(x))
    share = 1.0 / (power + 1.0)
    return choose(x < 0.0, power * share, share)


def tanh(x: PrimExpr) -> PrimExpr:
    """A polynomial around 0, ``1 - 2 e**-2x / (e**-2x + 1)`` further out; of float32 a quotient."""
    if x.dtype is DType.FLOAT32:
        return copy_sign(tanh_single(x), x)
    size, z = magnitude(x), x * x
    e = exp(size * -2.0)
    top = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
    bottom = (1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
    near = x * z * (horner(z, top) / horner(z, bottom, monic=True)) + x
    far = number(1.0, x) - e * 2.0 / (e + 1.0)
    return copy_sign(choose(size < 0.625, near, far), x)


def sinh(x: PrimExpr) -> PrimExpr:
    """A series up to 1, exponentials further out; float64."""
    size = magnitude(x)
    series = tuple(1.0 / math.factorial(n) for n in range(17, 1, -2))
    near = x * (x * x) * horner(x * x, series) + x
    half = exp(size * 0.5)
    far = half * 0.5 * half - number(0.5, x) / half / half
    return choose(size < 1.0, near, copy_sign(far, x))


def cosh(x: PrimExpr) -> PrimExpr:
    """Half the sum of two exponentials; float64."""
    half = exp(magnitude(x) * 0.5)
    return half * 0.5 * half + number(0.5, x) / half / half


def asinh(x: PrimExpr) -> PrimExpr:
    """Through ``log1p``; float64."""
    size = magnitude(x)
    square = size * size
    near = log1p(size + square / (root(square + 1.0) + 1.0))
    far = log(size) + math.log(2.0)
    return copy_sign(choose(size < 1e8, near, far), x)


def acosh(x: PrimExpr) -> PrimExpr:
    """Through ``log1p``; NaN below 1; float64."""
    t = x - 1.0
    near = log1p(t + root(t * 2.0 + t * t))
    result = choose(x < 1e8, near, log(x) + math.log(2.0))
    return choose(x < 1.0, number(math.nan, x), result)


def atanh(x: PrimExpr) -> PrimExpr:
    """Through ``log1p``; NaN outside -1...1; float64."""
    size = magnitude(x)
    return copy_sign(log1p(size * 2.0 / (number(1.0, x) - size)) * 0.5, x)


def log_twofold(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return the logarithm of a positive float64 as a sum of two, good to 10 bits more."""
    f, e = _split(x)
    d = f + 2.0
    s = f / d
    rest = fma(number(0.0, x) - s, d, f) - s * (f - (d - 2.0))
    z = s * s
    low = rest / d * 2.0 + s * (z * horner(z, _LOG_DOUBLE))
    big, small = e * 6.93147180369123816490e-01, s * 2.0
    high = big + small
    # What the addition lost, exactly: one operand may be the larger or the other.
    shadow = high - big
    lost = (big - (high - shadow)) + (small - shadow)
    low = lost + (low + e * 1.90821492927058770002e-10)
    total = high + low
    return total, low - (total - high)


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``x ** y`` with the special cases of IEEE 754; powers of integers are integers; float64."""
    one, zero = number(1.0, x), number(0.0, x)
    size = magnitude(x)
    high, low = log_twofold(size)
    product = y * high
    more = fma(y, high, zero - product) + y * low
    value = exp(product)
    proper = (size > 0.0) & (size < math.inf)
    inside = (magnitude(product) < 746.0) & (value < math.inf)
    better = choose(inside, value + value * more, value)
    value = choose(proper, better, exp(y * log(size)))
    whole = equal(_trunc(y), y)
    exact = whole & (y >= 0.0) & equal(_trunc(x), x) & (value < 2.0**52)
    value = choose(exact, intrinsic(Intrinsic.ROUND, value), value)
    odd = whole & _differs(_trunc(y * 0.5), y * 0.5)
    negative = bits_of(x) < 0
    signed = choose(odd & negative, zero - value, value)
    bad = (x < 0.0) & _not(whole) & (size < math.inf)
    result = choose(bad, number(math.nan, x), signed)
    result = choose(_differs(x, x), x, choose(_differs(y, y), y, result))
    infinite = equal(magnitude(y), number(math.inf, y))
    result = choose(equal(size, one) & infinite, one, result)
    return choose(equal(y, zero) | equal(x, one), one, result)


def fma(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """Return ``a * b + c``, rounded once."""
    return intrinsic(Intrinsic.FMA, a, b, c)


def _trunc(x: PrimExpr) -> PrimExpr:
    return intrinsic(Intrinsic.TRUNC, x)


def _differs(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return binary(BinaryOp.NE, a, b)


def _not(flag: PrimExpr) -> PrimExpr:
    return binary(BinaryOp.XOR, flag, number(1, flag))
