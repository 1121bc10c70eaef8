# SPDX-License-Identifier: Apache-2.0
"""Machine functions that LLVM has itself, and reductions over lanes."""

from __future__ import annotations

from collections.abc import Iterable

from intarsia_ir.tir.expr import BinaryOp, CallIntrinsic, CallTarget, ReduceLanes
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from ..functions import (
    ANGLE_REST,
    ANGLE_TURNS,
    DEINTERLEAVE,
    DOT,
    DOT_BY_PAIRS,
    DOT_OF_JOINED,
    DOT_OF_MAGNITUDES,
    DOT_OF_NARROW,
    DOT_OF_PAIRS,
    EXCHANGES,
    FUNCTIONS,
    LOAD_SIGNED_PAIR,
    LOAD_UNSIGNED_PAIR,
    LOAD_WORD,
    MAGNITUDES,
    MASKS,
    MULTIPLY_BYTES,
    MULTIPLY_PAIRS,
    PREFETCH,
    SCALE,
    SIGNED_DOT,
    SIGNED_DOT_BY_PAIRS,
    SIGNED_DOT_OF_NARROW,
    SIGNED_MATRIX,
    SPLATS,
)
from .arithmetic import emit_binary
from .conversions import emit_rounded
from .neon_dot import emit_signed_dot, emit_signed_dot_by_pairs
from .range_reduction import emit_far_angle
from .scale import emit_scale
from .signs import copy_sign
from .spelling import float_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

NATIVE = {
    Intrinsic.ABS: "llvm.fabs",
    Intrinsic.CEIL: "llvm.ceil",
    Intrinsic.FLOOR: "llvm.floor",
    Intrinsic.FMA: "llvm.fma",
    Intrinsic.ROUND: "llvm.roundeven",
    Intrinsic.SQRT: "llvm.sqrt",
    Intrinsic.TRUNC: "llvm.trunc",
}
"""Intrinsics that become one LLVM intrinsic; all others need a rule."""


def emit_intrinsic(w: FunctionWriter, call: CallIntrinsic, args: list[str]) -> str:
    """Write a machine function that has no rule.

    Raises:
        UnsupportedError: LLVM has no such function for the type.
    """
    first = call.args[0]
    kind = register_type(first.dtype, first.lanes)
    if call.intrinsic is Intrinsic.ISNAN and first.dtype.is_float:
        return w.emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
    if call.intrinsic is Intrinsic.ISINF and first.dtype.is_float:
        size = _call(w, "llvm.fabs", kind, overload(first.dtype, first.lanes), args)
        scalar = register_type(first.dtype)
        infinity = splat(float_text(float("inf"), scalar), scalar, first.lanes)
        return w.emit(f"fcmp oeq {kind} {size}, {infinity}")
    if call.intrinsic.keeps_bits:
        return w.emit(f"bitcast {kind} {args[0]} to {register_type(call.dtype, call.lanes)}")
    if call.intrinsic is Intrinsic.ABS and first.dtype.is_integer:
        if first.dtype.is_unsigned:
            return args[0]
        name = w.declarations.use(
            kind, f"llvm.abs.{overload(first.dtype, first.lanes)}", (kind, "i1")
        )
        return w.emit(f"call {kind} {name}({kind} {args[0]}, i1 false)")
    if call.intrinsic not in NATIVE or not first.dtype.is_float:
        raise UnsupportedError(f"intrinsic '{call.intrinsic.value}' of {first.dtype}")
    name = NATIVE[call.intrinsic]
    value = _call(w, name, kind, overload(first.dtype, first.lanes), args)
    return emit_rounded(w, value, first.dtype, first.lanes)


def _call(w: FunctionWriter, name: str, kind: str, suffix: str, args: list[str]) -> str:
    if name == "llvm.roundeven" and w.declarations.bare:
        name = "llvm.rint"  # C libraries of boards have no roundeven; nobody changes the mode there
    function = w.declarations.use(kind, f"{name}.{suffix}", (kind,) * len(args))
    return w.emit(f"call {kind} {function}({', '.join(f'{kind} {arg}' for arg in args)})")


