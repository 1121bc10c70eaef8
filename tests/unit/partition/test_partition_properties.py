# SPDX-License-Identifier: Apache-2.0
"""Whatever the graph and whatever is supported: regions are convex, complete and same results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, CallFunction, GlobalVar
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.verify import verify
from intarsia_ir.graph.walk import calls, children, post_order
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import PartitionResult, partition

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)

NAMES = (*graphs.UNARY, *graphs.BINARY)
CHOICES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 5)), max_size=40)
SUPPORT = st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES))
OUTPUTS = st.lists(st.integers(0, 9), min_size=1, max_size=3)


def cut(choices, outputs, first, second) -> tuple[IRModule, PartitionResult]:
    module = graphs.random_module(choices, outputs)
    tables = [("npu", graphs.takes(*first)), ("dsp", graphs.takes(*second))]
    return module, partition(module, tables, plan=Plan.GREEDY)


@settings(max_examples=150, deadline=None)
@given(CHOICES, OUTPUTS, SUPPORT, SUPPORT)
def test_random_graphs_are_cut_correctly(choices, outputs, first, second):
    module, made = cut(choices, outputs, first, second)
    verify(made.module)
    assert_every_call_is_in_one_place(module, made)
    assert_verdicts_are_complete(module, made)
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal(4).astype(np.float32) for p in module.main.params}
    want = graphs.evaluate(module, inputs)
    got = graphs.evaluate(made.module, inputs)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=60, deadline=None)
@given(CHOICES, OUTPUTS, SUPPORT, SUPPORT)
def test_neighbours_stay_apart_only_to_avoid_a_cycle(choices, outputs, first, second):
    _, made = cut(choices, outputs, first, second)
    kinds = {region.name: region.kind for region in made.regions}
    order = list(post_order(made.module.main.body))
    reach = {n: {n}.union(*(reach_of(c, order) for c in children(n))) for n in order}
    for consumer in order:
        if not isinstance(consumer, CallFunction):
            continue
        for producer in _region_operands(consumer):
            if kinds[producer.function.name] != kinds[consumer.function.name]:
                continue
            others = [c for c in children(consumer) if _producer(c) is not producer]
            assert any(producer in reach[other] for other in others)


@settings(max_examples=40, deadline=None)
@given(CHOICES, OUTPUTS, SUPPORT, SUPPORT)
def test_two_runs_give_the_same(choices, outputs, first, second):
    _, a = cut(choices, outputs, first, second)
    _, b = cut(choices, outputs, first, second)
    assert a.placement == b.placement
    assert [r.nodes for r in a.regions] == [r.nodes for r in b.regions]


def reach_of(expr, _order):
    return set(post_order(expr))


def _producer(expr):
    while not isinstance(expr, CallFunction) and children(expr) and not isinstance(expr, Call):
        expr = children(expr)[0]
    return expr


def _region_operands(consumer: CallFunction):
    return [p for p in map(_producer, consumer.args) if isinstance(p, CallFunction)]


def assert_every_call_is_in_one_place(module: IRModule, made: PartitionResult) -> None:
    left = [c.span.name for c in calls(made.module.main)]
    inside = [c.span.name for r in made.regions for c in calls(r.function)]
    assert sorted(left + inside) == sorted(c.span.name for c in calls(module.main))
    called = [n for n in post_order(made.module.main.body) if isinstance(n, CallFunction)]
    assert {c.function for c in called} == {GlobalVar(r.name) for r in made.regions}
    assert len(called) == len(made.regions)


def assert_verdicts_are_complete(module: IRModule, made: PartitionResult) -> None:
    keys = [(v.node, v.accelerator) for v in made.placement.verdicts]
    assert len(keys) == len(set(keys)) == 2 * len(list(calls(module.main)))
    taken = {v.node for v in made.placement.verdicts if v.verdict == "yes"}
    assert taken == {node for row in made.placement.regions for node in row.nodes}
    assert len(taken) == made.placement.offloaded
