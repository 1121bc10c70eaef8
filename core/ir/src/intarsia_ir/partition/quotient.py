# SPDX-License-Identifier: Apache-2.0
"""The graph of regions, kept acyclic and topologically ordered while regions are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Quotient:
    """Groups of units as nodes of a graph; merging two keeps a topological order.

    Attributes:
        steps: How many edges all searches have followed.
    """

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))
        self._successors: list[set[int]] = [set() for _ in range(count)]
        self._order: list[int] = []
        self._position = [0] * count
        self.steps = 0

    @classmethod
    def of(cls, group_of: Sequence[int], edges: Sequence[tuple[int, int]]) -> Quotient:
        """Contract units into their groups.

        Args:
            group_of: For each unit the first unit of its group; contracting makes no cycle.
            edges: Edges between units.
        """
        graph = cls(len(group_of))
        graph._parent = list(group_of)
        incoming = [0] * len(group_of)
        for producer, consumer in edges:
            a, b = group_of[producer], group_of[consumer]
            if a != b and b not in graph._successors[a]:
                graph._successors[a].add(b)
                incoming[b] += 1
        graph._sort(incoming)
        return graph

    def _sort(self, incoming: list[int]) -> None:
        ready = [g for g, parent in enumerate(self._parent) if g == parent and incoming[g] == 0]
        ready.reverse()
        while ready:
            group = ready.pop()
            self._position[group] = len(self._order)
            self._order.append(group)
            for successor in sorted(self._successors[group], reverse=True):
                incoming[successor] -= 1
                if incoming[successor] == 0:
                    ready.append(successor)

    def find(self, unit: int) -> int:
        """Return the group that ``unit`` is in now."""
        parent = self._parent
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = parent[unit]
        return unit

    def in_order(self) -> Iterator[int]:
        """Yield the groups so that each comes after all it depends on."""
        return (group for group in self._order if group >= 0)

    def edges(self) -> list[tuple[int, int]]:
        """Return the edges between groups, by position of their ends."""
        return [
            (group, successor)
            for group in self.in_order()
            for successor in sorted(self._successors[group], key=self._position.__getitem__)
        ]

    def contract(self, a: int, b: int) -> int | None:
        """Merge group ``b`` into its predecessor ``a``.

        Returns:
            ``None`` if merged; else a group on another path from ``a`` to ``b``, and nothing
            changes.
        """
        between = self._reachable(a, b)
        if isinstance(between, int):
            return between
        low, high = self._position[a], self._position[b]
        segment = self._order[low : high + 1]
        before = [g for g in segment if g >= 0 and g not in between and g not in (a, b)]
        after = [g for g in segment if g in between]
        holes = [-1] * (len(segment) - len(before) - len(after) - 1)
        self._order[low : high + 1] = [*before, a, *after, *holes]
        for offset, group in enumerate([*before, a, *after]):
            self._position[group] = low + offset
        self._parent[b] = a
        merged = self._successors[a] | self._successors[b]
        self._successors[a] = merged - {a, b}
        self._successors[b] = set()
        self.steps += len(segment)
        return None

    def _reachable(self, a: int, b: int) -> set[int] | int:
        """Return the groups behind ``a`` and before ``b``, or one that leads to ``b``."""
        limit = self._position[b]
        seen: set[int] = set()
        stack = self._live_successors(a)
        stack.discard(b)
        todo = sorted(stack, reverse=True)
        while todo:
            group = todo.pop()
            if group in seen or self._position[group] > limit:
                continue
            seen.add(group)
            following = self._live_successors(group)
            self.steps += len(following) + 1
            if b in following:
                return group
            todo.extend(sorted(following - seen, reverse=True))
        return seen

    def _live_successors(self, group: int) -> set[int]:
        """Return the successors by their present groups."""
        live = {self.find(successor) for successor in self._successors[group]}
        live.discard(group)
        self._successors[group] = set(live)
        return live
