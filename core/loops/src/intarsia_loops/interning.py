# SPDX-License-Identifier: Apache-2.0
"""Numbers for expressions, equal for expressions that are built alike."""

from __future__ import annotations

from intarsia_ir.tir.expr import (
    Binary,
    CallIntrinsic,
    CallTarget,
    FloatImm,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Read,
    ReduceLanes,
    TirVar,
)
from intarsia_ir.tir.walk import children, post_order


class Interner:
    """Gives expressions of the same structure the same number; variables are equal by identity."""

    def __init__(self) -> None:
        self._numbers: dict[PrimExpr, int] = {}
        self._keys: dict[tuple[object, ...], int] = {}

    def number(self, expr: PrimExpr) -> int:
        """Return the number of an expression."""
        number = self._numbers.get(expr)
        if number is not None:
            return number
        for node in post_order(expr):
            if node not in self._numbers:
                operands = tuple(self._numbers[child] for child in children(node))
                key = (type(node), node.dtype, node.lanes, _own_key(node), operands)
                self._numbers[node] = self._keys.setdefault(key, len(self._keys))
        return self._numbers[expr]


def _own_key(node: PrimExpr) -> object:
    """Return what tells a node from others of its class with the same operands."""
    match node:
        case IntImm():
            return node.value
        case FloatImm():
            return node.value.hex()
        case TirVar():
            return node
        case Binary(op=op) | ReduceLanes(op=op):
            return op
        case CallIntrinsic():
            return node.intrinsic
        case CallTarget():
            return node.kind, node.function
        case Load():
            return node.buffer
        case Read():
            return node.tensor
        case Ramp():
            return node.stride
        case _:
            return None
