# SPDX-License-Identifier: Apache-2.0
"""Calls by LLVM's own name, which schedules write where LLVM has an instruction for a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from intarsia_ir.tir.expr import CallTarget
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from ..functions import (
    ANGLE_REST,
    ANGLE_TURNS,
    BF16_DOT,
    BF16_DOT_X86,
    BF16_MATRIX,
    DEINTERLEAVE,
    DOT,
    DOT_BY_PAIRS,
    DOT_OF_JOINED,
    DOT_OF_MAGNITUDES,
    DOT_OF_NARROW,
    DOT_OF_PAIRS,
    EXCHANGES,
    FUNCTIONS,
    HALF_FMA,
    LOAD_SIGNED_PAIR,
    LOAD_UNSIGNED_PAIR,
    LOAD_WORD,
    LOOK_UP,
    MAGNITUDES,
    MASKS,
    PREFETCH,
    SCALE,
    SIGNED_DOT,
    SIGNED_DOT_BY_PAIRS,
    SIGNED_DOT_OF_NARROW,
    SIGNED_MATRIX,
    SPLATS,
    UNSIGNED_DOT,
    UNSIGNED_MATRIX,
)
from .builtin import emit_native_call
from .byte_dots import (
    emit_dot,
    emit_dot_by_pairs,
    emit_dot_of_joined,
    emit_dot_of_magnitudes,
    emit_dot_of_narrow,
    emit_dot_of_pairs,
    emit_magnitudes_or_mask,
)
from .half import float_to_half, half_to_float
from .neon_dot import emit_bf16_dot, emit_signed_dot, emit_signed_dot_by_pairs
from .range_reduction import emit_far_angle
from .scale import emit_scale
from .signs import copy_sign
from .spelling import overload, register_type, vector_type
from .writer import FunctionWriter

WriteCall: TypeAlias = Callable[[FunctionWriter, CallTarget, list[str]], str]
"""``write(w, call, args)``: write a call on values; returns the result's value."""

_VECTOR_BITS = 128  # of NEON

_OF_LOADS = (PREFETCH, LOAD_WORD, LOAD_SIGNED_PAIR, LOAD_UNSIGNED_PAIR, LOOK_UP)
"""Calls that have a place for an argument, and no value (:mod:`.expressions`)."""


