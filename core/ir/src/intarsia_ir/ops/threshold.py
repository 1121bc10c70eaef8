# SPDX-License-Identifier: Apache-2.0
"""The best elements of a row by a threshold that just they pass, put in order by their ranks.

The threshold is found by bisection: each step counts by vectors how many elements pass. Those that
do are few; how many of them come before an element is its rank, counted by vectors as well. A row
without such a threshold (elements equal at the border, infinities, NaN) is left to others.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, let, load, put, seq, serial, store
from ..tir.expr import (
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
)
from ..tir.stmt import IfStmt, Seq, Stmt, Store

FEWEST, MOST = 32, 512
"""How many elements are wanted at least and at most: fewer a heap finds faster, more a sort."""

_LONGER = 4
"""How many times as many elements a row has at least."""

_LANES = 64
_STEPS = 24
_BLOCK = 32
_SORTED = 16


def shortest(dtype: DType, count: Size) -> int | None:
    """Return from which length of a row on a threshold finds ``count`` elements faster than a heap.

    ``None`` if it never does, or if the run alone knows how many are wanted.
    """
    if isinstance(count, Dim) or dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    return max(_LONGER * count, 4 * _LANES) if FEWEST <= count <= MOST else None


class Threshold(Struct, frozen=True):
    """A row of which the best elements are wanted.

    Attributes:
        data: ``[rows, size]``.
        values: ``[rows, count]``: the best elements, in order.
        places: ``[rows, count]``: where they are.
        row: Which row.
        largest: Whether the largest elements are the best; or else the smallest.
    """

    data: Buffer
    values: Buffer
    places: Buffer
    row: PrimExpr
    largest: bool

    @property
    def _count(self) -> int:
        return self.values.shape[1]

    def loops(self, otherwise: Stmt) -> Stmt:
        """Return what fills a row of the results, or runs ``otherwise``."""
        dtype = self.data.dtype
        low, high, limit = (cell(name, dtype) for name in ("low", "high", "limit"))
        passed = cell("passed", INDEX)

        def step(_: PrimExpr) -> Stmt:
            middle = get(low) * 0.5 + get(high) * 0.5
            body = let(middle, lambda place: self._try(place, low, high, limit, passed), "middle")
            return IfStmt(binary(BinaryOp.NE, get(passed), index(self._count)), body)

        done = self._take(limit)
        return allocate(
            (low, high, limit, passed),
            seq(
                put(passed, index(-1)),
                put(limit, const(0, dtype)),
                self._extreme(low, BinaryOp.MIN),
                self._extreme(high, BinaryOp.MAX),
                serial(_STEPS, step, "step"),
                IfStmt(equal(get(passed), index(self._count)), done, otherwise),
            ),
        )

    def _before(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return a > b if self.largest else a < b

    def _vector(self, start: PrimExpr, lanes: int) -> Load:
        return Load(self.data, (self.row, Ramp(start, 1, lanes)), self.data.dtype, lanes)

    def _extreme(self, result: Buffer, op: BinaryOp) -> Stmt:
        """Find an extreme of the row; the last vector overlaps the one before."""
        size, dtype = self.data.shape[1], self.data.dtype
        best = Buffer("best", (_LANES,), dtype, MemoryScope.REGISTER)
        whole = (Ramp(IntImm(0), 1, _LANES),)
        current = Load(best, whole, dtype, _LANES)
        chosen = minimum if op is BinaryOp.MIN else maximum

        def step(number: PrimExpr) -> Stmt:
            start = minimum(number * _LANES, size - _LANES)
            return Store(best, whole, chosen(current, self._vector(start, _LANES)))

        return allocate(
            (best,),
            seq(
                Store(best, whole, self._vector(index(0), _LANES)),
                serial(-(-size // _LANES), step, "chunk"),
                put(result, ReduceLanes(op, current, dtype)),
            ),
        )

    def _try(
        self, place: PrimExpr, low: Buffer, high: Buffer, limit: Buffer, passed: Buffer
    ) -> Stmt:
        """Count what passes a threshold, and halve the range for the next one."""
        many = get(passed) > index(self._count)
        closer = (put(low, place), put(high, place))
        upper, lower = closer if self.largest else reversed(closer)
        found = equal(get(passed), index(self._count))
        return seq(
            self._counted(place, passed),
            IfStmt(found, put(limit, place), IfStmt(many, upper, lower)),
        )

    def _counted(self, place: PrimExpr, passed: Buffer) -> Stmt:
        size = self.data.shape[1]
        rest = size % _LANES

        def tail(at: PrimExpr) -> Stmt:
            item = load(self.data, self.row, at + (size - rest))
            return put(passed, get(passed) + cast(self._before(item, place), INDEX))

        def items(number: PrimExpr) -> PrimExpr:
            vector = self._vector(number * _LANES, _LANES)
            return self._before(vector, Broadcast(place, _LANES, place.dtype))

        return seq(_total(items, size // _LANES, _LANES, passed), serial(rest, tail, "at"))

    def _take(self, limit: Buffer) -> Stmt:
        """Keep what passes, in the order of the row; then write each to its rank."""
        room = -(-self._count // _SORTED) * _SORTED
        kept = Buffer("kept", (room,), self.data.dtype, MemoryScope.STACK)
        origins = Buffer("origins", (room,), INDEX, MemoryScope.STACK)
        used = Buffer("used", (room,), INDEX, MemoryScope.STACK)
        filled = cell("filled", INDEX)

        def begin(at: PrimExpr) -> Stmt:
            return seq(store(kept, (at,), get(limit)), store(used, (at,), index(0)))

        def keep(at: PrimExpr) -> Stmt:
            item = load(self.data, self.row, at)
            taken = seq(
                store(kept, (get(filled),), item),
                store(origins, (get(filled),), at),
                put(filled, get(filled) + 1),
            )
            return IfStmt(self._before(item, get(limit)), taken)

        return allocate(
            (kept, origins, used, filled),
            seq(
                serial(room, begin, "at"),
                put(filled, index(0)),
                self._scan(keep, limit),
                serial(self._count, lambda at: self._ranked(at, kept, origins, used), "at"),
            ),
        )

    def _scan(self, keep: Callable[[PrimExpr], Stmt], limit: Buffer) -> Stmt:
        """Look at the elements of those blocks in which any passes."""
        size = self.data.shape[1]
        rest = size % _BLOCK

        def block(number: PrimExpr) -> Stmt:
            start = number * _BLOCK
            passes = self._before(
                self._vector(start, _BLOCK), Broadcast(get(limit), _BLOCK, self.data.dtype)
            )
            chosen = ReduceLanes(BinaryOp.OR, passes, DType.BOOL)
            return IfStmt(chosen, serial(_BLOCK, lambda at: keep(start + at), "at"))

        return seq(
            serial(size // _BLOCK, block, "block"),
            serial(rest, lambda at: keep(at + (size - rest)), "at"),
        )

    def _ranked(self, at: PrimExpr, kept: Buffer, origins: Buffer, used: Buffer) -> Stmt:
        """Write an element behind those before it, and behind equal ones that came earlier."""
        rank = cell("rank", INDEX)

        def write(item: PrimExpr) -> Stmt:
            def earlier(number: PrimExpr) -> PrimExpr:
                lanes = (Ramp(number * _SORTED, 1, _SORTED),)
                others = Load(kept, lanes, kept.dtype, _SORTED)
                return self._before(others, Broadcast(item, _SORTED, item.dtype))

            slot = get(rank) + load(used, get(rank))
            return seq(
                _total(earlier, kept.shape[0] // _SORTED, _SORTED, rank),
                let(slot, lambda to: self._placed(to, item, load(origins, at)), "to"),
                store(used, (get(rank),), load(used, get(rank)) + 1),
            )

        return allocate((rank,), let(load(kept, at), write, "item"))

    def _placed(self, to: PrimExpr, item: PrimExpr, origin: PrimExpr) -> Stmt:
        return seq(
            store(self.values, (self.row, to), item), store(self.places, (self.row, to), origin)
        )


def _total(flags: Callable[[PrimExpr], PrimExpr], vectors: int, lanes: int, result: Buffer) -> Stmt:
    """Count the lanes that are true in some vectors."""
    counts = Buffer("counts", (lanes,), DType.INT32, MemoryScope.REGISTER)
    whole = (Ramp(IntImm(0), 1, lanes),)
    current = Load(counts, whole, DType.INT32, lanes)

    def step(number: PrimExpr) -> Stmt:
        return Store(counts, whole, current + cast(flags(number), DType.INT32))

    zero = Broadcast(const(0, DType.INT32), lanes, DType.INT32)
    total = ReduceLanes(BinaryOp.ADD, current, DType.INT32)
    body = Seq(
        (
            Store(counts, whole, zero),
            serial(vectors, step, "chunk"),
            put(result, cast(total, INDEX)),
        )
    )
    return allocate((counts,), body)
