# SPDX-License-Identifier: Apache-2.0
"""The best elements of rows that are short: by extremes, or by the rank of every element.

A heap or a sort decides element by element, and of random data mispredicts half of the branches.
Here a row becomes integer *keys*, ascending in the order of the result, for vectors to work on:

- *Extremes*: keys of 64 bits, the place of the element below what it is ordered by, so no two are
  equal. Each result is the least key above the one before. ``count * size`` comparisons.
- *Ranks*: how many keys come before each one is its place in the result. ``size * size``
  comparisons, however many are wanted, and no branch depends on the data.

Rows too long for these are sorted if many of their elements are wanted (``radix_rows.py``).

Registers: keys, a sum or an extreme, the vector compared, a mask: 4. What is kept of a row, at most
16 KiB, stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.ops.selection import TopK
from intarsia_ir.ops.threshold import shortest
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import (
    allocate,
    cell,
    get,
    let,
    load,
    parallel,
    put,
    seq,
    serial,
    store,
    unrolled,
)
from intarsia_ir.tir.expr import (
    INDEX,
    BinaryOp,
    Broadcast,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    binary,
    cast,
    const,
    equal,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import IfStmt, Stmt, Store
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .radix_rows import sorted_by_radix
from .row_order import OrderedRow, limit, order_dtype, spread

_MOST_RANKED = 16
"""Vectors of a row up to which all ranks are counted faster than elements are sorted."""

_LEAST_RANKED = 4
"""Elements wanted from which on ranks are counted: fewer a heap finds faster."""

_MOST_EXTREMES = 40
"""Elements wanted up to which extremes are searched."""

_SHARE = 6
"""How many times as many elements a row has where extremes are faster than ranks."""

_MOST_SEARCHED = 1024
"""Elements of a row that extremes are searched in: of longer ones a heap passes over most."""

_SORTED_SHARE = 10
"""How many times as many elements as are wanted a row has at most for all of it to be sorted."""

_PLACES = (1 << 32) - 1
"""What of a key is the place of its element, and one."""


def top_k_kernel(group: FusedGroup, lanes: int) -> PrimFunc | None:
    """Return the kernel of ``top_k`` of rows of a known length that no heap is as fast for.

    Args:
        group: The fused group.
        lanes: Elements of 32 bits of a vector of the machine.
    """
    call = group.anchor
    if call is None or group.function.body is not call or not isinstance(call.attrs, TopK.Attrs):
        return None
    attrs, kind = call.attrs, tensor_type(call.args[0])
    shape, axis = extents(kind.shape), attrs.axis
    size, count = shape[axis], attrs.count
    if isinstance(size, Dim) or isinstance(count, Dim) or count < 1 or lanes < 4:
        return None
    loops_of = _loops_of(kind.dtype, size, count, lanes)
    if loops_of is None:
        return None
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = (outer,) if inner == 1 else (outer, inner)
    data = Buffer("x", (rows[0], size, *rows[1:]), kind.dtype)
    values = Buffer("values", (rows[0], count, *rows[1:]), kind.dtype)
    places = Buffer("places", (rows[0], count, *rows[1:]), INDEX)

    def row(number: PrimExpr) -> Stmt:
        at = (number,) if inner == 1 else (number // inner, number % inner)
        return loops_of(OrderedRow(data, values, places, at, attrs.largest))

    return PrimFunc(group.name, (data, values, places), 2, parallel(outer * inner, row))


def _loops_of(
    dtype: DType, size: int, count: int, lanes: int
) -> Callable[[OrderedRow], Stmt] | None:
    """Return what makes the loops of a row; ``None`` if a heap or a threshold is as fast."""
    least = shortest(dtype, count)
    if least is not None and size >= least:
        return None
    order = order_dtype(dtype)
    is_short = order is DType.INT32  # so that a key holds the place as well
    few = min(_MOST_EXTREMES, max(2, size // _SHARE))
    if is_short and count <= few and size <= min(_MOST_SEARCHED, 4 * _MOST_RANKED * lanes):
        return lambda row: _keys_of(row, DType.INT64, lanes // 2).extremes()
    if count >= _LEAST_RANKED and size <= _MOST_RANKED * lanes:
        return lambda row: _keys_of(row, order, lanes * 4 // order.bytes).ranked()
    return sorted_by_radix if is_short and count * _SORTED_SHARE >= size else None


def _keys_of(row: OrderedRow, dtype: DType, lanes: int) -> _Keys:
    return _Keys(
        row, Buffer("keys", (-(-row.size // lanes) * lanes,), dtype, MemoryScope.STACK), lanes
    )


class _Keys(Struct, frozen=True):
    """The keys of a row.

    Attributes:
        row: The row.
        keys: Of its elements; as many as fill vectors.
        lanes: Keys in a vector.
    """

    row: OrderedRow
    keys: Buffer
    lanes: int

    def extremes(self) -> Stmt:
        """Find the least key above the last one found, once for each result."""
        dtype, lanes = self.keys.dtype, self.lanes
        best = Buffer("best", (lanes,), dtype, MemoryScope.REGISTER)
        last = cell("last", dtype)
        every = (Ramp(index(0), 1, lanes),)
        behind = Broadcast(_most(dtype), lanes, dtype)
        least = Load(best, every, dtype, lanes)

        def compared(items: PrimExpr) -> Stmt:
            is_left = items > Broadcast(get(last), lanes, dtype)
            return Store(best, every, minimum(least, select(is_left, items, behind)))

        def write(to: PrimExpr) -> Stmt:
            place = cast(binary(BinaryOp.AND, get(last), const(_PLACES, dtype)) - 1, INDEX)
            return seq(
                Store(best, every, behind),
                serial(self._blocks, lambda n: let(self._vector(n), compared, "items"), "block"),
                put(last, ReduceLanes(BinaryOp.MIN, least, dtype)),
                let(place, lambda place: self.row.write(to, place), "place"),
            )

        def key(item: PrimExpr, place: PrimExpr) -> PrimExpr:
            order = self.row.order(item)
            return cast(order, dtype) * spread(_PLACES + 1, place) + cast(place, dtype) + 1

        first = put(last, const(~limit(dtype), dtype))  # below all keys, as no place is 0 there
        body = seq(self._fill(key), first, serial(self.row.count, write, "to"))
        return allocate((self.keys, best, last), body)

    def ranked(self) -> Stmt:
        """Count how many keys come before each, an earlier one if it is equal; then write.

        Keys behind the row come after all of it: their ranks are the length of the row.
        """
        dtype, lanes, size = self.keys.dtype, self.lanes, self.row.size
        total = Buffer("total", (lanes,), dtype, MemoryScope.REGISTER)
        ranks = Buffer("ranks", (lanes,), dtype, MemoryScope.STACK)
        order = Buffer("order", (size + 1,), INDEX, MemoryScope.STACK)
        every = (Ramp(index(0), 1, lanes),)
        counted = Load(total, every, dtype, lanes)

        def block(number: PrimExpr) -> Stmt:
            def counts(own: PrimExpr) -> Stmt:
                return _Counting(self.keys, total, own, number, size).loops()

            def place(lane: PrimExpr) -> Stmt:
                return store(order, (cast(load(ranks, lane), INDEX),), number * lanes + lane)

            return seq(
                Store(total, every, Broadcast(const(0, dtype), lanes, dtype)),
                let(self._vector(number), counts, "own"),
                Store(ranks, every, counted),
                unrolled(lanes, place, "lane"),
            )

        def write(to: PrimExpr) -> Stmt:
            return let(load(order, to), lambda place: self.row.write(to, place), "place")

        return allocate(
            (self.keys, total, ranks, order),
            seq(
                self._fill(lambda item, _: self.row.order(item)),
                serial(self._blocks, block, "block"),
                serial(self.row.count, write, "to"),
            ),
        )

    @property
    def _blocks(self) -> int:
        return self.keys.shape[0] // self.lanes

    def _fill(self, key: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """Write the keys of elements at places, and the greatest ones behind them."""
        size, padded = self.row.size, self.keys.shape[0]
        whole = size // self.lanes if len(self.row.at) == 1 else 0

        def vector(number: PrimExpr) -> Stmt:
            lane = Ramp(number * self.lanes, 1, self.lanes)
            items = Load(self.row.data, (*self.row.at, lane), self.row.data.dtype, self.lanes)
            return Store(self.keys, (lane,), key(items, lane))

        def item(number: PrimExpr) -> Stmt:
            place = number + whole * self.lanes
            return store(self.keys, (place,), key(self.row.item(place), place))

        def last(number: PrimExpr) -> Stmt:
            return store(self.keys, (number + size,), _most(self.keys.dtype))

        return seq(
            serial(whole, vector, "block"),
            serial(size - whole * self.lanes, item, "at"),
            serial(padded - size, last, "at"),
        )

    def _vector(self, number: PrimExpr) -> Load:
        return Load(
            self.keys, (Ramp(number * self.lanes, 1, self.lanes),), self.keys.dtype, self.lanes
        )


class _Counting(Struct, frozen=True):
    """How many keys come before those of a vector, which they are compared with one by one.

    Attributes:
        keys: Of the row; as many as fill vectors.
        total: What is counted, in registers.
        own: The vector.
        number: Which one of the row it is.
        size: Elements of the row.
    """

    keys: Buffer
    total: Buffer
    own: PrimExpr
    number: PrimExpr
    size: int

    def loops(self) -> Stmt:
        """Return loops over vectors before this one, itself, those behind, and what fills none."""
        lanes, whole = self.own.lanes, self.size // self.own.lanes
        lane = Ramp(IntImm(0, self.own.dtype), 1, lanes, self.own.dtype)

        def within(at: PrimExpr) -> Stmt:
            key = self._key(self.number * lanes + at)
            is_tie = binary(BinaryOp.AND, lane > self._every(at), equal(key, self.own))
            return self._add(binary(BinaryOp.OR, key < self.own, is_tie))

        def before(block: PrimExpr) -> Stmt:
            return unrolled(lanes, lambda at: self._add(self._key(block * lanes + at) <= self.own))

        def behind(block: PrimExpr) -> Stmt:
            return unrolled(lanes, lambda at: self._add(self._key(block * lanes + at) < self.own))

        later = maximum(index(whole) - self.number - 1, 0)
        rest = self.size - whole * lanes
        tail = serial(rest, lambda at: self._add(self._key(at + whole * lanes) < self.own), "at")
        return seq(
            serial(self.number, before, "block"),
            IfStmt(self.number < whole, unrolled(lanes, within), serial(rest, within, "at")),
            serial(later, lambda n: behind(n + self.number + 1), "block"),
            *([IfStmt(self.number < whole, tail)] if rest else []),
        )

    def _key(self, at: PrimExpr) -> PrimExpr:
        return Broadcast(load(self.keys, at), self.own.lanes, self.own.dtype)

    def _every(self, number: PrimExpr) -> PrimExpr:
        return Broadcast(cast(number, self.own.dtype), self.own.lanes, self.own.dtype)

    def _add(self, flags: PrimExpr) -> Stmt:
        lanes = self.own.lanes
        every = (Ramp(index(0), 1, lanes),)
        counted = Load(self.total, every, self.own.dtype, lanes)
        return Store(self.total, every, counted + cast(flags, self.own.dtype))


def _most(dtype: DType) -> PrimExpr:
    return const(limit(dtype), dtype)