def emit_target_call(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Write a call by LLVM's own name.

    Raises:
        UnsupportedError: The name is not one that this generator knows.
    """
    if call.kind != "llvm" or call.function not in FUNCTIONS or call.function in _OF_LOADS:
        raise UnsupportedError(
            f"the LLVM code generator has no function '{call.function}' of '{call.kind}'",
            hint=f"one of {', '.join(sorted(FUNCTIONS))}",
        )
    return _WRITERS.get(call.function, _native)(w, call, args)


def _native(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    kind = register_type(call.dtype, call.lanes)
    return emit_native_call(w, call.function, kind, overload(call.dtype, call.lanes), args)


def _count_zeros(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Count zeros at an end of an integer; as many as it has bits if all are zeros."""
    kind = register_type(call.dtype, call.lanes)
    name = f"{call.function}.{overload(call.dtype, call.lanes)}"
    function = w.declarations.use(kind, name, (kind, "i1"))
    return w.emit(f"call {kind} {function}({kind} {args[0]}, i1 false)")


def _converted(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    source, kind = call.args[0], register_type(call.dtype, call.lanes)
    old = register_type(source.dtype, source.lanes)
    return w.emit(f"{call.function.removeprefix('llvm.')} {old} {args[0]} to {kind}")


def _copy_sign(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    return copy_sign(w, (args[0], args[1]), call.dtype, call.lanes)


def _far_angle(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    return emit_far_angle(w, args[0], call.lanes, quarter_turns=call.function == ANGLE_TURNS)


def _scale(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    return emit_scale(w, args, call.dtype, call.lanes)


def _deinterleave(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    return _shuffled(w, call, args, range(DEINTERLEAVE.index(call.function), 2 * call.lanes, 2))


def _splat(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    return _shuffled(w, call, [args[0], args[0]], (SPLATS.index(call.function),) * call.lanes)


def _half_fma(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply and add in float16, not in the floats that hold it in registers."""
    lanes = call.lanes
    half, suffix = vector_type("half", lanes), f"v{lanes}f16" if lanes > 1 else "f16"
    a, b, total = (float_to_half(w, arg, lanes) for arg in args)
    function = w.declarations.use(half, f"llvm.fma.{suffix}", (half,) * 3)
    made = w.emit(f"call {half} {function}({half} {a}, {half} {b}, {half} {total})")
    return half_to_float(w, made, lanes)


def _exchange(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    half, block = call.function.split(".")[2:]
    size, lanes = int(block), call.lanes
    shift = 0 if half == "low" else size
    mask = [
        lane + shift if lane & size == 0 else lanes + lane - size + shift for lane in range(lanes)
    ]
    return _shuffled(w, call, args, mask)


def _shuffled(w: FunctionWriter, call: CallTarget, args: list[str], lanes: Iterable[int]) -> str:
    """Write a vector of lanes of two, those of the second counted behind those of the first."""
    kind, mask = register_type(call.dtype, call.lanes), tuple(lanes)
    if not w.declarations.narrows:
        return _shuffle(w, kind, args, mask)
    if call.dtype is DType.FLOAT16:  # what widens lanes before and narrows them behind cancels out
        halves = [float_to_half(w, arg, call.lanes) for arg in args]
        return half_to_float(
            w, _shuffle(w, vector_type("half", call.lanes), halves, mask), call.lanes
        )
    is_whole = call.lanes * call.dtype.bits == _VECTOR_BITS and call.dtype is not DType.BFLOAT16
    if is_whole and mask in _halves_of(call.lanes):
        return _zip(w, kind, args, _halves_of(call.lanes).index(mask))
    return _shuffle(w, kind, args, mask)


def _halves_of(lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the masks of the first halves of two vectors, and of the second ones."""
    low = (*range(lanes // 2), *range(lanes, lanes + lanes // 2))
    return low, tuple(lane + lanes // 2 for lane in low)


def _zip(w: FunctionWriter, kind: str, args: list[str], half: int) -> str:
    """Join halves of NEON's vectors by ``ZIP1`` or ``ZIP2``; LLVM would move one to a copy."""
    pair = vector_type("i64", 2)
    both = [w.once(f"bitcast {kind} {arg} to {pair}", arg) for arg in args]
    made = _shuffle(w, pair, both, (half, half + 2))
    return w.emit(f"bitcast {pair} {made} to {kind}")


def _shuffle(w: FunctionWriter, kind: str, args: list[str], lanes: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return w.emit(
        f"shufflevector {kind} {args[0]}, {kind} {args[1]}, <{len(lanes)} x i32> <{mask}>"
    )


_WRITERS: Mapping[str, WriteCall] = MappingProxyType(
    {
        **dict.fromkeys(("llvm.bitcast", "llvm.fptosi"), _converted),
        **dict.fromkeys(("llvm.ctlz", "llvm.cttz"), _count_zeros),
        "llvm.copysign": _copy_sign,
        **dict.fromkeys((ANGLE_REST, ANGLE_TURNS), _far_angle),
        SCALE: _scale,
        HALF_FMA: _half_fma,
        **dict.fromkeys(EXCHANGES, _exchange),
        **dict.fromkeys(DEINTERLEAVE, _deinterleave),
        **dict.fromkeys(SPLATS, _splat),
        DOT: emit_dot,
        **dict.fromkeys(
            (SIGNED_DOT, SIGNED_MATRIX, UNSIGNED_DOT, UNSIGNED_MATRIX), emit_signed_dot
        ),
        **dict.fromkeys((BF16_DOT, BF16_DOT_X86, BF16_MATRIX), emit_bf16_dot),
        **dict.fromkeys((SIGNED_DOT_BY_PAIRS, SIGNED_DOT_OF_NARROW), emit_signed_dot_by_pairs),
        DOT_BY_PAIRS: emit_dot_by_pairs,
        DOT_OF_NARROW: emit_dot_of_narrow,
        DOT_OF_JOINED: emit_dot_of_joined,
        **dict.fromkeys(DOT_OF_MAGNITUDES, emit_dot_of_magnitudes),
        **dict.fromkeys((MAGNITUDES, *MASKS), emit_magnitudes_or_mask),
        DOT_OF_PAIRS: emit_dot_of_pairs,
    }
)
"""What writes a call, by its name; all others are one call of LLVM's function."""
