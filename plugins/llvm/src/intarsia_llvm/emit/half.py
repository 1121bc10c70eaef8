# SPDX-License-Identifier: Apache-2.0
"""The 16-bit floats: to and from ``float``, as bits in ``i16``."""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .spelling import float_text, overload, splat, vector_type
from .writer import FunctionWriter


def _flags(lanes: int) -> str:
    return vector_type("i1", lanes)


def _number(constant: int, lanes: int) -> str:
    return splat(str(constant), "i32", lanes)


def narrow_to_half(w: FunctionWriter, value: str, lanes: int) -> str:
    """Round ``float`` to float16 bits (``i16``), to nearest even; NaN stays NaN."""
    if not w.declarations.half:
        return _narrow_by_bits(w, value, lanes)
    short = vector_type("i16", lanes)
    return w.emit(
        f"bitcast {vector_type('half', lanes)} {float_to_half(w, value, lanes)} to {short}"
    )


def float_to_half(w: FunctionWriter, value: str, lanes: int) -> str:
    """Round ``float`` to LLVM's ``half``, where the machine converts float16."""
    full, half = (vector_type(t, lanes) for t in ("float", "half"))
    return w.emit(f"fptrunc {full} {value} to {half}")


def half_to_float(w: FunctionWriter, value: str, lanes: int) -> str:
    """Return LLVM's ``half`` as ``float``, where the machine converts float16."""
    full, half = (vector_type(t, lanes) for t in ("float", "half"))
    return w.emit(f"fpext {half} {value} to {full}")


def _narrow_by_bits(w: FunctionWriter, value: str, lanes: int) -> str:
    full, wide, short = (vector_type(t, lanes) for t in ("float", "i32", "i16"))
    flags = _flags(lanes)
    bits = w.emit(f"bitcast {full} {value} to {wide}")
    size = w.emit(f"and {wide} {bits}, {_number(0x7FFFFFFF, lanes)}")
    # Adding 0.5 to what is below 2**-14 lets the adder round it to a subnormal.
    small = w.emit(f"bitcast {wide} {size} to {full}")
    moved = w.emit(f"fadd {full} {small}, {splat(float_text(0.5, 'float'), 'float', lanes)}")
    moved_bits = w.emit(f"bitcast {full} {moved} to {wide}")
    subnormal = w.emit(f"sub {wide} {moved_bits}, {_number(0x3F000000, lanes)}")
    high = w.emit(f"lshr {wide} {size}, {_number(13, lanes)}")
    odd = w.emit(f"and {wide} {high}, {_number(1, lanes)}")
    biased = w.emit(f"add {wide} {size}, {_number(0xFFF - (112 << 23), lanes)}")
    rounded = w.emit(f"add {wide} {biased}, {odd}")
    normal = w.emit(f"lshr {wide} {rounded}, {_number(13, lanes)}")
    tiny = w.emit(f"icmp ult {wide} {size}, {_number(0x38800000, lanes)}")
    result = w.emit(f"select {flags} {tiny}, {wide} {subnormal}, {wide} {normal}")
    huge = w.emit(f"icmp uge {wide} {size}, {_number(0x477FF000, lanes)}")
    result = w.emit(f"select {flags} {huge}, {wide} {_number(0x7C00, lanes)}, {wide} {result}")
    nan = w.emit(f"icmp ugt {wide} {size}, {_number(0x7F800000, lanes)}")
    result = w.emit(f"select {flags} {nan}, {wide} {_number(0x7E00, lanes)}, {wide} {result}")
    shifted = w.emit(f"lshr {wide} {bits}, {_number(16, lanes)}")
    sign = w.emit(f"and {wide} {shifted}, {_number(0x8000, lanes)}")
    signed = w.emit(f"or {wide} {sign}, {result}")
    return w.emit(f"trunc {wide} {signed} to {short}")