def emit_target_call(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Write a call by LLVM's own name.

    Raises:
        UnsupportedError: The name is not one that this generator knows.
    """
    kind = register_type(call.dtype, call.lanes)
    if (
        call.kind != "llvm"
        or call.function not in FUNCTIONS
        or call.function in (PREFETCH, LOAD_WORD, LOAD_SIGNED_PAIR, LOAD_UNSIGNED_PAIR)
    ):
        raise UnsupportedError(
            f"the LLVM code generator has no function '{call.function}' of '{call.kind}'",
            hint=f"one of {', '.join(sorted(FUNCTIONS))}",
        )
    source = call.args[0]
    old = register_type(source.dtype, source.lanes)
    if call.function == "llvm.bitcast":
        return w.emit(f"bitcast {old} {args[0]} to {kind}")
    if call.function in (ANGLE_REST, ANGLE_TURNS):
        return emit_far_angle(w, args[0], call.lanes, quarter_turns=call.function == ANGLE_TURNS)
    if call.function == SCALE:
        return emit_scale(w, args, call.dtype, call.lanes)
    if call.function in EXCHANGES:
        return _exchange(w, call, args)
    if call.function in DEINTERLEAVE:
        first = DEINTERLEAVE.index(call.function)
        return _shuffled(w, call, args, range(first, 2 * call.lanes, 2))
    if call.function in SPLATS:
        lane = SPLATS.index(call.function)
        return _shuffled(w, call, [args[0], args[0]], (lane,) * call.lanes)
    if call.function == DOT:
        function = w.declarations.use(kind, f"{DOT}.{32 * call.lanes}", (kind,) * 3)
        return w.emit(f"call {kind} {function}({', '.join(f'{kind} {arg}' for arg in args)})")
    if call.function in (SIGNED_DOT, SIGNED_MATRIX):
        return emit_signed_dot(w, call, args)
    if call.function in (SIGNED_DOT_BY_PAIRS, SIGNED_DOT_OF_NARROW):
        return emit_signed_dot_by_pairs(w, call, args)
    if call.function == DOT_BY_PAIRS:
        return _dot_by_pairs(w, call, args)
    if call.function == DOT_OF_NARROW:
        return _dot_of_narrow(w, call, args)
    if call.function == DOT_OF_JOINED:
        return _dot_of_joined(w, call, args[0], list(zip(args[1:3], args[3:], strict=True)))
    if call.function in DOT_OF_MAGNITUDES:
        return _dot_of_magnitudes(w, call, args)
    if call.function in (MAGNITUDES, *MASKS):
        return _split(w, call, args[0])
    if call.function == DOT_OF_PAIRS:
        return _dot_of_pairs(w, call, args)
    if call.function == "llvm.fptosi":
        return w.emit(f"fptosi {old} {args[0]} to {kind}")
    if call.function == "llvm.copysign":
        return copy_sign(w, (args[0], args[1]), call.dtype, call.lanes)
    suffix = overload(call.dtype, call.lanes)
    if call.function in ("llvm.ctlz", "llvm.cttz"):
        function = w.declarations.use(kind, f"{call.function}.{suffix}", (kind, "i1"))
        return w.emit(f"call {kind} {function}({kind} {args[0]}, i1 false)")
    return _call(w, call.function, kind, suffix, args)


def _dot_by_pairs(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Widen the even and the odd bytes to 16 bits, in which no product and no pair overflows.

    The data are unsigned and the weights signed, as of ``vpdpbusd``; ``vpmaddubsw`` would do with
    half of the instructions, but saturates where two products pass 2^15.
    """
    total, data, weight = args
    lanes = call.lanes
    kind, half = vector_type("i32", lanes), vector_type("i16", 2 * lanes)
    eight = splat("8", "i16", 2 * lanes)

    def words(value: str) -> str:
        return w.once(f"bitcast {kind} {value} to {half}", value)

    data_even = words(w.once(f"and {kind} {data}, {splat('16711935', 'i32', lanes)}", data))
    data_odd = w.once(f"lshr {half} {words(data)}, {eight}", words(data))
    moved = w.once(f"shl {half} {words(weight)}, {eight}", words(weight))
    weight_even = w.once(f"ashr {half} {moved}, {eight}", moved)
    weight_odd = w.once(f"ashr {half} {words(weight)}, {eight}", words(weight))
    function = w.declarations.use(kind, MULTIPLY_PAIRS[lanes], (half, half))
    even = w.emit(f"call {kind} {function}({half} {data_even}, {half} {weight_even})")
    odd = w.emit(f"call {kind} {function}({half} {data_odd}, {half} {weight_odd})")
    both = w.emit(f"add {kind} {even}, {odd}")
    return w.emit(f"add {kind} {total}, {both}")


def _dot_of_pairs(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply halves of 32 bits, which were bytes, and add up pairs: no sum overflows."""
    total, data, weight = args
    lanes = call.lanes
    kind, half = vector_type("i32", lanes), vector_type("i16", 2 * lanes)
    halves = [w.once(f"bitcast {kind} {value} to {half}", value) for value in (data, weight)]
    function = w.declarations.use(kind, MULTIPLY_PAIRS[lanes], (half, half))
    both = w.emit(f"call {kind} {function}({half} {halves[0]}, {half} {halves[1]})")
    return w.emit(f"add {kind} {total}, {both}")


def _dot_of_narrow(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply bytes, and add up pairs twice: in 16 bits, which hold them, and in 32."""
    total, data, weight = args
    return _dot_of_joined(w, call, total, [(data, weight)])


def _dot_of_magnitudes(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply magnitudes by data that an XOR gives the signs of weights, as signed bytes."""
    count = len(args) // 3
    kind, (total, *data), right = (
        vector_type("i32", call.lanes),
        args[: count + 1],
        args[count + 1 :],
    )
    words = [
        (right[2 * n], w.emit(f"xor {kind} {word}, {right[2 * n + 1]}"))
        for n, word in enumerate(data)
    ]
    return _dot_of_joined(w, call, total, words)


def _split(w: FunctionWriter, call: CallTarget, word: str) -> str:
    """Take absolute values of bytes, or the mask that gives data their signs."""
    lanes = 4 * call.lanes
    kind, quarter = vector_type("i32", call.lanes), vector_type("i8", lanes)
    value = w.once(f"bitcast {kind} {word} to {quarter}", word)
    if call.function == MAGNITUDES:
        size = w.declarations.use(quarter, f"llvm.abs.v{lanes}i8", (quarter, "i1"))
        made = w.emit(f"call {quarter} {size}({quarter} {value}, i1 false)")
    else:
        made = w.emit(f"ashr {quarter} {value}, {splat('7', 'i8', lanes)}")
        if call.function == MASKS[0]:
            made = w.emit(f"xor {quarter} {made}, {splat('-128', 'i8', lanes)}")
    return w.emit(f"bitcast {quarter} {made} to {kind}")


def _dot_of_joined(
    w: FunctionWriter, call: CallTarget, total: str, words: list[tuple[str, str]]
) -> str:
    """Multiply words of unsigned by words of signed bytes; 16 bits hold the pairs of all words."""
    lanes = call.lanes
    kind, half = vector_type("i32", lanes), vector_type("i16", 2 * lanes)
    quarter = vector_type("i8", 4 * lanes)
    multiply = w.declarations.use(half, MULTIPLY_BYTES[lanes], (quarter, quarter))
    pairs = ""
    for word in words:
        left, right = (w.once(f"bitcast {kind} {value} to {quarter}", value) for value in word)
        product = w.emit(f"call {half} {multiply}({quarter} {left}, {quarter} {right})")
        pairs = w.emit(f"add {half} {pairs}, {product}") if pairs else product
    add_up = w.declarations.use(kind, MULTIPLY_PAIRS[lanes], (half, half))
    ones = splat("1", "i16", 2 * lanes)
    both = w.emit(f"call {kind} {add_up}({half} {pairs}, {half} {ones})")
    return w.emit(f"add {kind} {total}, {both}")


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
    kind = register_type(call.dtype, call.lanes)
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return w.emit(
        f"shufflevector {kind} {args[0]}, {kind} {args[1]}, <{call.lanes} x i32> <{mask}>"
    )


_FLOAT_REDUCE = {
    BinaryOp.ADD: ("fadd", -0.0),
    BinaryOp.MUL: ("fmul", 1.0),
    BinaryOp.MIN: ("fminimum", None),
    BinaryOp.MAX: ("fmaximum", None),
}
_INT_REDUCE = {
    BinaryOp.ADD: "add",
    BinaryOp.MUL: "mul",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
}


def emit_reduction(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Write a combination of all lanes; sums pair up lanes rather than go from left to right.

    Raises:
        UnsupportedError: The operator does not combine lanes of this type.
    """
    lanes, dtype = expr.value.lanes, expr.dtype
    scalar, kind = register_type(dtype), register_type(dtype, lanes)
    suffix = overload(dtype, lanes)
    if dtype.is_float and expr.op in _FLOAT_REDUCE:
        name, start = _FLOAT_REDUCE[expr.op]
        if start is None and (w.declarations.bare or lanes & (lanes - 1)):
            return _fold_lanes(w, expr, value)
        if start is None:
            return _fold_halves(w, expr, value)
        symbol = f"llvm.vector.reduce.{name}.{suffix}"
        function = w.declarations.use(scalar, symbol, (scalar, kind))
        first = f"{scalar} {float_text(start, scalar)}"
        result = w.emit(f"call reassoc {scalar} {function}({first}, {kind} {value})")
        return emit_rounded(w, result, dtype, 1)
    if not dtype.is_float and expr.op in _INT_REDUCE:
        name = _INT_REDUCE[expr.op]
        if dtype is DType.BOOL:
            name = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(name, name)
        elif expr.op in (BinaryOp.MIN, BinaryOp.MAX):
            name = ("s" if dtype.is_signed else "u") + name
        function = w.declarations.use(scalar, f"llvm.vector.reduce.{name}.{suffix}", (kind,))
        return w.emit(f"call {scalar} {function}({vector_type(scalar, lanes)} {value})")
    raise UnsupportedError(f"'{expr.op.value}' over the lanes of a vector of {dtype}")


_REGISTER_LANES = 16


def _fold_halves(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Find an extreme by halves: one comparison each below a register, NaN being looked for once.

    LLVM's reductions order zeros by their signs, which takes longer than all the rest.
    """
    dtype, lanes = expr.dtype, expr.value.lanes
    scalar, nan = register_type(dtype), ""
    compare = "olt" if expr.op is BinaryOp.MIN else "ogt"
    while lanes > 1:
        kind, half = register_type(dtype, lanes), register_type(dtype, lanes // 2)
        if lanes <= _REGISTER_LANES and not nan:
            flags = w.emit(f"fcmp uno {kind} {value}, {value}")
            whole = w.emit(f"bitcast {vector_type('i1', lanes)} {flags} to i{lanes}")
            nan = w.emit(f"icmp ne i{lanes} {whole}, 0")
        parts = [_half(w, value, kind, lanes, first) for first in (0, lanes // 2)]
        lanes //= 2
        if nan:
            flag = w.emit(f"fcmp {compare} {half} {parts[0]}, {parts[1]}")
            value = w.emit(
                f"select {vector_type('i1', lanes)} {flag}, {half} {parts[0]}, {half} {parts[1]}"
            )
        else:
            value = emit_binary(w, expr.op, parts[0], parts[1], dtype, lanes)
    wrong = float_text(float("nan"), scalar)
    return w.emit(f"select i1 {nan}, {scalar} {wrong}, {scalar} {value}")


def _half(w: FunctionWriter, value: str, kind: str, lanes: int, first: int) -> str:
    if lanes == 2:
        return w.emit(f"extractelement {kind} {value}, i64 {first}")
    mask = ", ".join(f"i32 {lane}" for lane in range(first, first + lanes // 2))
    return w.emit(f"shufflevector {kind} {value}, {kind} poison, <{lanes // 2} x i32> <{mask}>")


def _fold_lanes(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Combine lanes one by one: without a unit for floats LLVM calls what C libraries lack yet."""
    kind = register_type(expr.dtype, expr.value.lanes)
    total = ""
    for lane in range(expr.value.lanes):
        element = w.emit(f"extractelement {kind} {value}, i64 {lane}")
        total = emit_binary(w, expr.op, total, element, expr.dtype, 1) if total else element
    return total
