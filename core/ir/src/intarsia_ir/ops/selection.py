# SPDX-License-Identifier: Apache-2.0
"""Operators that choose elements by their order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import minimum

from ..graph.guards import require_equal
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Size, TensorType, TupleType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, let, load, parallel, put, seq, serial, store
from ..tir.expr import (
    INDEX,
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    binary,
    equal,
    index,
    intrinsic,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array, is_floating, widen
from .derivative import DERIVATIVES
from .elements import wide
from .integer_forms import INTEGER_FORMS
from .threshold import Threshold, shortest
from .type_rules import check_axis, operands, shape_text

BLOCK = 32
"""Neighbouring elements of which one comparison of vectors finds out whether any is chosen."""


_MOST_LEVELS = 48
"""Levels of a heap that no memory holds."""


@operator("top_k", OpKind.OPAQUE)
class TopK(Op):
    """The largest or smallest elements along a dimension in their order, and where they are.

    The first of equal elements comes first. NaN comes after every number, whichever is wanted.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``count``: how many; ``axis``: the dimension; ``largest``: or else the smallest."""

        count: int
        axis: int
        largest: bool = True

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """The operand's type with ``count`` elements along the axis; the same of int64."""
        (x,) = operands(cls.name, types, 1)
        check_axis(cls.name, attrs.axis, x.rank)
        size = x.shape[attrs.axis]
        if not _has_as_many(size, attrs.count):
            raise TypeRuleError(
                f"{cls.name}: cannot take {attrs.count} elements along axis {attrs.axis} of"
                f" {shape_text(x.shape)}"
            )
        shape = (*x.shape[: attrs.axis], attrs.count, *x.shape[attrs.axis + 1 :])
        return TupleType((x.with_shape(shape), TensorType(shape, DType.INT64)))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> tuple[Array, Array]:
        """Sort by key and position, stably."""
        values = widen(x)
        nan = np.isnan(values) if is_floating(x) else np.zeros(x.shape, bool)
        ranks = np.unique(values, return_inverse=True)[1].reshape(x.shape)
        keys = -ranks if attrs.largest else ranks
        keys = np.where(nan, max(x.size, 1), keys)
        order = np.argsort(keys, axis=attrs.axis, kind="stable")
        chosen = np.take(order, range(attrs.count), attrs.axis)
        return np.take_along_axis(x, chosen, attrs.axis), chosen.astype(np.int64)

    @staticmethod
    def loops(attrs: Attrs, x: TensorType) -> PrimFunc:
        """Keep the best in a heap with the worst of them on top, then sort the heap in place.

        Of many elements, those that pass a threshold, if there is one that so many pass.
        """
        shape, axis = extents(x.shape), attrs.axis
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        size = x.shape[axis]
        least = shortest(x.dtype, attrs.count)
        rows = (outer,) if inner == 1 else (outer, inner)
        data = _rows("x", rows, shape[axis], x.dtype)
        values = _rows("values", rows, attrs.count, x.dtype)
        places = _rows("places", rows, attrs.count, INDEX)

        def row(number: PrimExpr) -> Stmt:
            at = (number,) if inner == 1 else (number // inner, number % inner)
            heap = _with_levels(
                attrs.count,
                lambda levels: _Heap(attrs, data, values, places, at, levels).loops(),
            )
            if least is None or inner != 1 or (isinstance(size, int) and size < least):
                return heap
            found = Threshold(data, values, places, number, attrs.largest).loops(heap)
            return found if isinstance(size, int) else IfStmt(index(size) >= least, found, heap)

        body = seq() if attrs.count == 0 else parallel(outer * inner, row)
        return PrimFunc("top_k", (data, values, places), 2, body)


def _has_as_many(size: Size, count: Size) -> bool:
    """Whether a dimension has as many elements as are wanted; open sizes become a guard."""
    if isinstance(size, int) and isinstance(count, int):
        return 0 <= count <= size
    why = "no more elements are taken than there are"
    return require_equal(minimum(size, count), count, why) or isinstance(count, int)


def _with_levels(count: Size, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """Return statements for the levels of a heap; those of an open size are counted before."""
    if isinstance(count, int):
        return body(index(count.bit_length() - 1))
    levels, size = cell("levels", INDEX), cell("size", INDEX)

    def double(_: PrimExpr) -> Stmt:
        grown = seq(put(levels, get(levels) + 1), put(size, get(size) * 2))
        return IfStmt(get(size) <= index(count), grown)

    counted = seq(put(levels, index(0)), put(size, index(2)), serial(_MOST_LEVELS, double, "level"))
    return allocate((levels, size), seq(counted, body(get(levels))))


def _rows(name: str, rows: tuple[int, ...], size: int, dtype: DType) -> Buffer:
    return Buffer(name, (rows[0], size, *rows[1:]), dtype)


class _Heap(Struct, frozen=True):
    """A row of the operand, and its row of the results, which is the heap itself.

    ``levels`` is how far the root of the heap is above its last leaf.
    """

    attrs: TopK.Attrs
    data: Buffer
    values: Buffer
    places: Buffer
    row: tuple[PrimExpr, ...]
    levels: PrimExpr

    def loops(self) -> Stmt:
        """Return what fills one row of the results."""
        count, size = self.attrs.count, self.data.shape[1]

        def begin(at: PrimExpr) -> Stmt:
            return self._write(at, self._item(at), at)

        def ordered(back: PrimExpr) -> Stmt:
            at = index(count // 2 - 1) - back
            return self._keep_value(at, at, count)

        def consider(at: PrimExpr) -> Stmt:
            return self._consider(at + count)

        def extract(back: PrimExpr) -> Stmt:
            end = index(count - 1) - back
            return self._swap_last(end)

        return seq(
            serial(count, begin, "at"),
            serial(count // 2, ordered, "back"),
            self._blocks() if len(self.row) == 1 else serial(size - count, consider, "at"),
            serial(count - 1, extract, "back"),
        )

    def _blocks(self) -> Stmt:
        """Consider all elements after the first, by blocks of which most are passed over."""
        count, size = self.attrs.count, self.data.shape[1]
        whole = (size - count) // BLOCK
        rest = size - count - whole * BLOCK

        def block(number: PrimExpr) -> Stmt:
            start = number * BLOCK + count
            ramp = Ramp(start, 1, BLOCK)
            items = Load(self.data, (*self.row, ramp), self.data.dtype, BLOCK)

            def each(at: PrimExpr) -> Stmt:
                return self._consider(start + at)

            worst = Broadcast(self._value(index(0)), BLOCK, self.data.dtype)
            chosen = ReduceLanes(BinaryOp.OR, self._enters(items, worst), DType.BOOL)
            return IfStmt(chosen, serial(BLOCK, each, "at"))

        def tail(at: PrimExpr) -> Stmt:
            return self._consider(at + (size - rest))

        return seq(serial(whole, block, "block"), serial(rest, tail, "at"))

    def _at(self, at: PrimExpr) -> tuple[PrimExpr, ...]:
        return (self.row[0], at, *self.row[1:])

    def _item(self, at: PrimExpr) -> Load:
        return load(self.data, *self._at(at))

    def _value(self, at: PrimExpr) -> Load:
        return load(self.values, *self._at(at))

    def _place(self, at: PrimExpr) -> Load:
        return load(self.places, *self._at(at))

    def _write(self, at: PrimExpr, value: PrimExpr, place: PrimExpr) -> Stmt:
        where = self._at(at)
        return seq(store(self.values, where, value), store(self.places, where, place))

    def _before(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """Whether a number is wanted more than another; false if one is NaN."""
        first, second = wide(a), wide(b)
        return first > second if self.attrs.largest else first < second

    def _enters(self, item: PrimExpr, worst: PrimExpr) -> PrimExpr:
        """Whether an element drives out the worst: of equal ones the first stays."""
        if not item.dtype.is_float:
            return self._before(item, worst)
        a, b = wide(item), wide(worst)
        comes_first = binary(BinaryOp.OR, self._before(a, b), intrinsic(Intrinsic.ISNAN, b))
        return binary(BinaryOp.AND, comes_first, equal(a, a))

    def _follows(self, a: PrimExpr, place_a: PrimExpr, b: PrimExpr, place_b: PrimExpr) -> PrimExpr:
        """Whether an element comes after another in the result."""
        first, second = wide(a), wide(b)
        later, same = self._before(second, first), equal(first, second)
        if a.dtype.is_float:
            nan_a, nan_b = (intrinsic(Intrinsic.ISNAN, value) for value in (first, second))
            later = binary(BinaryOp.OR, later, binary(BinaryOp.AND, nan_a, equal(second, second)))
            same = binary(BinaryOp.OR, same, binary(BinaryOp.AND, nan_a, nan_b))
        return binary(BinaryOp.OR, later, binary(BinaryOp.AND, same, place_a > place_b))

    def _consider(self, at: PrimExpr) -> Stmt:
        """Let an element take the place of the worst if it is better."""

        def replaced(item: PrimExpr) -> Stmt:
            enters = self._enters(item, self._value(index(0)))
            return IfStmt(enters, self._sift(index(0), index(self.attrs.count), item, at))

        return let(self._item(at), replaced, "item")

    def _keep_value(self, at: PrimExpr, start: PrimExpr, size: int) -> Stmt:
        def with_value(value: PrimExpr) -> Stmt:
            def with_place(place: PrimExpr) -> Stmt:
                return self._sift(start, index(size), value, place)

            return let(self._place(at), with_place, "place")

        return let(self._value(at), with_value, "value")

    def _swap_last(self, end: PrimExpr) -> Stmt:
        """Move the worst behind the heap, and sift what was there from the top."""

        def with_value(value: PrimExpr) -> Stmt:
            def with_place(place: PrimExpr) -> Stmt:
                first = index(0)
                moved = self._write(end, self._value(first), self._place(first))
                return seq(moved, self._sift(first, end, value, place))

            return let(self._place(end), with_place, "place")

        return let(self._value(end), with_value, "value")

    def _sift(self, start: PrimExpr, size: PrimExpr, value: PrimExpr, place: PrimExpr) -> Stmt:
        """Put an element into the heap from ``start`` down: below all that come after it."""
        hole, below = cell("hole", INDEX), cell("below", INDEX)

        def descend(child: PrimExpr) -> Stmt:
            other = select(child + 1 < size, child + 1, child)
            second = self._follows(
                self._value(other), self._place(other), self._value(child), self._place(child)
            )
            return let(select(second, other, child), compare, "worse")

        def compare(worse: PrimExpr) -> Stmt:
            found, where = self._value(worse), self._place(worse)
            up = seq(
                self._write(get(hole), found, where),
                put(hole, worse),
                put(below, worse * 2 + 1),
            )
            return IfStmt(self._follows(found, where, value, place), up, put(below, size))

        def level(_: PrimExpr) -> Stmt:
            return IfStmt(get(below) < size, let(get(below), descend, "child"))

        steps = seq(
            put(hole, start),
            put(below, start * 2 + 1),
            serial(self.levels, level, "level"),
            self._write(get(hole), value, place),
        )
        return allocate((hole, below), steps)


DERIVATIVES.refuse("its indices have no slope, and its values no rule of their own yet", TopK)
INTEGER_FORMS.refuse("it gives indices beside the values", TopK)
