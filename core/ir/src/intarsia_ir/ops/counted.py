# SPDX-License-Identifier: Apache-2.0
"""Operators that find a number of things: how many there are is counted before, in a size."""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, load, put, seq, serial, store, unflatten
from ..tir.expr import INDEX, BinaryOp, Load, PrimExpr, Ramp, ReduceLanes, binary, index
from ..tir.func import PrimFunc
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands, same_size, shape_text

BLOCK = 32
"""Neighbouring elements of which one comparison of vectors finds out whether any is wanted."""


@operator("non_zero", OpKind.OPAQUE)
class NonZero(Op):
    """Places of the elements that are true, in row-major order: int64 ``[rank, count]``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``count``: how many there are. Of fewer, the rest of the places is 0."""

        count: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """A row for each dimension."""
        (x,) = operands(cls.name, types, 1)
        if x.dtype is not DType.BOOL or x.rank == 0:
            raise TypeRuleError(f"{cls.name}: needs a bool tensor of rank 1 or more, got {x}")
        return TensorType((x.rank, attrs.count), DType.INT64)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's nonzero, as many as are wanted."""
        found = np.zeros((x.ndim, attrs.count), np.int64)
        places = np.stack(np.nonzero(x))[:, : attrs.count]
        found[:, : places.shape[1]] = places
        return found

    @staticmethod
    def loops(attrs: Attrs, x: TensorType) -> PrimFunc:
        """Look at blocks; only where an element is true, at each."""
        shape = extents(x.shape)
        elements = prod(shape)
        data = Buffer("x", (elements,), DType.BOOL)
        places = Buffer("places", (x.rank, attrs.count), INDEX)
        filled = cell("filled", INDEX)

        def keep(at: PrimExpr) -> Stmt:
            where = get(filled)
            rows = enumerate(unflatten(at, shape))
            stored = [store(places, (row, where), value) for row, value in rows]
            return IfStmt(where < index(attrs.count), seq(*stored, put(filled, where + 1)))

        def each(at: PrimExpr) -> Stmt:
            return IfStmt(load(data, at), keep(at))

        def block(number: PrimExpr) -> Stmt:
            start = number * BLOCK
            items = Load(data, (Ramp(start, 1, BLOCK),), DType.BOOL, BLOCK)
            some = ReduceLanes(BinaryOp.OR, items, DType.BOOL)
            return IfStmt(some, serial(BLOCK, lambda at: each(start + at), "at"))

        def empty(at: PrimExpr) -> Stmt:
            rows = range(x.rank)
            return seq(*(store(places, (row, get(filled) + at), index(0)) for row in rows))

        rest = elements % BLOCK
        body = seq(
            put(filled, index(0)),
            serial(elements // BLOCK, block, "block"),
            serial(rest, lambda at: each(at + (elements - rest)), "at"),
            serial(index(attrs.count) - get(filled), empty, "at"),
        )
        return PrimFunc("non_zero", (data, places), 1, allocate((filled,), body))


@operator("chosen_boxes", OpKind.OPAQUE)
class ChosenBoxes(Op):
    """The boxes that ``nn.non_max_suppression`` chose: image, class and box, int64 ``[count, 3]``.

    Operands: the boxes of each class, int64 ``[batch, classes, boxes]``, and how many of them
    count, int64 ``[batch, classes]``.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``count``: how many boxes are chosen in all. Of fewer, the rest of the rows is 0."""

        count: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """A row for each box."""
        places, counts = operands(cls.name, types, 2)
        fits = places.rank == 3 and counts.rank == 2
        if not fits or not all(map(same_size, places.shape, counts.shape)):
            raise TypeRuleError(
                f"{cls.name}: counts {shape_text(counts.shape)} do not fit boxes"
                f" {shape_text(places.shape)}"
            )
        if {places.dtype, counts.dtype} != {DType.INT64}:
            raise TypeRuleError(f"{cls.name}: takes int64, got {places} and {counts}")
        return TensorType((attrs.count, 3), DType.INT64)

    @staticmethod
    def reference(attrs: Attrs, places: Array, counts: Array) -> Array:
        """Those of each class one after the other."""
        found = np.zeros((attrs.count, 3), np.int64)
        rows = [
            (*at, place)
            for at in np.ndindex(*counts.shape)
            for place in places[at][: counts[at]].tolist()
        ]
        rows = rows[: attrs.count]
        found[: len(rows)] = np.array(rows, np.int64).reshape(len(rows), 3)
        return found

    @staticmethod
    def loops(attrs: Attrs, places: TensorType, counts: TensorType) -> PrimFunc:
        """Go through images, classes and boxes."""
        batch, classes, boxes = extents(places.shape)
        given = Buffer("places", (batch, classes, boxes), INDEX)
        chosen = Buffer("counts", (batch, classes), INDEX)
        rows = Buffer("rows", (attrs.count, 3), INDEX)
        filled = cell("filled", INDEX)

        def keep(image: PrimExpr, kind: PrimExpr, number: PrimExpr) -> Stmt:
            where = get(filled)
            values = (image, kind, load(given, image, kind, number))
            stored = [store(rows, (where, at), value) for at, value in enumerate(values)]
            return IfStmt(where < index(attrs.count), seq(*stored, put(filled, where + 1)))

        def each(image: PrimExpr, kind: PrimExpr) -> Stmt:
            count = load(chosen, image, kind)
            inside = binary(BinaryOp.MIN, count, index(boxes))
            return serial(inside, lambda number: keep(image, kind, number), "number")

        def classes_of(image: PrimExpr) -> Stmt:
            return serial(classes, lambda kind: each(image, kind), "kind")

        def empty(at: PrimExpr) -> Stmt:
            return seq(*(store(rows, (get(filled) + at, row), index(0)) for row in range(3)))

        body = seq(
            put(filled, index(0)),
            serial(batch, classes_of, "image"),
            serial(index(attrs.count) - get(filled), empty, "at"),
        )
        return PrimFunc("chosen_boxes", (given, chosen, rows), 1, allocate((filled,), body))


DERIVATIVES.refuse("a place has no slope", NonZero, ChosenBoxes)
INTEGER_FORMS.refuse("places are no quantized numbers", NonZero, ChosenBoxes)
