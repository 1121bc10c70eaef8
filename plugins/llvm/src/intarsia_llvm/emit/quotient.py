# SPDX-License-Identifier: Apache-2.0
"""Division of what came from integers by a constant, as every quantized sum has one.

A machine divides vectors as slowly as it multiplies eight of them. With ``r`` the reciprocal of
``d``, rounded, and ``q = x * r``, the sum ``q + (x - q * d) * r`` in two fused multiplications is
the quotient rounded correctly (P. Markstein, Computation of elementary functions on the IBM RISC
System/6000 processor, 1990), unless a number is infinite or too small for all its digits.
"""

from __future__ import annotations

import numpy as np

from intarsia_ir.tir.expr import Binary, BinaryOp
from intarsia_runtime.dtype import DType

from .rounded import bound_of, number_of
from .spelling import float_text, overload, register_type, splat
from .writer import FunctionWriter

_LARGE = 2.0**60


def constant_divisor(expr: Binary) -> float | None:
    """Return the constant that a quotient of float32 is divided by; ``None`` if it has none.

    The dividend is certain to be finite, and neither of them is very large or very small.
    """
    if expr.op is not BinaryOp.DIV or expr.dtype is not DType.FLOAT32:
        return None
    divisor = number_of(expr.b)
    if divisor is None or not 1 / _LARGE <= abs(divisor) <= _LARGE:
        return None
    return divisor if bound_of(expr.a) <= _LARGE else None


def emit_quotient(w: FunctionWriter, value: str, divisor: float, lanes: int) -> str:
    """Write ``value / divisor``, rounded correctly."""
    kind, scalar = register_type(DType.FLOAT32, lanes), register_type(DType.FLOAT32)
    exact = np.float32(divisor)
    inverse = float(np.float32(1.0 / np.float64(exact)))
    r, d = (splat(float_text(n, scalar), scalar, lanes) for n in (inverse, -float(exact)))
    q = w.emit(f"fmul {kind} {value}, {r}")
    fma = w.declarations.use(kind, f"llvm.fma.{overload(DType.FLOAT32, lanes)}", (kind,) * 3)
    rest = w.emit(f"call {kind} {fma}({kind} {q}, {kind} {d}, {kind} {value})")
    return w.emit(f"call {kind} {fma}({kind} {rest}, {kind} {r}, {kind} {q})")
