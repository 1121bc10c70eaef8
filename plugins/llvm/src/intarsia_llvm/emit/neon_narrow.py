# SPDX-License-Identifier: Apache-2.0
"""Floats that become small integers on NEON, whose conversions saturate and give 0 for NaN.

``FCVTNS`` and ``FCVTZS`` saturate to 32 bits and ``SQXTN`` to half as many, so no float is compared
with limits. Two vectors of sums become eight bytes by five instructions: a conversion of each,
``SQXTN``, ``SQXTN2``, ``SQXTN``; one alone takes three for four bytes.
"""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .spelling import register_type, vector_type
from .writer import FunctionWriter

_LANES = 4  # of a vector of 32-bit elements


def narrows(w: FunctionWriter, lanes: int) -> bool:
    """Whether vectors of so many lanes are narrowed by instructions that saturate."""
    return w.declarations.narrows and lanes >= _LANES and lanes & (lanes - 1) == 0


def emit_saturated(
    w: FunctionWriter, value: str, kind: DType, lanes: int, *, nearest: bool = False
) -> str:
    """Convert float32 to an integer of at most 32 bits, which saturates; NaN gives 0.

    Args:
        w: Of the function.
        value: The floats.
        kind: The integer.
        lanes: A number that :func:`narrows` takes.
        nearest: Whether to round to the nearest integer, ties to even, instead of towards zero.
    """
    old, sign = register_type(DType.FLOAT32, _LANES), "s" if kind.is_signed else "u"
    name, words = f"fcvt{'n' if nearest else 'z'}{sign}", vector_type("i32", _LANES)
    convert = w.declarations.use(words, f"llvm.aarch64.neon.{name}.v4i32.v4f32", (old,))
    parts = [w.emit(f"call {words} {convert}({old} {part})") for part in _parts(w, value, lanes)]
    if kind.bits == 32:
        return _joined(w, parts, "i32", _LANES)
    parts = [_narrowed(w, part, 32, sign) for part in parts]
    if kind.bits == 16:
        return _joined(w, parts, "i16", _LANES)
    whole = [*parts, "poison"] if lanes == _LANES else parts
    pairs = [whole[first : first + 2] for first in range(0, len(whole), 2)]
    parts = [_narrowed(w, _joined(w, pair, "i16", _LANES), 16, sign) for pair in pairs]
    if lanes > _LANES:
        return _joined(w, parts, "i8", 2 * _LANES)
    both = w.emit(f"bitcast <8 x i8> {parts[0]} to <2 x i32>")  # four bytes are stored as a word
    word = w.emit(f"extractelement <2 x i32> {both}, i64 0")
    return w.emit(f"bitcast i32 {word} to <4 x i8>")


def _narrowed(w: FunctionWriter, value: str, bits: int, sign: str) -> str:
    """Saturate a vector of so many bits an element to half as many."""
    lanes, half = 128 // bits, bits // 2
    old, new = vector_type(f"i{bits}", lanes), vector_type(f"i{half}", lanes)
    name = f"llvm.aarch64.neon.{sign}qxtn.v{lanes}i{half}"
    return w.emit(f"call {new} {w.declarations.use(new, name, (old,))}({old} {value})")


def _parts(w: FunctionWriter, value: str, lanes: int) -> list[str]:
    """Return vectors of four of the lanes of a longer one."""
    if lanes == _LANES:
        return [value]
    kind = register_type(DType.FLOAT32, lanes)
    parts: list[str] = []
    for first in range(0, lanes, _LANES):
        chosen = ", ".join(f"i32 {first + lane}" for lane in range(_LANES))
        text = f"shufflevector {kind} {value}, {kind} poison, <{_LANES} x i32> <{chosen}>"
        parts.append(w.emit(text))
    return parts


def _joined(w: FunctionWriter, parts: list[str], scalar: str, lanes: int) -> str:
    """Return vectors of so many lanes, of which there are a power of two, side by side."""
    while len(parts) > 1:
        kind = vector_type(scalar, lanes)
        chosen = ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
        mask = f"<{2 * lanes} x i32> <{chosen}>"
        parts = [
            w.emit(f"shufflevector {kind} {a}, {kind} {b}, {mask}")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes *= 2
    return parts[0]
