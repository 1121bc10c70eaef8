# SPDX-License-Identifier: Apache-2.0
"""Long rows put in order by a radix sort: one pass for each byte of what elements are ordered by.

A pass writes each key behind those that have the same byte or a lower one, in their order. Four
passes of 32 bits cost the same whatever the data are; a heap costs ``log2(size)`` steps an element,
and misses the first-level cache in each. Key and place of an element are one word, so a pass reads
one array and writes one. Counters of all passes, 8 KiB, stay in the first-level cache.
"""

from __future__ import annotations

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, cell, get, let, load, put, seq, serial, store
from intarsia_ir.tir.expr import INDEX, BinaryOp, PrimExpr, binary, cast, const, index
from intarsia_ir.tir.stmt import Stmt

from .row_order import OrderedRow

_DIGITS = 256
_PASSES = 4
_SHIFT = 32
"""Bits of a key below what it is ordered by: the place."""


def sorted_by_radix(row: OrderedRow) -> Stmt:
    """Return what fills a row of the results, of elements that 32 bits order."""
    keys, others = (Buffer(name, (row.size,), INDEX, MemoryScope.STACK) for name in ("keys", "to"))
    counts = Buffer("counts", (_PASSES * _DIGITS,), INDEX, MemoryScope.STACK)
    total = cell("total", INDEX)

    def slot(key: PrimExpr, number: int) -> PrimExpr:
        shifted = binary(BinaryOp.SHR, key, const(_SHIFT + 8 * number, INDEX))
        return binary(BinaryOp.AND, shifted, const(_DIGITS - 1, INDEX)) + number * _DIGITS

    def add(at: PrimExpr) -> Stmt:
        return store(counts, (at,), load(counts, at) + 1)

    def fill(place: PrimExpr) -> Stmt:
        # As unsigned numbers; the shift drops what passes 64 bits.
        order = cast(row.order(row.item(place)), INDEX) + (1 << (_SHIFT - 1))
        return let(
            order * (1 << _SHIFT) + place,
            lambda key: seq(
                store(keys, (place,), key), *(add(slot(key, number)) for number in range(_PASSES))
            ),
            "key",
        )

    def starts(at: PrimExpr) -> Stmt:
        def summed(count: PrimExpr) -> Stmt:
            return seq(store(counts, (at,), get(total)), put(total, get(total) + count))

        return let(load(counts, at), summed, "count")

    def moved(number: int) -> Stmt:
        source, target = (keys, others) if number % 2 == 0 else (others, keys)

        def move(at: PrimExpr) -> Stmt:
            def with_key(key: PrimExpr) -> Stmt:
                return let(
                    slot(key, number),
                    lambda digit: let(
                        load(counts, digit),
                        lambda to: seq(store(target, (to,), key), store(counts, (digit,), to + 1)),
                        "to",
                    ),
                    "digit",
                )

            return let(load(source, at), with_key, "key")

        first = number * _DIGITS
        offsets = serial(_DIGITS, lambda digit: starts(digit + first), "digit")
        return seq(put(total, index(0)), offsets, serial(row.size, move, "at"))

    def write(to: PrimExpr) -> Stmt:
        place = binary(BinaryOp.AND, load(keys, to), const((1 << _SHIFT) - 1, INDEX))
        return let(place, lambda place: row.write(to, place), "place")

    zeros = serial(_PASSES * _DIGITS, lambda at: store(counts, (at,), index(0)), "digit")
    passes = [moved(number) for number in range(_PASSES)]
    body = seq(zeros, serial(row.size, fill, "at"), *passes, serial(row.count, write, "to"))
    return allocate((keys, others, counts, total), body)
