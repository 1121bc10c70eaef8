# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of indices: what is never negative divides in one instruction."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, PrimExpr, Select, TirVar
from intarsia_ir.tir.target_call import CallTarget

from ..functions import THREAD_SLOT


def lower_bound(expr: PrimExpr, known: Mapping[TirVar, int]) -> int | None:
    """Return a number that an index is at least; ``None`` if it may be negative.

    Args:
        expr: The index.
        known: Such numbers of variables.
    """
    match expr:
        case IntImm():
            return expr.value if expr.value >= 0 else None
        case TirVar():
            return known.get(expr)
        case Binary(op=BinaryOp.SUB, a=a, b=IntImm(value=less)):
            bound = lower_bound(a, known)
            return None if bound is None or bound < less else bound - less
        case Binary():
            return _of_binary(expr, lower_bound(expr.a, known), lower_bound(expr.b, known))
        case Select():
            return _least(lower_bound(expr.a, known), lower_bound(expr.b, known))
        case CallTarget():
            return 0 if expr.function == THREAD_SLOT else None
        case _:
            return None


def _of_binary(expr: Binary, a: int | None, b: int | None) -> int | None:
    if expr.op is BinaryOp.MAX:
        return max([bound for bound in (a, b) if bound is not None], default=None)
    if expr.op is BinaryOp.FLOOR_MOD:
        return None if b is None else 0
    if a is None or b is None:
        return None
    match expr.op:
        case BinaryOp.ADD:
            return a + b
        case BinaryOp.MUL:
            return a * b
        case BinaryOp.MIN:
            return min(a, b)
        case BinaryOp.FLOOR_DIV:
            return a // expr.b.value if isinstance(expr.b, IntImm) and b else 0
        case _:
            return None


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)
