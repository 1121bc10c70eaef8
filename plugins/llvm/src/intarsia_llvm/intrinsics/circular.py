# SPDX-License-Identifier: Apache-2.0
"""Circular functions and the error function.

Rules take float64 unless they say otherwise; float32 goes through float64 and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

from intarsia_ir.tir.expr import BinaryOp, PrimExpr, binary, cast, equal, intrinsic, minimum
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_loops.cpu.exponential import erf_size
from intarsia_runtime.dtype import DType

from .exponential import exp
from .polynomial import (
    bits_of,
    choose,
    copy_sign,
    horner,
    is_nan,
    magnitude,
    number,
    root,
    without_turns,
)

_ATAN_TOP = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_BOTTOM = (
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)
_ERF_TOP = (
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_ERF_BOTTOM = (
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_ERFC_TOP = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_ERFC_BOTTOM = (
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)

_ERFC_FAR_TOP = (
    5.64189583547755073984e-1,
    1.27536670759978104416e0,
    5.01905042251180477414e0,
    6.16021097993053585195e0,
    7.40974269950448939160e0,
    2.97886665372100240670e0,
)
_ERFC_FAR_BOTTOM = (
    2.26052863220117276590e0,
    9.39603524938001434673e0,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198e0,
    3.36907645100081516050e0,
)


class _Circle(Struct, frozen=True):
    """How exactly sine and cosine are computed.

    Attributes:
        half_pi: Parts whose sum is pi/2; all but the last have 33 bits, so that they can be
            multiplied by numbers up to 2**20 exactly.
        sine: Factors of odd powers of the angle, from the highest down to the third.
        cosine: Factors of even powers, from the highest down to the fourth.
    """

    half_pi: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


_FLOAT64 = _Circle(
    half_pi=(
        1.57079632673412561417e00,
        6.07710050630396597660e-11,
        2.02226624871116645580e-21,
        8.47842766036889956997e-32,
    ),
    sine=(
        1.58969099521155010221e-10,
        -2.50507602534068634195e-08,
        2.75573137070700676789e-06,
        -1.98412698298579493134e-04,
        8.33333333332248946124e-03,
        -1.66666666666666324348e-01,
    ),
    cosine=(
        -1.13596475577881948265e-11,
        2.08757232129817482790e-09,
        -2.75573143513906633035e-07,
        2.48015872894767294178e-05,
        -1.38888888888741095749e-03,
        4.16666666666666019037e-02,
    ),
)
_FLOAT32 = _Circle(
    half_pi=(1.57079632673412561417e00, 6.07710050630396597660e-11, 2.0222662487959506e-21),
    sine=(
        2.7249925219936032e-06,
        -1.98400867308877005e-04,
        8.33333187470188411e-03,
        -1.66666666638552681e-01,
    ),
    cosine=(
        -2.73009587172088056e-07,
        2.48006003734033816e-05,
        -1.38888876720098425e-03,
        4.16666666643211855e-02,
    ),
)
"""Chebyshev fits; what they are off is 2**-35 and 2**-39 of the result."""


def _quarter(x: PrimExpr, circle: _Circle) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return the sine and cosine of ``x`` minus ``n`` quarter turns, and ``n`` modulo 4."""
    x, turns = without_turns(x)
    magic = 6755399441055744.0  # 1.5 * 2**52
    shifted = x * (2.0 / math.pi) + magic
    n = shifted - magic
    r = x
    for part in circle.half_pi:
        r = r - n * part
    z = r * r
    sine = r * z * horner(z, circle.sine) + r
    cosine = z * z * horner(z, circle.cosine) + (number(1.0, x) - z * 0.5)
    return sine, cosine, bits_of(shifted) + turns


def _bit(n: PrimExpr, value: int) -> PrimExpr:
    masked = binary(BinaryOp.AND, n, number(value, n))
    return equal(masked, number(value, n))


def _by_precision(rule: Callable[[PrimExpr, _Circle], PrimExpr], x: PrimExpr) -> PrimExpr:
    """Apply a rule of float64 to float32 or float64, no more exactly than the result can say."""
    if x.dtype is DType.FLOAT32:
        return cast(rule(cast(x, DType.FLOAT64), _FLOAT32), DType.FLOAT32)
    return rule(x, _FLOAT64)


def sin(x: PrimExpr) -> PrimExpr:
    """Polynomials on a quarter turn; float32 or float64; NaN of infinity."""
    return _by_precision(_sin, x)


def _sin(x: PrimExpr, circle: _Circle) -> PrimExpr:
    sine, cosine, n = _quarter(x, circle)
    value = choose(_bit(n, 1), cosine, sine)
    value = choose(_bit(n, 2), number(0.0, x) - value, value)
    return choose(equal(x, number(0.0, x)), x, value)


