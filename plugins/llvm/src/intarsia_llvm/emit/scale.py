# SPDX-License-Identifier: Apache-2.0
"""Floats times powers of two: one instruction of AVX-512, or two products."""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .spelling import register_type, splat, vector_type
from .writer import FunctionWriter

_REGISTER_BITS = 512
_LEAST_BITS = 128


def emit_scale(w: FunctionWriter, args: list[str], dtype: DType, lanes: int) -> str:
    """Write ``value * 2**n``, which may be infinite or subnormal.

    Args:
        w: Where to write.
        args: ``value``; ``n`` as a whole float; and as an integer of its width.
        dtype: float32 or float64.
        lanes: Elements of each.
    """
    value, whole, number = args
    if w.declarations.scale:
        return _instructions(w, (value, whole), dtype, lanes)
    mantissa, bias = (23, 127) if dtype is DType.FLOAT32 else (52, 1023)
    kind, integer = register_type(dtype, lanes), vector_type(f"i{dtype.bits}", lanes)
    one, shift, zero = (splat(str(n), f"i{dtype.bits}", lanes) for n in (1, mantissa, bias))
    # Two steps: a subnormal result, or one near the largest, has no single power in between.
    half = w.emit(f"ashr {integer} {number}, {one}")
    rest = w.emit(f"sub {integer} {number}, {half}")
    for part in (half, rest):
        biased = w.emit(f"add {integer} {part}, {zero}")
        bits = w.emit(f"shl {integer} {biased}, {shift}")
        power = w.emit(f"bitcast {integer} {bits} to {kind}")
        value = w.emit(f"fmul {kind} {value}, {power}")
    return value


def _instructions(w: FunctionWriter, args: tuple[str, str], dtype: DType, lanes: int) -> str:
    """Write an instruction for each register that the lanes fill, or fill in part."""
    scalar = register_type(dtype)
    size = _LEAST_BITS // dtype.bits
    while size < lanes and size * dtype.bits < _REGISTER_BITS:
        size *= 2
    count = -(-lanes // size)
    wide = [_widened(w, arg, scalar, lanes, size * count) for arg in args]
    if count == 1:
        result = _register(w, (wide[0], wide[1]), scalar, size)
    else:
        result = "poison"
        for first in range(0, size * count, size):
            parts = [_part(w, arg, scalar, (first, size), size * count) for arg in wide]
            made = _register(w, (parts[0], parts[1]), scalar, size)
            result = _joined(w, result, made, scalar, (first, size), size * count)
    if lanes == 1:
        return w.emit(f"extractelement {vector_type(scalar, size)} {result}, i64 0")
    return w.chosen(result, scalar, size * count, range(lanes))


def _register(w: FunctionWriter, args: tuple[str, str], scalar: str, size: int) -> str:
    """Write one instruction, on every lane of a register, rounding as always."""
    kind, mask = vector_type(scalar, size), f"i{max(8, size)}"
    bits = size * (32 if scalar == "float" else 64)
    name = f"llvm.x86.avx512.mask.scalef.p{'s' if scalar == 'float' else 'd'}.{bits}"
    types = (kind, kind, kind, mask) + (("i32",) if bits == _REGISTER_BITS else ())
    function = w.declarations.use(kind, name, types)
    rounding = ", i32 4" if bits == _REGISTER_BITS else ""
    operands = f"{kind} {args[0]}, {kind} {args[1]}, {kind} poison, {mask} -1{rounding}"
    return w.emit(f"call {kind} {function}({operands})")


def _widened(w: FunctionWriter, value: str, scalar: str, lanes: int, size: int) -> str:
    if lanes == 1:
        return w.emit(f"insertelement {vector_type(scalar, size)} poison, {scalar} {value}, i64 0")
    return w.chosen(value, scalar, lanes, [lane if lane < lanes else 0 for lane in range(size)])


def _part(w: FunctionWriter, value: str, scalar: str, place: tuple[int, int], lanes: int) -> str:
    first, size = place
    return w.chosen(value, scalar, lanes, range(first, first + size))


def _joined(
    w: FunctionWriter, result: str, part: str, scalar: str, place: tuple[int, int], lanes: int
) -> str:
    """Write ``part`` over the lanes of ``result`` from its first on."""
    first, size = place
    part = w.chosen(part, scalar, size, [lane % size for lane in range(lanes)])
    if result == "poison":
        return part
    kind = vector_type(scalar, lanes)
    mask = ", ".join(
        f"i32 {lane + lanes if first <= lane < first + size else lane}" for lane in range(lanes)
    )
    return w.emit(f"shufflevector {kind} {result}, {kind} {part}, <{lanes} x i32> <{mask}>")
