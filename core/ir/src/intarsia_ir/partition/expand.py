# SPDX-License-Identifier: Apache-2.0
"""Expansion: the best way to give one kind more, as a minimum cut.

Every claim of the present choice either stays or changes to the one kind. What that costs is work,
and for every value: a copy into each kind that reads it and did not make it, and one out of the
kind that made it if another reads it. Each of these prices depends on a producer on one side and
any consumer on the other, which is what :class:`~intarsia_ir.partition.flow.Choice` solves exactly.
Launches, and copies between two regions of one kind, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .flow import Choice
from .problem import Chosen, Problem, SharedValue


class _Node(Struct, frozen=True):
    """Where a node may be.

    Attributes:
        kind: Its kind if it stays.
        group: The variable that moves it; ``None`` if it stays in any case.
    """

    kind: int
    group: int | None


def expand(problem: Problem, chosen: tuple[int, ...], kind: int) -> tuple[int, ...]:
    """Return the cheapest choice that differs from ``chosen`` in what moves to ``kind`` only.

    Args:
        problem: What is placed.
        chosen: The present choice.
        kind: Number of an accelerator; 0 for the fallback.
    """
    target = problem.tilings[kind]
    group = _groups(problem, chosen, target)
    members: dict[int, list[int]] = {}
    for node, root in enumerate(group):
        members.setdefault(root, []).append(node)
    movable = [
        nodes
        for nodes in members.values()
        if all(kind == 0 or target[node] >= 0 for node in nodes)
        and any(chosen[node] != target[node] for node in nodes)
    ]
    if not movable:
        return chosen
    variable = {node: number for number, nodes in enumerate(movable) for node in nodes}
    choice = Choice(len(movable))
    for number, nodes in enumerate(movable):
        gain = _work(problem, chosen, nodes) - _work(problem, target, nodes)
        choice.price(max(gain, 0), when=0, of=[number], unless=None)
        choice.price(max(-gain, 0), when=1, of=[number], unless=None)
    state = [_Node(problem.label(chosen, n), variable.get(n)) for n in range(len(chosen))]
    for value in problem.values:
        if value.producer in variable or any(node in variable for node in value.consumers):
            _price_value(choice, value, state, kind)
    moved = choice.cheapest()
    return tuple(
        target[node] if node in variable and moved[variable[node]] else claim
        for node, claim in enumerate(chosen)
    )


def _groups(problem: Problem, *choices: Chosen) -> list[int]:
    """Return for each node the first node that must move with it: claims stay whole."""
    parent = list(range(len(problem.nodes)))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for chosen in choices:
        for claim in {claim for claim in chosen if claim >= 0}:
            first, *others = problem.claims[claim].nodes
            for other in others:
                a, b = find(first), find(other)
                parent[max(a, b)] = min(a, b)
    return [find(node) for node in range(len(parent))]


def _work(problem: Problem, chosen: Chosen, nodes: Sequence[int]) -> int:
    claims = {chosen[node] for node in nodes if chosen[node] >= 0}
    own = sum(problem.own[node] for node in nodes if chosen[node] < 0)
    return own + sum(problem.claims[claim].cost for claim in claims)


def _price_value(choice: Choice, value: SharedValue, state: Sequence[_Node], target: int) -> None:
    """Add the copies of one value into and out of every kind that may be concerned."""
    home = state[value.producer] if value.producer >= 0 else _Node(0, None)
    readers = [state[consumer] for consumer in value.consumers]
    if value.escapes:
        readers.append(_Node(0, None))
    kinds = {home.kind, target, *(reader.kind for reader in readers)} - {0}
    for kind in kinds:
        price = value.prices[kind]
        if not price:
            continue
        inside = _Where(kind, target, inside=True)
        outside = _Where(kind, target, inside=False)
        _pay(choice, price, outside.of(home), [inside.of(reader) for reader in readers])
        _pay(choice, price, inside.of(home), [outside.of(reader) for reader in readers])


class _Where(Struct, frozen=True):
    """When a node is inside, or outside, a kind: always, never, or by its variable."""

    kind: int
    target: int
    inside: bool

    def of(self, node: _Node) -> bool | tuple[int, int]:
        """Return whether, or the variable and the value that it must have."""
        stays = (node.kind == self.kind) is self.inside
        moves = (self.target == self.kind) is self.inside
        if node.group is None or stays == moves:
            return stays
        return node.group, int(moves)


def _pay(
    choice: Choice,
    price: int,
    home: bool | tuple[int, int],
    readers: Iterable[bool | tuple[int, int]],
) -> None:
    """Pay if the producer is where ``home`` says and any reader where ``readers`` say.

    A reader's condition and the producer's need opposite values of their variables, as one is
    about being inside a kind and the other about being outside.
    """
    if home is False:
        return
    wanted = [reader for reader in readers if reader is not False]
    if not wanted:
        return
    if any(reader is True for reader in wanted):
        if home is not True:
            choice.price(price, when=home[1], of=[home[0]], unless=None)
        return
    pairs = [reader for reader in wanted if not isinstance(reader, bool)]
    unless = None if home is True else home[0]
    choice.price(price, when=pairs[0][1], of=[number for number, _ in pairs], unless=unless)
