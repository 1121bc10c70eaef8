# SPDX-License-Identifier: Apache-2.0
"""The placement of a function as numbers: nodes, values, claims, and what a choice costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, TupleGetItem, Var
from intarsia_ir.graph.scopes import scopes
from intarsia_ir.graph.walk import children, post_order

from .annotate import Annotated, ClaimedMatch
from .cost import Prices
from .merge import group_units


class Claim(Struct, frozen=True):
    """A match that an accelerator would take.

    Attributes:
        kind: Number of the accelerator, from 1 in the target's order.
        nodes: In topological order.
        cost: Picoseconds.
        claimed: The match.
    """

    kind: int
    nodes: tuple[int, ...]
    cost: int
    claimed: ClaimedMatch


class SharedValue(Struct, frozen=True):
    """A value that a node other than its producer reads.

    Attributes:
        expr: The value.
        producer: The node; -1 for an input of the function.
        consumers: Nodes, in order; none of them is the producer.
        escapes: Whether it is the result of the function.
        prices: What it costs to cross the border of each kind; 0 for the fallback, in picoseconds.
    """

    expr: Expr
    producer: int
    consumers: tuple[int, ...]
    escapes: bool
    prices: tuple[int, ...]


class RegionCost(Struct, frozen=True):
    """What one region costs, in picoseconds.

    Attributes:
        kind: Number of its accelerator.
        nodes: In topological order.
        claims: Claims in it.
        work: Of its claims.
        launch: Of calling it.
        border: Of all values that enter or leave it.
        own: What the fallback would need for its nodes.
        crossing: The values that enter or leave it.
    """

    kind: int
    nodes: tuple[int, ...]
    claims: tuple[int, ...]
    work: int
    launch: int
    border: int
    own: int
    crossing: tuple[int, ...]

    @property
    def total(self) -> int:
        """Work, launch and borders."""
        return self.work + self.launch + self.border


Chosen = Sequence[int]
"""For each node the claim that it is in; -1 for the fallback."""


class Problem(Struct, frozen=True, eq=False):
    """A function whose calls are to be given to accelerators.

    Attributes:
        nodes: Everything that is computed, in topological order; fields of a tuple are with it.
        scopes: Number of the scope of each node; a region is within one.
        values: What flows between nodes.
        claims: Without claims that reach into a branch.
        own: What the fallback needs for each node.
        launches: Price of a region of each kind; 0 for the fallback.
        tilings: For each kind, the claim of each node if the kind had all nodes that it takes.
        greedy: The choice that gives each call to the first accelerator that takes it.
        edges: (producer, consumer) of every value.
    """

    nodes: tuple[Expr, ...]
    scopes: tuple[int, ...]
    values: tuple[SharedValue, ...]
    claims: tuple[Claim, ...]
    own: tuple[int, ...]
    launches: tuple[int, ...]
    tilings: tuple[tuple[int, ...], ...]
    greedy: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def label(self, chosen: Chosen, node: int) -> int:
        """Return the kind that a node goes to; 0 for the fallback."""
        return self.claims[chosen[node]].kind if chosen[node] >= 0 else 0

    def groups(self, chosen: Chosen) -> tuple[list[int], int]:
        """Return for each node a node that stands for its region, -1 for the fallback; and steps.

        The steps are what merging took in its searches for cycles.
        """
        span = max(self.scopes, default=0) + 1
        unit = [self.claims[c].nodes[-1] if c >= 0 else i for i, c in enumerate(chosen)]
        keys = [0] * len(unit)
        for node, claim in enumerate(chosen):
            if claim >= 0:
                keys[unit[node]] = self.claims[claim].kind * span + self.scopes[node]
        found = {(unit[b], unit[a]) for a, b in self.edges}
        grouped = group_units(keys, [(a, b) for b, a in sorted(found) if a != b])
        group = [grouped.group_of(unit[i]) if claim >= 0 else -1 for i, claim in enumerate(chosen)]
        return group, grouped.quotient.steps

    def regions(self, chosen: Chosen) -> list[RegionCost]:
        """Return the regions that merging makes of a choice, with what each costs."""
        return self.regions_of(chosen, self.groups(chosen)[0])

    def regions_of(self, chosen: Chosen, group: Sequence[int]) -> list[RegionCost]:
        """Return what regions cost.

        Args:
            chosen: The choice that they were made of.
            group: For each node a number of its region, -1 for the fallback.
        """
        members: dict[int, list[int]] = {}
        for node, root in enumerate(group):
            if root >= 0:
                members.setdefault(root, []).append(node)
        crossing: dict[int, list[int]] = {root: [] for root in members}
        for number, value in enumerate(self.values):
            home = group[value.producer] if value.producer >= 0 else -1
            readers = {group[consumer] for consumer in value.consumers}
            if home >= 0 and (value.escapes or readers != {home}):
                crossing[home].append(number)
            for reader in readers:
                if reader >= 0 and reader != home:
                    crossing[reader].append(number)
        return [self._region(chosen, nodes, crossing[root]) for root, nodes in members.items()]

    def _region(self, chosen: Chosen, nodes: list[int], crossing: list[int]) -> RegionCost:
        kind = self.label(chosen, nodes[0])
        claims = tuple(dict.fromkeys(chosen[node] for node in nodes))
        return RegionCost(
            kind,
            tuple(nodes),
            claims,
            sum(self.claims[claim].cost for claim in claims),
            self.launches[kind],
            sum(self.values[number].prices[kind] for number in crossing),
            sum(self.own[node] for node in nodes),
            tuple(crossing),
        )

    def priced(self, chosen: Chosen) -> tuple[int, list[RegionCost]]:
        """Return what a choice costs in all, in picoseconds, and its regions."""
        regions = self.regions(chosen)
        rest = sum(own for own, claim in zip(self.own, chosen, strict=True) if claim < 0)
        return rest + sum(region.total for region in regions), regions

    def cost(self, chosen: Chosen) -> int:
        """Return what a choice costs in all, in picoseconds."""
        return self.priced(chosen)[0]


def make_problem(
    greedy: Annotated,
    alone: Sequence[Annotated],
    prices: Prices,
    pinned: Mapping[Call, str] = MappingProxyType({}),
) -> Problem:
    """Return the problem of placing a function.

    Args:
        greedy: Answers of all accelerators, the first that says yes takes a call.
        alone: Answers of each accelerator as if it were the only one, in the target's order.
        prices: What everything costs.
        pinned: Calls of which only one kind has claims.
    """
    function = greedy.function
    number = _numbered(function)
    nodes = tuple(dict.fromkeys(_owners(function, number)))
    places = scopes(function.body)
    names: dict[int, int] = {}
    scope = [names.setdefault(id(places[node]), len(names)) for node in nodes]
    values = _values(function, number, greedy.kinds, prices)
    claims: list[Claim] = []
    known: dict[tuple[int, ...], int] = {}

    def tiling(annotated: Annotated) -> tuple[int, ...]:
        chosen = [-1] * len(nodes)
        for claimed in dict.fromkeys(annotated.claimed.values()):
            inside = tuple(sorted(number[call] for call in claimed.match.calls))
            owners = {pinned.get(call, claimed.kind) for call in claimed.match.calls}
            if len({scope[node] for node in inside}) > 1 or owners != {claimed.kind}:
                continue
            kind = greedy.kinds.index(claimed.kind) + 1
            claim = Claim(kind, inside, prices.claim(claimed), claimed)
            at = known.setdefault((kind, *inside), len(claims))
            if at == len(claims):
                claims.append(claim)
            for node in inside:
                chosen[node] = at
        return tuple(chosen)

    tilings = tuple(tiling(annotated) for annotated in alone)
    first = tiling(greedy)
    return Problem(
        nodes,
        tuple(scope),
        values,
        tuple(claims),
        tuple(prices.own(node) if isinstance(node, Call) else 0 for node in nodes),
        (0, *(prices.launch(kind) for kind in greedy.kinds)),
        ((-1,) * len(nodes), *tilings),
        first,
        tuple((v.producer, c) for v in values for c in v.consumers if v.producer >= 0),
    )


def _numbered(function: Function) -> dict[Expr, int]:
    """Number what is computed; a field of a tuple has the number of the tuple."""
    number: dict[Expr, int] = {}
    count = 0
    for node in post_order(function.body):
        if isinstance(node, Var | Constant):
            continue
        if isinstance(node, TupleGetItem) and node.tuple in number:
            number[node] = number[node.tuple]
            continue
        number[node] = count
        count += 1
    return number


def _owners(function: Function, number: Mapping[Expr, int]) -> list[Expr]:
    """The node of each number: the first expression that has it."""
    first: dict[int, Expr] = {}
    for node, place in number.items():
        first.setdefault(place, node)
    return [first[place] for place in range(len(first))]


def _values(
    function: Function, number: Mapping[Expr, int], kinds: Sequence[str], prices: Prices
) -> tuple[SharedValue, ...]:
    readers: dict[Expr, dict[int, None]] = {}
    for node, place in number.items():
        for child in children(node):
            if not isinstance(child, Constant) and number.get(child, -1) != place:
                readers.setdefault(child, {})[place] = None
    if function.body in number:
        readers.setdefault(function.body, {})
    return tuple(
        SharedValue(
            value,
            number.get(value, -1),
            tuple(sorted(consumers)),
            value is function.body,
            (0, *(prices.crossing(kind, prices.bytes(value)) for kind in kinds)),
        )
        for value, consumers in readers.items()
    )
