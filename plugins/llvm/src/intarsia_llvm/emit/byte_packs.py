# SPDX-License-Identifier: Apache-2.0
"""Floats that become bytes on x86, by instructions that saturate.

``vcvtps2dq`` rounds, and makes NaN and what int32 does not have the least integer. ``vpackssdw``
makes 16 bits of two vectors, or of the halves of one, and ``vpackuswb`` or ``vpacksswb`` bytes of
these. A vector of AVX2 takes three shuffles. (LLVM truncates it by two limits and two
``vpshufb``.) Two vectors of AVX-512 take three, where ``vpmovdb`` takes two for each; of these both
packs take 128 bits of each operand in turn, so bytes are put in order last. That pays where the
vectors come from memory, as sums of AMX do: with sums in registers MobileNet-v2 took 1.09 of the
time (Sapphire Rapids, AMX masked), and pairs of AVX2 as long as single vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from .spelling import vector_type
from .writer import FunctionWriter

_AVX2, _AVX512 = 8, 16
"""Words of a vector."""


class _Packing(Struct, frozen=True):
    """Instructions for vectors of so many lanes, and how many each takes of an operand.

    Attributes:
        convert: From floats to words.
        words: From words to 16 bits.
        halves: From 16 bits to bytes.
        order: Where groups of four bytes are among those.
    """

    convert: tuple[str, int]
    words: tuple[str, int]
    halves: tuple[str, int]
    order: tuple[int, ...]


_PACKINGS: Mapping[int, _Packing] = MappingProxyType(
    {
        _AVX2: _Packing(
            ("avx.cvt.ps2dq.256", _AVX2), ("sse2.packssdw.128", 4), ("sse2.pack{}wb.128", 8), (0, 1)
        ),
        2 * _AVX512: _Packing(
            ("avx512.mask.cvtps2dq.512", _AVX512),
            *(("avx512.packssdw.512", 16), ("avx512.pack{}wb.512", 32)),
            (0, 4, 8, 12, 1, 5, 9, 13),
        ),
    }
)


def emit_bytes(w: FunctionWriter, value: str, lanes: int, added: str, *, is_signed: bool) -> str:
    """Write the bytes of floats: rounded, added to, and saturated.

    Args:
        w: Of the function.
        value: A vector of floats that int32 has, or less than those.
        lanes: Of the vector.
        added: A vector of 16 bits; empty if nothing is added.
        is_signed: Whether bytes are signed.
    """
    packing = _PACKINGS[lanes]
    wholes = [
        _convert(w, part, packing.convert)
        for part in _parts(w, value, "float", lanes, packing.convert[1])
    ]
    name, count = packing.words
    if len(wholes) == 1:
        wholes = _parts(w, wholes[0], "i32", lanes, count)
    halves = _call(w, name, "i32", count, wholes, vector_type("i16", lanes))
    if added:
        kind = vector_type("i16", lanes)
        add = w.declarations.use(kind, f"llvm.sadd.sat.v{lanes}i16", (kind, kind))
        halves = w.emit(f"call {kind} {add}({kind} {halves}, {kind} {added})")
    name, count = packing.halves
    pair = _parts(w, halves, "i16", lanes, count)
    name = name.format("ss" if is_signed else "us")
    packed = _call(w, name, "i16", count, [pair[0], pair[-1]], vector_type("i8", 2 * count))
    order = [4 * group + byte for group in packing.order for byte in range(4)]
    return w.chosen(packed, "i8", 2 * count, order)


def _parts(w: FunctionWriter, value: str, scalar: str, lanes: int, count: int) -> list[str]:
    """Return vectors of ``count`` lanes each."""
    starts = range(0, lanes, count)
    return [w.chosen(value, scalar, lanes, range(first, first + count)) for first in starts]


def _convert(w: FunctionWriter, value: str, how: tuple[str, int]) -> str:
    name, lanes = how
    floats, words = vector_type("float", lanes), vector_type("i32", lanes)
    kinds, operands = (floats,), f"{floats} {value}"
    if lanes == _AVX512:  # all lanes, rounded as the processor does by itself
        kinds = (floats, words, "i16", "i32")
        operands += f", {words} zeroinitializer, i16 -1, i32 4"
    function = w.declarations.use(words, f"llvm.x86.{name}", kinds)
    return w.emit(f"call {words} {function}({operands})")


def _call(
    w: FunctionWriter, name: str, scalar: str, lanes: int, values: list[str], result: str
) -> str:
    kind = vector_type(scalar, lanes)
    function = w.declarations.use(result, f"llvm.x86.{name}", (kind, kind))
    return w.emit(f"call {result} {function}({', '.join(f'{kind} {value}' for value in values)})")
