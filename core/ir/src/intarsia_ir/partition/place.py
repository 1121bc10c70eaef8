# SPDX-License-Identifier: Apache-2.0
"""Place: give every call to the accelerator, or the fallback, with which the whole costs least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call
from intarsia_ir.regions.support import Code, Support, SupportTable

from .annotate import Annotated, ClaimedMatch, annotate
from .cost import PICOSECONDS, CostSource, Prices
from .problem import Chosen, Claim, Problem, make_problem
from .report import seconds_text
from .search import cheapest

_NEVER = 10**6 * PICOSECONDS
"""More than any model takes: eleven days."""


class Priced(Struct, frozen=True, eq=False):
    """A placement by cost, with what it was chosen from; all costs in picoseconds.

    Attributes:
        annotated: Each call with the accelerator chosen for it.
        total: What the placement costs.
        greedy: What giving each call to the first accelerator that takes it costs.
        fallback: What the fallback alone costs.
        offers: For (call, accelerator) that takes it: what the accelerator needs for its match, and
            what the fallback needs for the calls of that match, and where the first comes from.
        sources: How many claims have a cost from where.
        problem: What was solved.
        chosen: The answer.
    """

    annotated: Annotated
    total: int
    greedy: int
    fallback: int
    offers: Mapping[tuple[Call, str], tuple[int, int, CostSource]]
    sources: Mapping[CostSource, int]
    problem: Problem
    chosen: Chosen


def place_by_cost(
    greedy: Annotated,
    tables: Sequence[tuple[str, SupportTable]],
    prices: Prices,
    excluded: Mapping[tuple[Call, str], Support],
    pinned: Mapping[Call, str] = MappingProxyType({}),
) -> Priced:
    """Choose the placement of a function that costs least; what is pinned stays.

    Args:
        greedy: Answers of all accelerators; the first that says yes takes a call.
        tables: Kind and support table of each accelerator, in the target's order.
        prices: What everything costs.
        excluded: Verdicts already known, for (call, kind).
        pinned: Calls that go to one kind; ``greedy`` has given them to it.
    """
    alone = [greedy]
    if len(tables) > 1:
        alone = [annotate(greedy.function, [t], excluded=excluded, pinned=pinned) for t in tables]
    problem = make_problem(greedy, alone, prices, pinned)
    chosen = cheapest(_held(problem, pinned))
    calls = {number: node for number, node in enumerate(problem.nodes) if isinstance(node, Call)}
    offers = {
        (calls[node], claim.claimed.kind): (
            claim.cost,
            sum(problem.own[n] for n in claim.nodes),
            prices.source(claim.claimed),
        )
        for claim in problem.claims
        for node in claim.nodes
    }
    return Priced(
        _chosen_answers(greedy, alone, problem, chosen),
        problem.cost(chosen),
        problem.cost(problem.greedy),
        problem.cost(problem.tilings[0]),
        offers,
        Counter(prices.source(claim.claimed) for claim in problem.claims),
        problem,
        chosen,
    )


def _held(problem: Problem, pinned: Mapping[Call, str]) -> Problem:
    """Return the problem with the fallback too expensive for what is pinned.

    A search never returns what costs more than greedy, and greedy has all that is pinned.
    """
    if not pinned:
        return problem
    own = (
        cost + (_NEVER if isinstance(node, Call) and node in pinned else 0)
        for node, cost in zip(problem.nodes, problem.own, strict=True)
    )
    return replace(problem, own=tuple(own))


def _chosen_answers(
    greedy: Annotated, alone: Sequence[Annotated], problem: Problem, chosen: Chosen
) -> Annotated:
    """The answers of the accelerators, with the choice in place of the order of asking."""
    number = {node: place for place, node in enumerate(problem.nodes)}
    reading: list[list[int]] = [[] for _ in problem.nodes]
    for index, value in enumerate(problem.values):
        for node in {value.producer, *value.consumers} - {-1}:
            reading[node].append(index)
    claimed: dict[Call, ClaimedMatch] = {}
    verdicts: dict[Call, tuple[Support, ...]] = {}
    for call in greedy.calls:
        node = number[call]
        owner = problem.claims[chosen[node]] if chosen[node] >= 0 else None
        if owner is not None:
            claimed[call] = owner.claimed
        answers: list[Support] = []
        for kind, annotated in zip(greedy.kinds, alone, strict=True):
            support = annotated.verdicts[call][0]
            claim = problem.tilings[greedy.kinds.index(kind) + 1][node]
            if owner is not None and owner.claimed.kind == kind:
                caution = owner.claimed.support.caution
                support = Support(Code.OK, owner.claimed.row, caution=caution)
            elif claim >= 0:
                support = _refusal(problem, problem.claims[claim], owner, reading)
            answers.append(support)
        verdicts[call] = tuple(answers)
    return replace(greedy, claimed=claimed, verdicts=verdicts)


def _refusal(
    problem: Problem, claim: Claim, owner: Claim | None, reading: Sequence[Sequence[int]]
) -> Support:
    """Why a claim was not chosen, in numbers."""
    here = _words(claim.cost)
    if owner is not None:
        there = _words(owner.cost)
        text = f"'{owner.claimed.kind}' costs less in all: {there} of work there, {here} here"
        return Support.no(Code.OUTVOTED, text)
    inside = set(claim.nodes)
    crossing = {index for other in claim.nodes for index in reading[other]}
    border = sum(
        problem.values[index].prices[claim.kind]
        for index in crossing
        if not {problem.values[index].producer, *problem.values[index].consumers} <= inside
        or problem.values[index].escapes
    )
    own = sum(problem.own[other] for other in claim.nodes)
    extra = _words(problem.launches[claim.kind] + border)
    return Support.no(
        Code.SLOWER,
        f"slower on '{claim.claimed.kind}': {here} of work and {extra} of region and border there, "
        f"{_words(own)} on the fallback",
    )


def _words(picoseconds: int) -> str:
    return seconds_text(picoseconds / PICOSECONDS)
