# SPDX-License-Identifier: Apache-2.0
"""Bytes moved up or down by 128, so that signed ones count as unsigned: their top bits flip."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.expr import BinaryOp, IntImm, PrimExpr, binary

from .loops import PackedView
from .packing import INT8_PER_WORD
from .tiling import CpuTiling

_TOP_BITS = int.from_bytes(b"\x80" * INT8_PER_WORD, "little", signed=True)
_TOP_BITS_OF_PAIR = 0x800080

_LEAST_READS = 4
"""Times that a vector of data is multiplied with a block of weights, from which on a copy pays."""


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


def moved_view(words: PackedView) -> PackedView:
    """Return words of bytes that are moved by 128 where they are read."""

    def read(first: PrimExpr) -> PrimExpr:
        return moved_word(words.read(first))

    return replace(words, read=read)


def moved_by_copies(tiling: CpuTiling, reads: int) -> CpuTiling | None:
    """Return the tile for rows that are moved where they are copied; ``None`` if they are not.

    Where instructions multiply by a lane (NEON), the moved vectors of a tile and the bits that move
    them would take one register more than there is.

    Args:
        tiling: What multiplies rows as they are.
        reads: How often a vector of data is multiplied.
    """
    if not isinstance(tiling.add, MovedDot) or tiling.left_lanes is None or reads < _LEAST_READS:
        return None
    return replace(tiling, add=tiling.add.add)
