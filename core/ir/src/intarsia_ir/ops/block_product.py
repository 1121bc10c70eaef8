# SPDX-License-Identifier: Apache-2.0
"""The loops of ``nn.block_matmul``: codes become floats in registers, sums of blocks get scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import TypeAlias

from msgspec import Struct

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, lets, load, seq, serial, unrolled
from ..tir.expr import BinaryOp, PrimExpr, TirVar, binary, const, index, intrinsic
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from .block_tiles import COLUMNS, LINE, in_parts
from .recurrent_loops import items, set_items, spread

WORD_BITS = 32
"""Bits of a word of codes."""

_EXPONENT = 0x4B000000
"""The bits of 2**23 as float32."""

_CHAINS = 8
"""Sums that have to be in progress for multiply-adds not to wait: 2 a cycle, of 4 cycles each."""

_COPIED = 3
"""Rows of a tile from which on parts of them are copied."""

_PART = 512
"""Most of K in such a part: of 12 rows, 24 KiB of the first cache."""

_SHORT = 4
"""Words of a block up to which their loop is written out."""


def middle_of(bits: int) -> int:
    """Return what is subtracted from a code of a number of bits."""
    return 1 << bits - 1


def code_of(word: PrimExpr, n: int, bits: int) -> PrimExpr:
    """Return code ``n`` of words less the middle, as floats."""
    half, place = divmod(n * bits, WORD_BITS // 2)
    lanes = word.lanes
    if half:
        word = binary(BinaryOp.SHR, word, spread(const(WORD_BITS // 2, DType.INT32), lanes))
    mask, exponent = (
        spread(const(number, DType.INT32), lanes)
        for number in ((1 << bits) - 1 << place, _EXPONENT)
    )
    real = intrinsic(
        Intrinsic.FROM_BITS, binary(BinaryOp.OR, binary(BinaryOp.AND, word, mask), exponent)
    )
    unit = 2.0**-place
    factor, offset = (
        spread(const(number, DType.FLOAT32), lanes)
        for number in (unit, 2.0**23 * unit + middle_of(bits))
    )
    return real * factor - offset


_Read: TypeAlias = "Callable[[PrimExpr], PrimExpr]"
"""Returns an element of a row by its place along K."""


class _Blocks(Struct, frozen=True):
    """Blocks along K that are added up together; to what is in the result if it ``goes_on``."""

    first: PrimExpr
    count: int
    goes_on: bool = False


class BlockProduct(Struct, frozen=True):
    """The buffers of a product, bits of a code, and columns of a vector."""

    x: Buffer
    codes: Buffer
    scales: Buffer
    shifts: Buffer | None
    sums: Buffer | None
    out: Buffer
    bits: int
    lanes: int

    def tile(self, stripe: PrimExpr, rows: Sequence[PrimExpr], vectors: int) -> Stmt:
        """Compute some rows of 64 columns, ``vectors`` of them at a time.

        Rows of many kilobytes that are a power of two apart share a few lines of the first cache:
        of three rows and more, parts are copied side by side, and sums go on from part to part.
        """
        blocks, depth = self.scales.shape[1], self.x.shape[1]
        if len(rows) < _COPIED:
            read = [partial(load, self.x, row) for row in rows]
            sums = partial(self._sums, stripe, rows, read, _Blocks(index(0), blocks))
            return in_parts(vectors, self.lanes, sums)
        block = depth // blocks
        most = max(1, _PART // block)
        count = next(n for n in range(min(most, blocks), 0, -1) if blocks % n == 0)
        near = Buffer("near", (len(rows), count * block), DType.FLOAT32, MemoryScope.STACK)

        def part(p: PrimExpr) -> Stmt:
            begin = p * (count * block)
            copied = [self._copied(near, r, row, begin) for r, row in enumerate(rows)]
            read = [partial(self._near, near, r, begin) for r in range(len(rows))]
            given = _Blocks(p * count, count, goes_on=count < blocks)
            sums = partial(self._sums, stripe, rows, read, given)
            return allocate([near], seq(*copied, in_parts(vectors, self.lanes, sums)))

        if count == blocks:
            return part(index(0))
        cleared = [
            set_items(self.out, row, stripe * COLUMNS + column, self._spread(0.0))
            for row in rows
            for column in range(0, COLUMNS, self.lanes)
        ]
        return seq(*cleared, serial(blocks // count, part, "p"))

    @staticmethod
    def _near(near: Buffer, r: int, begin: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(near, index(r), k - begin)

    def _copied(self, near: Buffer, r: int, row: PrimExpr, begin: PrimExpr) -> Stmt:
        """Copy a part of a row."""
        lanes = gcd(self.lanes, near.shape[1])

        def some(at: PrimExpr) -> Stmt:
            read = items(self.x, row, begin + at * lanes, lanes)
            return set_items(near, index(r), at * lanes, read)

        return serial(near.shape[1] // lanes, some, "k")

    def _sums(
        self, stripe: PrimExpr, rows: Sequence[PrimExpr], read: Sequence[_Read],
        blocks: _Blocks, columns: Sequence[PrimExpr],
    ) -> Stmt:  # fmt: skip
        """Add the products of rows with some columns up, and store them."""
        halves = 2 if len(rows) * len(columns) < _CHAINS else 1
        totals = [[self._register(f"total{r}_{v}") for v in range(len(columns))]
                  for r in range(len(rows))]  # fmt: skip
        parts = [[[self._register(f"sum{r}_{v}_{h}") for h in range(halves)]
                  for v in range(len(columns))] for r in range(len(rows))]  # fmt: skip
        words = self.codes.shape[2] // self.scales.shape[1]

        def of_block(n: PrimExpr) -> Stmt:
            b = blocks.first + n

            def word(at: PrimExpr) -> Stmt:
                return self._added(stripe, b * words + at, read, columns, parts)

            cleared = [self._cleared(one) for row in parts for own in row for one in own]
            loop = unrolled if words <= _SHORT else serial
            scaled = [
                self._scaled(stripe, b, rows, column, [row[v] for row in parts], totals, v)
                for v, column in enumerate(columns)
            ]
            return seq(*cleared, loop(words, word, "word"), *scaled)

        begin, ends = list[Stmt](), list[Stmt]()
        for row, own in zip(rows, totals, strict=True):
            for column, total in zip(columns, own, strict=True):
                place = row, stripe * COLUMNS + column
                before = set_items(total, index(0), items(self.out, *place, self.lanes))
                begin.append(before if blocks.goes_on else self._cleared(total))
                ends.append(set_items(self.out, *place, self._value(total)))
        registers = [one for row in totals for one in row]
        registers += [one for row in parts for own in row for one in own]
        return allocate(registers, seq(*begin, serial(blocks.count, of_block, "block"), *ends))

    def _register(self, name: str) -> Buffer:
        return Buffer(name, (self.lanes,), DType.FLOAT32, MemoryScope.REGISTER)

    def _value(self, register: Buffer) -> PrimExpr:
        return items(register, index(0), self.lanes)

    def _cleared(self, register: Buffer) -> Stmt:
        return set_items(register, index(0), self._spread(0.0))

    def _spread(self, number: float) -> PrimExpr:
        return spread(const(number, DType.FLOAT32), self.lanes)

    def _added(
        self, stripe: PrimExpr, word: PrimExpr, rows: Sequence[_Read],
        columns: Sequence[PrimExpr], parts: Sequence[Sequence[Sequence[Buffer]]],
    ) -> Stmt:  # fmt: skip
        """Add the products of the codes of a word to the sums of a block."""
        each, added = WORD_BITS // self.bits, list[Stmt]()
        read = [
            items(self.codes, stripe, column // LINE, word, column % LINE, self.lanes)
            for column in columns
        ]
        words = [TirVar(f"word{v}", DType.INT32, self.lanes) for v in range(len(columns))]
        for n in range(each):
            for v, name in enumerate(words):
                code = TirVar(f"code{v}_{n}", DType.FLOAT32, self.lanes)
                stores: list[Stmt] = []
                for row, own in zip(rows, parts, strict=True):
                    to = own[v][n % len(own[v])]
                    element = spread(row(word * each + n), self.lanes)
                    stores.append(set_items(to, index(0), self._value(to) + element * code))
                added.append(lets((code,), (code_of(name, n, self.bits),), seq(*stores)))
        return lets(words, read, seq(*added))

    def _scaled(
        self, stripe: PrimExpr, b: PrimExpr, rows: Sequence[PrimExpr], column: PrimExpr,
        parts: Sequence[Sequence[Buffer]], totals: Sequence[Sequence[Buffer]], v: int,
    ) -> Stmt:  # fmt: skip
        """Add the sums of a block, times its scale and less its shift, to those of all blocks."""
        names = [TirVar("scale", DType.FLOAT32, self.lanes)]
        values = [items(self.scales, stripe, b, column, self.lanes)]
        if self.shifts is not None:
            names.append(TirVar("shift", DType.FLOAT32, self.lanes))
            values.append(items(self.shifts, stripe, b, column, self.lanes))
        stores: list[Stmt] = []
        for row, own, total in zip(rows, parts, totals, strict=True):
            done = self._value(own[0])
            for other in own[1:]:
                done = done + self._value(other)
            result = self._value(total[v]) + done * names[0]
            if self.sums is not None:
                result = result - spread(load(self.sums, row, b), self.lanes) * names[1]
            stores.append(set_items(total[v], index(0), result))
        return lets(names, values, seq(*stores))
