# SPDX-License-Identifier: Apache-2.0
"""Placing by cost: as good as trying everything on small graphs, never worse than greedy."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from intarsia_ir.graph.pattern import ANY, Match, op
from intarsia_ir.graph.walk import children
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.partition.cost import Plan, Prices
from intarsia_ir.partition.expand import expand
from intarsia_ir.partition.flow import Choice
from intarsia_ir.partition.merge import merge
from intarsia_ir.partition.partition import partition
from intarsia_ir.partition.problem import Problem, make_problem
from intarsia_ir.partition.search import cheapest
from intarsia_ir.performance import Performance
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_ir.regions.work import count_flops
from intarsia_runtime.errors import TargetError

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)

NAMES = (*graphs.UNARY, *graphs.BINARY)
FUSED = ("nn.relu", "sigmoid")
PLACEMENTS = 5000  # at most, tried one by one for a graph


def random_table(rng: random.Random) -> SupportTable:
    """Some operators, and sometimes a pattern of two."""
    names = rng.sample(NAMES, rng.randint(1, 5))
    rows = [SupportRow(name, op(name), graphs.yes) for name in names]
    if rng.random() < 0.5:
        outer, inner = rng.sample(FUSED, 2)
        rows.insert(0, SupportRow("fused", op(outer, op(inner, ANY)), graphs.yes))
    return SupportTable(rows)


def random_problem(rng: random.Random, *, nodes: int):
    """A function and its problem: a graph with random support and random costs of everything."""
    choices = [(rng.randrange(7), rng.randrange(6), rng.randrange(6)) for _ in range(nodes)]
    main = graphs.random_module(choices, [0, rng.randrange(10)]).main
    tables = [(f"npu{n}", random_table(rng)) for n in range(rng.randint(1, 3))]
    greedy = annotate(main, tables)
    alone = [annotate(main, [table]) for table in tables]
    made = make_problem(greedy, alone, Prices.presumed([kind for kind, _ in tables]))
    high = rng.choice((1, 5, 30))

    def amount() -> int:
        return rng.randint(0, high)

    kinds = range(len(tables))
    return main, replace(
        made,
        own=tuple(rng.randint(0, 20) if cost or rng.random() < 0.8 else 0 for cost in made.own),
        claims=tuple(replace(claim, cost=rng.randint(0, 20)) for claim in made.claims),
        launches=(0, *(amount() for _ in kinds)),
        values=tuple(replace(v, prices=(0, *(amount() for _ in kinds))) for v in made.values),
    )


def placements(problem: Problem):
    """Every way to cover the nodes with claims and the fallback, one by one."""
    starts: dict[int, list[int]] = {}
    for number, claim in enumerate(problem.claims):
        starts.setdefault(claim.nodes[0], []).append(number)
    partial: list[dict[int, int]] = [{}]
    for node in range(len(problem.nodes)):
        grown: list[dict[int, int]] = []
        for chosen in partial:
            if node in chosen:
                grown.append(chosen)
                continue
            grown.append(chosen | {node: -1})
            for claim in starts.get(node, ()):
                inside = problem.claims[claim].nodes
                if not any(other in chosen for other in inside):
                    grown.append(chosen | dict.fromkeys(inside, claim))
        partial = grown
        if len(partial) > PLACEMENTS:
            return []
    return [tuple(chosen[node] for node in range(len(problem.nodes))) for chosen in partial]


@pytest.mark.parametrize("block", range(10))
def test_equals_trying_every_placement_of_500_small_graphs(block):
    rng = random.Random(block)
    done = 0
    while done < 50:
        _, problem = random_problem(rng, nodes=rng.randint(1, 12))
        every = placements(problem)
        if not every:
            continue
        done += 1
        best = cheapest(problem)
        assert best in every
        assert problem.cost(best) == min(map(problem.cost, every))


def cost_by_merging(main, problem: Problem, chosen) -> int:
    """What a choice costs, from the groups that merging makes of the expressions themselves."""
    claims = {problem.nodes[n]: problem.claims[c] for n, c in enumerate(chosen) if c >= 0}
    claimed = {node: claim.claimed for node, claim in claims.items()}
    groups = merge(replace(annotate(main, ()), claimed=claimed)).groups
    home = {node: number for number, group in enumerate(groups) for node in group.nodes}
    price = {value.expr: value.prices for value in problem.values}
    total = sum(own for own, claim in zip(problem.own, chosen, strict=True) if claim < 0)
    total += sum(problem.claims[number].cost for number in {c for c in chosen if c >= 0})
    for number, group in enumerate(groups):
        if not group.kind:
            continue
        kind = claims[group.nodes[0]].kind
        reads = {c for n in group.nodes for c in children(n) if home.get(c) != number}
        used = {c for n, g in home.items() if g != number for c in children(n)} | {main.body}
        writes = {node for node in group.nodes if node in used}
        total += problem.launches[kind] + sum(price[value][kind] for value in reads | writes)
    return total


def test_a_choice_costs_what_its_regions_cost():
    rng = random.Random(7)
    for _ in range(60):
        main, problem = random_problem(rng, nodes=rng.randint(1, 25))
        for tiling in (*problem.tilings, problem.greedy, cheapest(problem, visits=50)):
            assert problem.cost(tiling) == cost_by_merging(main, problem, tiling)


def test_larger_graphs_never_cost_more_than_greedy_or_one_accelerator():
    rng = random.Random(11)
    gained = 0
    for _ in range(40):
        _, problem = random_problem(rng, nodes=rng.randint(20, 60))
        found = problem.cost(cheapest(problem))
        others = [problem.cost(choice) for choice in (problem.greedy, *problem.tilings)]
        assert found <= min(others)
        gained += found < min(others)
    assert gained > 20


def test_one_accelerator_without_launches_is_placed_best_by_one_cut():
    rng = random.Random(3)
    for _ in range(60):
        _, problem = random_problem(rng, nodes=rng.randint(1, 9))
        if len(problem.launches) > 2:
            continue
        problem = replace(problem, launches=(0, 0))
        every = placements(problem)
        found = expand(problem, problem.tilings[0], 1)
        assert unsplit(problem, found) == min(unsplit(problem, choice) for choice in every)


def unsplit(problem: Problem, chosen) -> int:
    """The cost if all of an accelerator were one region."""
    total = sum(own for own, claim in zip(problem.own, chosen, strict=True) if claim < 0)
    total += sum(problem.claims[number].cost for number in {c for c in chosen if c >= 0})
    for value in problem.values:
        home = value.producer >= 0 and chosen[value.producer] >= 0
        readers = {chosen[consumer] >= 0 for consumer in value.consumers}
        readers |= {False} if value.escapes else set()
        total += value.prices[1] * ((not home and True in readers) + (home and False in readers))
    return total


PRICES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 1),
        st.lists(st.integers(0, 4), min_size=1, max_size=3),
        st.none() | st.integers(0, 4),
    ),
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(PRICES)
def test_a_choice_is_the_cheapest_of_all(prices):
    choice = Choice(5)
    for amount, when, of, unless in prices:
        choice.price(amount, when=when, of=of, unless=unless)

    def total(values) -> int:
        return sum(
            amount
            for amount, when, of, unless in prices
            if any(values[v] == when for v in of if v != unless)
            and (unless is None or values[unless] != when)
        )

    every = itertools.product((False, True), repeat=5)
    assert total(choice.cheapest()) == min(map(total, every))


def heavy_chain(*seconds: float | None):
    """A product, ReLU, product; and a table that states what each product costs."""
    x = graphs.Var("x", graphs.TensorType((4, 4), graphs.DType.FLOAT32))
    product = graphs.node("matmul", x, x, at="first")
    middle = graphs.node("tanh", product, at="middle")
    last = graphs.node("matmul", middle, x, at="last")
    costs = dict(zip(("first", "last"), seconds, strict=True))

    def takes(match: Match) -> Support:
        return Support.yes(seconds=costs.get(match.root.span.name))

    return graphs.main_of([x], last), [SupportRow(n, op(n), takes) for n in ("matmul", "nn.relu")]


def test_what_a_plugin_states_decides():
    module, rows = heavy_chain(1e-9, 1e-3)
    made = partition(module, [("npu", SupportTable(rows))])
    assert [region.nodes for region in made.regions] == [("first",)]
    refused = next(row for row in made.placement.verdicts if row.node == "last")
    assert refused.code == "slower"
    assert refused.detail == (
        "slower on 'npu': 1 ms of work and 1 us of region and border there, 1.02 us on the fallback"
    )
    assert refused.cost is not None
    assert refused.cost.here == 1e-3
    assert made.placement.cost is not None
    assert made.placement.cost.chosen < made.placement.cost.greedy
    assert made.placement.to_json()["cost"] == made.placement.cost.to_json()


def test_the_cheaper_of_two_accelerators_is_chosen_whatever_their_order():
    module, slow = heavy_chain(3e-7, 3e-7)
    _, fast = heavy_chain(1e-8, 1e-8)
    tables = [("slow", SupportTable(slow)), ("fast", SupportTable(fast))]
    for order in (tables, tables[::-1]):
        made = partition(module, order)
        assert {region.kind for region in made.regions} == {"fast"}
    refused = next(row for row in made.placement.verdicts if row.accelerator == "slow")
    assert (refused.code, refused.detail) == (
        "outvoted",
        "'fast' costs less in all: 10 ns of work there, 300 ns here",
    )
    assert {r.kind for r in partition(module, tables, plan=Plan.GREEDY).regions} == {"slow"}


def test_a_device_with_its_own_memory_pays_for_every_value():
    module, rows = heavy_chain(None, None)
    near = Performance(flops=1e12)
    far = dataclasses.replace(near, copy_bandwidth=1e6, copy_latency=1e-3)
    for speed, regions in ((near, 2), (far, 0)):
        prices = Prices(Performance(), {"npu": speed})
        made = partition(module, [("npu", SupportTable(rows))], prices=prices)
        assert len(made.regions) == regions
    assert prices.crossing("npu", 1000) == 2 * 10**9


def test_operations_are_counted():
    x = graphs.Var("x", graphs.TensorType((2, 3), graphs.DType.FLOAT32))
    w = graphs.Var("w", graphs.TensorType((3, 5), graphs.DType.FLOAT32))
    assert count_flops(graphs.node("matmul", x, w)) == 2 * 2 * 3 * 5
    assert count_flops(graphs.node("nn.relu", x)) == 0
    image = graphs.Var("i", graphs.TensorType((1, 4, 8, 8), graphs.DType.FLOAT32))
    kernel = graphs.Var("k", graphs.TensorType((6, 4, 3, 3), graphs.DType.FLOAT32))
    same = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    assert count_flops(graphs.node("nn.conv", image, kernel, **same)) == 2 * 6 * 64 * 4 * 9


@pytest.mark.parametrize("cost", [float("nan"), -1.0, float("inf")])
def test_a_cost_that_is_none_is_the_plugins_error(cost):
    module, rows = heavy_chain(cost, cost)
    made = partition(module, [("npu", SupportTable(rows))])
    assert {row.code for row in made.placement.verdicts if row.op == "matmul"} == {"plugin-error"}
    assert f"states a cost of {cost!r}" in made.placement.verdicts[0].detail


@pytest.mark.parametrize(
    "wrong",
    [{"flops": 0.0}, {"copy_bandwidth": -1.0}, {"launch": -1.0}, {"bandwidth": float("nan")}],
)
def test_a_performance_that_cannot_be_is_refused(wrong):
    with pytest.raises(TargetError, match="a Performance needs"):
        Performance(**wrong)
