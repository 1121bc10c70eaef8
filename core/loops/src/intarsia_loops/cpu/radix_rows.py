# SPDX-License-Identifier: Apache-2.0
"""Long rows put in order by a radix sort: one pass for each byte of what elements are ordered by.

A pass writes each key behind those that have the same byte or a lower one, in their order. Four
passes of 32 bits cost the same whatever the data are; a heap costs ``log2(size)`` steps an element,
and misses the first-level cache in each. Key and place of an element are one word, so a pass reads
one array and writes one. Counters of all passes, 8 KiB, stay in the first-level cache.

Where half of a row is wanted at most, elements are counted by their highest 11 bits, sign, exponent
and two bits more of float32, and only those are sorted that are in the bucket of the last one
wanted or in front of it. Every key is written behind the last one kept and the number of these
grows by a comparison: no branch depends on the data. (1000 of 8400: 0.51 of the time, 2000 of
20 000: 0.44; AVX2 on AMD Zen 4.)
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, cell, get, let, load, put, seq, serial, store
from intarsia_ir.tir.expr import INDEX, BinaryOp, PrimExpr, binary, cast, const, index, select
from intarsia_ir.tir.stmt import Stmt

from .row_order import OrderedRow

_DIGITS = 256
_PASSES = 4
_SHIFT = 32
"""Bits of a key below what it is ordered by: the place."""

_BUCKETS = 2048
_BUCKET_SHIFT = 53
"""Bits of a key below the number of its bucket."""

_SELECTED_SHARE, _LEAST_SELECTED = 2, 2 * _BUCKETS
"""How many times as many elements as are wanted a row has where some are left out first, and how
many it has: buckets cost as much as some thousand elements."""


def sorted_by_radix(row: OrderedRow) -> Stmt:
    """Return what fills a row of the results, of elements that 32 bits order."""
    keys, others = (Buffer(name, (row.size,), INDEX, MemoryScope.STACK) for name in ("keys", "to"))
    counts = Buffer("counts", (_PASSES * _DIGITS,), INDEX, MemoryScope.STACK)
    total = cell("total", INDEX)
    zeros = serial(_PASSES * _DIGITS, lambda at: store(counts, (at,), index(0)), "digit")

    def count(key: PrimExpr) -> Stmt:
        return seq(*(_counted(counts, _slot(key, number)) for number in range(_PASSES)))

    def write(to: PrimExpr) -> Stmt:
        place = binary(BinaryOp.AND, load(keys, to), const((1 << _SHIFT) - 1, INDEX))
        return let(place, lambda place: row.write(to, place), "place")

    def passes(size: PrimExpr) -> list[Stmt]:
        each = ((keys, others), (others, keys))
        return [_moved(each[n % 2], counts, total, size, n) for n in range(_PASSES)]

    if row.size >= max(_LEAST_SELECTED, row.count * _SELECTED_SHARE):

        def sort(size: PrimExpr) -> Stmt:
            counted = serial(size, lambda at: let(load(keys, at), count, "key"), "at")
            return seq(counted, *passes(size))

        body = seq(zeros, _selected(row, (others, keys), total, sort))
    else:
        filled = _filled(row, keys, count)
        body = seq(zeros, filled, *passes(index(row.size)))
    written = serial(row.count, write, "to")
    return allocate((keys, others, counts, total), seq(body, written))


def _slot(key: PrimExpr, number: int) -> PrimExpr:
    """Return the counter of a key in a pass."""
    shifted = binary(BinaryOp.SHR, key, const(_SHIFT + 8 * number, INDEX))
    return binary(BinaryOp.AND, shifted, const(_DIGITS - 1, INDEX)) + number * _DIGITS


def _counted(counts: Buffer, at: PrimExpr) -> Stmt:
    return store(counts, (at,), load(counts, at) + 1)


def _filled(row: OrderedRow, keys: Buffer, count: Callable[[PrimExpr], Stmt]) -> Stmt:
    """Write the keys of all elements, and count each."""

    def fill(place: PrimExpr) -> Stmt:
        # As unsigned numbers; the shift drops what passes 64 bits.
        order = cast(row.order(row.item(place)), INDEX) + (1 << (_SHIFT - 1))
        key = order * (1 << _SHIFT) + place
        return let(key, lambda key: seq(store(keys, (place,), key), count(key)), "key")

    return serial(row.size, fill, "at")


def _selected(
    row: OrderedRow,
    buffers: tuple[Buffer, Buffer],
    total: Buffer,
    body: Callable[[PrimExpr], Stmt],
) -> Stmt:
    """Return ``body`` of the number of keys that may be wanted, with these in the second buffer.

    Args:
        row: Of which they are.
        buffers: For the keys of all elements, and for these.
        total: A cell.
        body: ``body(number)``.
    """
    every, kept = buffers
    buckets = Buffer("buckets", (_BUCKETS,), INDEX, MemoryScope.STACK)
    last, number = cell("last", INDEX), cell("number", INDEX)

    def bucket(key: PrimExpr) -> PrimExpr:
        shifted = binary(BinaryOp.SHR, key, const(_BUCKET_SHIFT, INDEX))
        return binary(BinaryOp.AND, shifted, const(_BUCKETS - 1, INDEX))

    def find(at: PrimExpr) -> Stmt:
        found = put(last, select(get(total) < row.count, at, get(last)))
        return seq(found, put(total, get(total) + load(buckets, at)))

    def keep(at: PrimExpr) -> Stmt:
        def written(key: PrimExpr) -> Stmt:
            more = select(bucket(key) <= get(last), index(1), index(0))
            return seq(store(kept, (get(number),), key), put(number, get(number) + more))

        return let(load(every, at), written, "key")

    cleared = serial(_BUCKETS, lambda at: store(buckets, (at,), index(0)), "bucket")
    parts = (
        cleared,
        *(put(variable, index(0)) for variable in (total, last, number)),
        _filled(row, every, lambda key: _counted(buckets, bucket(key))),
        serial(_BUCKETS, find, "bucket"),
        serial(row.size, keep, "at"),
        let(get(number), body, "size"),
    )
    return allocate((buckets, last, number), seq(*parts))


def _moved(
    buffers: tuple[Buffer, Buffer], counts: Buffer, total: Buffer, size: PrimExpr, number: int
) -> Stmt:
    """Move keys to where a pass puts them.

    Args:
        buffers: Where they are, and where to.
        counts: How many have each digit.
        total: A cell.
        size: How many there are.
        number: Of the pass.
    """
    source, target = buffers
    first = number * _DIGITS

    def starts(at: PrimExpr) -> Stmt:
        def summed(count: PrimExpr) -> Stmt:
            return seq(store(counts, (at,), get(total)), put(total, get(total) + count))

        return let(load(counts, at), summed, "count")

    def move(at: PrimExpr) -> Stmt:
        def with_key(key: PrimExpr) -> Stmt:
            return let(_slot(key, number), lambda digit: with_digit(key, digit), "digit")

        def with_digit(key: PrimExpr, digit: PrimExpr) -> Stmt:
            def with_place(to: PrimExpr) -> Stmt:
                return seq(store(target, (to,), key), store(counts, (digit,), to + 1))

            return let(load(counts, digit), with_place, "to")

        return let(load(source, at), with_key, "key")

    offsets = serial(_DIGITS, lambda digit: starts(digit + first), "digit")
    return seq(put(total, index(0)), offsets, serial(size, move, "at"))
