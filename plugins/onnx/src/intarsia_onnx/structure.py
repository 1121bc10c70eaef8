# SPDX-License-Identifier: Apache-2.0
"""Check that a graph's values are defined once, before use, and in order."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from intarsia_ir.diagnostics import ModelWarning
from intarsia_runtime.errors import ModelError

from .graph import Graph, Node
from .names import operand_names


def sorted_nodes(nodes: Sequence[Node], where: str) -> Sequence[Node]:
    """Return the nodes of a graph so that each stands behind those it takes values from.

    ONNX asks for that order, and ONNX Runtime does not; a warning says that they were sorted. If
    there is no order they stay as they are, and :func:`verify_graph` says why.

    Args:
        nodes: The nodes.
        where: The graph, for the warning.
    """
    producers = {name: n for n, node in enumerate(nodes) for name in node.outputs if name}
    needs = [
        {producers[name] for name in operand_names(node) if name in producers} for node in nodes
    ]
    if all(max(found, default=-1) < n for n, found in enumerate(needs)):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for n, found in enumerate(needs):
        for producer in found:
            users[producer].append(n)
    missing = [len(found) for found in needs]
    ready = [n for n, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for user in users[n]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        return nodes
    message = f"{where}: its nodes are not in order, and were sorted"
    warnings.warn(message, ModelWarning, stacklevel=2)
    return [nodes[n] for n in order]


def verify_graph(graph: Graph, outer: AbstractSet[str] = frozenset()) -> None:
    """Check the names of a graph and of every graph inside its nodes.

    Args:
        graph: Graph to check.
        outer: Names that enclosing graphs define before the node that holds this graph.

    Raises:
        ModelError: A name is defined twice, used undefined or too early, or nodes form a cycle.
    """
    if not graph.outputs:
        raise ModelError(f"graph '{graph.name}' has no outputs")
    local: set[str] = set()
    for info in graph.inputs:
        if not info.name:
            raise ModelError(f"graph '{graph.name}' has an input without a name")
        if info.name in local:
            raise ModelError(f"input '{info.name}' is declared twice")
        local.add(info.name)
    local.update(graph.initializers)
    for node in graph.nodes:
        _verify_node(graph, node, local, outer)
    seen: set[str] = set()
    for info in graph.outputs:
        if info.name not in local and info.name not in outer:
            raise ModelError(f"no node, input or weight computes the output '{info.name}'")
        if info.name in seen:
            raise ModelError(f"output '{info.name}' is declared twice")
        seen.add(info.name)


def _verify_node(graph: Graph, node: Node, local: set[str], outer: AbstractSet[str]) -> None:
    for name in node.inputs:
        if name and name not in local and name not in outer:
            raise _undefined(graph, node, name, local | outer)
    for value in node.attrs.values():
        if isinstance(value, Graph):
            verify_graph(value, local | outer)
    for name in node.outputs:
        if not name:
            continue
        if name in local:
            raise ModelError(f"value '{name}' is defined twice", where=str(node.span))
        local.add(name)


def _undefined(graph: Graph, node: Node, name: str, known: AbstractSet[str]) -> ModelError:
    """Tell a cycle from a wrong order from a name that nothing defines."""
    producers = {output: other for other in graph.nodes for output in other.outputs if output}
    if name not in producers:
        return ModelError(f"input '{name}' is not defined by anything", where=str(node.span))
    reached: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        producer = producers.get(current)
        if current in reached or current in known or producer is None:
            continue
        reached.add(current)
        if producer is node:
            last = producers[name]
            return ModelError(
                f"nodes '{node.span}' and '{last.span}' form a cycle through '{name}'"
            )
        pending.extend(producer.inputs)
    return ModelError(
        f"uses '{name}' before node '{producers[name].span}' defines it",
        where=str(node.span),
        hint="sort the nodes topologically, as the ONNX specification asks",
    )
