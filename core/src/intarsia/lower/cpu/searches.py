# SPDX-License-Identifier: Apache-2.0
"""Searches for an extreme element as two reductions, which run by vectors.

In a search that keeps value and index together each element waits for the one before it.
"""

from __future__ import annotations

import numpy as np

from ...dtype import DType
from ...ir.expr import Call, Expr, Function, call, constant, tensor_type
from ...ir.walk import rewrite_function
from ...ops.compare import Equal, NotEqual, Where
from ...ops.reduce import Argmax, Argmin, ArgOp, Max, Min, ReduceOp
from ...ops.unary import Cast

_SHORTEST = 32
"""Elements of a row from which on two passes over it take less than a search."""


def split_searches(function: Function) -> Function:
    """Return an equivalent function; searches along long rows of float32 are changed."""
    return rewrite_function(function, _split)


def _split(node: Expr) -> Expr | None:
    """First the extreme value; then the first, or last, index at which it is, or a NaN."""
    if not isinstance(node, Call) or node.op not in (Argmax, Argmin):
        return None
    (x,), attrs = node.args, node.attrs
    kind = tensor_type(x)
    if not isinstance(attrs, ArgOp.Attrs) or kind.dtype is not DType.FLOAT32 or not kind.is_static:
        return None
    length = kind.static_shape[-1]
    if attrs.axis != kind.rank - 1 or length < _SHORTEST or kind.elements == 0:
        return None
    row = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=True)
    best = call(Max if node.op is Argmax else Min, x, attrs=row, span=node.span)
    index = constant(np.arange(length, dtype=np.int32))
    beyond = constant(np.array(-1 if attrs.last else length, np.int32))
    found = call(Where, call(Equal, x, best), index, beyond)
    found = call(Where, call(NotEqual, x, x), index, found)
    wanted = ReduceOp.Attrs(axes=(attrs.axis,), keepdims=attrs.keepdims)
    place = call(Max if attrs.last else Min, found, attrs=wanted, span=node.span)
    return call(Cast, place, attrs=Cast.Attrs(dtype=DType.INT64), span=node.span)
