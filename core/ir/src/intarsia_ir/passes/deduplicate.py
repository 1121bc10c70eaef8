# SPDX-License-Identifier: Apache-2.0
"""Deduplicate: two equal calls on the same operands become one, and so do equal small constants."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ..graph.expr import Call, Constant, Expr, Function, TupleGetItem
from ..graph.module import IRModule
from ..graph.walk import rewrite_function
from .base import Pass, Remarks, map_functions

SMALL = 4096  # bytes up to which constants are compared by content


def deduplicate(module: IRModule, _remarks: Remarks) -> IRModule:
    """Let equal expressions be one; every operator is a pure function of its operands."""
    return map_functions(module, _deduplicate)


def _deduplicate(function: Function) -> Function:
    return rewrite_function(function, _first_equal())


def _first_equal() -> Callable[[Expr], Expr | None]:
    known: dict[Hashable, Expr] = {}

    def look_up(expr: Expr) -> Expr | None:
        """f(x), f(x) --> one f(x)"""
        key = _key(expr)
        return None if key is None else known.setdefault(key, expr)

    return look_up


def _key(expr: Expr) -> Hashable:
    """Return what equal expressions have in common, or ``None`` for one that is left alone.

    Attributes are compared by their text as well, because ``0.0 == -0.0`` and ``1 == True``.
    """
    match expr:
        case Call():
            return (expr.op, expr.attrs, repr(expr.attrs), expr.args)
        case TupleGetItem():
            return (TupleGetItem, expr.tuple, expr.index)
        case Constant():
            if expr.data.nbytes > SMALL:
                return (Constant, id(expr.data), expr.type)
            return (Constant, expr.type, expr.data.tobytes())
        case _:
            return None


DEDUPLICATE = Pass("deduplicate", deduplicate)
