# SPDX-License-Identifier: Apache-2.0
"""Rounded floats that become small integers, and integers that become floats again.

``saturate(round(x) + zero)`` is the end of every quantized operator. Its limits are whole numbers,
so ``x`` may be limited before it is rounded, and one instruction rounds and converts; and who
dequantizes such a value needs no integer of it. Zero points may be bytes in memory, as in kernels
that several layers share.
"""

from __future__ import annotations

import math

from msgspec import Struct

from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    Broadcast,
    CallIntrinsic,
    CastExpr,
    FloatImm,
    IntImm,
    Load,
    PrimExpr,
)
from intarsia_ir.tir.forward import MOST_SCALAR, is_passed_scalar
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

from .byte_packs import emit_bytes
from .neon_narrow import emit_nearest, emit_saturated, narrows
from .spelling import float_text, int_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

_FLOAT = DType.FLOAT32
_WIDE = (DType.INT32, _FLOAT)  # which have every byte
_MOST = 2**16  # far from what float32 has exactly
_ROUNDING_LANES = (1, 4, 8, 16)  # of vectors that x86 rounds to int32 with one instruction
_LARGEST = 2.0**127  # about that of float32
_MOST_ADDED = 2**14  # to 16 bits, and what is limited then is beyond those of a byte


class Rounded(Struct, frozen=True):
    """``saturate(round(x) + zero) - less``, the latter being 0 unless it is a float again.

    Attributes:
        x: In float32.
        zero: What is added: a number, or a byte in memory.
        kind: The small integer that it is limited to.
        less: What is subtracted from that: a number, or the same byte.
    """

    x: PrimExpr
    zero: int | Load
    kind: DType
    less: int | Load = 0


def as_rounded(cast: CastExpr) -> Rounded | None:
    """Read a conversion as a rounded float, as an integer or as a float again; or ``None``."""
    value = cast.value
    if cast.dtype.is_integer and cast.dtype.bits <= 16:
        return _saturated(cast)
    if cast.dtype is not _FLOAT:
        return None
    less: int | Load | None = 0
    if isinstance(value, Binary) and value.op is BinaryOp.SUB and value.dtype is DType.INT32:
        less, value = _zero_point(value.b), value.a
    if isinstance(value, CastExpr) and value.dtype is DType.INT32:
        value = value.value
    if not isinstance(value, CastExpr) or less is None:
        return None
    inner = _saturated(value)
    if inner is None:
        return None
    zero = inner.zero
    if isinstance(less, Load) and isinstance(zero, Load) and less.buffer is zero.buffer:
        less = zero
    is_known = less in (0, zero) or (isinstance(less, int) and isinstance(zero, int))
    return Rounded(inner.x, zero, inner.kind, less) if is_known else None


def _saturated(cast: CastExpr) -> Rounded | None:
    value, zero = cast.value, 0
    if not cast.dtype.is_integer or cast.dtype.bits > 16 or value.dtype is not _FLOAT:
        return None
    if isinstance(value, Binary) and value.op is BinaryOp.ADD:
        zero, value = _zero_point(value.b), value.a
    if not isinstance(value, CallIntrinsic) or value.intrinsic is not Intrinsic.ROUND:
        return None
    return None if zero is None else Rounded(value.args[0], zero, cast.dtype)


def _zero_point(expr: PrimExpr) -> int | Load | None:
    """Return the whole number that an expression stands for, or the one byte that it loads."""
    number = number_of(expr)
    if number is not None:
        return int(number) if abs(number) <= _MOST and number == int(number) else None
    while isinstance(expr, Broadcast) or (isinstance(expr, CastExpr) and expr.dtype in _WIDE):
        expr = expr.value
    if not isinstance(expr, Load) or expr.indices or not expr.dtype.is_integer:
        return None
    return expr if expr.dtype.bits == 8 else None


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


def bound_of(expr: PrimExpr) -> float:
    """Return what the size of an expression is certain not to exceed; NaN if there is none.

    An expression with a bound is neither infinite nor NaN in float32, nor is any part of it.
    """
    size = _size_of(expr)
    return size if size <= _LARGEST else math.nan


def _size_of(expr: PrimExpr) -> float:
    number = MOST_SCALAR if is_passed_scalar(expr) else number_of(expr)
    if number is not None:
        return abs(number)
    match expr:
        case Broadcast():
            return bound_of(expr.value)
        case CastExpr(value=value) if value.dtype.is_integer or as_rounded(expr) is not None:
            return 2.0**value.dtype.bits if value.dtype.is_integer else 2.0**32
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB):
            return bound_of(expr.a) + bound_of(expr.b)
        case Binary(op=BinaryOp.MUL):
            return bound_of(expr.a) * bound_of(expr.b)
        case Binary(op=BinaryOp.DIV) if number := number_of(expr.b):
            return bound_of(expr.a) / abs(number)
        case _:
            return math.nan


def emit_rounded_integer(
    w: FunctionWriter, value: str, found: Rounded, lanes: int, zero: str = ""
) -> str:
    """Write the integer; 0 stands for NaN.

    Args:
        w: Of the function.
        value: That of ``found.x``.
        found: What to write.
        lanes: Of the vector.
        zero: The zero point as a vector of floats, where it is in memory.
    """
    if _is_packed(w, found, lanes):
        return _packed(w, value, found, lanes, zero)
    number = found.zero
    assert isinstance(number, int)  # as is_profitable() says
    if narrows(w, lanes):
        return _narrowed(w, value, found, number, lanes)
    limited = _limited(w, value, found, lanes, zero)
    old, wide = register_type(_FLOAT, lanes), register_type(DType.INT32, lanes)
    if w.declarations.rounds and lanes in _ROUNDING_LANES:
        suffix = f"{overload(DType.INT32, lanes)}.{overload(_FLOAT, lanes)}"
        function = w.declarations.use(wide, f"llvm.lrint.{suffix}", (old,))
        whole = w.emit(f"call {wide} {function}({old} {limited})")
    else:
        whole = w.emit(f"fptosi {old} {_round(w, limited, lanes)} to {wide}")
    if number:
        added = splat(int_text(number, DType.INT32), "i32", lanes)
        whole = w.emit(f"add {wide} {whole}, {added}")
    return w.emit(f"trunc {wide} {whole} to {register_type(found.kind, lanes)}")


