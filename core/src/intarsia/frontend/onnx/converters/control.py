# SPDX-License-Identifier: Apache-2.0
"""Control flow: If."""

from __future__ import annotations

from types import MappingProxyType

from ....dtype import DType
from ....errors import ModelError
from ....ir.expr import Expr, If, get_item, make_tuple
from ..builder import dtype_of
from ..context import NodeContext


def if_(node: NodeContext) -> tuple[Expr, ...]:
    """Convert If; with a known condition only the chosen branch is imported."""
    if dtype_of(node.input(0)) is not DType.BOOL:
        raise node.model_error(f"the condition must be bool, got {node.type_of(0)}")
    known = node.constant_value(0)
    if known is not None:
        if known.size != 1:
            raise node.model_error(f"the condition must be one bool, got shape {known.shape}")
        return node.branch("then_branch" if known.reshape(()) else "else_branch")
    then_values, else_values = _branch(node, "then_branch"), _branch(node, "else_branch")
    if len(then_values) != len(else_values):
        raise node.model_error(f"branches give {len(then_values)} and {len(else_values)} results")
    for a, b in zip(then_values, else_values, strict=True):
        if a.type != b.type:
            raise node.unsupported(f"branches give {a.type} and {b.type}, chosen at run time")
    condition = node.reshape(node.input(0), ())
    if len(then_values) == 1:
        value = then_values[0]
        return (If(condition, value, else_values[0], value.type, node.span),)
    a, b = make_tuple(then_values, span=node.span), make_tuple(else_values, span=node.span)
    chosen = If(condition, a, b, a.type, node.span)
    return tuple(get_item(chosen, index, span=node.span) for index in range(len(then_values)))


def _branch(node: NodeContext, name: str) -> tuple[Expr, ...]:
    """Import a branch that may be taken; it may be one that these input shapes rule out."""
    try:
        return node.branch(name)
    except ModelError as error:
        raise node.unsupported(
            f"the condition is only known at run time, and {name} does not fit: "
            f"{error.where}: {error.message}",
            "give the input that decides the condition a constant value",
        ) from None


CONVERTERS = MappingProxyType({"If": if_})
