# SPDX-License-Identifier: Apache-2.0
"""Strength reduction of small integer powers: products instead of a call of ``pow``."""

from __future__ import annotations

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, tensor_type
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.binary import Multiply, Power
from intarsia_runtime.dtype import DType

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
