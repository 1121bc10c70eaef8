# SPDX-License-Identifier: Apache-2.0
"""Argmax and argmin of long rows as two reductions: the extreme value, then its position.

A scan that keeps value and index together has a dependency from element to element.
"""

from __future__ import annotations

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.guards import COMPUTED
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.compare import Equal, NotEqual, Where
from intarsia_ir.ops.generate import Arange
from intarsia_ir.ops.reduce import Argmax, Argmin, ArgOp, Max, Min, ReduceOp
from intarsia_ir.ops.shape import Reshape
from intarsia_ir.ops.unary import Cast
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

_SHORTEST = 32
"""Elements of a row from which on two passes over it take less than a search."""

_NEIGHBOURS = 8
"""Results side by side that a vector searches for, however long their rows are."""


def split_argmax(function: Function) -> Function:
    """Return an equivalent function; searches along long rows, or of many at once, are changed."""
    return rewrite_function(function, _split)


def _split(node: Expr) -> Expr | None:
    """First the extreme value; then the first, or last, index at which it is, or a NaN."""
    if not isinstance(node, Call) or node.op not in (Argmax, Argmin):
        return None
    (x,), attrs = node.args, node.attrs
    kind = tensor_type(x)
    if not isinstance(attrs, ArgOp.Attrs) or 0 in kind.shape:
        return None
    length, *after = kind.shape[attrs.axis :]
    if _is_less(length, _SHORTEST) and _is_less(product(after), _NEIGHBOURS):
        return None
    if isinstance(length, Dim) and any(COMPUTED in name for name in length.variables()):
        return None  # nothing would tell the positions, which have no operands, to wait for it
    row = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=True)
    best = call(Max if node.op is Argmax else Min, x, attrs=row, span=node.span)
    index = _positions(length, len(after))
    most = length if isinstance(length, int) else np.iinfo(np.int32).max
    beyond = constant(np.array(-1 if attrs.last else most, np.int32))
    matching = call(Where, call(Equal, x, best), index, beyond)
    if kind.dtype.is_float:
        matching = call(Where, call(NotEqual, x, x), index, matching)
    wanted = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=attrs.keepdims)
    position = call(Max if attrs.last else Min, matching, attrs=wanted, span=node.span)
    return call(Cast, position, attrs=Cast.Attrs(dtype=DType.INT64), span=node.span)


def _is_less(size: Size, limit: int) -> bool:
    """Whether a size is known to be less; an open one may be of any length."""
    return isinstance(size, int) and size < limit


def _positions(length: Size, after: int) -> Expr:
    """Return 0, 1, ... along a dimension that so many others follow."""
    ones = (1,) * after
    if isinstance(length, int):
        return constant(np.arange(length, dtype=np.int32).reshape(length, *ones))
    numbers = Arange.Attrs(start=0, stop=extents((length,))[0], step=1, dtype=DType.INT32)
    shape = Reshape.Attrs(shape=extents((length, *ones)))
    return call(Reshape, call(Arange, attrs=numbers), attrs=shape)
