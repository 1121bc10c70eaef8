# SPDX-License-Identifier: Apache-2.0
"""Sums of four products of bytes on x86: one instruction with VNNI, and what stands for it without.

``ordered_words.py`` of the loops says which of them are for which weights.
"""

from __future__ import annotations

from intarsia_ir.tir.expr import CallTarget

from ..functions import DOT, MAGNITUDES, MASKS, MULTIPLY_BYTES, MULTIPLY_PAIRS
from .spelling import register_type, splat, vector_type
from .writer import FunctionWriter


def emit_dot(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply bytes and add up four products, by one instruction of VNNI."""
    kind = register_type(call.dtype, call.lanes)
    function = w.declarations.use(kind, f"{DOT}.{32 * call.lanes}", (kind,) * 3)
    return w.emit(f"call {kind} {function}({', '.join(f'{kind} {arg}' for arg in args)})")


def emit_dot_by_pairs(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
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


def emit_dot_of_pairs(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply halves of 32 bits, which were bytes, and add up pairs: no sum overflows."""
    total, data, weight = args
    lanes = call.lanes
    kind, half = vector_type("i32", lanes), vector_type("i16", 2 * lanes)
    halves = [w.once(f"bitcast {kind} {value} to {half}", value) for value in (data, weight)]
    function = w.declarations.use(kind, MULTIPLY_PAIRS[lanes], (half, half))
    both = w.emit(f"call {kind} {function}({half} {halves[0]}, {half} {halves[1]})")
    return w.emit(f"add {kind} {total}, {both}")


def emit_dot_of_narrow(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply bytes, and add up pairs twice: in 16 bits, which hold them, and in 32."""
    total, data, weight = args
    return _dot_of_joined(w, call, total, [(data, weight)])


def emit_dot_of_magnitudes(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
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


def emit_magnitudes_or_mask(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Take absolute values of bytes, or the mask that gives data their signs."""
    lanes = 4 * call.lanes
    kind, quarter = vector_type("i32", call.lanes), vector_type("i8", lanes)
    (word,) = args
    value = w.once(f"bitcast {kind} {word} to {quarter}", word)
    if call.function == MAGNITUDES:
        size = w.declarations.use(quarter, f"llvm.abs.v{lanes}i8", (quarter, "i1"))
        made = w.emit(f"call {quarter} {size}({quarter} {value}, i1 false)")
    else:
        made = w.emit(f"ashr {quarter} {value}, {splat('7', 'i8', lanes)}")
        if call.function == MASKS[0]:
            made = w.emit(f"xor {quarter} {made}, {splat('-128', 'i8', lanes)}")
    return w.emit(f"bitcast {quarter} {made} to {kind}")


def emit_dot_of_joined(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply two words of data by two of weights."""
    return _dot_of_joined(w, call, args[0], list(zip(args[1:3], args[3:], strict=True)))


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
