# SPDX-License-Identifier: Apache-2.0
"""The exponential of a softmax: of a float32 that is not above 0, without subnormal results.

``e**x = 2**n * e**r`` with ``n`` the whole number nearest to ``x / log 2``. The general rule needs
two clamps and two scalings, as ``2**n`` may be subnormal or infinite. Here ``n`` is clamped to
-127 and lies in the exponent bits as ``n + 127``, so one shift makes the scale, and the scale of
``n = -127`` is exactly 0: what is further than 88 below the largest element of a row is 0, as
elements that a mask takes out must be. Subnormal results would also cost some 150 cycles each: the
processor computes them by microcode.

15 instructions of which 13 go to the two ports of floating-point products. The polynomial is
Estrin's form but for the last step: 16 cycles from its first instruction to the last, where
Horner's form takes 24, for one product more. What bounds a loop of independent exponentials is the
processor's scheduler (some 100 instructions that wait for operands), so that shorter chains keep
more of them under way.
"""

from __future__ import annotations

import math

from intarsia_ir.tir.expr import BinaryOp, PrimExpr, binary, const, intrinsic, maximum
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

_MAGIC = 12582912.0 + 127.0
"""1.5 * 2**23 rounds what is added to it to whole numbers; 127 is the bias of exponents."""

_LEAST = -127.0 * math.log(2.0)
_LN2 = (0.693359375, -2.12194440e-4)
"""The logarithm of 2 as a sum; products of the first with whole numbers are exact."""

_POLYNOMIAL = (
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
        x: A number, or a vector of them; other types than float32 take the general exponential.
    """
    if x.dtype is not DType.FLOAT32:
        return intrinsic(Intrinsic.EXP, x)
    inside = maximum(x, _LEAST)
    shifted = inside * math.log2(math.e) + _MAGIC
    whole = shifted - _MAGIC
    r = inside - whole * _LN2[0] - whole * _LN2[1]
    a, b, c, d, e = _POLYNOMIAL
    square = r * r
    q = ((r * a + b) * square + (r * c + d)) * square + (r * e + 1.0)
    bits = binary(BinaryOp.SHL, intrinsic(Intrinsic.BITS, shifted), const(23, DType.INT32))
    return (q * r + 1.0) * intrinsic(Intrinsic.FROM_BITS, bits)
