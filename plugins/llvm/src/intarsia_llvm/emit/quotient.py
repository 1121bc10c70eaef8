# SPDX-License-Identifier: Apache-2.0
"""Division of what came from integers by a constant, as every quantized sum has one.

A machine divides vectors as slowly as it multiplies eight of them. With ``r`` the reciprocal of
``d``, rounded, and ``q = x * r``, the sum ``q + (x - q * d) * r`` in two fused multiplications is
the quotient rounded correctly (P. Markstein, Computation of elementary functions on the IBM RISC
System/6000 processor, 1990), unless a number is infinite or too small for all its digits.
"""

from __future__ import annotations

import numpy as np

from intarsia_ir.tir.expr import Binary, BinaryOp, Broadcast, Load
from intarsia_ir.tir.forward import is_passed_scalar
from intarsia_runtime.dtype import DType

from .rounded import bound_of, number_of
from .spelling import float_text, overload, register_type
from .writer import FunctionWriter

_LARGE = 2.0**60


def constant_divisor(expr: Binary) -> float | Load | None:
    """Return the constant that a quotient of float32 is divided by; ``None`` if it has none.

    It is a number, or one that kernels of several layers are passed.

    The dividend is certain to be finite, and neither of them is very large or very small.
    """
    if expr.op is not BinaryOp.DIV or expr.dtype is not DType.FLOAT32:
        return None
    divisor = expr.b.value if isinstance(expr.b, Broadcast) else expr.b
    if not is_passed_scalar(divisor):
        divisor = number_of(divisor)
        if divisor is None or not 1 / _LARGE <= abs(divisor) <= _LARGE:
            return None
    return divisor if bound_of(expr.a) <= _LARGE else None


def reciprocal_of(divisor: float) -> tuple[str, str]:
    """Return the reciprocal of a number and its opposite, as constants of float32."""
    exact, scalar = np.float32(divisor), register_type(DType.FLOAT32)
    inverse = float(np.float32(1.0 / np.float64(exact)))
    return float_text(inverse, scalar), float_text(-float(exact), scalar)


def emit_reciprocal(w: FunctionWriter, divisor: str) -> tuple[str, str]:
    """Write the same of a value, before the loops that do not change it."""
    scalar = register_type(DType.FLOAT32)
    inverse = w.once(f"fdiv {scalar} {float_text(1.0, scalar)}, {divisor}", divisor)
    return inverse, w.once(f"fneg {scalar} {divisor}", divisor)


def emit_quotient(w: FunctionWriter, value: str, vectors: tuple[str, str], lanes: int) -> str:
    """Write ``value / divisor``, rounded correctly.

    Args:
        w: Where to write.
        value: The dividend.
        vectors: The divisor's reciprocal and its opposite in all lanes.
        lanes: Of the vectors.
    """
    kind, (r, d) = register_type(DType.FLOAT32, lanes), vectors
    q = w.emit(f"fmul {kind} {value}, {r}")
    fma = w.declarations.use(kind, f"llvm.fma.{overload(DType.FLOAT32, lanes)}", (kind,) * 3)
    rest = w.emit(f"call {kind} {fma}({kind} {q}, {kind} {d}, {kind} {value})")
    return w.emit(f"call {kind} {fma}({kind} {rest}, {kind} {r}, {kind} {q})")
