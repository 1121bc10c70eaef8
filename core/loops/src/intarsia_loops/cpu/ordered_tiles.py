# SPDX-License-Identifier: Apache-2.0
"""The register tile over words in an order of their own (``ordered_words.py``): a loop a class.

A step multiplies one or two words of a block, one vector wide, with the rows of the tile::

    for number in joined / 2:           # likewise the other classes, some of them word by word
        i, j = places[2 * number], places[2 * number + 1]
        v, w = words[2 * number], words[2 * number + 1]
        for r in rows:                  # unrolled
            c[r] += A[r, i] * v + A[r, j] * w

Registers: 8 x 1 accumulators + 2 magnitudes + 2 masks + 2 products + ones = 15 of 16 ymm. Additions
of integers take one cycle, so eight sums do not wait for each other. Blocks that the first-level
cache does not hold beside the data are read less often by 14 x 1 accumulators, with weights, masks
and ones as operands in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    cast,
    const,
    index,
)
from intarsia_ir.tir.stmt import Allocate, Stmt
from intarsia_runtime.dtype import DType

from .loops import Source, address_of, copy_rows, let_all, load, seq, serial, store, unrolled
from .ordered_words import OrderedDot, most_masks
from .prefetch import OpenWeightPrefetch, WeightPrefetch


class OrderedWords(Struct, frozen=True):
    """The words of a block of weights, as a tile multiplies them.

    Attributes:
        dot: How words of each class are.
        weight: All weights.
        block: Number of the block.
        depth: Words along K.
        left: ``left(row, place)``: the word of data.
        table: The places, where they are not those along K.
    """

    dot: OrderedDot
    weight: Source
    block: PrimExpr
    depth: int
    left: Callable[[int | PrimExpr, PrimExpr], PrimExpr] | None = None
    table: Buffer | None = None

    @property
    def _masks(self) -> int:
        _, rows, width = self.weight.shape
        return most_masks(rows, width, self.depth)

    def _start(self, _row: PrimExpr, column: PrimExpr) -> PrimExpr:
        return load(self.weight, self.block, self.depth + self._masks, column)

    @property
    def steps(self) -> int:
        """In how many steps a tile reads the words."""
        return ordered_steps(self.depth)

    def tile(
        self, acc: Buffer, rows: int, lanes: int,
        prefetch: WeightPrefetch | OpenWeightPrefetch | None,
    ) -> tuple[Callable[[PrimExpr, PrimExpr], PrimExpr], Stmt]:  # fmt: skip
        """Return what the sums of a tile start from, and the loops that add all products to them.

        Args:
            acc: The sums.
            rows: Of the tile.
            lanes: Of a vector.
            prefetch: The next block of weights, of which each step fetches a share.
        """
        counts = [TirVar(name) for name in ("joined", "plain", "paired")]
        joined, plain, paired = counts
        stored = [
            cast(load(self.weight, self.block, self.weight.shape[1] - 1, n), INDEX)
            for n in range(3)
        ]
        ends = (stored[0], joined + stored[1], plain + stored[2])
        steps = self.steps

        def run(low: PrimExpr, high: PrimExpr, count: int, *, is_large: bool) -> Stmt:
            def step(number: PrimExpr) -> Stmt:
                word = low + number * count
                made = self._step(acc, rows, lanes, word, count, plain, is_large=is_large)
                if prefetch is None:
                    return made
                return prefetch.around(made, (word // 2,), (steps,), (rows, lanes))

            return serial((high - low) // count, step, "word")

        body = seq(
            run(index(0), joined, 2, is_large=False),
            run(joined, plain, 1, is_large=False),
            run(plain, paired, 2, is_large=True),
            run(paired, index(self.depth), 1, is_large=True),
        )
        return self._start, let_all(list(zip(counts, ends, strict=True)), body)

    def _step(
        self, acc: Buffer, rows: int, lanes: int, first: PrimExpr, count: int, plain: PrimExpr, *,
        is_large: bool,
    ) -> Stmt:  # fmt: skip
        """Add the products of one or two words, from the one with the number ``first`` on."""
        assert self.left is not None  # of a tile
        read, places = self.left, [TirVar("place") for _ in range(count)]
        bound = [(place, self._place(first + n)) for n, place in enumerate(places)]
        right = [TirVar("word", DType.INT32, lanes) for _ in range(count)]
        bound += [(word, self._vector(first + n, lanes)) for n, word in enumerate(right)]
        if is_large:
            right = self._split(right, first - plain, bound)
        add, column = self.dot.magnitudes if is_large else self.dot.joined, Ramp(index(0), 1, lanes)

        def multiply_add(r: PrimExpr) -> Stmt:
            left = [Broadcast(read(r, place), lanes, DType.INT32) for place in places]
            total = Load(acc, (r, column), DType.INT32, lanes)
            return store(acc, (r, column), add(total, left, right))

        return let_all(bound, unrolled(rows, multiply_add, "r"))

    def _split(
        self, words: list[TirVar], first: PrimExpr, bound: list[tuple[TirVar, PrimExpr]]
    ) -> list[TirVar]:
        """Bind magnitudes of words and their masks, from the number ``first`` of masks on."""
        pairs: list[TirVar] = []
        for n, word in enumerate(words):
            size, mask = self.dot.split(word)
            if self._masks:
                size, mask = word, self._vector(first + (self.depth + n), word.lanes)
            for name, value in (("size", size), ("mask", mask)):
                variable = TirVar(name, DType.INT32, word.lanes)
                pairs.append(variable)
                bound.append((variable, value))
        return pairs

    def _vector(self, row: PrimExpr, lanes: int) -> PrimExpr:
        """Return a row of words; blocks are one vector wide."""
        first = address_of(load(self.weight, self.block, row, 0))
        *outer, column = first.indices
        return dataclasses.replace(first, indices=(*outer, Ramp(column, 1, lanes)), lanes=lanes)

    def _place(self, number: PrimExpr) -> PrimExpr:
        place = self.word_place(number) if self.table is None else load(self.table, number)
        return cast(place, INDEX)

    def word_place(self, number: PrimExpr) -> PrimExpr:
        """Return which word along K one of the words in order is."""
        width = self.weight.shape[2]
        row = number // width + (self.depth + self._masks + 1)
        return load(self.weight, self.block, row, number % width)


def ordered_steps(depth: int) -> int:
    """Return in how many steps a tile reads so many words: two at a time, or nearly."""
    return max(1, depth // 2)


def offsets_of(
    words: OrderedWords, steps: Sequence[int], strides: Sequence[int | PrimExpr], lanes: int,
    body: Callable[[OrderedWords], Stmt],
) -> Stmt:  # fmt: skip
    """Return ``body`` of words whose places are how far apart their data lie in memory.

    A table of them on the stack saves the tiles of a block some divisions for each word.

    Args:
        words: Of a block.
        steps: Extents of the loops over K.
        strides: Words of data from one step of each to the next; the last one is 1.
        lanes: Elements in a vector.
        body: What the tiles of the block do.
    """
    table = Buffer("offsets", (words.depth,), DType.INT32, MemoryScope.STACK)

    def one(number: PrimExpr) -> Stmt:
        offset, place = const(0, DType.INT32), words.word_place(number)
        for size, stride in list(zip(steps, strides, strict=True))[:0:-1]:
            offset = offset + place % size * stride
            place = place // size
        return store(table, (number,), offset + place * strides[0])

    places = replace(words, table=table)
    return Allocate(table, seq(copy_rows(words.depth, lanes, one), body(places)))
