# SPDX-License-Identifier: Apache-2.0
"""The tensors of a graph: the node that makes each value, and the values that share memory."""

from __future__ import annotations

from typing import NamedTuple, cast

from intarsia_ir.graph.expr import Call, CallFunction, Constant, Expr, Tuple, TupleGetItem, Var
from intarsia_ir.graph.types import Size, TensorType, TupleType
from intarsia_ir.ops.run_sizes import SizeOf, WithSizes
from intarsia_ir.ops.shape import BroadcastTo, Copy, Reshape, Transpose
from intarsia_runtime.errors import UnsupportedError, VerifyError
from intarsia_runtime.size import product


class NodeResult(NamedTuple):
    """One tensor: the node that makes it, and which of the node's results it is."""

    node: Expr
    number: int = 0

    @property
    def type(self) -> TensorType:
        """Shape and element type.

        Raises:
            UnsupportedError: The result is a tuple inside a tuple.
        """
        kind = self.node.type
        if isinstance(kind, TupleType):
            kind = kind.fields[self.number]
        if not isinstance(kind, TensorType):
            raise UnsupportedError(
                "nested tuples have no place in memory", where=str(self.node.span)
            )
        return kind


def value_of(expr: Expr) -> NodeResult:
    """Return the tensor that an expression stands for, looking through tuples.

    Raises:
        UnsupportedError: The expression is control flow, which a static plan cannot hold.
        VerifyError: The expression is a whole tuple.
    """
    index = 0
    while isinstance(expr, TupleGetItem):
        inner = expr.tuple
        if isinstance(inner, Tuple):
            expr = inner.fields[expr.index]
        else:
            index, expr = expr.index, inner
            break
    if isinstance(expr, Tuple):
        raise VerifyError("a tuple is used where a tensor is needed", where=str(expr.span))
    if not isinstance(expr, Call | CallFunction | Constant | Var):
        raise UnsupportedError(f"'{type(expr).__name__}' has no static plan", where=str(expr.span))
    return NodeResult(expr, index)


def results_of(node: Call | CallFunction) -> tuple[NodeResult, ...]:
    """Return every tensor that a node makes."""
    count = len(node.type.fields) if isinstance(node.type, TupleType) else 1
    return tuple(NodeResult(node, index) for index in range(count))


def is_view(call: Call) -> bool:
    """Whether the result of a call is its operand's memory under another shape.

    True of reshapes and copies, and of transposes and broadcasts that only move or add ones.
    """
    if call.op in (Reshape, Copy, SizeOf, WithSizes):
        return True
    if call.op not in (Transpose, BroadcastTo) or not isinstance(call.type, TensorType):
        return False
    source = call.args[0].type
    if not isinstance(source, TensorType):
        return False
    before, after = source.shape, call.type.shape
    if product(before) != product(after):
        return False
    if call.op is BroadcastTo:
        return True
    return _keeps_order(before, call)


def _keeps_order(shape: tuple[Size, ...], call: Call) -> bool:
    axes = cast("Transpose.Attrs", call.attrs).axes  # the one view that is left
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)
