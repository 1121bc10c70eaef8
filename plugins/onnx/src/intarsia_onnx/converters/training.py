# SPDX-License-Identifier: Apache-2.0
"""Gradient: derivatives of a value of the model by others."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, Function, Var, make_tuple
from intarsia_ir.graph.walk import children, substitute

from ..builder import dtype_of
from ..context import NodeContext
from ..names import GRADIENT


def gradient(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Gradient: the part of the graph between ``xs`` and ``y``, differentiated.

    That part is imported once more with a variable for each of ``xs``, so that each is independent
    even where two names stand for one value, and with the operands for ``zs``. What that computes
    again is the same as before, and becomes one with it, unless the operands are others.
    """
    # few models ask for derivatives
    from intarsia_ir.passes.differentiate import differentiate
    from intarsia_ir.passes.unroll_recurrent import unroll_recurrent

    xs, zs, of = node.strings("xs"), node.strings("zs"), node.string("y")
    operands = node.variadic()
    outputs = len(node.node.outputs)
    if not xs or len(operands) != len(xs) + len(zs) or outputs > len(xs):
        raise node.model_error(
            f"{len(operands)} operands and {outputs} results do not fit {len(xs)} names in 'xs'"
            f" and {len(zs)} in 'zs'"
        )
    if len({*xs, *zs}) != len(operands):
        raise node.model_error("'xs' and 'zs' name a value twice")
    by = operands[: len(xs)]
    for name, operand in zip(xs, by, strict=True):
        _check_float(node, name, operand)
    variables = [Var(name, operand.type, node.span) for name, operand in zip(xs, by, strict=True)]
    y = node.recomputed(of, dict(zip(xs + zs, [*variables, *operands[len(xs) :]], strict=True)))
    _check_float(node, of, y)
    wanted = [n for n in range(outputs) if node.wants(n)]
    y = unroll_recurrent(Function((), y)).body  # operators of layers have no rule
    slopes = differentiate(y, [variables[n] for n in wanted], node.span)
    whole = substitute(make_tuple(slopes), dict[Expr, Expr](zip(variables, by, strict=True)))
    found = dict(zip(wanted, children(whole), strict=True))
    return tuple(found.get(n, by[n]) for n in range(outputs))  # nobody sees the other results


def _check_float(node: NodeContext, name: str, value: Expr) -> None:
    if not dtype_of(value).is_float:
        raise node.model_error(f"'{name}' has no derivatives: it is {value.type}")


CONVERTERS = MappingProxyType({GRADIENT: gradient})
