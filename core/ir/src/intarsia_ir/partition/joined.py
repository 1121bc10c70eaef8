# SPDX-License-Identifier: Apache-2.0
"""Join numbered units of a graph into given parts, and sort the result topologically."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct


class CyclicPart(Exception):
    """Parts that must be built as they are need results of each other, or of what needs theirs.

    Attributes:
        numbers: Which parts.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(f"parts {numbers} lie on a cycle")
        self.numbers = tuple(numbers)


class Joined(Struct, frozen=True, eq=False):
    """Units joined into parts.

    Attributes:
        order: The units of each node of the joined graph, in topological order; a node of several
            units is a part.
        cyclic: Numbers of the parts that lie on a cycle; ``order`` is then incomplete.
    """

    order: tuple[tuple[int, ...], ...]
    cyclic: tuple[int, ...] = ()


def join_units(
    count: int, edges: Sequence[tuple[int, int]], parts: Sequence[Sequence[int]]
) -> Joined:
    """Join units; of several topological orders, return the one nearest to the units' own.

    Args:
        count: How many units there are, in topological order.
        edges: (producer, consumer) of units.
        parts: Disjoint sets of units; all others stay alone.
    """
    node_of = list(range(count))
    members: dict[int, tuple[int, ...]] = {unit: (unit,) for unit in range(count)}
    for part in parts:
        units = tuple(sorted(part))
        for unit in units:
            node_of[unit] = units[0]
            del members[unit]
        members[units[0]] = units
    successors: dict[int, set[int]] = {node: set() for node in members}
    incoming = dict.fromkeys(members, 0)
    for producer, consumer in edges:
        a, b = node_of[producer], node_of[consumer]
        if a != b and b not in successors[a]:
            successors[a].add(b)
            incoming[b] += 1
    ready = [node for node, number in incoming.items() if not number]
    heapify(ready)
    order: list[int] = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for successor in successors[node]:
            incoming[successor] -= 1
            if not incoming[successor]:
                heappush(ready, successor)
    stuck = _on_cycles({node for node, number in incoming.items() if number}, successors)
    cyclic = tuple(n for n, part in enumerate(parts) if node_of[part[0]] in stuck)
    return Joined(tuple(members[node] for node in order), cyclic)


def _on_cycles(left: set[int], successors: dict[int, set[int]]) -> set[int]:
    """Return the nodes that are left without those that only follow a cycle."""
    while True:
        ends = {node for node in left if not successors[node] & left}
        if not ends:
            return left
        left = left - ends
