# SPDX-License-Identifier: Apache-2.0
"""Exponentials of float32 as polynomials, for loops that a compiler can vectorize.

The exponential of a softmax is that of a number that is not above 0, without subnormal results.

``e**x = 2**n * e**r`` with ``n`` the whole number nearest to ``x / log 2``. The general rule needs
two clamps and two scalings, as ``2**n`` may be subnormal or infinite. Here ``n`` is clamped to
-127 and lies in the exponent bits as ``n + 127``, so one shift makes the scale, and the scale of
``n = -127`` is exactly 0: what is further than 88 below the largest element of a row is 0, as
elements that a mask takes out must be. Subnormal results would also cost some 150 cycles each: the
processor computes them by microcode.

A difference ``x`` was rounded to 2**-24 of its size, twenty times what ``r`` lacks where ``n`` is
multiplied by the logarithm of 2 in a single float32, 2.8e-9 of ``x``: its second part, a product
and four cycles, is left out. (Without multiply-adds, the product is rounded as the difference was.)
``2**n`` times ``e**r`` is ``2**n * (e**r - 1) + 2**n``: one product fewer.

12 instructions of which 11 go to the two ports of floating-point products (on AMD's processors 9).
The polynomial is Estrin's form but for the last step: 20 cycles from its first instruction to the
result, where Horner's form takes 28. What bounds a loop of independent exponentials is the
processor's scheduler (some 100 instructions that wait for operands), so that shorter chains keep
more of them under way. (12 x 384 rows of 384: 0.85 of the time of two parts and a product of
``2**n`` and ``e**r``, AVX2 on AMD Zen 4.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intarsia_ir.tir.expr import (
    BinaryOp,
    PrimExpr,
    binary,
    const,
    intrinsic,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

_MAGIC = 12582912.0 + 127.0
"""1.5 * 2**23 rounds what is added to it to whole numbers; 127 is the bias of exponents."""

_LEAST, _MOST = -127.0 * math.log(2.0), 128.0 * math.log(2.0)
_LN2 = (0.693359375, -2.12194440e-4)
"""The logarithm of 2 as a sum; products of the first with whole numbers are exact."""

_ROUNDED_LN2 = (math.log(2.0),)
"""The same in one number, for arguments that are rounded differences."""

EXP_POLYNOMIAL = (
    1.3814540579915047e-3,
    8.36874544620514e-3,
    4.166838899254799e-2,
    1.666652113199234e-1,
    4.999999403953552e-1,
)
"""``(e**r - 1 - r) / r**2``, from the highest power down: ``e**r`` is good to 3e-9."""


def softmax_exp(x: PrimExpr) -> PrimExpr:
    """Return ``e**x`` for ``x`` at most 0 or NaN; 0 for float32 where it were subnormal.

    Args:
        x: A rounded difference, or a vector of them; other types than float32 take the general
            exponential.
    """
    if x.dtype is not DType.FLOAT32:
        return intrinsic(Intrinsic.EXP, x)
    shifted, r = _split(maximum(x, _LEAST), _ROUNDED_LN2)
    scale = _power_of_two(intrinsic(Intrinsic.BITS, shifted))
    return _growth(r) * scale + scale


def _split(inside: PrimExpr, ln2: Sequence[float] = _LN2) -> tuple[PrimExpr, PrimExpr]:
    """Return a float whose lowest bits are ``n`` with the bias of exponents, and ``r``.

    Args:
        inside: What is within the clamps.
        ln2: Parts of the logarithm of 2, the largest first.
    """
    shifted = inside * math.log2(math.e) + _MAGIC
    whole, r = shifted - _MAGIC, inside
    for part in ln2:
        r = r - whole * part
    return shifted, r


def _power(r: PrimExpr) -> PrimExpr:
    """Return ``e**r``."""
    a, b, c, d, e = EXP_POLYNOMIAL
    square = r * r
    q = ((r * a + b) * square + (r * c + d)) * square + (r * e + 1.0)
    return q * r + 1.0


def _growth(r: PrimExpr) -> PrimExpr:
    """Return ``e**r - 1``, whose error is small beside it: the last step adds ``r``."""
    a, b, c, d, e = EXP_POLYNOMIAL
    square = r * r
    q = (square * a + (r * b + c)) * square + (r * d + e)
    return q * square + r


def _power_of_two(biased: PrimExpr) -> PrimExpr:
    """Return the float32 with an exponent whose bias is in it; of higher bits nothing is left."""
    bits = binary(BinaryOp.SHL, biased, const(23, DType.INT32))
    return intrinsic(Intrinsic.FROM_BITS, bits)


def exp_single(x: PrimExpr) -> PrimExpr:
    """Return ``e**x`` of one float32; the page of machine functions has its accuracy.

    The scale is a product of two powers, as ``2**n`` may be subnormal or infinite.
    """
    shifted, r = _split(minimum(maximum(x, -104.0), 89.0))
    n = intrinsic(Intrinsic.BITS, shifted) - intrinsic(Intrinsic.BITS, const(_MAGIC, x.dtype))
    half = binary(BinaryOp.SHR, n, const(1, DType.INT32))
    return _power(r) * _power_of_two(half + 127) * _power_of_two(n - half + 127)


def sigmoid_single(x: PrimExpr) -> PrimExpr:
    """Return ``1 / (1 + e**-x)`` of float32.

    ``n`` of the exponential is clamped to 128, whose scale is infinite: the result is 0 then, where
    it were subnormal, or nearly so (``x`` below -88.4).
    """
    shifted, r = _split(minimum(maximum(0.0 - x, _LEAST), _MOST))
    return 1.0 / (_power(r) * _power_of_two(intrinsic(Intrinsic.BITS, shifted)) + 1.0)


def tanh_single(x: PrimExpr) -> PrimExpr:
    """Return the hyperbolic tangent of float32 but for the sign of zero.

    ``(e**2x - 1) / (e**2x + 1)``, where ``e**2x - 1`` is ``2**n (e**r - 1) + (2**n - 1)``, of which
    nothing is lost around 0, where ``n`` is 0. From 10 on the quotient is 1.
    """
    shifted, r = _split(minimum(maximum(x * 2.0, -20.0), 20.0))
    scale = _power_of_two(intrinsic(Intrinsic.BITS, shifted))
    less = scale * _growth(r) + (scale - 1.0)
    return less / (less + 2.0)


def erf_size(x: PrimExpr) -> PrimExpr:
    """Return the error function but for the sign of what is far from 0, of float32.

    A polynomial around 0, one minus the exponential of a polynomial further out.
    """
    size = intrinsic(Intrinsic.ABS, x)
    t, s = minimum(size, 4.0), x * x
    near = s * -5.96761703e-4 + 4.99119423e-3
    for coefficient in (-2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1):
        near = near * s + coefficient
    square = t * t
    r = (t * -1.72853470e-5 + 3.83197126e-4) * square + (t * -3.88396438e-3 + 2.42546219e-2)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = r * t + coefficient
    return select(size > 0.927734375, 1.0 - softmax_exp(r * t - t), x * near + x)
