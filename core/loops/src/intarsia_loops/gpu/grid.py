# SPDX-License-Identifier: Apache-2.0
"""Shorthand for the loops of a grid; the rest is ``intarsia_ir.tir.build``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, PrimExpr, TirVar, index, size_variable
from intarsia_ir.tir.stmt import For, ForKind, Stmt, Thread
from intarsia_runtime.size import Size, floor_divide, maximum, minimum, remainder, variable


def bound(thread: Thread, var: TirVar, extent: int, body: Stmt) -> Stmt:
    """One block or thread for each iteration."""
    return For(var, index(extent), ForKind.BOUND, body, thread)


def chunks(extent: int, size: int) -> int:
    """Return how many pieces of a size cover an extent."""
    return (extent + (size - 1)) // size


_OPERATIONS: Mapping[BinaryOp, Callable[[Size, Size], Size]] = MappingProxyType(
    {
        BinaryOp.ADD: lambda a, b: a + b,
        BinaryOp.SUB: lambda a, b: a - b,
        BinaryOp.MUL: lambda a, b: a * b,
        BinaryOp.FLOOR_DIV: floor_divide,
        BinaryOp.FLOOR_MOD: remainder,
        BinaryOp.MIN: minimum,
        BinaryOp.MAX: maximum,
    }
)


def size_of(expr: PrimExpr) -> int | None:
    """Return the size that an index expression is; ``None`` if more than sizes decides it.

    An expression over size variables stands for a number, as in shapes.
    """
    return cast("int | None", _size(expr))


def _size(expr: PrimExpr) -> Size | None:
    match expr:
        case IntImm(value=value):
            return value
        case TirVar(name=name) if expr is size_variable(name):
            return variable(name)
        case Binary(op=op, a=a, b=b) if op in _OPERATIONS:
            left, right = _size(a), _size(b)
            return None if left is None or right is None else _OPERATIONS[op](left, right)
        case _:
            return None
