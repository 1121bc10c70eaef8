# SPDX-License-Identifier: Apache-2.0
"""The best elements of rows that are short: by extremes, or by the rank of every element.

A heap or a sort decides element by element, and of random data mispredicts half of the branches.
Here a row becomes integer *keys*, ascending in the order of the result, for vectors to work on:

- *Extremes*: keys of 64 bits, the place of the element below what it is ordered by, so no two are
  equal. Each result is the least key above the one before. ``count * size`` comparisons.
- *Ranks*: how many keys come before each one is its place in the result. ``size * size``
  comparisons, however many are wanted, and no branch depends on the data.

Registers: keys, a sum or an extreme, the vector compared, a mask: 4. What is kept of a row, at most
16 KiB, stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.ops.elements import wide
from intarsia_ir.ops.selection import TopK
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
    intrinsic,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import IfStmt, Stmt, Store
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

_MOST_RANKED = 64
"""Keys of a row by those of a vector up to which all ranks are counted faster than sorted."""

_LEAST_RANKED = 4
"""Elements wanted from which on ranks are counted: fewer a heap finds faster."""

_MOST_EXTREMES = 24
"""Elements wanted up to which extremes are searched."""

_SHARE = 6
"""How many times as many elements a row has where extremes are faster than ranks."""

_PLACES = (1 << 32) - 1
"""What of a key is the place of its element, and one."""

_MOST_SEARCHED = 1024
"""Elements of a row that extremes are searched in: of longer ones a heap passes over most."""


def top_k_kernel(group: FusedGroup, lanes: int) -> PrimFunc | None:
    """Return the kernel of ``top_k`` of rows of a known length that vectors are good for.

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
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = (outer,) if inner == 1 else (outer, inner)
    data = Buffer("x", (rows[0], size, *rows[1:]), kind.dtype)
    values = Buffer("values", (rows[0], count, *rows[1:]), kind.dtype)
    places = Buffer("places", (rows[0], count, *rows[1:]), INDEX)
    by_extremes = _suits_extremes(kind.dtype, size, count, lanes)
    key = DType.INT64 if by_extremes else _order_dtype(kind.dtype)
    lanes = lanes * 4 // key.bytes
    if not by_extremes and (count < _LEAST_RANKED or size > _MOST_RANKED * lanes):
        return None
    keys = Buffer("keys", (-(-size // lanes) * lanes,), key, MemoryScope.STACK)

    def row(number: PrimExpr) -> Stmt:
        at = (number,) if inner == 1 else (number // inner, number % inner)
        work = _Row(data, values, places, keys, at, attrs.largest, lanes)
        return work.extremes() if by_extremes else work.ranked()

    return PrimFunc(group.name, (data, values, places), 2, parallel(outer * inner, row))


def _suits_extremes(dtype: DType, size: int, count: int, lanes: int) -> bool:
    """Whether few are wanted, of elements of which a key holds the place as well."""
    if _order_dtype(dtype) is DType.INT64 or size > min(_MOST_SEARCHED, _MOST_RANKED * lanes):
        return False
    return count <= min(_MOST_EXTREMES, max(2, size // _SHARE))


def _order_dtype(dtype: DType) -> DType:
    """Return the shortest type that orders all elements of a type."""
    is_short = dtype.bytes < 4 or dtype in (DType.FLOAT32, DType.INT32)
    return DType.INT32 if is_short else DType.INT64


class _Row(Struct, frozen=True):
    """A row of the operand and of the results.

    Attributes:
        data: ``[rows, size]``, or ``[rows, size, inner]``.
        values: The best elements, in order.
        places: Where they are.
        keys: Of the elements; as many as fill vectors.
        at: The indices of the row but that of the element.
        largest: Whether the largest elements are the best.
        lanes: Keys in a vector.
    """

    data: Buffer
    values: Buffer
    places: Buffer
    keys: Buffer
    at: tuple[PrimExpr, ...]
    largest: bool
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
                let(place, lambda place: self._write(to, place), "place"),
            )

        def key(item: PrimExpr, place: PrimExpr) -> PrimExpr:
            order = self._order(item, _order_dtype(item.dtype))
            return cast(order, dtype) * _spread(_PLACES + 1, place) + cast(place, dtype) + 1

        first = put(last, const(~_limit(dtype), dtype))  # below all keys, as no place is 0 there
        body = seq(self._fill(key), first, serial(self.values.shape[1], write, "to"))
        return allocate((self.keys, best, last), body)

    def ranked(self) -> Stmt:
        """Count how many keys come before each, an earlier one if it is equal; then write.

        Keys behind the row come after all of it: their ranks are the length of the row.
        """
        dtype, lanes, size = self.keys.dtype, self.lanes, self.data.shape[1]
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
            return let(load(order, to), lambda place: self._write(to, place), "place")

        return allocate(
            (self.keys, total, ranks, order),
            seq(
                self._fill(lambda item, _: self._order(item, dtype)),
                serial(self._blocks, block, "block"),
                serial(self.values.shape[1], write, "to"),
            ),
        )

    @property
    def _blocks(self) -> int:
        return self.keys.shape[0] // self.lanes

    def _fill(self, key: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """Write the keys of elements at places, and the greatest ones behind them."""
        size, padded = self.data.shape[1], self.keys.shape[0]
        whole = size // self.lanes if len(self.at) == 1 else 0

        def vector(number: PrimExpr) -> Stmt:
            lane = Ramp(number * self.lanes, 1, self.lanes)
            items = Load(self.data, (*self.at, lane), self.data.dtype, self.lanes)
            return Store(self.keys, (lane,), key(items, lane))

        def item(number: PrimExpr) -> Stmt:
            place = number + whole * self.lanes
            return store(self.keys, (place,), key(self._item(place), place))

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

    def _item(self, place: PrimExpr) -> Load:
        return load(self.data, self.at[0], place, *self.at[1:])

    def _write(self, to: PrimExpr, place: PrimExpr) -> Stmt:
        where = (self.at[0], to, *self.at[1:])
        return seq(store(self.values, where, self._item(place)), store(self.places, where, place))

    def _order(self, item: PrimExpr, dtype: DType) -> PrimExpr:
        """Return what elements are ordered by: equal ones alike, NaN behind every number."""
        value = wide(item)
        if not value.dtype.is_float:
            order = cast(value, dtype)
            if value.dtype is DType.UINT64:
                order = binary(BinaryOp.XOR, order, _spread(~_limit(dtype), order))
            return _complement(order) if self.largest else order
        bits = intrinsic(Intrinsic.BITS, value + _spread(0, value))  # -0 becomes 0
        negative = binary(BinaryOp.XOR, bits, _spread(_limit(dtype), bits))
        order = select(bits < _spread(0, bits), negative, bits)
        order = _complement(order) if self.largest else order
        is_nan = intrinsic(Intrinsic.ISNAN, value)
        return select(is_nan, _spread(_limit(dtype), order), order)


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
            is_tie = binary(BinaryOp.AND, lane > self._spread(at), equal(key, self.own))
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

    def _spread(self, number: PrimExpr) -> PrimExpr:
        return Broadcast(cast(number, self.own.dtype), self.own.lanes, self.own.dtype)

    def _add(self, flags: PrimExpr) -> Stmt:
        lanes = self.own.lanes
        every = (Ramp(index(0), 1, lanes),)
        counted = Load(self.total, every, self.own.dtype, lanes)
        return Store(self.total, every, counted + cast(flags, self.own.dtype))


def _limit(dtype: DType) -> int:
    """Return the greatest number of a signed type."""
    return (1 << (dtype.bits - 1)) - 1


def _most(dtype: DType) -> PrimExpr:
    return const(_limit(dtype), dtype)


def _spread(number: int, like: PrimExpr) -> PrimExpr:
    """Return a constant as wide as another value."""
    value = const(number, like.dtype)
    return value if like.lanes == 1 else Broadcast(value, like.lanes, like.dtype)


def _complement(key: PrimExpr) -> PrimExpr:
    return binary(BinaryOp.XOR, key, _spread(-1, key))
