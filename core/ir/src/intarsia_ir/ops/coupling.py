# SPDX-License-Identifier: Apache-2.0
"""Probabilities of classes from those of pairs of classes, as support vector machines give them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import cast

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, load, parallel, put, seq, serial, store
from ..tir.expr import INDEX, PrimExpr, const, equal, index, intrinsic, select
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands

ROUNDS = 100
"""Most rounds of the iteration."""

_ZERO = const(0.0, DType.FLOAT32)
_TOLERANCE = np.float32(0.005)
"""How far a row may be from the solution where it ends, times the number of classes."""


@operator("pairwise_coupling", OpKind.OPAQUE)
class PairwiseCoupling(Op):
    """The probability of each class, from the probability of each class against each other.

    The operand is ``[N, K, K]`` in float32: at ``[n, i, j]`` the probability of class ``i`` if only
    ``i`` and ``j`` are possible; the diagonal is not read. The result is ``[N, K]``. It is the
    second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by
    Pairwise Coupling" (2004): fixed-point iteration from equal probabilities, at most
    :data:`ROUNDS` times, in single precision, which ends for each row when that is near enough.
    """

    fixed_sizes = "the second and the third: they are the classes of a model"

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """``[N, K]``."""
        (pairs,) = operands(cls.name, types, 1)
        is_square = pairs.rank == 3 and pairs.shape[1] == pairs.shape[2]
        if not is_square or not isinstance(pairs.shape[1], int) or pairs.dtype is not DType.FLOAT32:
            raise TypeRuleError(f"{cls.name}: takes [N, K, K] in float32, got {pairs}")
        return TensorType(pairs.shape[:2], DType.FLOAT32)

    @staticmethod
    def reference(attrs: OpAttrs, pairs: Array) -> Array:
        """Iterate all rows that have not ended at once."""
        rows, classes = pairs.shape[:2]
        result = np.full((rows, classes), np.float32(1) / np.float32(max(classes, 1)), np.float32)
        opposite = pairs.transpose(0, 2, 1)
        matrix = -opposite * pairs
        own = cast("Array", np.arange(classes))
        matrix[:, own, own] = 0
        for other in range(classes):
            matrix[:, own, own] += np.where(own == other, 0, opposite[:, :, other] ** 2)
        active = cast("Array", np.arange(rows))
        for _ in range(ROUNDS if classes else 0):
            p, q = result[active], matrix[active]
            product = _sum_of([q[:, :, j] * p[:, j : j + 1] for j in range(classes)])
            total = _sum_of([p[:, i] * product[:, i] for i in range(classes)])
            error = np.abs(product - total[:, None]).max(axis=1)
            goes_on = error >= _TOLERANCE / np.float32(classes)
            active, p, q = active[goes_on], p[goes_on], q[goes_on]
            product, total = product[goes_on], total[goes_on]
            for i in range(classes):
                step = (total - product[:, i]) / q[:, i, i]
                p[:, i] += step
                total = total + step * (step * q[:, i, i] + product[:, i] * 2)
                total = total / (step + 1) / (step + 1)
                grown = 1 + step
                product = (product + step[:, None] * q[:, i]) / grown[:, None]
                p /= grown[:, None]
            result[active] = p
        return result

    @staticmethod
    def loops(attrs: OpAttrs, pairs: TensorType) -> PrimFunc:
        """Rows are independent; the matrix of a row stays in the cache of the core."""
        rows, classes, _ = extents(pairs.shape)
        given = Buffer("pairs", (rows, classes, classes), DType.FLOAT32)
        out = Buffer("out", (rows, classes), DType.FLOAT32)
        kind = DType.FLOAT32
        own, product = (
            Buffer(name, (classes,), kind, MemoryScope.STACK) for name in ("own", "product")
        )
        cells = (cell("amount", kind), cell("total", kind), cell("going", INDEX))

        def row(number: PrimExpr) -> Stmt:
            return _Row(given, out, number, classes, own, product, *cells).loops()

        body = parallel(rows, row)
        return PrimFunc("pairwise_coupling", (given, out), 1, body)


class _Row(Struct, frozen=True):
    """One row; ``Q[i, j]`` is computed where it is used, but for the diagonal."""

    pairs: Buffer
    out: Buffer
    row: PrimExpr
    classes: int
    own: Buffer
    product: Buffer
    amount: Buffer
    total: Buffer
    going: Buffer

    def loops(self) -> Stmt:
        """Return the whole iteration."""
        parts = seq(
            self._each(self._begin),
            put(self.going, index(1)),
            serial(ROUNDS if self.classes else 0, self._turn, "turn"),
        )
        return allocate((self.own, self.product, self.amount, self.total, self.going), parts)

    def _each(self, body: Callable[[PrimExpr], Stmt], name: str = "i") -> Stmt:
        return serial(self.classes, body, name)

    def _opposite(self, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return load(self.pairs, self.row, j, i)

    def _weight(self, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        off = _ZERO - self._opposite(i, j) * load(self.pairs, self.row, i, j)
        return select(equal(i, j), load(self.own, i), off)

    def _begin(self, i: PrimExpr) -> Stmt:
        """Set a probability, and add up the diagonal of ``Q``."""

        def square(j: PrimExpr) -> Stmt:
            more = get(self.amount) + self._opposite(i, j) * self._opposite(i, j)
            return put(self.amount, select(equal(i, j), get(self.amount), more))

        equal_share = const(1.0 / max(self.classes, 1), DType.FLOAT32)
        return seq(
            store(self.out, (self.row, i), equal_share),
            put(self.amount, _ZERO),
            self._each(square, "j"),
            store(self.own, (i,), get(self.amount)),
        )

    def _multiply(self, i: PrimExpr) -> Stmt:
        """Compute an element of ``Q p``, and add its part of ``p' Q p``."""

        def add(j: PrimExpr) -> Stmt:
            more = self._weight(i, j) * load(self.out, self.row, j)
            return put(self.amount, get(self.amount) + more)

        return seq(
            put(self.amount, _ZERO),
            self._each(add, "j"),
            store(self.product, (i,), get(self.amount)),
            put(self.total, get(self.total) + load(self.out, self.row, i) * get(self.amount)),
        )

    def _compare(self, i: PrimExpr) -> Stmt:
        error = intrinsic(Intrinsic.ABS, load(self.product, i) - get(self.total))
        limit = const(float(_TOLERANCE / np.float32(self.classes)), DType.FLOAT32)
        return IfStmt(error >= limit, put(self.going, index(1)))

    def _step(self, i: PrimExpr) -> Stmt:
        """Move one probability, and scale all of them so that their sum is 1 again."""
        amount, total = get(self.amount), get(self.total)
        own, product = load(self.own, i), load(self.product, i)

        def scale(j: PrimExpr) -> Stmt:
            moved = (load(self.product, j) + amount * self._weight(i, j)) / (amount + 1)
            scaled = load(self.out, self.row, j) / (amount + 1)
            return seq(store(self.product, (j,), moved), store(self.out, (self.row, j), scaled))

        grown = (total + amount * (amount * own + product * 2)) / (amount + 1) / (amount + 1)
        return seq(
            put(self.amount, (total - product) / own),
            store(self.out, (self.row, i), load(self.out, self.row, i) + amount),
            put(self.total, grown),
            self._each(scale, "j"),
        )

    def _turn(self, _: PrimExpr) -> Stmt:
        once = seq(
            put(self.total, _ZERO),
            self._each(self._multiply),
            put(self.going, index(0)),
            self._each(self._compare),
            IfStmt(get(self.going) > index(0), self._each(self._step)),
        )
        return IfStmt(get(self.going) > index(0), once)


def _sum_of(terms: list[Array]) -> Array:
    """Add terms in their order."""
    return reduce(np.add, terms, np.zeros_like(terms[0]))


DERIVATIVES.refuse("an iteration that ends when it is near enough has no slope", PairwiseCoupling)
INTEGER_FORMS.refuse("probabilities are real numbers", PairwiseCoupling)
