# SPDX-License-Identifier: Apache-2.0
"""SequenceMap: a graph carried out for each element of sequences."""

from __future__ import annotations

from types import MappingProxyType

from msgspec.structs import replace

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, make_tuple

from ..context import NodeContext
from ..graph import Node, ValueInfo
from .control import loop
from .sequences import is_open_sequence, is_sequence, items_of, sequence_length, tensors_of

_ITERATION, _GOES, _GOES_ON = "#iteration", "#goes", "#goes on"


def sequence_map(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SequenceMap: the body, once for each element; tensors are the same for all."""
    if any(is_open_sequence(node, x) for x in node.variadic()):
        return _looped(node)
    first = items_of(node, node.input(0))
    operands = [items_of(node, x) if is_sequence(x) else x for x in node.variadic()]
    rows: list[tuple[Expr, ...]] = []
    for number in range(len(first)):
        given: list[Expr] = []
        for operand in operands:
            if not isinstance(operand, tuple):
                given.append(operand)
            elif len(operand) == len(first):
                given.append(operand[number])
            else:
                raise node.model_error(f"sequences of {len(first)} and {len(operand)} elements")
        rows.append(tensors_of(node, node.body("body", given)))
    count = len(node.graph("body").outputs)
    return tuple(make_tuple([row[n] for row in rows], span=node.span) for n in range(count))


def _looped(node: NodeContext) -> tuple[Expr, ...]:
    """Convert a map over a number of elements of the run: a loop that appends to sequences."""
    body, names = node.graph("body"), node.node.inputs
    if len(body.inputs) != len(names):
        raise node.model_error(f"the body takes {len(body.inputs)} values, not {len(names)}")
    takes: list[Node] = []
    for info, name, operand in zip(body.inputs, names, node.variadic(), strict=True):
        kind = "SequenceAt" if is_sequence(operand) else "Identity"
        inputs = (name, _ITERATION) if is_sequence(operand) else (name,)
        takes.append(_made(node, kind, inputs, info.name))
    grown = [f"#grown {n}" for n in range(len(body.outputs))]
    appends = [
        _made(node, "SequenceInsert", (name, info.name), f"{name} more")
        for name, info in zip(grown, body.outputs, strict=True)
    ]
    goes = _made(node, "Identity", (_GOES,), _GOES_ON)
    inside = replace(
        body,
        inputs=tuple(ValueInfo(name, None) for name in (_ITERATION, _GOES, *grown)),
        outputs=tuple(ValueInfo(one.outputs[0], None) for one in (goes, *appends)),
        nodes=(*takes, *body.nodes, goes, *appends),
    )
    made = Node("Loop", "", ("", "", *grown), node.node.outputs, {"body": inside}, node.span)
    empty = [make_tuple((), span=node.span) for _ in grown]
    return loop(node.replaced(made, [sequence_length(node), None, *empty]))


def _made(node: NodeContext, kind: str, inputs: tuple[str, ...], output: str) -> Node:
    return Node(kind, "", inputs, (output,), {}, Span(node.span.name, kind))


CONVERTERS = MappingProxyType({"SequenceMap": sequence_map})
