# SPDX-License-Identifier: Apache-2.0
"""Factorizations of square matrices: determinants and inverses.

Gaussian elimination with partial pivoting (Golub and Van Loan, *Matrix Computations*, 3.4), one
thread a matrix. The inner loop goes along a row, so that it becomes vectors; networks have matrices
of 2 to 4 rows, which stay in the first cache with all that is read of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import prod

import numpy as np
from msgspec import Struct

from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, let, load, parallel, put, seq, serial, store
from ..tir.expr import (
    INDEX,
    BinaryOp,
    PrimExpr,
    binary,
    cast,
    const,
    equal,
    index,
    intrinsic,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import IfStmt, Stmt
from ..tir.tensor import extents
from .arrays import Array, widen
from .derivative import DERIVATIVES
from .elements import accumulator
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_float, operands, same_size, shape_text


def _square(name: str, types: tuple[Type, ...]) -> TensorType:
    """Check the operand of a factorization."""
    (x,) = operands(name, types, 1)
    check_dtype(name, is_float, "floating-point", x)
    if x.rank < 2 or not same_size(*x.shape[-2:]):
        raise TypeRuleError(f"{name}: the matrices of {shape_text(x.shape)} are not square")
    return x


class _Rows(Struct, frozen=True):
    """Rows of one of the matrices in a buffer ``[matrices, size, size]``."""

    buffer: Buffer
    number: PrimExpr
    size: int

    def at(self, row: PrimExpr, column: PrimExpr) -> PrimExpr:
        """Read an element."""
        return load(self.buffer, self.number, row, column)

    def each(self, row: PrimExpr, value: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        """Give every element of a row a value, which is rounded to the buffer's type."""

        def one(column: PrimExpr) -> Stmt:
            made = cast(value(column), self.buffer.dtype)
            return store(self.buffer, (self.number, row, column), made)

        return serial(self.size, one, "column")

    def all(self, value: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """Give every element a value."""
        return serial(self.size, lambda row: self.each(row, lambda at: value(row, at)), "row")

    def subtract(self, row: PrimExpr, other: PrimExpr, factor: PrimExpr) -> Stmt:
        """Subtract a multiple of another row from a row."""
        return self.each(row, lambda at: self.at(row, at) - factor * self.at(other, at))

    def exchange(self, a: PrimExpr, b: PrimExpr) -> Stmt:
        """Exchange two rows."""

        def one(column: PrimExpr) -> Stmt:
            def both(value: PrimExpr) -> Stmt:
                return seq(
                    store(self.buffer, (self.number, a, column), self.at(b, column)),
                    store(self.buffer, (self.number, b, column), value),
                )

            return let(self.at(a, column), both)

        return serial(self.size, one, "column")

    def find_pivot(self, column: PrimExpr, best: Buffer) -> Stmt:
        """Put the number of the row with the largest element of a column, from the diagonal on."""

        def size_at(row: PrimExpr) -> PrimExpr:
            return intrinsic(Intrinsic.ABS, self.at(row, column))

        def one(step: PrimExpr) -> Stmt:
            row = column + 1 + step
            return IfStmt(size_at(row) > size_at(get(best)), put(best, row))

        return seq(put(best, column), serial(index(self.size) - 1 - column, one, "step"))


@operator("determinant", OpKind.OPAQUE)
class Determinant(Op):
    """Determinants of the square matrices in the last two dimensions."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The operand's type without its last two dimensions."""
        x = _square(cls.name, types)
        return x.with_shape(x.shape[:-2])

    @staticmethod
    def reference(attrs: OpAttrs, x: Array) -> Array:
        """NumPy's determinant; half precision in float32."""
        return np.asarray(np.linalg.det(widen(x))).astype(x.dtype)

    @staticmethod
    def loops(attrs: OpAttrs, x: TensorType) -> PrimFunc:
        """The product of the pivots; an exchange of rows changes its sign."""
        *batch, size, _ = extents(x.shape)
        count, kind = prod(batch), accumulator(x.dtype)
        given, out = Buffer("x", (count, size, size), x.dtype), Buffer("out", (count,), x.dtype)
        work = Buffer("work", given.shape, kind)

        def matrix(number: PrimExpr) -> Stmt:
            product, best = cell("product", kind), cell("best", INDEX)
            source, rows = _Rows(given, number, size), _Rows(work, number, size)

            def step(column: PrimExpr) -> Stmt:
                def below(at: PrimExpr) -> Stmt:
                    row = column + 1 + at
                    factor = rows.at(row, column) / rows.at(column, column)
                    return let(factor, lambda f: rows.subtract(row, column, f), "factor")

                exchange = seq(rows.exchange(column, get(best)), put(product, get(product) * -1.0))
                return seq(
                    rows.find_pivot(column, best),
                    IfStmt(get(best) > column, exchange),
                    put(product, get(product) * rows.at(column, column)),
                    IfStmt(
                        binary(BinaryOp.NE, rows.at(column, column), const(0.0, kind)),
                        serial(index(size) - 1 - column, below, "below"),
                    ),
                )

            body = seq(
                rows.all(source.at),
                put(product, const(1.0, kind)),
                serial(size, step, "column"),
                store(out, (number,), cast(get(product), x.dtype)),
            )
            return allocate((product, best), body)

        body = parallel(count, matrix, "matrix")
        return PrimFunc("determinant", (given, out, work), 1, body, scratch=1)


@operator("inverse", OpKind.OPAQUE)
class Inverse(Op):
    """Inverses of the square matrices in the last two dimensions; of a singular one not finite."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of the operand."""
        return _square(cls.name, types)

    @staticmethod
    def reference(attrs: OpAttrs, x: Array) -> Array:
        """NumPy's inverse; half precision in float32."""
        wide = widen(x)
        found = np.full_like(wide, np.nan)
        for place in np.ndindex(*x.shape[:-2]):
            with suppress(np.linalg.LinAlgError):
                found[place] = np.linalg.inv(wide[place])
        return found.astype(x.dtype)

    @staticmethod
    def loops(attrs: OpAttrs, x: TensorType) -> PrimFunc:
        """Gauss and Jordan: what makes the matrix the identity makes the identity its inverse."""
        *batch, size, _ = extents(x.shape)
        count, kind = prod(batch), accumulator(x.dtype)
        given, out = (Buffer(name, (count, size, size), x.dtype) for name in ("x", "out"))
        work, made = (Buffer(name, given.shape, kind) for name in ("work", "made"))

        def matrix(number: PrimExpr) -> Stmt:
            best = cell("best", INDEX)
            source, target = _Rows(given, number, size), _Rows(out, number, size)
            left, right = _Rows(work, number, size), _Rows(made, number, size)

            def scaled(row: PrimExpr, factor: PrimExpr) -> Stmt:
                sides = (side.each(row, lambda at, s=side: s.at(row, at) * factor) for side in both)
                return seq(*sides)

            both = (left, right)

            def step(column: PrimExpr) -> Stmt:
                def reduced(row: PrimExpr) -> Stmt:
                    def subtracted(factor: PrimExpr) -> Stmt:
                        return seq(*(side.subtract(row, column, factor) for side in both))

                    other = binary(BinaryOp.NE, row, column)
                    return IfStmt(other, let(left.at(row, column), subtracted, "factor"))

                exchange = seq(*(side.exchange(column, get(best)) for side in both))
                pivot = const(1.0, kind) / left.at(column, column)
                return seq(
                    left.find_pivot(column, best),
                    IfStmt(get(best) > column, exchange),
                    let(pivot, lambda factor: scaled(column, factor), "factor"),
                    serial(size, reduced, "row"),
                )

            def identity(row: PrimExpr, column: PrimExpr) -> PrimExpr:
                return select(equal(row, column), const(1.0, kind), const(0.0, kind))

            body = seq(
                left.all(source.at),
                right.all(identity),
                serial(size, step, "step"),
                target.all(right.at),
            )
            return allocate((best,), body)

        body = parallel(count, matrix, "matrix")
        return PrimFunc("inverse", (given, out, work, made), 1, body, scratch=2)


DERIVATIVES.refuse("no training of a model has needed it: no rule is written", Determinant, Inverse)
INTEGER_FORMS.refuse("elimination divides by what it finds", Determinant, Inverse)
