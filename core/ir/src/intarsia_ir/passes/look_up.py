# SPDX-License-Identifier: Apache-2.0
"""Look up: read from a table what a model computes of a category each time.

Exporters of JAX spell an embedding as a product: rows that are 1 at their category and 0 elsewhere,
times a matrix. That picks rows of the matrix. What is then done to each element is done to the
matrix, once, while compiling.
"""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.size import numbers

from ..graph.expr import Call, Constant, Expr, call, constant
from ..graph.module import IRModule
from ..graph.op import OpKind
from ..graph.types import TensorType
from ..ops.arrays import numpy_dtype
from ..ops.binary import Maximum, Minimum, Subtract
from ..ops.indexing import Take
from ..ops.nn import Matmul
from ..ops.shape import Reshape
from ..tir.tensor import extents
from .base import Pass, Remarks, rewrite

_ROWS = Take.Attrs(axis=0)


class _Lookups:
    """Rewrites calls from operands to users; tables wait for constants to be folded.

    Attributes:
        tables: Tables made so far by element-wise calls on constants.
    """

    def __init__(self, remarks: Remarks) -> None:
        self.remarks = remarks
        self.tables: set[Expr] = set()

    def rule(self, expr: Expr) -> Expr | None:
        """Return a call as a look-up if it is one."""
        match expr:
            case Call("matmul", (Call("cast", (Call("equal") as hot,)), Constant() as matrix)):
                return self._rows(expr, hot, matrix)
            case Call() if expr.op.kind is OpKind.ELEMWISE:
                return self._elements(expr)
            case _:
                return None

    def _rows(self, product: Call, hot: Call, matrix: Constant) -> Expr | None:
        """matmul(cast(x == 0..K-1), m) --> take(m and a row of zeros, clip(x, -1, K))"""
        picked = _category(hot)
        if product.attrs != Matmul.Attrs() or picked is None or matrix.type.rank != 2:
            return None
        if not np.isfinite(matrix.data).all():
            return None  # 0 times that is no 0
        category, first = picked
        kind = category.type
        if not isinstance(kind, TensorType):
            return None
        zeros = np.zeros_like(matrix.data[:1])
        table = constant(np.concatenate([matrix.data, zeros]), name=matrix.name)
        place = call(Reshape, category, attrs=Reshape.Attrs(shape=extents(kind.shape[:-1])))
        size = matrix.data.shape[0]
        if first:
            place = call(Subtract, place, _index(first, kind.dtype))
        place = call(Minimum, place, _index(size, kind.dtype))
        place = call(Maximum, place, _index(-1, kind.dtype))
        self.remarks.add("look-up", f"a product picks rows of a table of {size}", product.span)
        return call(Take, table, place, attrs=_ROWS, span=product.span)

    def _elements(self, expr: Call) -> Expr | None:
        """f(take(t, i), k) --> take(f(t, k), i) if the table is no larger than the result"""
        taken = [arg for arg in expr.args if not isinstance(arg, Constant)]
        match taken:
            case [Call("take", (table, place), attrs) as rows] if attrs == _ROWS:
                pass
            case _:
                return None
        known = isinstance(table, Constant) or table in self.tables
        if not known or not _is_smaller(table, rows, expr):
            return None
        operands: list[Expr] = []
        for arg in expr.args:
            operand = table if arg is rows else _as_row(arg)
            if operand is None:
                return None
            operands.append(operand)
        changed = call(expr.op, *operands, attrs=expr.attrs)
        self.tables.add(changed)
        return call(Take, changed, place, attrs=_ROWS, span=expr.span)


def _category(hot: Call) -> tuple[Expr, int] | None:
    """Return what is compared with consecutive integers along a new last dimension, and the first.

    ``None`` if that is not what the call compares.
    """
    for category, counted in (hot.args, hot.args[::-1]):
        if not isinstance(counted, Constant) or not isinstance(category.type, TensorType):
            continue
        numbers, shape = counted.data, category.type.shape
        if category.type.dtype not in (DType.INT32, DType.INT64) or not shape or shape[-1] != 1:
            continue
        if not 1 < numbers.size == numbers.shape[-1] or numbers.ndim > len(shape):
            continue
        first = int(numbers.flat[0])
        if (numbers.reshape(-1) == first + np.arange(numbers.size)).all():
            return category, first
    return None


def _is_smaller(table: Expr, rows: Call, expr: Call) -> bool:
    """Whether work on the table is no more than on the rows, whose shape the work keeps."""
    kinds = table.type, rows.type, expr.type
    match kinds:
        case (TensorType() as whole, TensorType() as picked, TensorType() as made):
            is_table = whole.is_static and whole.rank == 2
            least = prod(numbers(picked.shape))  # open sizes are at least 1
            return is_table and picked.shape == made.shape and whole.elements <= least
        case _:
            return False


def _as_row(expr: Expr) -> Expr | None:
    """Return a constant that is the same for all rows with one dimension or none."""
    if not isinstance(expr, Constant) or any(size != 1 for size in expr.type.static_shape[:-1]):
        return None
    return constant(expr.data.reshape(expr.data.shape[-1:]), name=expr.name)


def _index(number: int, dtype: DType) -> Expr:
    return constant(np.asarray(number, numpy_dtype(dtype)))


def look_up(module: IRModule, remarks: Remarks) -> IRModule:
    """Replace products with one-hot rows, and element-wise calls behind a small table, by takes."""
    return rewrite(module, _Lookups(remarks).rule)


LOOK_UP = Pass("look-up", look_up)