def is_profitable(w: FunctionWriter, found: Rounded, lanes: int, *, is_float: bool) -> bool:
    """Whether code for a rounded float beats that of its parts.

    Limits of a zero point in memory take a small layer longer than an integer gains unpacked.
    """
    return isinstance(found.zero, int) or is_float or _is_packed(w, found, lanes)


def _bound(w: FunctionWriter, limit: int, found: Rounded, lanes: int, zero: str) -> str:
    """Return a whole number less the zero point in all lanes."""
    if isinstance(found.zero, int):
        return _splat(limit - found.zero, lanes)
    return w.once(f"fsub {register_type(_FLOAT, lanes)} {_splat(limit, lanes)}, {zero}", zero)


def _is_packed(w: FunctionWriter, found: Rounded, lanes: int) -> bool:
    """Whether words are packed to bytes: 16 bits hold a byte and what is added to it."""
    if lanes != w.declarations.packs or found.kind.bits != 8:
        return False
    return isinstance(found.zero, Load) or abs(found.zero) <= 255


def _packed(w: FunctionWriter, value: str, found: Rounded, lanes: int, zero: str) -> str:
    """Round to bytes by instructions that saturate: what is too small and NaN as they should."""
    old, half = register_type(_FLOAT, lanes), vector_type("i16", lanes)
    signed = found.kind.is_signed
    if not bound_of(found.x) <= 2.0**30:  # which int32 certainly has
        value = _without_nan(w, value, found, lanes, zero) if signed else value
        most = _bound(w, 127 if signed else 255, found, lanes, zero)
        above = w.emit(f"fcmp ogt {old} {value}, {most}")
        value = w.emit(f"select {vector_type('i1', lanes)} {above}, {old} {most}, {old} {value}")
    added = ""
    if isinstance(found.zero, Load):
        added = w.once(f"fptosi {old} {zero} to {half}", zero)
    elif found.zero != 0:
        added = splat(int_text(found.zero, DType.INT16), "i16", lanes)
    return emit_bytes(w, value, lanes, added, is_signed=signed)


def _narrowed(w: FunctionWriter, value: str, found: Rounded, zero: int, lanes: int) -> str:
    """Convert by instructions of NEON, which saturate. NaN stays NaN when ``zero`` is added."""
    is_number = not math.isnan(bound_of(found.x))
    if not zero or (is_number and abs(zero) <= _MOST_ADDED):
        return emit_nearest(w, value, found.kind, zero, lanes)
    kind = register_type(_FLOAT, lanes)
    value = w.emit(f"fadd {kind} {_round(w, value, lanes)}, {_splat(zero, lanes)}")
    return emit_saturated(w, value, found.kind, lanes)


def emit_rounded_float(
    w: FunctionWriter, value: str, found: Rounded, lanes: int, zero: str = ""
) -> str:
    """Write the float; as :func:`emit_rounded_integer`."""
    rounded = _round(w, _limited(w, value, found, lanes, zero), lanes)
    if found.zero == found.less:
        return rounded
    kind = register_type(_FLOAT, lanes)
    if isinstance(found.zero, int) and isinstance(found.less, int):
        zero = _splat(found.zero - found.less, lanes)
    return w.emit(f"fadd {kind} {rounded}, {zero}")


def _limited(w: FunctionWriter, value: str, found: Rounded, lanes: int, zero: str) -> str:
    """Limit a float to what can be stored, less ``zero``; NaN becomes what is stored as 0."""
    kind, flags = register_type(_FLOAT, lanes), vector_type("i1", lanes)
    bits, signed = found.kind.bits, found.kind.is_signed
    least = -(2 ** (bits - 1)) if signed else 0
    most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    if signed:  # else the least is 0, which NaN becomes below
        value = _without_nan(w, value, found, lanes, zero)
    for compare, limit in (("ogt", least), ("olt", most)):
        bound = _bound(w, limit, found, lanes, zero)
        inside = w.emit(f"fcmp {compare} {kind} {value}, {bound}")
        value = w.emit(f"select {flags} {inside}, {kind} {value}, {kind} {bound}")
    return value


def _without_nan(w: FunctionWriter, value: str, found: Rounded, lanes: int, zero: str) -> str:
    """Replace NaN by what is stored as 0."""
    kind, flags = register_type(_FLOAT, lanes), vector_type("i1", lanes)
    known = w.emit(f"fcmp ord {kind} {value}, {value}")
    nothing = _bound(w, 0, found, lanes, zero)
    return w.emit(f"select {flags} {known}, {kind} {value}, {kind} {nothing}")


def _round(w: FunctionWriter, value: str, lanes: int) -> str:
    kind = register_type(_FLOAT, lanes)
    name = "llvm.rint" if w.declarations.bare else "llvm.roundeven"
    function = w.declarations.use(kind, f"{name}.{overload(_FLOAT, lanes)}", (kind,))
    return w.emit(f"call {kind} {function}({kind} {value})")


def _splat(value: int, lanes: int) -> str:
    scalar = register_type(_FLOAT)
    return splat(float_text(float(value), scalar), scalar, lanes)
