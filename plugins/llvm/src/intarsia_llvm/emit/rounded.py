# SPDX-License-Identifier: Apache-2.0
"""Rounded floats that become small integers, and integers that become floats again.

``saturate(round(x) + zero)`` is the end of every quantized operator. Its limits are whole numbers,
so ``x`` may be limited before it is rounded, and one instruction rounds and converts; and who
dequantizes such a value needs no integer of it.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    Broadcast,
    CallIntrinsic,
    CastExpr,
    FloatImm,
    IntImm,
    PrimExpr,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

from .spelling import float_text, int_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

_FLOAT = DType.FLOAT32
_MOST = 2**16  # far from what float32 has exactly
_ROUNDING_LANES = (1, 4, 8, 16)  # of vectors that x86 rounds to int32 with one instruction


class Rounded(Struct, frozen=True):
    """``saturate(round(x) + zero) - less``, the latter being 0 unless it is a float again.

    Attributes:
        x: In float32.
        zero: What is added.
        kind: The small integer that it is limited to.
        less: What is subtracted from that.
    """

    x: PrimExpr
    zero: int
    kind: DType
    less: int = 0


def as_rounded(cast: CastExpr) -> Rounded | None:
    """Read a conversion as a rounded float, as an integer or as a float again; or ``None``."""
    value = cast.value
    if cast.dtype.is_integer and cast.dtype.bits <= 16:
        return _saturated(cast)
    if cast.dtype is not _FLOAT:
        return None
    less = 0
    if isinstance(value, Binary) and value.op is BinaryOp.SUB:
        number = number_of(value.b)
        if number is None or abs(number) > _MOST:
            return None
        less, value = int(number), value.a
    if not isinstance(value, CastExpr) or value.dtype is not DType.INT32:
        return None
    inner = _saturated(value.value) if isinstance(value.value, CastExpr) else None
    return None if inner is None else Rounded(inner.x, inner.zero, inner.kind, less)


def _saturated(cast: CastExpr) -> Rounded | None:
    value, zero = cast.value, 0.0
    if not cast.dtype.is_integer or cast.dtype.bits > 16 or value.dtype is not _FLOAT:
        return None
    if isinstance(value, Binary) and value.op is BinaryOp.ADD:
        added = number_of(value.b)
        if added is None or not abs(added) <= _MOST or added != int(added):
            return None
        zero, value = float(added), value.a
    if not isinstance(value, CallIntrinsic) or value.intrinsic is not Intrinsic.ROUND:
        return None
    return Rounded(value.args[0], int(zero), cast.dtype)


def number_of(expr: PrimExpr) -> float | None:
    """Return the number that an expression stands for; a scale's zero point is a converted one.

    Conversions that may change a number are not looked through.
    """
    while isinstance(expr, Broadcast | CastExpr):
        if isinstance(expr, CastExpr) and not expr.dtype.is_float:
            source = expr.value.dtype
            if expr.dtype is not DType.INT32 or not source.is_integer or source.bits > 16:
                return None
        expr = expr.value
    return expr.value if isinstance(expr, IntImm | FloatImm) else None


def emit_rounded_integer(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Write the integer; ``value`` is that of ``found.x``, and 0 stands for NaN."""
    limited = _limited(w, value, found, lanes)
    old, wide = register_type(_FLOAT, lanes), register_type(DType.INT32, lanes)
    if w.declarations.rounds and lanes in _ROUNDING_LANES:
        suffix = f"{overload(DType.INT32, lanes)}.{overload(_FLOAT, lanes)}"
        function = w.declarations.use(wide, f"llvm.lrint.{suffix}", (old,))
        whole = w.emit(f"call {wide} {function}({old} {limited})")
    else:
        whole = w.emit(f"fptosi {old} {_round(w, limited, lanes)} to {wide}")
    if found.zero:
        zero = splat(int_text(found.zero, DType.INT32), "i32", lanes)
        whole = w.emit(f"add {wide} {whole}, {zero}")
    return w.emit(f"trunc {wide} {whole} to {register_type(found.kind, lanes)}")


def emit_rounded_float(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Write the float; ``value`` is that of ``found.x``, and 0 stands for NaN."""
    rounded = _round(w, _limited(w, value, found, lanes), lanes)
    if found.zero == found.less:
        return rounded
    kind = register_type(_FLOAT, lanes)
    return w.emit(f"fadd {kind} {rounded}, {_splat(found.zero - found.less, lanes)}")


def _limited(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Limit a float to what can be stored, less ``zero``; NaN becomes what is stored as 0."""
    kind, flags = register_type(_FLOAT, lanes), vector_type("i1", lanes)
    bits, signed = found.kind.bits, found.kind.is_signed
    least = -(2 ** (bits - 1)) if signed else 0
    most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    if signed:  # else the least is 0, which NaN becomes below
        known = w.emit(f"fcmp ord {kind} {value}, {value}")
        value = w.emit(
            f"select {flags} {known}, {kind} {value}, {kind} {_splat(-found.zero, lanes)}"
        )
    for compare, limit in (("ogt", least), ("olt", most)):
        bound = _splat(limit - found.zero, lanes)
        inside = w.emit(f"fcmp {compare} {kind} {value}, {bound}")
        value = w.emit(f"select {flags} {inside}, {kind} {value}, {kind} {bound}")
    return value


def _round(w: FunctionWriter, value: str, lanes: int) -> str:
    kind = register_type(_FLOAT, lanes)
    name = "llvm.rint" if w.declarations.bare else "llvm.roundeven"
    function = w.declarations.use(kind, f"{name}.{overload(_FLOAT, lanes)}", (kind,))
    return w.emit(f"call {kind} {function}({kind} {value})")


def _splat(value: int, lanes: int) -> str:
    scalar = register_type(_FLOAT)
    return splat(float_text(float(value), scalar), scalar, lanes)
