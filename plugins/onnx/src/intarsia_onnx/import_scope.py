# SPDX-License-Identifier: Apache-2.0
"""Values of one graph by name, while it is imported."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr, Function, Tuple, constant
from intarsia_ir.graph.module import IRModule, StoredAs
from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.errors import ModelError, UnsupportedError

from .graph import Graph, Node
from .names import GRADIENT, converter_name


class ImportScope(Struct):
    """Values of one graph by name; ``None`` for what a node that cannot be imported would give.

    ``stored`` has the element types of values that are bytes here, of narrow numbers elsewhere.
    """

    graph: Graph
    outer: ImportScope | None
    opset: int
    values: dict[str, Expr | None] = field(default_factory=dict[str, Expr | None])
    stored: dict[str, np.dtype] = field(default_factory=dict[str, np.dtype])

    def find(self, name: str) -> Expr | None:
        """Return a value of this graph or of those around it; the reader has checked all names."""
        scope = self
        while name not in scope.values and name not in scope.graph.initializers:
            assert scope.outer is not None, name
            scope = scope.outer
        if name not in scope.values:
            data = scope.graph.initializers[name]
            if data.dtype.name in NARROW:
                scope.stored[name] = data.dtype
                data = data.view(np.uint8)
            scope.values[name] = constant(data, name=name)
        return scope.values[name]

    def copied(self) -> ImportScope:
        """Return the scope as it is now; what is added to one is not in the other."""
        return replace(self, values=dict(self.values), stored=dict(self.stored))

    def repeating(self, number: int) -> ImportScope:
        """Return a copy in which a node of the graph is applied to its own result."""
        nodes = list(self.graph.nodes)
        nodes[number] = replace(nodes[number], inputs=nodes[number].outputs)
        return replace(self.copied(), graph=replace(self.graph, nodes=tuple(nodes)))

    def anew(self) -> ImportScope:
        """Return the scope of a model before its nodes, with weights as far as they were used."""
        known = {info.name for info in self.graph.inputs} | self.graph.initializers.keys()
        values = {name: value for name, value in self.values.items() if name in known}
        return replace(self, values=values, stored=dict(self.stored))

    def stored_type(self, name: str) -> np.dtype | None:
        """Return the element type that the bytes of a value store; ``None`` for plain ones."""
        scope = self
        while name not in scope.values and scope.outer is not None:
            scope = scope.outer
        return scope.stored.get(name)


def with_stored(function: Function, scope: ImportScope) -> IRModule:
    """Return a function as a module that names the narrow types of its inputs and outputs."""
    names = [*(param.name for param in function.params), *function.output_names]
    found = {name: scope.stored[name].name for name in names if name in scope.stored}
    module = IRModule.from_function(function)
    return module.with_attr(StoredAs, StoredAs(MappingProxyType(found))) if found else module


def values_around(scope: ImportScope) -> set[Expr]:
    """Return the values of a graph and of those around it."""
    found: set[Expr] = set()
    around: ImportScope | None = scope
    while around is not None:
        for value in around.values.values():
            if value is not None:
                found.update(value.fields if isinstance(value, Tuple) else (value,))
        around = around.outer
    return found


def undefined(name: str, node: Node, scope: ImportScope) -> ModelError | UnsupportedError:
    """Say that a node names a value in an attribute which is not in its own graph."""
    where = str(node.span)
    if scope.outer is None:
        return ModelError(f"'{name}' is not defined by anything", where=where)
    return UnsupportedError(f"'{name}' is not a value in the graph of the node", where=where)


def live_names(graph: Graph) -> set[str]:
    """Return the names that the outputs depend on."""
    live = {info.name for info in graph.outputs}
    for node in reversed(graph.nodes):
        if live.isdisjoint(node.outputs):
            continue
        live.update(node.inputs)
        for value in node.attrs.values():
            if isinstance(value, Graph):
                live |= live_names(value)
    live.discard("")
    return live


def without_dead_nodes(graph: Graph) -> Graph:
    """Return a graph whose inner graphs have only the nodes that their results depend on.

    A dead node may read a value around it that nothing else reads, which is then not computed.
    """
    nodes = [
        replace(
            node,
            attrs={
                name: _live_part(without_dead_nodes(value)) if isinstance(value, Graph) else value
                for name, value in node.attrs.items()
            },
        )
        if any(isinstance(value, Graph) for value in node.attrs.values())
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def _live_part(graph: Graph) -> Graph:
    """Return a graph without dead nodes; one with derivatives, which name values, as it is."""
    if any(converter_name(node) == GRADIENT for node in graph.nodes):
        return graph
    live = live_names(graph)
    nodes = tuple(node for node in graph.nodes if not live.isdisjoint(node.outputs))
    return replace(graph, nodes=nodes)
