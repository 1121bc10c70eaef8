# SPDX-License-Identifier: Apache-2.0
"""Argmax and argmin of long rows as two reductions: the extreme value, then its position.

A scan that keeps value and index together has a dependency from element to element.
"""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.compare import Equal, NotEqual, Where
from intarsia_ir.ops.reduce import Argmax, Argmin, ArgOp, Max, Min, ReduceOp
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType

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
    if not isinstance(attrs, ArgOp.Attrs) or not kind.is_static or kind.elements == 0:
        return None
    length, *after = kind.static_shape[attrs.axis :]
    if length < _SHORTEST and prod(after) < _NEIGHBOURS:
        return None
    row = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=True)
    best = call(Max if node.op is Argmax else Min, x, attrs=row, span=node.span)
    index = constant(np.arange(length, dtype=np.int32).reshape(length, *(1 for _ in after)))
    beyond = constant(np.array(-1 if attrs.last else length, np.int32))
    matching = call(Where, call(Equal, x, best), index, beyond)
    if kind.dtype.is_float:
        matching = call(Where, call(NotEqual, x, x), index, matching)
    wanted = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=attrs.keepdims)
    position = call(Max if attrs.last else Min, matching, attrs=wanted, span=node.span)
    return call(Cast, position, attrs=Cast.Attrs(dtype=DType.INT64), span=node.span)
