# SPDX-License-Identifier: Apache-2.0
"""Loops that append an element to a sequence in each iteration: they collect values instead."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr

from ..context import NodeContext
from ..graph import Graph, Node, ValueInfo
from ..names import operand_names
from .sequences import appended, is_sequence


class Collecting(Struct, frozen=True, eq=False):
    """A Loop without the sequences that it appends to.

    Attributes:
        node: The Loop; what was appended are its last results, collected.
        places: Which of its results were sequences, counted from the first.
        starts: The sequences before the first iteration.
    """

    node: NodeContext
    places: tuple[int, ...]
    starts: tuple[Expr, ...]

    def results(self, made: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Put the results of ``node`` in the order of the Loop that it stands for."""
        count = len(made) - len(self.places)
        found = list(made[:count])
        for place, start, rows in zip(self.places, self.starts, made[count:], strict=True):
            found.insert(place, appended(self.node, start, rows))
        return tuple(found)


def collecting_loop(node: NodeContext) -> Collecting | None:
    """Return a Loop that collects what ``node`` appends; ``None`` if it appends to no sequence.

    An iteration may do more with a sequence than to append to it: such a one is handed on.
    """
    body = node.graph("body")
    nodes = list(body.nodes)
    rows: dict[int, str] = {}
    for place in range(len(node.args) - 2):
        if not is_sequence(node.input(2 + place)):
            continue
        maker = _appending_node(body, body.inputs[2 + place].name, body.outputs[1 + place].name)
        if maker is not None:
            nodes.remove(maker)
            rows[place] = maker.inputs[1]
    places = tuple(rows)
    if not places:
        return None
    outputs = [info for n, info in enumerate(body.outputs) if n - 1 not in places]
    inside = replace(
        body,
        inputs=tuple(info for n, info in enumerate(body.inputs) if n - 2 not in places),
        outputs=(*outputs, *(ValueInfo(name, None) for name in rows.values())),
        nodes=tuple(nodes),
    )
    results = node.node.outputs
    kept = tuple(name for n, name in enumerate(results) if n not in places)
    without = replace(
        node.node,
        inputs=tuple(name for n, name in enumerate(node.node.inputs) if n - 2 not in places),
        outputs=(*kept, *(results[n] for n in places)),
        attrs={**node.node.attrs, "body": inside},
    )
    args = [arg for n, arg in enumerate(node.args) if n - 2 not in places]
    return Collecting(
        node.replaced(without, args), places, tuple(node.input(2 + n) for n in places)
    )


def _appending_node(body: Graph, carried: str, result: str) -> Node | None:
    """Return the SequenceInsert that appends to ``carried`` and gives ``result`` only."""
    makers = [node for node in body.nodes if result in node.outputs]
    if len(makers) != 1 or makers[0].op_type != "SequenceInsert" or makers[0].domain:
        return None
    (maker,) = makers
    if maker.inputs[0] != carried or any(maker.inputs[2:]):
        return None
    others = [name for node in body.nodes if node is not maker for name in operand_names(node)]
    others += [info.name for info in body.outputs]
    is_alone = carried not in others and others.count(result) == 1
    return maker if is_alone else None
