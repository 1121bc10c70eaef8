# SPDX-License-Identifier: Apache-2.0
"""Small whole powers as products, which are far cheaper than what computes any power."""

from __future__ import annotations

from ...dtype import DType
from ...ir.expr import Call, Constant, Expr, Function, call, tensor_type
from ...ir.walk import rewrite_function
from ...ops.binary import Multiply, Power

_LARGEST = 4
"""Each product rounds: of so many factors the result is two units in the last place off at most."""


def expand_powers(function: Function) -> Function:
    """Return an equivalent function; powers with constant exponents of 3 and 4 are changed."""
    return rewrite_function(function, _expanded)


def _expanded(node: Expr) -> Expr | None:
    """power(x, 3) --> multiply(multiply(x, x), x)"""
    if not isinstance(node, Call) or node.op is not Power:
        return None
    base, exponent = node.args
    wide = tensor_type(node).dtype in (DType.FLOAT32, DType.FLOAT64)
    if not wide or base.type != node.type or not isinstance(exponent, Constant):
        return None
    if exponent.data.size != 1 or not 3 <= exponent.data.item() <= _LARGEST:
        return None
    square = call(Multiply, base, base, span=node.span)
    match exponent.data.item():
        case 3.0:
            return call(Multiply, square, base, span=node.span)
        case 4.0:
            return call(Multiply, square, square, span=node.span)
        case _:
            return None