def cos(x: PrimExpr) -> PrimExpr:
    """Polynomials on a quarter turn; float32 or float64; NaN of infinity."""
    return _by_precision(_cos, x)


def _cos(x: PrimExpr, circle: _Circle) -> PrimExpr:
    sine, cosine, n = _quarter(x, circle)
    value = choose(_bit(n, 1), sine, cosine)
    return choose(_bit(n + 1, 2), number(0.0, x) - value, value)


def tan(x: PrimExpr) -> PrimExpr:
    """Sine by cosine; float32 or float64; NaN of infinity."""
    return _by_precision(_tan, x)


def _tan(x: PrimExpr, circle: _Circle) -> PrimExpr:
    sine, cosine, n = _quarter(x, circle)
    odd = _bit(n, 1)
    top = choose(odd, number(0.0, x) - cosine, sine)
    value = top / choose(odd, sine, cosine)
    return choose(equal(x, number(0.0, x)), x, value)


def _arc(size: PrimExpr) -> PrimExpr:
    """Return the arc tangent of a number that is not negative: a quotient in three ranges."""
    far, middle = size > 2.41421356237309504880, size > 0.66
    one = number(1.0, size)
    t = choose(far, number(-1.0, size) / size, choose(middle, (size - one) / (size + one), size))
    base = choose(far, number(math.pi / 2, size), choose(middle, number(math.pi / 4, size), 0.0))
    more = choose(far, number(6.123233995736765886130e-17, size), 0.0)
    more = choose(middle & _not(far), number(3.061616997868383e-17, size), more)
    z = t * t
    curve = t * (z * (horner(z, _ATAN_TOP) / horner(z, _ATAN_BOTTOM, monic=True))) + t
    return base + (curve + more)


def atan(x: PrimExpr) -> PrimExpr:
    """The arc of the magnitude, with the sign of ``x``."""
    return copy_sign(_arc(magnitude(x)), x)


def atan2(y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The arc of the quotient of magnitudes, in the half turn of ``x``, with the sign of ``y``."""
    zero, one = number(0.0, x), number(1.0, x)
    top, bottom = magnitude(y), magnitude(x)
    ratio = choose(equal(top, zero), choose(is_nan(x), x, zero), top / bottom)
    ratio = choose(equal(top, bottom) & (top > 1.0), one, ratio)
    arc = _arc(ratio)
    left = number(math.pi, x) - (arc - 1.2246467991473532e-16)
    return copy_sign(choose(copy_sign(one, x) < 0.0, left, arc), y)


def _not(flag: PrimExpr) -> PrimExpr:
    return binary(BinaryOp.XOR, flag, number(1, flag))


def asin(x: PrimExpr) -> PrimExpr:
    """Through the arc tangent; NaN outside -1...1.

    The sign is that of ``x`` and not of a quotient: LLVM would narrow a computed sign from double
    to half where the result is half, which on x86 is a call of a function that no library has.
    """
    one = number(1.0, x)
    return copy_sign(_arc(magnitude(x) / root((one - x) * (one + x))), x)


def acos(x: PrimExpr) -> PrimExpr:
    """Through the arc tangent of the half angle; NaN outside -1...1."""
    one = number(1.0, x)
    return _arc(root((one - x) / (one + x))) * 2.0


def erf(x: PrimExpr) -> PrimExpr:
    """The error function; float32 or float64."""
    size = magnitude(x)
    if x.dtype is DType.FLOAT32:
        return copy_sign(erf_size(x), x)
    inside = minimum(size, 6.5)
    z = x * x
    near = x * (horner(z, _ERF_TOP) / horner(z, _ERF_BOTTOM, monic=True))
    ratio = horner(inside, _ERFC_TOP) / horner(inside, _ERFC_BOTTOM, monic=True)
    far = number(1.0, x) - exp(number(0.0, x) - inside * inside) * ratio
    return choose(size < 1.0, near, copy_sign(far, x))


def erfc(x: PrimExpr) -> PrimExpr:
    """One minus the error function, its small values to full precision; float64."""
    size = magnitude(x)
    z = x * x
    near = number(1.0, x) - x * (horner(z, _ERF_TOP) / horner(z, _ERF_BOTTOM, monic=True))
    inside = minimum(size, 28.0)
    middle = horner(inside, _ERFC_TOP) / horner(inside, _ERFC_BOTTOM, monic=True)
    far = horner(inside, _ERFC_FAR_TOP) / horner(inside, _ERFC_FAR_BOTTOM, monic=True)
    square = inside * inside
    # What the square lost would be multiplied by it in the exponential.
    lost = intrinsic(Intrinsic.FMA, inside, inside, number(0.0, x) - square)
    falling = exp(number(0.0, x) - square)
    small = (falling - falling * lost) * choose(inside < 8.0, middle, far)
    outer = choose(x < 0.0, number(2.0, x) - small, small)
    return choose(is_nan(x), x, choose(size < 1.0, near, outer))
