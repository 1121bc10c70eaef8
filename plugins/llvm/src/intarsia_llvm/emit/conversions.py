# SPDX-License-Identifier: Apache-2.0
"""Conversions between element types, as the loop IR defines them."""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .half import narrow_to_bfloat, narrow_to_half, narrow_to_odd, widen_bfloat, widen_half
from .neon_narrow import emit_saturated, narrows
from .spelling import float_text, int_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter


def emit_rounded(w: FunctionWriter, value: str, dtype: DType, lanes: int) -> str:
    """Round a register value to a 16-bit float type; other types pass."""
    if dtype is DType.FLOAT16:
        return widen_half(w, narrow_to_half(w, value, lanes), lanes)
    if dtype is DType.BFLOAT16:
        return widen_bfloat(w, narrow_to_bfloat(w, value, lanes), lanes)
    return value


def emit_cast(w: FunctionWriter, value: str, source: DType, target: DType, lanes: int) -> str:
    """Convert between element types as :class:`~intarsia_ir.tir.expr.Cast` says."""
    old, new = register_type(source, lanes), register_type(target, lanes)
    if source.is_float and target.is_float:
        if source is DType.FLOAT64 and target is DType.FLOAT16:
            return emit_rounded(w, narrow_to_odd(w, value, lanes), target, lanes)
        if old != new:
            change = "fptrunc" if source is DType.FLOAT64 else "fpext"
            value = w.emit(f"{change} {old} {value} to {new}")
        return emit_rounded(w, value, target, lanes)
    if target is DType.BOOL:
        compare = "fcmp une" if source.is_float else "icmp ne"
        return w.emit(
            f"{compare} {old} {value}, {'zeroinitializer' if lanes > 1 else _zero(source)}"
        )
    if source is not DType.FLOAT64 and source.is_float and target.bits <= 32 and narrows(w, lanes):
        return emit_saturated(w, value, target, lanes)
    if source.is_float and target.bits < 32:
        return _narrowed(w, value, (source, target), lanes)
    if source.is_float and lanes > 1:
        return _saturated(w, value, (source, target), lanes)
    if source.is_float:
        name = "llvm.fptosi.sat" if target.is_signed else "llvm.fptoui.sat"
        suffix = f"{overload(target, lanes)}.{overload(source, lanes)}"
        function = w.declarations.use(new, f"{name}.{suffix}", (old,))
        return w.emit(f"call {new} {function}({old} {value})")
    if target.is_float:
        change = "sitofp" if source.is_signed else "uitofp"
        return emit_rounded(w, w.emit(f"{change} {old} {value} to {new}"), target, lanes)
    if source is not DType.BOOL and source.bits == target.bits:
        return value
    if source is not DType.BOOL and source.bits > target.bits:
        return w.emit(f"trunc {old} {value} to {new}")
    return w.emit(f"{'sext' if source.is_signed else 'zext'} {old} {value} to {new}")


def _zero(dtype: DType) -> str:
    return float_text(0.0, register_type(dtype)) if dtype.is_float else "0"


def _at_least(w: FunctionWriter, value: str, least: float, source: DType, lanes: int) -> str:
    """The value, ``least`` if it is less, and 0 if it is NaN; ``least`` is 0 or negative."""
    old, flags = register_type(source, lanes), vector_type("i1", lanes)
    scalar = register_type(source)
    low, zero = (splat(float_text(n, scalar), scalar, lanes) for n in (least, 0.0))
    if least:  # else what is not above 0 becomes 0 anyway
        known = w.emit(f"fcmp ord {old} {value}, {value}")
        value = w.emit(f"select {flags} {known}, {old} {value}, {old} {zero}")
    above = w.emit(f"fcmp ogt {old} {value}, {low}")
    return w.emit(f"select {flags} {above}, {old} {value}, {old} {low}")


def _saturated(w: FunctionWriter, value: str, types: tuple[DType, DType], lanes: int) -> str:
    """Convert floats to integers of 32 or 64 bits, limits and NaN looked after in vectors.

    LLVM's saturating conversion of a vector goes lane by lane on x86.
    """
    source, target = types
    old, new = (register_type(kind, lanes) for kind in types)
    scalar, flags = register_type(source), vector_type("i1", lanes)
    beyond = 2.0 ** (target.bits - 1 if target.is_signed else target.bits)
    value = _at_least(w, value, -beyond if target.is_signed else 0.0, source, lanes)
    limit = splat(float_text(beyond, scalar), scalar, lanes)
    over = w.emit(f"fcmp oge {old} {value}, {limit}")
    whole = w.emit(f"{'fptosi' if target.is_signed else 'fptoui'} {old} {value} to {new}")
    most = splat(int_text(int(beyond) - 1, target), register_type(target), lanes)
    return w.emit(f"select {flags} {over}, {new} {most}, {new} {whole}")


def _narrowed(w: FunctionWriter, value: str, types: tuple[DType, DType], lanes: int) -> str:
    """Convert a float to a small integer by way of one of 32 bits.

    LLVM has vector code for that; saturating conversion to 8 bits it does one by one.
    """
    source, target = types
    old, wide, new = (register_type(kind, lanes) for kind in (source, DType.INT32, target))
    scalar, flags = register_type(source), vector_type("i1", lanes)
    beyond = 2.0 ** (target.bits - 1 if target.is_signed else target.bits)
    value = _at_least(w, value, -beyond if target.is_signed else 0.0, source, lanes)
    most = splat(float_text(beyond - 1, scalar), scalar, lanes)
    below = w.emit(f"fcmp olt {old} {value}, {most}")
    value = w.emit(f"select {flags} {below}, {old} {value}, {old} {most}")
    whole = w.emit(f"fptosi {old} {value} to {wide}")
    return w.emit(f"trunc {wide} {whole} to {new}")