def widen_half(w: FunctionWriter, value: str, lanes: int) -> str:
    """Return float16 bits (``i16``) as ``float``."""
    full, wide, short = (vector_type(t, lanes) for t in ("float", "i32", "i16"))
    if w.declarations.half:
        half = vector_type("half", lanes)
        return half_to_float(w, w.emit(f"bitcast {short} {value} to {half}"), lanes)
    bits = w.emit(f"zext {short} {value} to {wide}")
    size = w.emit(f"and {wide} {bits}, {_number(0x7FFF, lanes)}")
    moved = w.emit(f"shl {wide} {size}, {_number(13, lanes)}")
    # Scaling by 2**112 puts the exponent right, subnormals included.
    small = w.emit(f"bitcast {wide} {moved} to {full}")
    scale = splat(float_text(2.0**112, "float"), "float", lanes)
    scaled = w.emit(f"fmul {full} {small}, {scale}")
    scaled_bits = w.emit(f"bitcast {full} {scaled} to {wide}")
    special = w.emit(f"icmp uge {wide} {size}, {_number(0x7C00, lanes)}")
    kept = w.emit(f"or {wide} {moved}, {_number(0x7F800000, lanes)}")
    chosen = w.emit(f"select {_flags(lanes)} {special}, {wide} {kept}, {wide} {scaled_bits}")
    sign = w.emit(f"and {wide} {bits}, {_number(0x8000, lanes)}")
    signed = w.emit(f"shl {wide} {sign}, {_number(16, lanes)}")
    result = w.emit(f"or {wide} {chosen}, {signed}")
    return w.emit(f"bitcast {wide} {result} to {full}")


def narrow_to_bfloat(w: FunctionWriter, value: str, lanes: int) -> str:
    """Round ``float`` to bfloat16 bits (``i16``), to nearest even; NaN stays NaN."""
    full, wide, short = (vector_type(t, lanes) for t in ("float", "i32", "i16"))
    if w.declarations.bfloat:
        brain = vector_type("bfloat", lanes)
        narrow = w.emit(f"fptrunc {full} {value} to {brain}")
        return w.emit(f"bitcast {brain} {narrow} to {short}")
    bits = w.emit(f"bitcast {full} {value} to {wide}")
    high = w.emit(f"lshr {wide} {bits}, {splat('16', 'i32', lanes)}")
    odd = w.emit(f"and {wide} {high}, {splat('1', 'i32', lanes)}")
    bias = w.emit(f"add {wide} {odd}, {splat('32767', 'i32', lanes)}")
    rounded = w.emit(f"add {wide} {bits}, {bias}")
    top = w.emit(f"lshr {wide} {rounded}, {splat('16', 'i32', lanes)}")
    quiet = w.emit(f"or {wide} {high}, {splat('64', 'i32', lanes)}")
    nan = w.emit(f"fcmp uno {full} {value}, {value}")
    chosen = w.emit(f"select {_flags(lanes)} {nan}, {wide} {quiet}, {wide} {top}")
    return w.emit(f"trunc {wide} {chosen} to {short}")


def widen_bfloat(w: FunctionWriter, value: str, lanes: int) -> str:
    """Return bfloat16 bits (``i16``) as ``float``."""
    full, wide, short = (vector_type(t, lanes) for t in ("float", "i32", "i16"))
    bits = w.emit(f"zext {short} {value} to {wide}")
    shifted = w.emit(f"shl {wide} {bits}, {splat('16', 'i32', lanes)}")
    return w.emit(f"bitcast {wide} {shifted} to {full}")


def narrow_to_odd(w: FunctionWriter, value: str, lanes: int) -> str:
    """Narrow ``double`` to the neighbouring ``float`` with an odd last bit, unless one is equal.

    Rounding that once more to a shorter type gives what rounding once would have given.
    """
    wide, full, bits = (vector_type(t, lanes) for t in ("double", "float", "i32"))
    one = splat("1", "i32", lanes)
    narrow = w.emit(f"fptrunc {wide} {value} to {full}")
    back = w.emit(f"fpext {full} {narrow} to {wide}")
    inexact = w.emit(f"fcmp one {wide} {back}, {value}")
    fabs = w.declarations.use(wide, f"llvm.fabs.{overload(DType.FLOAT64, lanes)}", (wide,))
    size = w.emit(f"call {wide} {fabs}({wide} {value})")
    found = w.emit(f"call {wide} {fabs}({wide} {back})")
    away = w.emit(f"fcmp ogt {wide} {found}, {size}")
    pattern = w.emit(f"bitcast {full} {narrow} to {bits}")
    less = w.emit(f"sub {bits} {pattern}, {one}")
    towards_zero = w.emit(f"select {_flags(lanes)} {away}, {bits} {less}, {bits} {pattern}")
    odd = w.emit(f"or {bits} {towards_zero}, {one}")
    chosen = w.emit(f"select {_flags(lanes)} {inexact}, {bits} {odd}, {bits} {pattern}")
    return w.emit(f"bitcast {bits} {chosen} to {full}")
