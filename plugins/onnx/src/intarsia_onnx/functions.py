# SPDX-License-Identifier: Apache-2.0
"""Check model-local functions before they are expanded: no recursion, no explosion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from intarsia_ir.budget import budget
from intarsia_runtime.errors import ModelError, ResourceError

MAX_EXPANDED_NODES = 1_000_000
MAX_EXPANDED_BYTES = 256 << 20
"""Bytes of the nodes after expansion, unless the user allows more memory; a large model may have
four times its own."""
_COPIES = 4  # of an expanded model, while it is expanded and read

FunctionKey: TypeAlias = tuple[str, str]


class _AttributeMessage(Protocol):
    """The fields of ``AttributeProto`` that can hold nodes."""

    @property
    def g(self) -> _GraphMessage: ...

    @property
    def graphs(self) -> Iterable[_GraphMessage]: ...


class _NodeMessage(Protocol):
    """The fields of ``NodeProto`` that are read."""

    def ByteSize(self) -> int: ...

    @property
    def domain(self) -> str: ...

    @property
    def op_type(self) -> str: ...

    @property
    def attribute(self) -> Iterable[_AttributeMessage]: ...


class _GraphMessage(Protocol):
    """The fields of ``GraphProto`` that are read."""

    @property
    def node(self) -> Sequence[_NodeMessage]: ...


class _FunctionMessage(Protocol):
    """The fields of ``FunctionProto`` that are read."""

    @property
    def domain(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> Sequence[_NodeMessage]: ...


def verify_functions(
    graph: _GraphMessage, functions: Sequence[_FunctionMessage], limit: int = MAX_EXPANDED_NODES
) -> None:
    """Check that expanding ``functions`` in ``graph`` ends and stays small.

    Raises:
        ModelError: A function calls itself, directly or through others.
        ResourceError: More than ``limit`` nodes after expansion, or more bytes than there may be.
    """
    bodies = {(f.domain, f.name): f for f in functions}
    calls = {key: list(_nested(f.node)) for key, f in bodies.items()}
    sizes: dict[FunctionKey, int] = {}
    own = {key: _bytes(f.node) for key, f in bodies.items()}
    weights: dict[FunctionKey, int] = {}
    for root in bodies:
        path: list[FunctionKey] = [root]
        open_keys = {root}
        while path:
            key = path[-1]
            inner = (c for c in calls[key] if c in bodies and c not in sizes)
            waiting = next(inner, None)
            if key in sizes or waiting is None:
                path.pop()
                open_keys.discard(key)
                sizes[key] = sum(sizes.get(c, 1) for c in calls[key])
                weights[key] = own[key] + sum(weights.get(c, 0) for c in calls[key])
            elif waiting in open_keys:
                raise ModelError(f"function '{waiting[1]}' calls itself through '{key[1]}'")
            else:
                path.append(waiting)
                open_keys.add(waiting)
    total = sum(sizes.get(key, 1) for key in _nested(graph.node))
    if total > limit:
        raise ResourceError(f"{total} nodes once functions are expanded; the limit is {limit}")
    _check_bytes(sum(weights.get(key, 0) for key in _nested(graph.node)), _bytes(graph.node, own))


def _check_bytes(expanded: int, plain: int) -> None:
    """Refuse a model that becomes much larger once its functions are expanded.

    Raises:
        ResourceError: It needs more memory than it may have.
    """
    limits = budget()
    limit = max(MAX_EXPANDED_BYTES, _COPIES * plain)
    if limits.given_memory:
        limit = int(limits.memory) // _COPIES
    if expanded > limit:
        raise ResourceError(
            f"{expanded:,} bytes once functions are expanded; the limit is {limit:,}",
            hint=f"--memory-limit {_COPIES * expanded >> 20}M allows as much (in Python "
            "memory_limit=...)",
        )


def _bytes(
    nodes: Iterable[_NodeMessage], functions: Mapping[FunctionKey, int] | None = None
) -> int:
    """Return the bytes of nodes as they are written, and of functions."""
    return sum(node.ByteSize() for node in nodes) + sum((functions or {}).values())


def _nested(nodes: Iterable[_NodeMessage]) -> Iterable[FunctionKey]:
    """Yield the operator of every node, those in graphs inside nodes included."""
    pending = [iter(nodes)]
    while pending:
        node = next(pending[-1], None)
        if node is None:
            pending.pop()
            continue
        yield node.domain, node.op_type
        for attribute in node.attribute:
            pending.append(iter(attribute.g.node))
            pending.extend(iter(graph.node) for graph in attribute.graphs)
