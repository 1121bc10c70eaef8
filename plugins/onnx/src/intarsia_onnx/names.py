# SPDX-License-Identifier: Apache-2.0
"""Names of nodes, which names they take, and which nodes lie between some names and others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from intarsia_runtime.errors import ModelError

from .graph import Graph, Node

GRADIENT = "ai.onnx.preview.training::Gradient"
"""The operator that takes values by naming them in attributes."""


def converter_name(node: Node) -> str:
    """Return the name under which the converter of a node is found."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def operand_names(node: Node) -> list[str]:
    """Return what a node takes: its inputs, and what graphs inside it use from outside."""
    names = dict.fromkeys(name for name in node.inputs if name)
    for value in node.attrs.values():
        if isinstance(value, Graph):
            names.update(dict.fromkeys(free_names(value)))
    return list(names)


def free_names(graph: Graph) -> list[str]:
    """Return the names that a graph, or one inside it, takes from around it."""
    own = {info.name for info in graph.inputs} | set(graph.initializers)
    free: dict[str, None] = {}
    for node in graph.nodes:
        free.update(dict.fromkeys(name for name in operand_names(node) if name not in own))
        own.update(node.outputs)
    free.update(dict.fromkeys(info.name for info in graph.outputs if info.name not in own))
    return list(free)


def all_nodes(node: Node) -> Iterable[Node]:
    """A node and all nodes of graphs inside it."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        for value in current.attrs.values():
            if isinstance(value, Graph):
                pending.extend(value.nodes)


def defines(graph: Graph, name: str) -> bool:
    """Whether a value is an input, a weight or a result of a node of the graph."""
    return (
        name in graph.initializers
        or any(info.name == name for info in graph.inputs)
        or any(name in node.outputs for node in graph.nodes)
    )


def nodes_towards(graph: Graph, name: str, given: AbstractSet[str]) -> list[Node]:
    """Return the nodes of a graph that compute a value, operands before users.

    Args:
        graph: Where the value is.
        name: The value.
        given: Values whose nodes are left out, and what only these need.

    Raises:
        ModelError: A node that names values in attributes depends on its own result.
    """
    producers = {output: node for node in graph.nodes for output in node.outputs if output}
    found: list[Node] = []
    state: dict[tuple[str, ...], bool] = {}
    stack: list[tuple[Node, Iterator[str]]] = []

    def enter(wanted: str) -> None:
        node = None if wanted in given else producers.get(wanted)
        if node is None or state.get(node.outputs):
            return
        if node.outputs in state:
            raise ModelError("depends on its own result", where=str(node.span))
        state[node.outputs] = False
        stack.append((node, iter(needed_names(node))))

    enter(name)
    while stack:
        node, rest = stack[-1]
        wanted = next(rest, None)
        if wanted is not None:
            enter(wanted)
            continue
        state[node.outputs] = True
        found.append(node)
        stack.pop()
    return found


def affected(nodes: list[Node], names: AbstractSet[str]) -> set[str]:
    """Return names, and the results of nodes, in order, that depend on them."""
    reached = set(names)
    for node in nodes:
        if not reached.isdisjoint(needed_names(node)):
            reached.update(output for output in node.outputs if output)
    return reached


def needed_names(node: Node) -> list[str]:
    """Return what a node takes, the value that a Gradient differentiates included."""
    names = operand_names(node)
    of = node.attrs.get("y")
    if converter_name(node) == GRADIENT and isinstance(of, str):
        names.append(of)
    return names
