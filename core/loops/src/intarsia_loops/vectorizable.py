# SPDX-License-Identifier: Apache-2.0
"""Which expressions are linear in a loop variable, and so become vectors."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    CallTarget,
    CastExpr,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Read,
    TirVar,
)
from intarsia_ir.tir.tensor import Axis, Tensor
from intarsia_ir.tir.walk import children, post_order, rewrite

MAX_STEP = 8
"""Most neighbours that are written out because they read one place."""


def vectorizes(value: PrimExpr, var: TirVar, *, byte_tables: bool = False) -> bool:
    """Whether ``value`` has a vector form along ``var``.

    True when every load varies along its last dimension only, by a constant stride, and no guard
    depends on ``var``.

    Args:
        value: Of an element.
        var: The loop variable.
        byte_tables: Whether vectors of bytes are looked up in tables of 256 bytes.
    """
    varying: set[PrimExpr] = set()
    strides = _Strides(var)
    for node in post_order(value):
        if node is var or any(child in varying for child in children(node)):
            varying.add(node)
        if node not in varying:
            continue
        match node:
            case Load() | Read():
                if any(index in varying for index in node.indices[:-1]):
                    return False
                is_table = byte_tables and looked_up(node) is not None
                if not is_table and strides.of(node.indices[-1]) is None:
                    return False
            case IfThenElse():
                if node.condition in varying:
                    return False
            case CallTarget():
                return False
            case _:
                pass
    return True


def looked_up(node: PrimExpr) -> PrimExpr | None:
    """Return the byte that a load looks up in a table of 256 bytes, as of ``qnn.lookup``.

    ``None`` of any other expression.
    """
    match node:
        case Load(buffer=Buffer(shape=(256,)), indices=(place,)) if node.dtype.bits == 8:
            pass
        case Read(tensor=Tensor(shape=(256,)), indices=(place,)) if node.dtype.bits == 8:
            pass
        case _:
            return None
    added = 0
    if isinstance(place, Binary) and place.op is BinaryOp.ADD and isinstance(place.b, IntImm):
        place, added = place.a, place.b.value
    if not isinstance(place, CastExpr) or place.value.dtype.bits != 8:
        return None
    return place.value if added == (128 if place.value.dtype.is_signed else 0) else None


class _Strides:
    """Coefficients of one variable in index expressions."""

    def __init__(self, var: TirVar) -> None:
        self._var = var
        self._stride_by_node: dict[PrimExpr, int | None] = {}

    def of(self, expr: PrimExpr) -> int | None:
        """Return how much ``expr`` grows when the variable does by 1; ``None`` if not constant."""
        for node in post_order(expr):
            if node not in self._stride_by_node:
                self._stride_by_node[node] = self._stride(node)
        return self._stride_by_node[expr]

    def _stride(self, node: PrimExpr) -> int | None:
        if node is self._var:
            return 1
        parts = [self._stride_by_node[child] for child in children(node)]
        if all(part == 0 for part in parts):
            return 0
        if not isinstance(node, Binary):
            return None
        a, b = parts
        match node.op, node.a, node.b:
            case (BinaryOp.ADD, _, _) if a is not None and b is not None:
                return a + b
            case (BinaryOp.SUB, _, _) if a is not None and b is not None:
                return a - b
            case (BinaryOp.MUL, _, IntImm(value=factor)) if a is not None:
                return a * factor
            case (BinaryOp.MUL, IntImm(value=factor), _) if b is not None:
                return b * factor
            case _:
                return None


def shared_step(value: PrimExpr, axis: Axis) -> int:
    """Return how many neighbours along an axis share a place that they read: 2 for ``x[i // 2]``.

    1 if none do, if they are too many to be written out, or if the axis is no multiple of them.
    """
    steps = {
        node.b.value
        for node in post_order(value)
        if isinstance(node, Binary)
        and node.op in (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD)
        and node.a is axis.var
        and isinstance(node.b, IntImm)
    }
    step = steps.pop() if len(steps) == 1 else 1
    return step if 2 <= step <= MAX_STEP and axis.extent % step == 0 else 1


def at_step(value: PrimExpr, var: TirVar, step: int, quotient: PrimExpr, rest: int) -> PrimExpr:
    """Return ``value`` at ``var = quotient * step + rest``, divisions of ``var`` carried out."""

    def rule(node: PrimExpr) -> PrimExpr | None:
        if (
            not isinstance(node, Binary)
            or node.a is not index_expr
            or not isinstance(node.b, IntImm)
        ):
            return None
        if node.b.value != step:
            return None
        match node.op:
            case BinaryOp.FLOOR_DIV:
                return quotient
            case BinaryOp.FLOOR_MOD:
                return IntImm(rest)
            case _:
                return None

    index_expr = quotient * step + rest
    return rewrite(value, rule, {var: index_expr})


def is_linear(condition: PrimExpr, axes: Sequence[Axis]) -> tuple[int, int] | None:
    """Read ``axis < bound`` or ``axis - offset < bound``: which axis, and where it splits.

    ``None`` for any other condition, and for one that is always or never true.
    """
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.LT:
        return None
    if not isinstance(condition.b, IntImm):
        return None
    left, bound = condition.a, condition.b.value
    while isinstance(left, Binary) and isinstance(left.b, IntImm):
        if left.op is BinaryOp.ADD:
            bound -= left.b.value
        elif left.op is BinaryOp.SUB:
            bound += left.b.value
        else:
            return None
        left = left.a
    for number, axis in enumerate(axes):
        if left is axis.var and 0 < bound < axis.extent:
            return number, bound
    return None
