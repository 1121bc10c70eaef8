# SPDX-License-Identifier: Apache-2.0
"""Weights of 8 bits of which few pairs of products pass 16 bits: what is too much, apart.

``vpmaddubsw`` adds two products in 16 bits and saturates. Where two neighbouring weights along K
could make it, one of them is made smaller, and what it lacks becomes a correction: a word of its
own, multiplied with the same word of data. A block of weights is

    narrow words   [K / 4, width]      no pair of which passes 16 bits
    corrections    [count, width]      mostly zeros
    places         [count / width, width]   of which word of data each correction is

so each pair is decided when compiling, a product costs ``1 + 4 * count / K`` as much as one whose
weights all are small, and sums stay exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.tir.expr import INDEX, PrimExpr, TirVar, cast, index
from intarsia_ir.tir.stmt import LetStmt, Stmt

from .loops import Source, load, serial
from .packing import INT8_PER_WORD, pack_int8x4, unpack_int8x4

Array = np.ndarray
_MOST = 128  # 255 times it is less than 2^15
MOST_CORRECTIONS = 0.3
"""Of the words along K: with more, pairs of 16 bits are faster (57 to 76 billion products a second
on AVX2)."""


def narrowed(weight: Array) -> tuple[Array, Array]:
    """Split ``[blocks, K, width]`` of int8 in weights whose pairs are narrow, and the rest of each.

    The first of a pair that is too large gives way; the rest has one weight of a pair at most.
    """
    blocks, depth, width = weight.shape
    pairs = weight.astype(np.int32).reshape(blocks, depth // 2, 2, width)
    total = np.where((pairs > 0).all(2) | (pairs < 0).all(2), pairs.sum(2), 0)
    rest = np.zeros_like(pairs)
    rest[:, :, 0] = total - np.clip(total, -_MOST, _MOST)
    small = (pairs - rest).reshape(weight.shape).astype(np.int8)
    return small, rest.reshape(weight.shape).astype(np.int8)


def pack_corrected(weight: Array) -> tuple[Array, int] | None:
    """Return packed ``[blocks, K, width]`` of int8 as words with corrections, and how many a block.

    ``None`` if they are too many.
    """
    small, rest = narrowed(weight)
    words, narrow = pack_int8x4(rest), pack_int8x4(small)
    blocks, depth, width = words.shape
    needed = np.any(words, axis=2, keepdims=True)[:, :, 0]
    count = int(needed.sum(1).max(initial=0))
    if count > MOST_CORRECTIONS * depth:
        return None
    corrections = np.zeros((blocks, count, width), np.int32)
    places = np.zeros((blocks, -(-count // width), width), np.int32)
    for number in range(blocks):
        found = np.flatnonzero(needed[number])
        corrections[number, : len(found)] = words[number, found]
        places[number].reshape(-1)[: len(found)] = found
    return np.concatenate([narrow, corrections, places], axis=1), count


def unpack_corrected(packed: Array, depth: int, count: int) -> Array:
    """Undo :func:`pack_corrected`: ``[blocks, K, width]`` of int8; ``depth`` is that in words."""
    whole = unpack_int8x4(packed[:, :depth]).astype(np.int32)
    corrections = unpack_int8x4(packed[:, depth : depth + count])
    places = packed[:, depth + count :].reshape(len(packed), -1)[:, :count]
    for number, block in enumerate(whole):
        for order, place in enumerate(places[number]):
            first = INT8_PER_WORD * order
            taken = corrections[number, first : first + INT8_PER_WORD]
            block[INT8_PER_WORD * place : INT8_PER_WORD * (place + 1)] += taken
    return whole.astype(np.int8)


def place_of(weight: Source, block: PrimExpr, depth: int, count: int, number: PrimExpr) -> PrimExpr:
    """Return which word of data along K correction ``number`` of a block is of."""
    width = weight.shape[2]
    found = load(weight, block, number // width + (depth + count), number % width)
    return cast(found, INDEX)


class Corrections(Struct, frozen=True):
    """The corrections of a block of weights, as a tile adds them.

    Attributes:
        count: How many.
        place: ``place(number)``: which word along K one is of.
        left: ``left(row, place)``: the word of data.
        right: ``right(number, column)``: the correction.
    """

    count: int
    place: Callable[[PrimExpr], PrimExpr]
    left: Callable[[int | PrimExpr, PrimExpr], PrimExpr]
    right: Callable[[PrimExpr, PrimExpr], PrimExpr]

    def loop(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """Run ``body(number, place)`` for each."""

        def one(number: PrimExpr) -> Stmt:
            place = TirVar("place")
            return LetStmt(place, self.place(number), body(number, place))

        return serial(self.count, one, "correction")


def corrections_of(
    weight: Source,
    block: PrimExpr,
    depth: int,
    count: int,
    left: Callable[[int | PrimExpr, PrimExpr], PrimExpr],
) -> Corrections | None:
    """Return the corrections of a block; ``None`` if there are none.

    Args:
        weight: All weights.
        block: Number of the block.
        depth: Words along K.
        count: Corrections of a block.
        left: ``left(row, place)``: a word of data.
    """
    if not count:
        return None
    return Corrections(
        count,
        lambda number: place_of(weight, block, depth, count, number),
        left,
        lambda number, column: load(weight, block, number + depth, column),
    )


def place_in(steps: Sequence[int], place: PrimExpr) -> tuple[PrimExpr, ...]:
    """Return the step of each loop over K at a word along it."""
    found: list[PrimExpr] = []
    for size in steps[:0:-1]:
        found.append(place % index(size))
        place = place // index(size)
    return (place, *found[::-1])
