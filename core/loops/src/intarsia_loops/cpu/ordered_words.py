# SPDX-License-Identifier: Apache-2.0
"""Packed words of 8-bit weights in the order of how they are multiplied without VNNI.

``vpmaddubsw`` multiplies unsigned by signed bytes and adds two products in 16 bits, which saturate
if the two weights are large. Which words of a block of weights could is decided when compiling;
each belongs to one of three classes, and sums stay exact whatever the data are:

- *joined*: two words that hold the products of any data in 16 bits even if both are added up:
  two ``vpmaddubsw``, and one ``vpaddw``, ``vpmaddwd`` and ``vpaddd`` for both.
- *joined magnitudes*: ``|w|`` times ``x - 128`` or ``127 - x``: signed bytes with the sign of
  ``w``, and one XOR of ``x`` with a mask. Products are half as large at most: two words are added
  up as above if no two pairs of magnitudes pass 255 together.
- *single magnitudes*: what no other word goes with. A pair of magnitudes always fits.

Sums start from what the shift by 128 lacks. Words of a block are joined wherever they lie, so each
has a place along K. A block is, with ``most`` magnitudes in any block::

    words      [K / 4 + most, width]   joined ones; each of the magnitudes, its mask behind it
    start      [1, width]              what sums start from
    places     [K / 4 / width, width]  which word of data each word multiplies
    counts     [1, width]              joined words; joined magnitudes

For 32 products of bytes, joined words take 2.5 instructions instead of 3 (``vpmaddubsw``,
``vpmaddwd``, ``vpaddd``), joined magnitudes 3.5, single ones 4. Pairs of 16 bits take 4 and twice
the loads. ggml's kernels move signs from weights to data as well, by ``vpsignb``, which cannot
negate -128.

Blocks are one vector wide: of 16 columns some weight is large in many more words than of 8. Tiles
of such words are in ``ordered_tiles.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.tir.expr import (
    INDEX,
    BinaryOp,
    IntImm,
    PrimExpr,
    binary,
    cast,
    if_then_else,
)
from intarsia_ir.tir.tensor import Tensor
from intarsia_runtime.dtype import DType

from .packing import INT8_PER_WORD, pack_int8x4

Array = np.ndarray
_MOST_STEPS = 4
"""Numbers of magnitudes that blocks are as large as; kernels are shared by layers of a shape."""

_CACHED_BYTES = 32 * 1024
_TOP_BITS = np.uint64(0x8080_8080_8080_8080)
_DISTANCES = (*range(1, 17), *range(18, 66, 3))
"""How far apart among the words without a partner they are tried, round by round."""


class OrderedDot(Struct, frozen=True):
    """How a backend multiplies words of bytes in order.

    ``left`` are one or two words of data; each of two magnitudes has its mask behind it.

    Attributes:
        joined: ``joined(total, left, right)``: ``total`` plus the products of two words, which fit
            16 bits in pairs.
        magnitudes: The same of one or two words of magnitudes; ``right``: each and its mask.
        rows: Rows of a tile one vector wide.
        tall_rows: The same where the first-level cache does not hold a block of weights.
    """

    joined: Callable[[PrimExpr, Sequence[PrimExpr], Sequence[PrimExpr]], PrimExpr]
    magnitudes: Callable[[PrimExpr, Sequence[PrimExpr], Sequence[PrimExpr]], PrimExpr]
    rows: int
    tall_rows: int

    def rows_for(self, block_bytes: int) -> int:
        """Return the rows of a tile over blocks of so many bytes."""
        return self.rows if block_bytes <= _CACHED_BYTES else self.tall_rows


class _Classes(Struct, frozen=True):
    """The words of all blocks in order.

    Attributes:
        order: ``[blocks, words]``: place of each word.
        joined: ``[blocks]``: joined words, an even number.
        paired: ``[blocks]``: joined magnitudes, an even number.
    """

    order: Array
    joined: Array
    paired: Array


def pack_ordered(weight: Array, *, signed: bool) -> Array:
    """Return ``[blocks, K, width]`` of int8 as words in order, ``[blocks, rows, width]``.

    Args:
        weight: Blocks of weights; ``K`` is a multiple of 4.
        signed: Whether data are: all words are magnitudes then, whose masks make up for that.
    """
    blocks, depth, width = weight.shape
    words = depth // INT8_PER_WORD
    classes = _classes(weight, signed=signed)
    step = max(1, words // _MOST_STEPS)
    most = min(words, -(-int((words - classes.joined).max(initial=0)) // step) * step)
    packed = np.zeros((blocks, words + most + -(-words // width) + 2, width), np.int32)
    is_magnitude, rows = _rows_of(classes, words, packed.shape[1])
    ordered = np.take_along_axis(pack_int8x4(weight), classes.order[:, :, None], 1)
    flat = packed.reshape(-1, width)
    flat[rows[~is_magnitude]] = ordered[~is_magnitude]
    large = ordered[is_magnitude].view(np.int8)
    signs = large >> 7
    flat[rows[is_magnitude]] = ((large ^ signs) - signs).view(np.int32)
    flat[rows[is_magnitude] + 1] = (signs ^ np.int8(0 if signed else -128)).view(np.int32)
    packed[:, words + most] = _start(large, (words - classes.joined).tolist(), width)
    places = packed[:, words + most + 1 : -1].reshape(blocks, -1)
    places[:, :words] = classes.order
    packed[:, -1, 0], packed[:, -1, 1] = classes.joined, classes.paired
    return packed


def _rows_of(classes: _Classes, words: int, height: int) -> tuple[Array, Array]:
    """Return which words in order are magnitudes, and the row of each among those of all blocks."""
    joined: Array = classes.joined[:, None]
    number: Array = np.arange(words)
    is_magnitude: Array = number >= joined
    first: Array = height * np.arange(len(joined))
    return is_magnitude, number + is_magnitude * (number - joined) + first[:, None]


def _start(large: Array, counts: list[int], width: int) -> Array:
    """Return what sums over magnitudes lack: 128 times each positive weight, 127 each other."""
    lacked = 128 * large.astype(np.int32) - np.minimum(large, 0).astype(np.int32)
    sums = lacked.reshape(-1, width, INT8_PER_WORD).sum(axis=2, dtype=np.int32)
    start = np.zeros((len(counts), width), np.int32)
    first = 0
    for number, count in enumerate(counts):
        start[number] = sums[first : first + count].sum(axis=0, dtype=np.int32)
        first += count
    return start


def _classes(weight: Array, *, signed: bool) -> _Classes:
    """Find the class of each word, and which words are joined."""
    blocks, depth, width = weight.shape
    words = depth // INT8_PER_WORD
    count = int(blocks * words)
    pairs = weight.reshape(count, 2, 2, width)
    high = np.maximum(pairs, 0).view(np.uint8)
    low = np.negative(np.minimum(pairs, 0)).view(np.uint8)
    is_alone = _any_lane(low.reshape(count, -1) == 128)  # two of which pass a byte: not joined
    high, low = high[:, :, 0] + high[:, :, 1], low[:, :, 0] + low[:, :, 1]
    whole = high + low
    halves = _lanes((whole >> 1) + (whole & 1))
    lanes = np.concatenate([_lanes(high), _lanes(low)])
    is_plain = ~is_alone & (np.bitwise_or.reduce(lanes) & _TOP_BITS == 0)
    numbers: Array = np.arange(count)
    partner, of_block = numbers.copy(), numbers // max(words, 1)
    if not signed:
        _join(lanes, of_block, np.flatnonzero(is_plain), partner)
    joined: Array = partner != numbers
    _join(halves, of_block, np.flatnonzero(~joined & ~is_alone), partner)
    # Words in the order of their places, pairs in that of the first of them.
    first: Array = np.minimum(partner, numbers)
    kind: Array = np.where(joined, 0, np.where(partner != numbers, 1, 2))
    key: Array = ((of_block * 3 + kind) * count + first) * 2 + (first != numbers)
    order = np.argsort(key) % max(words, 1)
    counts = [(kind == n).reshape(blocks, words).sum(axis=1) for n in range(2)]
    return _Classes(order.reshape(blocks, words), *counts)


def _any_lane(flags: Array) -> Array:
    """Return whether any of a multiple of eight flags is set, row by row."""
    return np.bitwise_or.reduce(_lanes(flags)) != 0


def _lanes(values: Array) -> Array:
    """Return ``[words, ...]`` of bytes as ``[n, words]`` of eight lanes each."""
    eights = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint64)
    return np.ascontiguousarray(eights.T)


def _join(lanes: Array, block: Array, rest: Array, partner: Array) -> None:
    """Join words of a block whose lanes do not pass 127 together.

    Each round tries all words that are left with those some distance on, so it takes a few
    operations on arrays: a few rounds join nearly all that an exhaustive search would.

    Args:
        lanes: ``[n, words]``: eight lanes in an integer, each below 128.
        block: Of each word.
        rest: The words that may be joined.
        partner: Of each word; written.
    """
    lanes, block = lanes[:, rest], block[rest]
    for distance in _DISTANCES:
        size = len(rest) // (2 * distance) * 2 * distance
        one, other = np.moveaxis(lanes[:, :size].reshape(len(lanes), -1, 2, distance), 2, 0)
        over = np.bitwise_or.reduce(one + other) & _TOP_BITS
        first, second = np.moveaxis(block[:size].reshape(-1, 2, distance), 1, 0)
        fits = (over == 0) & (first == second)
        first, second = np.moveaxis(rest[:size].reshape(-1, 2, distance), 1, 0)
        first, second = first[fits], second[fits]
        partner[first], partner[second] = second, first
        is_left = np.ones(len(rest), bool)
        is_left[:size].reshape(-1, 2, distance)[...] = ~fits[:, None]
        lanes, block, rest = lanes[:, is_left], block[is_left], rest[is_left]


def unpack_ordered(packed: Array, depth: int) -> Array:
    """Undo :func:`pack_ordered`: ``[blocks, K, width]`` of int8; ``depth`` is that in words."""
    blocks, rows, width = packed.shape
    whole = np.zeros((blocks, depth, width, INT8_PER_WORD), np.int8)
    most = most_magnitudes(rows, width, depth)
    for block, taken in zip(whole, packed, strict=True):
        joined = int(taken[-1, 0])
        places = taken[depth + most + 1 : -1].reshape(-1)[:depth]
        read = taken.reshape(rows, width, 1).view(np.int8)
        large = read[joined : 2 * depth - joined]
        block[places[:joined]] = read[:joined]
        block[places[joined:]] = np.where(large[1::2] & 1, -large[::2], large[::2])
    return np.moveaxis(whole, -1, -2).reshape(blocks, depth * INT8_PER_WORD, width)


def most_magnitudes(rows: int, width: int, depth: int) -> int:
    """Return the most magnitudes of a block."""
    return rows - depth - -(-depth // width) - 2


def ordered_factor(
    weight: Tensor, block: PrimExpr, column: PrimExpr, step: PrimExpr, depth: int
) -> tuple[PrimExpr, PrimExpr]:
    """Return where along K the data of a step lie, and the weight that they are multiplied by.

    Args:
        weight: All weights.
        block: Number of the block.
        column: Of the block.
        step: Number of a byte of the words in order.
        depth: Words along K.
    """
    rows, width = weight.shape[1:]
    assert isinstance(rows, int)
    assert isinstance(width, int)  # constants
    number, byte = step // INT8_PER_WORD, step % INT8_PER_WORD
    row = number // width + (depth + most_magnitudes(rows, width, depth) + 1)
    place = cast(weight[block, row, number % width], INDEX)
    joined = cast(weight[block, rows - 1, 0], INDEX)
    first = if_then_else(number < joined, number, number * 2 - joined)

    def byte_of(row: PrimExpr) -> PrimExpr:
        word = binary(BinaryOp.SHR, weight[block, row, column], cast(byte, DType.INT32) * 8)
        return binary(BinaryOp.AND, word, IntImm(255, DType.INT32))

    value, odd = byte_of(first), binary(BinaryOp.AND, byte_of(first + 1), IntImm(1, DType.INT32))
    plain = cast(cast(value, DType.INT8), DType.INT32)
    taken = if_then_else(number < joined, plain, value - value * odd * 2)
    return place * INT8_PER_WORD + byte, taken
