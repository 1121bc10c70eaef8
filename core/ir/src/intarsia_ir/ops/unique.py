# SPDX-License-Identifier: Apache-2.0
"""Distinct rows: a stable merge sort of row numbers, and one walk over them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, TupleType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, let, load, put, seq, serial, store
from ..tir.expr import INDEX, BinaryOp, PrimExpr, binary, cast, equal, index, intrinsic, minimum
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array, is_floating, widen
from .derivative import DERIVATIVES
from .elements import wide
from .integer_forms import INTEGER_FORMS
from .type_rules import operands

_LEVELS = 48
"""Doublings after which a run is longer than any tensor."""


@operator("unique", OpKind.OPAQUE)
class Unique(Op):
    """Which rows of a matrix are distinct.

    Results, all int64: the number of the first of each group of equal rows; for each row, the
    number of its group; how many rows each group has; and how many groups there are, a scalar. The
    first and the third are as long as there are rows, with zeros behind the groups. NaN equals NaN,
    and comes after every number.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``is_sorted``: groups in the order of their rows; else of their first appearance."""

        is_sorted: bool = True

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """Three vectors and a scalar."""
        (x,) = operands(cls.name, types, 1)
        if x.rank != 2:
            raise TypeRuleError(f"{cls.name}: needs a matrix, got {x}")
        rows = TensorType(x.shape[:1], DType.INT64)
        return TupleType((rows, rows, rows, TensorType((), DType.INT64)))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> tuple[Array, Array, Array, Array]:
        """Sort rows as tuples of ranks."""
        values = widen(x)
        ranks = np.unique(values, return_inverse=True)[1].reshape(x.shape)
        if is_floating(x):
            ranks = np.where(np.isnan(values), max(x.size, 1), ranks)
        groups: dict[tuple[int, ...], list[int]] = {}
        for row in range(len(x)):
            key = tuple(int(rank) for rank in ranks[row])
            groups.setdefault(key, []).append(row)
        keys = sorted(groups) if attrs.is_sorted else list(groups)
        first, inverse, counts = (np.zeros(len(x), np.int64) for _ in range(3))
        for number, key in enumerate(keys):
            first[number], counts[number] = groups[key][0], len(groups[key])
            inverse[groups[key]] = number
        return first, inverse, counts, np.array(len(keys))

    @staticmethod
    def loops(attrs: Attrs, x: TensorType) -> PrimFunc:
        """Sort numbers of rows, and give equal neighbours one group."""
        rows, width = extents(x.shape)
        data = Buffer("x", (rows, width), x.dtype)
        names = ("first", "inverse", "counts", "order", "other")
        first, inverse, counts, order, other = (Buffer(name, (rows,), INDEX) for name in names)
        total = Buffer("total", (1,), INDEX)
        params = (data, first, inverse, counts, total, order, other)
        body = _Unique(*params).loops(attrs.is_sorted)
        return PrimFunc("unique", params, 4, body, scratch=2)


class _Unique(Struct, frozen=True):
    data: Buffer
    first: Buffer
    inverse: Buffer
    counts: Buffer
    total: Buffer
    order: Buffer
    other: Buffer

    @property
    def rows(self) -> PrimExpr:
        """How many rows there are."""
        return index(self.data.shape[0])

    def loops(self, is_sorted: bool) -> Stmt:
        """Return what fills the results."""
        groups, compared = cell("groups", INDEX), cell("compared", INDEX)

        def begin(row: PrimExpr) -> Stmt:
            return seq(
                store(self.order, (row,), row),
                store(self.first, (row,), index(0)),
                store(self.counts, (row,), index(0)),
            )

        body = seq(
            put(groups, index(0)),
            serial(self.rows, begin, "row"),
            self._sort(compared),
            serial(self.rows, lambda at: self._group(at, groups, compared), "at"),
            *([] if is_sorted else [self._by_appearance(groups)]),
            store(self.total, (0,), get(groups)),
        )
        return allocate((groups, compared), body)

    def _sort(self, compared: Buffer) -> Stmt:
        """Merge runs of 1, 2, 4, ... rows; of equal rows the first stays first."""
        run, left, right = (cell(name, INDEX) for name in ("run", "left", "right"))

        def merge(number: PrimExpr) -> Stmt:
            low = number * (get(run) * 2)
            middle = minimum(low + get(run), self.rows)
            high = minimum(low + get(run) * 2, self.rows)
            return let(low, lambda a: let(middle, lambda b: let(high, lambda c: one(a, b, c))))

        def one(low: PrimExpr, middle: PrimExpr, high: PrimExpr) -> Stmt:
            def take(at: PrimExpr) -> Stmt:
                from_left = seq(
                    store(self.other, (low + at,), load(self.order, get(left))),
                    put(left, get(left) + 1),
                )
                from_right = seq(
                    store(self.other, (low + at,), load(self.order, get(right))),
                    put(right, get(right) + 1),
                )
                both = seq(
                    self._compare(
                        load(self.order, get(left)), load(self.order, get(right)), compared
                    ),
                    IfStmt(get(compared) > 0, from_right, from_left),
                )
                only_left = IfStmt(get(right) >= high, from_left, both)
                return IfStmt(get(left) >= middle, from_right, only_left)

            return seq(put(left, low), put(right, middle), serial(high - low, take, "at"))

        def back(row: PrimExpr) -> Stmt:
            return store(self.order, (row,), load(self.other, row))

        def level(_: PrimExpr) -> Stmt:
            runs = (self.rows + get(run) * 2 - 1) // (get(run) * 2)
            merged = seq(
                serial(runs, merge, "number"),
                serial(self.rows, back, "row"),
                put(run, get(run) * 2),
            )
            return IfStmt(get(run) < self.rows, merged)

        return allocate(
            (run, left, right), seq(put(run, index(1)), serial(_LEVELS, level, "level"))
        )

    def _compare(self, a: PrimExpr, b: PrimExpr, compared: Buffer) -> Stmt:
        """Set ``compared``: 1 if the first row comes after the second, -1 before, 0 if equal."""

        def column(at: PrimExpr) -> Stmt:
            x, y = (_ordered(load(self.data, row, at)) for row in (a, b))
            differ = IfStmt(_before(x, y), put(compared, index(-1)))
            differ = IfStmt(_before(y, x), put(compared, index(1)), differ)
            return IfStmt(equal(get(compared), index(0)), differ)

        return seq(put(compared, index(0)), serial(self.data.shape[1], column, "column"))

    def _group(self, at: PrimExpr, groups: Buffer, compared: Buffer) -> Stmt:
        """Put a row, in order, into the group of the one before or a new one."""

        def with_row(row: PrimExpr) -> Stmt:
            new = seq(
                store(self.first, (get(groups),), row),
                put(groups, get(groups) + 1),
            )
            last = get(groups) - 1
            return seq(
                put(compared, index(1)),
                IfStmt(at > 0, self._compare(row, load(self.order, at - 1), compared)),
                IfStmt(equal(get(compared), index(0)), seq(), new),
                store(self.inverse, (row,), last),
                store(self.counts, (last,), load(self.counts, last) + 1),
            )

        return let(load(self.order, at), with_row, "row")

    def _by_appearance(self, groups: Buffer) -> Stmt:
        """Give groups other numbers: in the order of their first rows."""
        number = cell("number", INDEX)

        def none(row: PrimExpr) -> Stmt:
            return store(self.other, (row,), index(-1))

        def mark(group: PrimExpr) -> Stmt:
            return store(self.other, (load(self.first, group),), group)

        def renumber(row: PrimExpr) -> Stmt:
            def with_group(group: PrimExpr) -> Stmt:
                moved = seq(store(self.order, (group,), get(number)), put(number, get(number) + 1))
                return IfStmt(group >= 0, moved)

            return let(load(self.other, row), with_group, "group")

        def clear(group: PrimExpr) -> Stmt:
            return store(self.counts, (group,), index(0))

        def assign(back: PrimExpr) -> Stmt:
            row = self.rows - 1 - back

            def with_group(group: PrimExpr) -> Stmt:
                return seq(
                    store(self.inverse, (row,), group),
                    store(self.first, (group,), row),
                    store(self.counts, (group,), load(self.counts, group) + 1),
                )

            return let(load(self.order, load(self.inverse, row)), with_group, "group")

        body = seq(
            put(number, index(0)),
            serial(self.rows, none, "row"),
            serial(get(groups), mark, "group"),
            serial(self.rows, renumber, "row"),
            serial(get(groups), clear, "group"),
            serial(self.rows, assign, "back"),
        )
        return allocate((number,), body)


def _ordered(value: PrimExpr) -> PrimExpr:
    """Return an element as a number that can be compared."""
    return cast(value, DType.UINT8) if value.dtype is DType.BOOL else wide(value)


def _before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Whether a number comes before another; NaN comes after all."""
    if not a.dtype.is_float:
        return a < b
    is_nan = intrinsic(Intrinsic.ISNAN, b)
    return binary(BinaryOp.OR, a < b, binary(BinaryOp.AND, is_nan, equal(a, a)))


DERIVATIVES.refuse("the number of a row has no slope", Unique)
INTEGER_FORMS.refuse("it gives numbers of rows, not elements", Unique)
