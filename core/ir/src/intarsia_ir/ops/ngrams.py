# SPDX-License-Identifier: Apache-2.0
"""N-grams of rows of numbers: how often each of a table occurs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, load, parallel, put, seq, serial, store
from ..tir.expr import INDEX, PrimExpr, cast, const, equal, index, maximum, minimum, select
from ..tir.func import PrimFunc
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_index, operands, same_size, shape_text


@operator("count_ngrams", OpKind.OPAQUE)
class CountNgrams(Op):
    """How often n-grams occur in each row: float32 ``[rows, width]``.

    Operands are rows of words ``[rows, words]``, int32 or int64; the n-grams ``[grams, length]``,
    int64, in lexicographic order; and the column that counts each, int64 ``[grams]``.
    """

    fixed_sizes = "the table's: it is part of the model"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``width``: columns of the result; ``skips``: the most words between two of an n-gram."""

        width: int
        skips: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[rows, width]``."""
        x, grams, places = operands(cls.name, types, 3)
        check_dtype(cls.name, is_index, "int32 or int64", x)
        fits = (x.rank, grams.rank, places.rank) == (2, 2, 1)
        if not fits or not grams.is_static or not same_size(grams.shape[0], places.shape[0]):
            raise TypeRuleError(
                f"{cls.name}: places {shape_text(places.shape)} do not fit n-grams"
                f" {shape_text(grams.shape)} for rows {shape_text(x.shape)}"
            )
        if {grams.dtype, places.dtype} != {DType.INT64} or grams.shape[1] == 0:
            raise TypeRuleError(f"{cls.name}: {grams} and {places} are no table of n-grams")
        if attrs.skips < 0 or attrs.width < 0:
            raise TypeRuleError(f"{cls.name}: skips {attrs.skips} and width {attrs.width}")
        return TensorType((x.shape[0], attrs.width), DType.FLOAT32)

    @staticmethod
    def reference(attrs: Attrs, x: Array, grams: Array, places: Array) -> Array:
        """Compare all windows of one distance with all n-grams at once."""
        rows, words, length = int(x.shape[0]), int(x.shape[1]), int(grams.shape[1])
        found = np.zeros((rows, attrs.width), np.float32)
        for skip in range(min(attrs.skips + 1, words)):
            starts = words - (length - 1) * (skip + 1)
            if starts < 1 or (length == 1 and skip):
                break
            first = np.arange(starts).reshape(-1, 1)
            windows = np.take(x, first + np.arange(length) * (skip + 1), axis=1)
            hits = (windows[:, :, np.newaxis] == grams).all(-1).sum(1)
            for gram, place in enumerate(places.tolist()):
                found[:, place] += hits[:, gram]
        return found

    @staticmethod
    def loops(attrs: Attrs, x: TensorType, grams: TensorType, places: TensorType) -> PrimFunc:
        """Search every window in the table by halves; the row of counts stays in the cache."""
        names = (("x", x), ("grams", grams), ("places", places))
        data, table, columns = (Buffer(n, extents(kind.shape), kind.dtype) for n, kind in names)
        out = Buffer("out", (data.shape[0], attrs.width), DType.FLOAT32)
        body = parallel(out.shape[0], _Counter(data, table, columns, out).row(attrs.skips))
        return PrimFunc("count_ngrams", (data, table, columns, out), 1, body)


class _Counter(Struct, frozen=True):
    data: Buffer
    grams: Buffer
    places: Buffer
    out: Buffer

    def row(self, skips: int) -> Callable[[PrimExpr], Stmt]:
        """Return what counts the n-grams of a row."""
        count, length = self.grams.shape
        words = index(self.data.shape[1])
        low, high, order = (cell(name, INDEX) for name in ("low", "high", "order"))

        def one(row: PrimExpr) -> Stmt:
            def compare(start: PrimExpr, distance: PrimExpr, gram: PrimExpr) -> Stmt:
                def word(number: PrimExpr) -> Stmt:
                    own = cast(load(self.data, row, start + number * distance), INDEX)
                    other = load(self.grams, gram, number)
                    after = select(own > other, index(1), index(0))
                    found = select(own < other, index(-1), after)
                    return IfStmt(equal(get(order), index(0)), put(order, found))

                return seq(put(order, index(0)), serial(length, word, "number"))

            def halve(start: PrimExpr, distance: PrimExpr) -> Stmt:
                middle = (get(low) + get(high)) // 2
                place = load(self.places, middle)
                counted = load(self.out, row, place) + const(1.0, DType.FLOAT32)
                hit = seq(store(self.out, (row, place), counted), put(low, get(high)))
                other = IfStmt(get(order) > 0, put(low, middle + 1), put(high, middle))
                decided = IfStmt(equal(get(order), index(0)), hit, other)
                return IfStmt(get(low) < get(high), seq(compare(start, distance, middle), decided))

            def window(start: PrimExpr, distance: PrimExpr) -> Stmt:
                steps = serial(count.bit_length(), lambda _: halve(start, distance), "step")
                return seq(put(low, index(0)), put(high, index(count)), steps)

            def distances(skip: PrimExpr) -> Stmt:
                starts = maximum(words - (skip + 1) * (length - 1), 0)
                return serial(starts, lambda start: window(start, skip + 1), "start")

            most = index(1) if length == 1 else minimum(index(skips + 1), words)

            def clear(column: PrimExpr) -> Stmt:
                return store(self.out, (row, column), const(0.0, DType.FLOAT32))

            body = seq(serial(self.out.shape[1], clear, "column"), serial(most, distances, "skip"))
            return allocate((low, high, order), body)

        return one


DERIVATIVES.refuse("counts have no slope", CountNgrams)
INTEGER_FORMS.refuse("its operands are words, no quantized numbers", CountNgrams)
