# SPDX-License-Identifier: Apache-2.0
"""Search: the cheapest choice of a :class:`~intarsia_ir.partition.problem.Problem`.

Small problems are searched whole, by branch and bound. Larger ones start from several choices, the
greedy one among them, and are improved by two kinds of moves as long as their cost falls:

* *expansion*: all claims that one kind can take (or the fallback), each may change to it; the best
  set of changes is a minimum cut and found exactly, launches aside. For one accelerator the first
  expansion from the fallback is so the best placement, launches aside.
* *settling*: regions that cost more than the fallback, or another kind, in their place go there;
  since all values cross through the fallback, that changes nothing outside them.

A choice is only replaced by one that costs less, so the result never costs more than greedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from msgspec import Struct, field

from .expand import expand
from .problem import Problem, RegionCost

EXACT_NODES = 16  # nodes with a choice, at most, that are searched whole
VISITS = 200_000  # steps of that search: a second or two
START_NODES = 4_000  # nodes of all starts together; greedy and the fallback are always tried
EXPENSIVE_STEPS = (
    400_000  # of merging greedy: beyond it regions are settled, and nothing else is tried
)
_ROUNDS = 8


def cheapest(problem: Problem, *, visits: int = VISITS) -> tuple[int, ...]:
    """Return the cheapest choice found; of equally cheap ones, one near greedy.

    Args:
        problem: What is to be placed.
        visits: Steps of the exact search.
    """
    if not problem.claims:
        return problem.greedy
    if problem.groups(problem.greedy)[1] > EXPENSIVE_STEPS:
        return _settled(problem, problem.greedy)[0]
    best = problem.greedy
    cost = problem.cost(best)
    starts = (problem.greedy, *problem.tilings)
    for start in dict.fromkeys(starts[: max(2, START_NODES // len(problem.nodes))]):
        found, price = _improved(problem, start)
        if price < cost:
            best, cost = found, price
    open_nodes = {node for claim in problem.claims for node in claim.nodes}
    if len(open_nodes) <= EXACT_NODES:
        best = _Exact(problem, best, cost, visits).run()
    return best


def _improved(problem: Problem, start: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Expand the kinds in turn until none of them gains."""
    best, cost = _settled(problem, start)
    kinds = range(len(problem.launches))
    idle = 0
    for kind in chain.from_iterable([kinds] * _ROUNDS):
        moved = expand(problem, best, kind)
        idle += 1
        if moved != best:
            found, price = _settled(problem, moved)
            if price < cost:
                best, cost, idle = found, price, 1
        if idle == len(kinds):
            break
    return best, cost


def _settled(problem: Problem, start: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Move whole regions to where they cost less; return the choice and its cost."""
    best, (cost, regions) = start, problem.priced(start)
    for _ in range(_ROUNDS):
        chosen = list(best)
        for region in regions:
            _move(problem, region, chosen)
        if tuple(chosen) == best:
            break
        price, regions = problem.priced(chosen)
        if price >= cost:
            break
        best, cost = tuple(chosen), price
    return best, cost


def _move(problem: Problem, region: RegionCost, chosen: list[int]) -> None:
    cost, place = region.total, None
    if region.own < cost:
        cost, place = region.own, problem.tilings[0]
    inside = set(region.nodes)
    for kind, tiling in enumerate(problem.tilings):
        claims = {tiling[node] for node in region.nodes}
        if kind in (0, region.kind) or -1 in claims:
            continue
        if not inside.issuperset(n for claim in claims for n in problem.claims[claim].nodes):
            continue
        work = sum(problem.claims[claim].cost for claim in claims)
        border = sum(problem.values[number].prices[kind] for number in region.crossing)
        if work + border + problem.launches[kind] < cost:
            cost, place = work + border + problem.launches[kind], tiling
    if place is not None:
        for node in region.nodes:
            chosen[node] = place[node]


class _Exact(Struct):
    """Branch and bound over the nodes in topological order.

    The bound is what is decided: work, borders between decided nodes of different kinds (a value
    crosses into a kind at least once), one launch for each kind in use, and for what is left the
    least that each node can cost.
    """

    problem: Problem
    best: tuple[int, ...]
    cost: int
    visits: int
    chosen: list[int] = field(default_factory=list[int])
    paid: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    options: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    rest: list[int] = field(default_factory=list[int])
    inputs: list[list[int]] = field(default_factory=list[list[int]])

    def run(self) -> tuple[int, ...]:
        """Return the cheapest choice; the best one found if the visits run out."""
        problem, count = self.problem, len(self.problem.nodes)
        self.chosen = [-2] * count
        starts: list[list[int]] = [[] for _ in range(count)]
        least = [*problem.own]
        for number, claim in enumerate(problem.claims):
            starts[claim.nodes[0]].append(number)
            for node in claim.nodes:
                least[node] = min(least[node], claim.cost // len(claim.nodes))
        self.options = [(*sorted(found, key=self._rank), -1) for found in starts]
        self.rest = [0] * (count + 1)
        for node in reversed(range(count)):
            self.rest[node] = self.rest[node + 1] + least[node]
        self.inputs = [[] for _ in range(count)]
        for number, value in enumerate(problem.values):
            for consumer in value.consumers:
                self.inputs[consumer].append(number)
        self._walk()
        return self.best

    def _rank(self, claim: int) -> int:
        return self.problem.claims[claim].kind

    def _walk(self) -> None:
        """Depth first with a stack of generators: one for each node, in order."""
        stack = [self._decide(0, 0)]
        while stack and self.visits > 0:
            self.visits -= 1
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
            elif step[0] == len(self.chosen):
                cost = self.problem.cost(self.chosen)
                if cost < self.cost:
                    self.best, self.cost = tuple(self.chosen), cost
            else:
                stack.append(self._decide(*step))

    def _decide(self, node: int, spent: int) -> Iterator[tuple[int, int]]:
        """Try every option of a node; yield the next node and what is spent by then.

        ``spent`` leaves out the least cost of nodes that claims cover ahead of their turn.
        """
        if self.chosen[node] != -2:
            yield from self._entered(node, spent + self._least(node))
            return
        for option in self.options[node]:
            covered = (node,) if option < 0 else self.problem.claims[option].nodes
            if any(self.chosen[other] != -2 for other in covered):
                continue
            work = self.problem.own[node] if option < 0 else self.problem.claims[option].cost
            for other in covered:
                self.chosen[other] = option
            covered_work = sum(self._least(other) for other in covered if other != node)
            yield from self._entered(node, spent + work - covered_work)
            for other in covered:
                self.chosen[other] = -2

    def _entered(self, node: int, spent: int) -> Iterator[tuple[int, int]]:
        """Pay what crosses into a node whose kind is decided; go on if that can still be best."""
        paid: list[tuple[int, int]] = []
        kind = self.problem.label(self.chosen, node)
        charges: list[tuple[tuple[int, int], int]] = []
        if kind:
            charges.append(((-1, kind), self.problem.launches[kind]))
        for number in self.inputs[node]:
            value = self.problem.values[number]
            home = self.problem.label(self.chosen, value.producer) if value.producer >= 0 else 0
            if home != kind:
                charges += [((number, k), value.prices[k]) for k in (home, kind) if k]
        for key, price in charges:
            if key not in self.paid:
                self.paid[key] = price
                paid.append(key)
                spent += price
        if spent + self.rest[node + 1] < self.cost:
            yield node + 1, spent
        for key in paid:
            del self.paid[key]

    def _least(self, node: int) -> int:
        """The least that a node can cost."""
        return self.rest[node] - self.rest[node + 1]
