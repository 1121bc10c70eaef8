# SPDX-License-Identifier: Apache-2.0
"""Floats that become small integers on NEON, whose conversions saturate and give 0 for NaN.

``FCVTNS`` and ``FCVTZS`` saturate to 32 bits and ``SQXTN`` to half as many, so no float is compared
with limits. Two vectors of sums become eight bytes by five instructions: a conversion of each,
``SQXTN``, ``SQXTN2``, ``SQXTN``; one alone takes three for four bytes. A zero point is one
instruction for eight (``SQADD``), where NaN, which would become it, is out of the question.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_runtime.dtype import DType

from .spelling import register_type, splat, vector_type
from .writer import FunctionWriter

_LANES = 4  # of a vector of 32-bit elements


def narrows(w: FunctionWriter, lanes: int) -> bool:
    """Whether vectors of so many lanes are narrowed by instructions that saturate."""
    return w.declarations.narrows and lanes >= _LANES and lanes & (lanes - 1) == 0


def emit_saturated(w: FunctionWriter, value: str, kind: DType, lanes: int) -> str:
    """Convert float32 to an integer of at most 32 bits: it truncates and saturates, NaN gives 0.

    Args:
        w: Of the function.
        value: The floats.
        kind: The integer.
        lanes: A number that :func:`narrows` takes.
    """
    name = "fcvtzs" if kind.is_signed else "fcvtzu"
    return _narrowed_words(w, _converted(w, value, name, lanes), _Narrowing(kind, kind.is_signed))


def emit_nearest(w: FunctionWriter, value: str, kind: DType, zero: int, lanes: int) -> str:
    """Round float32 to the nearest integer, add to it, and saturate that; NaN gives ``zero``.

    Args:
        w: Of the function.
        value: The floats.
        kind: The integer, of 8 or 16 bits.
        zero: What is added, at most 14 bits.
        lanes: A number that :func:`narrows` takes.
    """
    signed = kind.is_signed or zero != 0
    words = _converted(w, value, "fcvtns" if signed else "fcvtnu", lanes)
    return _narrowed_words(w, words, _Narrowing(kind, signed, zero))


class _Narrowing(Struct, frozen=True):
    """How words become shorter.

    Attributes:
        kind: What they become.
        signed: Whether words have a sign.
        zero: What is added to them before they have as few bits.
    """

    kind: DType
    signed: bool
    zero: int = 0

    def halved(self, w: FunctionWriter, value: str, bits: int) -> str:
        """Saturate a vector of so many bits an element to half as many."""
        lanes, half, is_last = 128 // bits, bits // 2, bits == 2 * self.kind.bits
        old, new = vector_type(f"i{bits}", lanes), vector_type(f"i{half}", lanes)
        if is_last and self.zero:
            add = w.declarations.use(old, f"llvm.sadd.sat.v{lanes}i{bits}", (old, old))
            zero = splat(str(self.zero), f"i{bits}", lanes)
            value = w.emit(f"call {old} {add}({old} {value}, {old} {zero})")
        name = "sqxtn" if self.signed else "uqxtn"
        if is_last and self.signed and not self.kind.is_signed:
            name = "sqxtun"
        narrow = w.declarations.use(new, f"llvm.aarch64.neon.{name}.v{lanes}i{half}", (old,))
        return w.emit(f"call {new} {narrow}({old} {value})")


def _converted(w: FunctionWriter, value: str, name: str, lanes: int) -> list[str]:
    """Convert floats to words by an instruction, four at a time."""
    old, words = register_type(DType.FLOAT32, _LANES), vector_type("i32", _LANES)
    convert = w.declarations.use(words, f"llvm.aarch64.neon.{name}.v4i32.v4f32", (old,))
    return [w.emit(f"call {words} {convert}({old} {part})") for part in _parts(w, value, lanes)]


def _narrowed_words(w: FunctionWriter, parts: list[str], how: _Narrowing) -> str:
    """Join vectors of words as what they become."""
    bits, is_single = how.kind.bits, len(parts) == 1
    if bits == 32:
        return _joined(w, parts, "i32", _LANES)
    parts = [how.halved(w, part, 32) for part in parts]
    if bits == 16:
        return _joined(w, parts, "i16", _LANES)
    whole = [*parts, "poison"] if is_single else parts
    pairs = [whole[first : first + 2] for first in range(0, len(whole), 2)]
    parts = [how.halved(w, _joined(w, pair, "i16", _LANES), 16) for pair in pairs]
    if not is_single:
        return _joined(w, parts, "i8", 2 * _LANES)
    both = w.emit(f"bitcast <8 x i8> {parts[0]} to <2 x i32>")  # four bytes are stored as a word
    word = w.emit(f"extractelement <2 x i32> {both}, i64 0")
    return w.emit(f"bitcast i32 {word} to <4 x i8>")


def _parts(w: FunctionWriter, value: str, lanes: int) -> list[str]:
    """Return vectors of four of the lanes of a longer one."""
    starts = range(0, lanes, _LANES)
    return [w.chosen(value, "float", lanes, range(first, first + _LANES)) for first in starts]


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
