# SPDX-License-Identifier: Apache-2.0
"""Rounded floats that become small integers, and integers that become floats again.

``saturate(round(x) + zero)`` is the end of every quantized operator. Its limits are whole numbers,
so ``x`` may be limited before it is rounded, and one instruction rounds and converts; and who
dequantizes such a value needs no integer of it.
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
    PrimExpr,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType

from .neon_narrow import emit_nearest, emit_saturated, narrows
from .spelling import float_text, int_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

_FLOAT = DType.FLOAT32
_MOST = 2**16  # far from what float32 has exactly
_ROUNDING_LANES = (1, 4, 8, 16)  # of vectors that x86 rounds to int32 with one instruction

_LARGEST = 2.0**127  # about that of float32
_MOST_ADDED = 2**14  # to 16 bits, and what is limited then is beyond those of a byte

_PACKED_LANES = 8  # of a vector of AVX2


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


def bound_of(expr: PrimExpr) -> float:
    """Return what the size of an expression is certain not to exceed; NaN if there is none.

    An expression with a bound is neither infinite nor NaN in float32, nor is any part of it.
    """
    size = _size_of(expr)
    return size if size <= _LARGEST else math.nan


def _size_of(expr: PrimExpr) -> float:
    number = number_of(expr)
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
        case _:
            return math.nan


def emit_rounded_integer(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Write the integer; ``value`` is that of ``found.x``, and 0 stands for NaN."""
    if w.declarations.packs and lanes == _PACKED_LANES and _fits_packs(found):
        return _packed(w, value, found)
    if narrows(w, lanes):
        return _narrowed(w, value, found, lanes)
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


def _fits_packs(found: Rounded) -> bool:
    """Whether 16 bits hold a byte and what is added to it."""
    return found.kind.bits == 8 and abs(found.zero) <= 255


def _packed(w: FunctionWriter, value: str, found: Rounded) -> str:
    """Round a vector of AVX2 to bytes by instructions that saturate.

    ``vcvtps2dq`` makes NaN and what is too small the least integer, which saturates as it should;
    what is too large is limited before. ``vpackssdw`` and ``vpackuswb`` take the halves of the
    vector, so a vector takes six instructions. (LLVM truncates integers without saturation: by two
    limits, and two ``vpshufb`` for one ``vpackssdw``.)
    """
    lanes = _PACKED_LANES
    old, wide = register_type(_FLOAT, lanes), register_type(DType.INT32, lanes)
    signed = found.kind.is_signed
    if signed:
        value = _without_nan(w, value, found, lanes)
    most = _splat((127 if signed else 255) - found.zero, lanes)
    above = w.emit(f"fcmp ogt {old} {value}, {most}")
    value = w.emit(f"select {vector_type('i1', lanes)} {above}, {old} {most}, {old} {value}")
    convert = w.declarations.use(wide, "llvm.x86.avx.cvt.ps2dq.256", (old,))
    whole = w.emit(f"call {wide} {convert}({old} {value})")
    quarter, half, bytes_ = (
        vector_type(kind, n) for kind, n in (("i32", 4), ("i16", 8), ("i8", 16))
    )
    parts = [
        w.emit(f"shufflevector {wide} {whole}, {wide} poison, <4 x i32> <{indices}>")
        for indices in ("i32 0, i32 1, i32 2, i32 3", "i32 4, i32 5, i32 6, i32 7")
    ]
    pack = w.declarations.use(half, "llvm.x86.sse2.packssdw.128", (quarter, quarter))
    halves = w.emit(f"call {half} {pack}({quarter} {parts[0]}, {quarter} {parts[1]})")
    if found.zero:
        add = w.declarations.use(half, "llvm.sadd.sat.v8i16", (half, half))
        zero = splat(int_text(found.zero, DType.INT16), "i16", lanes)
        halves = w.emit(f"call {half} {add}({half} {halves}, {half} {zero})")
    name = f"llvm.x86.sse2.pack{'ss' if signed else 'us'}wb.128"
    narrow = w.declarations.use(bytes_, name, (half, half))
    packed = w.emit(f"call {bytes_} {narrow}({half} {halves}, {half} {halves})")
    first = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return w.emit(f"shufflevector {bytes_} {packed}, {bytes_} poison, <{lanes} x i32> <{first}>")


def _narrowed(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Convert by instructions of NEON, which saturate. NaN stays NaN when ``zero`` is added."""
    is_number = not math.isnan(bound_of(found.x))
    if not found.zero or (is_number and abs(found.zero) <= _MOST_ADDED):
        return emit_nearest(w, value, found.kind, found.zero, lanes)
    kind = register_type(_FLOAT, lanes)
    value = w.emit(f"fadd {kind} {_round(w, value, lanes)}, {_splat(found.zero, lanes)}")
    return emit_saturated(w, value, found.kind, lanes)


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
        value = _without_nan(w, value, found, lanes)
    for compare, limit in (("ogt", least), ("olt", most)):
        bound = _splat(limit - found.zero, lanes)
        inside = w.emit(f"fcmp {compare} {kind} {value}, {bound}")
        value = w.emit(f"select {flags} {inside}, {kind} {value}, {kind} {bound}")
    return value


def _without_nan(w: FunctionWriter, value: str, found: Rounded, lanes: int) -> str:
    """Replace NaN by what is stored as 0."""
    kind, flags = register_type(_FLOAT, lanes), vector_type("i1", lanes)
    known = w.emit(f"fcmp ord {kind} {value}, {value}")
    zero = _splat(-found.zero, lanes)
    return w.emit(f"select {flags} {known}, {kind} {value}, {kind} {zero}")


def _round(w: FunctionWriter, value: str, lanes: int) -> str:
    kind = register_type(_FLOAT, lanes)
    name = "llvm.rint" if w.declarations.bare else "llvm.roundeven"
    function = w.declarations.use(kind, f"{name}.{overload(_FLOAT, lanes)}", (kind,))
    return w.emit(f"call {kind} {function}({kind} {value})")


def _splat(value: int, lanes: int) -> str:
    scalar = register_type(_FLOAT)
    return splat(float_text(float(value), scalar), scalar, lanes)
