# SPDX-License-Identifier: Apache-2.0
"""Packed words of 8-bit weights in the order of how they are multiplied without VNNI.

``vpmaddubsw`` multiplies unsigned by signed bytes and adds two products in 16 bits, which saturate
if the two weights are large. Which words of a block of weights could is decided when compiling;
each belongs to one of four classes, and sums stay exact whatever the data are:

- *joined*: two words that hold the products of any data in 16 bits even if both are added up:
  two ``vpmaddubsw``, and one ``vpaddw``, ``vpmaddwd`` and ``vpaddd`` for both.
- *single*: one word that does, and has no other to be joined with.
- *joined magnitudes*: ``|w|`` times ``x - 128`` or ``127 - x``: signed bytes with the sign of
  ``w``, one XOR of ``x`` with a mask. Products are half as large at most: two words are added up
  as above if no two pairs of magnitudes pass 255 together.
- *single magnitudes*: what no other word goes with. A pair of magnitudes always fits.

Sums start from what the shift by 128 lacks. Words of a block are joined wherever they lie, so each
has a place along K. A block is, with ``most`` magnitudes in any block::

    words      [K / 4, width]          in order; magnitudes as such if there are masks
    masks      [most, width]           of the magnitudes; none if weights come from memory
    start      [1, width]              what sums start from
    places     [K / 4 / width, width]  which word of data each word multiplies
    counts     [1, width]              joined words; single ones; joined magnitudes

For 32 products of bytes, joined words take 2.5 instructions, single ones 3 (``vpmaddubsw``,
``vpmaddwd``, ``vpaddd``), joined magnitudes 3.5, single ones 4. Pairs of 16 bits take 4 and twice
the loads. A tile takes magnitudes and masks from weights by three instructions a word, ``vpabsb``
and two for the mask, which is less than memory takes for as many bytes again. ggml's kernels move
signs from weights to data as well, by ``vpsignb``, which cannot negate -128.

Blocks are one vector wide: of 16 columns some weight is large in many more words than of 8. Tiles
of such words are in ``ordered_tiles.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.expr import (
    INDEX,
    BinaryOp,
    IntImm,
    PrimExpr,
    binary,
    cast,
    if_then_else,
    maximum,
)
from intarsia_ir.tir.tensor import Tensor
from intarsia_runtime.dtype import DType

from .joined_words import TOP_BITS, join
from .packing import INT8_PER_WORD, pack_int8x4, unpack_int8x4

Array = np.ndarray
_MOST_STEPS = 4
"""Numbers of masks that blocks are as large as; kernels are shared by layers of a shape."""

_CACHED_BYTES = 16 * 1024
"""Half of a first-level cache; eight rows of data take as much as the words of a block."""


AddProducts: TypeAlias = Callable[[PrimExpr, Sequence[PrimExpr], Sequence[PrimExpr]], PrimExpr]
SplitWord: TypeAlias = Callable[[PrimExpr], tuple[PrimExpr, PrimExpr]]


class OrderedDot(Struct, frozen=True):
    """How a backend multiplies words of bytes in order; ``left`` are one or two words of data.

    Attributes:
        joined: ``joined(total, left, right)``: ``total`` plus the products of words of unsigned
            data, which fit 16 bits in pairs.
        magnitudes: The same by magnitudes, each of which in ``right`` has its mask behind it.
        split: ``split(word)``: the magnitudes of a word of weights, and their mask.
        signed_split: The same where data are signed.
        rows: Rows of a tile one vector wide.
        tall_rows: The same where the first-level cache does not hold weights and data.
    """

    joined: AddProducts
    magnitudes: AddProducts
    split: SplitWord
    signed_split: SplitWord
    rows: int
    tall_rows: int

    def of(self, *, signed: bool) -> OrderedDot:
        """Return how words of data are multiplied, which are signed or not."""
        return replace(self, split=self.signed_split) if signed else self

    def rows_for(self, block_bytes: int) -> int:
        """Return the rows of a tile over blocks of so many bytes."""
        return self.rows if block_bytes <= _CACHED_BYTES else self.tall_rows


class _Classes(Struct, frozen=True):
    """The words of all blocks in order.

    Attributes:
        order: ``[blocks, words]``: place of each word.
        counts: ``[blocks, 3]``: joined words, single ones, and joined magnitudes.
    """

    order: Array
    counts: Array


def pack_ordered(weight: Array, *, signed: bool, has_masks: bool) -> Array:
    """Return ``[blocks, K, width]`` of int8 as words in order, ``[blocks, rows, width]``.

    Args:
        weight: Blocks of weights; ``K`` is a multiple of 4.
        signed: Whether data are: all words are magnitudes then, whose masks make up for that.
        has_masks: Whether magnitudes are stored, with their masks, or taken from the weights.
    """
    blocks, depth, width = weight.shape
    words = int(depth // INT8_PER_WORD)
    classes = _classes(weight, signed=signed)
    plain: Array = classes.counts[:, :2].sum(axis=1)
    most = 0
    if has_masks:
        step = max(1, words // _MOST_STEPS)
        most = min(words, -(-int((words - plain).max(initial=0)) // step) * step)
    packed = np.zeros((blocks, words + most + -(-words // width) + 2, width), np.int32)
    packed[:, :words] = np.take_along_axis(pack_int8x4(weight), classes.order[:, :, None], 1)
    number: Array = np.arange(words)
    first: Array = plain[:, None]
    is_magnitude: Array = number >= first
    large = packed[:, :words][is_magnitude].view(np.int8)
    packed[:, words + most] = _start(large, (words - plain).tolist(), width)
    if most:
        signs = large >> 7
        masks = packed[:, words : words + most]
        mask_number: Array = np.arange(most)
        is_mask: Array = mask_number < words - first
        packed[:, :words][is_magnitude] = ((large ^ signs) - signs).view(np.int32)
        masks[is_mask] = (signs ^ np.int8(0 if signed else -128)).view(np.int32)
    packed[:, words + most + 1 : -1].reshape(blocks, -1)[:, :words] = classes.order
    packed[:, -1, :3] = classes.counts
    return packed


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
    is_plain = ~is_alone & (np.bitwise_or.reduce(lanes) & TOP_BITS == 0)
    numbers: Array = np.arange(count)
    partner, of_block = numbers.copy(), numbers // max(words, 1)
    if signed:
        is_plain[:] = False
    join(lanes, of_block, np.flatnonzero(is_plain), partner)
    join(halves, of_block, np.flatnonzero(~is_plain & ~is_alone), partner)
    # Words in the order of their places, pairs in that of the first of them.
    first: Array = np.minimum(partner, numbers)
    kind: Array = np.where(is_plain, 0, 2) + (partner == numbers)
    key: Array = ((of_block * 4 + kind) * count + first) * 2 + (first != numbers)
    order = np.argsort(key) % max(words, 1)
    counts = [(kind == n).reshape(blocks, words).sum(axis=1) for n in range(3)]
    return _Classes(order.reshape(blocks, words), np.stack(counts, axis=1))


def _any_lane(flags: Array) -> Array:
    """Return whether any of a multiple of eight flags is set, row by row."""
    return np.bitwise_or.reduce(_lanes(flags)) != 0


def _lanes(values: Array) -> Array:
    """Return ``[words, ...]`` of bytes as ``[n, words]`` of eight lanes each."""
    eights = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint64)
    return np.ascontiguousarray(eights.T)


def unpack_ordered(packed: Array, depth: int) -> Array:
    """Undo :func:`pack_ordered`: ``[blocks, K, width]`` of int8; ``depth`` is that in words."""
    blocks, rows, width = packed.shape
    most, ordered = most_masks(rows, width, depth), packed[:, :depth].copy()
    if most:
        number: Array = np.arange(depth)
        large: Array = number - packed[:, -1:, :2].sum(axis=2)
        masks = np.take_along_axis(packed, depth + np.maximum(large, 0)[:, :, None], 1)
        sign: Array = -(masks.view(np.int8) & 1) * (large >= 0)[:, :, None]
        ordered = ((ordered.view(np.int8) ^ sign) - sign).astype(np.int8).view(np.int32)
    places = packed[:, depth + most + 1 : -1].reshape(blocks, -1)[:, :depth, None]
    words = np.zeros((blocks, depth, width), np.int32)
    np.put_along_axis(words, places, ordered, 1)
    return unpack_int8x4(words)


def most_masks(rows: int, width: int, depth: int) -> int:
    """Return the most masks of a block that has some; 0 if tiles take them from weights."""
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
    most = most_masks(rows, width, depth)
    number, byte = step // INT8_PER_WORD, step % INT8_PER_WORD
    place = cast(weight[block, number // width + (depth + most + 1), number % width], INDEX)
    shift = cast(byte, DType.INT32) * 8
    byte_value = binary(BinaryOp.SHR, weight[block, number, column], shift)
    value = cast(cast(byte_value, DType.INT8), DType.INT32)
    if most:
        size = binary(BinaryOp.AND, byte_value, IntImm(255, DType.INT32))
        large = number - cast(weight[block, rows - 1, 0] + weight[block, rows - 1, 1], INDEX)
        mask = binary(BinaryOp.SHR, weight[block, maximum(large, 0) + depth, column], shift)
        sign = binary(BinaryOp.AND, mask, IntImm(1, DType.INT32)) * 2
        value = if_then_else(large < 0, value, size - size * sign)
    return place * INT8_PER_WORD + byte, value
