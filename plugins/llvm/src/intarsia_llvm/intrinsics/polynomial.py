# SPDX-License-Identifier: Apache-2.0
"""What every rule is made of: constants of an operand's type and lanes, polynomials, bit casts."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    CallTarget,
    FloatImm,
    IntImm,
    PrimExpr,
    binary,
    intrinsic,
    select,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

from ..functions import ANGLE_REST, ANGLE_TURNS, SCALE


def number(value: float, like: PrimExpr) -> PrimExpr:
    """Return a constant of the type and lanes of ``like``."""
    scalar: PrimExpr = (
        FloatImm(value, like.dtype) if like.dtype.is_float else IntImm(int(value), like.dtype)
    )
    return scalar if like.lanes == 1 else Broadcast(scalar, like.lanes, like.dtype)


def horner(x: PrimExpr, coefficients: Sequence[float], *, monic: bool = False) -> PrimExpr:
    """Return the polynomial with ``coefficients`` from the highest power down.

    Args:
        x: Where to evaluate.
        coefficients: From the highest power down.
        monic: Whether a leading 1 was left out.
    """
    result = x + coefficients[0] if monic else number(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def bits_of(x: PrimExpr) -> PrimExpr:
    """Return the bits of a float as a signed integer of its width."""
    dtype = DType.INT32 if x.dtype is DType.FLOAT32 else DType.INT64
    return CallTarget("llvm", "llvm.bitcast", (x,), dtype, x.lanes)


def float_of(bits: PrimExpr) -> PrimExpr:
    """Return the float that has these bits."""
    dtype = DType.FLOAT32 if bits.dtype is DType.INT32 else DType.FLOAT64
    return CallTarget("llvm", "llvm.bitcast", (bits,), dtype, bits.lanes)


def scale(x: PrimExpr, whole: PrimExpr, number: PrimExpr) -> PrimExpr:
    """Return ``x * 2**n``, subnormal or infinite if it must be.

    Args:
        x: What is multiplied.
        whole: ``n`` as a whole float.
        number: ``n`` as an integer of the same width.
    """
    return CallTarget("llvm", SCALE, (x, whole, number), x.dtype, x.lanes)


def copy_sign(size: PrimExpr, sign: PrimExpr) -> PrimExpr:
    """Return ``size`` with the sign of ``sign``."""
    return CallTarget("llvm", "llvm.copysign", (size, sign), size.dtype, size.lanes)


def magnitude(x: PrimExpr) -> PrimExpr:
    """Return the absolute value."""
    return intrinsic(Intrinsic.ABS, x)


def root(x: PrimExpr) -> PrimExpr:
    """Return the square root."""
    return intrinsic(Intrinsic.SQRT, x)


def choose(condition: PrimExpr, a: PrimExpr, b: PrimExpr | float) -> PrimExpr:
    """Return ``a`` where the condition holds, else ``b``."""
    return select(condition, a, number(b, a) if isinstance(b, float | int) else b)


def shift_left(x: PrimExpr, count: int) -> PrimExpr:
    """Return an integer shifted left."""
    return binary(BinaryOp.SHL, x, number(count, x))


def shift_right(x: PrimExpr, count: int) -> PrimExpr:
    """Return an integer shifted right, keeping its sign."""
    return binary(BinaryOp.SHR, x, number(count, x))


def without_turns(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return a far angle less its quarter turns, and their number; one near 0 as it is, and 0."""
    rest = CallTarget("llvm", ANGLE_REST, (x,), DType.FLOAT64, x.lanes)
    return rest, CallTarget("llvm", ANGLE_TURNS, (x,), DType.INT64, x.lanes)


def is_nan(x: PrimExpr) -> PrimExpr:
    """Whether a value is NaN."""
    return intrinsic(Intrinsic.ISNAN, x)
