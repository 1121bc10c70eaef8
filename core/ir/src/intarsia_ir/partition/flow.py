# SPDX-License-Identifier: Apache-2.0
"""Minimum cut: the cheapest way to give each of many things one of two sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ENDLESS = 1 << 80
_SOURCE, _SINK = 0, 1


class Choice:
    """Variables that are 0 or 1, with a price for each combination; finds the cheapest values.

    Every price that can be added is *submodular*, so the answer is exact: the minimum cut of a
    network in which a variable that is 1 is on the side of the source (Dinic's algorithm).
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._heads: list[list[int]] = [[] for _ in range(count + 2)]
        self._to: list[int] = []
        self._room: list[int] = []

    def price(self, amount: int, *, when: int, of: Iterable[int], unless: int | None) -> None:
        """Pay once if any variable of ``of`` has the value ``when`` and ``unless`` has not.

        Args:
            amount: The price, 0 or more.
            when: 0 or 1.
            of: Variables.
            unless: A variable; ``None`` for one that never has the value ``when``.
        """
        members = sorted({variable for variable in of if variable != unless})
        if not members or not amount:
            return
        sides = (_SOURCE, _SINK) if when == 0 else (_SINK, _SOURCE)
        other = sides[0] if unless is None else unless + 2
        if len(members) == 1:
            self._edge(members[0] + 2, other, amount, when)
            return
        self._heads.append([])
        either = len(self._heads) - 1
        self._edge(either, other, amount, when)
        for member in members:
            self._edge(member + 2, either, _ENDLESS, when)

    def _edge(self, chosen: int, other: int, room: int, when: int) -> None:
        """Cut if ``chosen`` has the value ``when`` and ``other`` has not."""
        ends = (chosen, other) if when == 1 else (other, chosen)
        for (start, into), amount in ((ends, room), (ends[::-1], 0)):
            self._heads[start].append(len(self._to))
            self._to.append(into)
            self._room.append(amount)

    def cheapest(self) -> list[bool]:
        """Return for each variable whether it is 1; of equally cheap answers, the fewest 1."""
        while True:
            depth = self._depths()
            if depth[_SINK] < 0:
                return [level >= 0 for level in depth[2 : self._count + 2]]
            self._block(depth)

    def _depths(self) -> list[int]:
        depth = [-1] * len(self._heads)
        depth[_SOURCE] = 0
        wave = [_SOURCE]
        while wave:
            following: list[int] = []
            for node in wave:
                for edge in self._heads[node]:
                    if self._room[edge] and depth[self._to[edge]] < 0:
                        depth[self._to[edge]] = depth[node] + 1
                        following.append(self._to[edge])
            wave = following
        return depth

    def _block(self, depth: Sequence[int]) -> None:
        """Fill paths of the layered network until none is left."""
        next_edge = [0] * len(self._heads)
        path: list[int] = []
        node = _SOURCE
        while True:
            if node == _SINK:
                node = self._fill(path)
                continue
            heads = self._heads[node]
            while next_edge[node] < len(heads):
                edge = heads[next_edge[node]]
                if self._room[edge] and depth[self._to[edge]] == depth[node] + 1:
                    break
                next_edge[node] += 1
            if next_edge[node] < len(heads):
                path.append(heads[next_edge[node]])
                node = self._to[path[-1]]
            elif path:
                node = self._to[path.pop() ^ 1]
                next_edge[node] += 1
            else:
                return

    def _fill(self, path: list[int]) -> int:
        """Send what fits along the path; cut the path where it is full and return that node."""
        room = min(self._room[edge] for edge in path)
        full = -1
        for place, edge in enumerate(path):
            self._room[edge] -= room
            self._room[edge ^ 1] += room
            if full < 0 and not self._room[edge]:
                full = place
        node = self._to[path[full] ^ 1]
        del path[full:]
        return node
