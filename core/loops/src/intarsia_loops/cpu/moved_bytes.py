# SPDX-License-Identifier: Apache-2.0
"""Bytes moved up or down by 128, so that signed ones count as unsigned: their top bits flip."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from intarsia_ir.tir.expr import BinaryOp, IntImm, PrimExpr, binary

from .packing import INT8_PER_WORD

_TOP_BITS = int.from_bytes(b"\x80" * INT8_PER_WORD, "little", signed=True)
_TOP_BITS_OF_PAIR = 0x800080


def moved_word(word: PrimExpr) -> PrimExpr:
    """Return the four bytes of a word moved by 128."""
    return binary(BinaryOp.XOR, word, IntImm(_TOP_BITS, word.dtype))


def moved_pair(pair: PrimExpr) -> PrimExpr:
    """Return two bytes moved by 128, which are the low bytes of halves of a word."""
    return binary(BinaryOp.XOR, pair, IntImm(_TOP_BITS_OF_PAIR, pair.dtype))


class MovedDot(Struct, frozen=True):
    """Products of words of bytes, of which those on the left are moved by 128."""

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]

    def __call__(self, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self.add(total, moved_word(left), right)
