# SPDX-License-Identifier: Apache-2.0
"""Vector expressions one lane at a time, for languages without vectors."""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.tir.expr import Broadcast, FloatImm, IntImm, PrimExpr, Ramp, TirVar
from intarsia_ir.tir.walk import children, with_children
from intarsia_runtime.errors import VerifyError


def lane_of(expr: PrimExpr, lane: PrimExpr) -> PrimExpr:
    """Return the scalar that a vector expression holds in a lane; a scalar is in all of them.

    Args:
        expr: A vector or a scalar.
        lane: Number of the lane: a constant, or a loop variable.

    Raises:
        VerifyError: A variable is a vector.
    """
    return _lane(expr, lane, {})


def _lane(expr: PrimExpr, lane: PrimExpr, memo: dict[PrimExpr, PrimExpr]) -> PrimExpr:
    if expr.lanes == 1:
        return expr
    if expr not in memo:
        memo[expr] = _scalar(expr, lane, memo)
    return memo[expr]


def _scalar(expr: PrimExpr, lane: PrimExpr, memo: dict[PrimExpr, PrimExpr]) -> PrimExpr:
    match expr:
        case IntImm() | FloatImm():
            return replace(expr, lanes=1)
        case Ramp():
            return expr.base + lane * expr.stride
        case Broadcast():
            return expr.value
        case TirVar():
            raise VerifyError(f"the variable '{expr.name}' is a vector")
        case _:
            return with_children(expr, tuple([_lane(part, lane, memo) for part in children(expr)]))
