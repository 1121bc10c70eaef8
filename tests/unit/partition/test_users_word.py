# SPDX-License-Identifier: Apache-2.0
"""What the user says comes first, then what accelerators can do, then cost."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.graph.expr import Var, constant
from intarsia_ir.graph.pattern import ANY, Match, op
from intarsia_ir.graph.verify import verify
from intarsia_ir.partition.cost import CostSource, Plan, Prices
from intarsia_ir.partition.partition import PartitionResult, partition
from intarsia_ir.partition.rules import check_kinds, parse_place_rule
from intarsia_ir.performance import Performance, RelativePerformance
from intarsia_ir.regions.region import keep_calls
from intarsia_ir.regions.support import Code, Support, SupportRow, SupportTable
from intarsia_runtime.errors import TargetError, UnsupportedError, UsageError

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)
node, main_of, takes = graphs.node, graphs.main_of, graphs.takes

X = Var("x", graphs.VECTOR)
W = constant(np.ones((4, 4), np.float32), name="w")
SLOW = Prices(Performance(), {"npu": Performance(flops=1.0), "dsp": Performance(flops=1.0)})
"""Accelerators that cost gives nothing."""


def chain():
    """Three nodes: a, b, c."""
    return main_of(
        [X], node("negative", node("sigmoid", node("nn.relu", X, at="a"), at="b"), at="c")
    )


NPU = ("npu", takes("nn.relu", "sigmoid", "negative"))
DSP = ("dsp", takes("nn.relu", "sigmoid", "negative"))


def owners(made: PartitionResult) -> dict[str, str]:
    return {name: region.kind for region in made.regions for name in region.nodes}


@pytest.mark.parametrize("plan", Plan)
def test_a_forced_node_goes_where_the_user_says_whatever_it_costs(plan: Plan) -> None:
    rules = [parse_place_rule("b=dsp")]
    made = partition(chain(), [NPU, DSP], plan=plan, prices=SLOW, rules=rules)
    verify(made.module)
    assert owners(made)["b"] == "dsp"
    assert ("a" in owners(made)) is (plan is Plan.GREEDY)
    if made.placement.cost is not None:
        assert made.placement.cost.fallback < 1.0  # the report has no price of breaking a rule


def test_a_forced_node_takes_its_match_from_an_accelerator_in_front() -> None:
    fused = SupportRow("f", op("negative", op("sigmoid", ANY)), graphs.yes)
    tables = [NPU, ("dsp", SupportTable([fused]))]
    rules = [parse_place_rule("b=dsp")]
    made = partition(chain(), tables, plan=Plan.GREEDY, rules=rules)
    assert owners(made) == {"a": "npu", "b": "dsp", "c": "dsp"}


def test_a_node_forced_to_the_fallback_stays_there() -> None:
    made = partition(chain(), [NPU], plan=Plan.GREEDY, rules=[parse_place_rule("b=llvm")])
    assert set(owners(made)) == {"a", "c"}


def test_what_cannot_be_done_is_an_error_with_the_verdict() -> None:
    def no(_match: Match) -> Support:
        return Support.no(Code.UNSUPPORTED_SHAPE, "too large for the array")

    tables = [("npu", SupportTable([SupportRow("sigmoid", op("sigmoid"), no)]))]
    with pytest.raises(UnsupportedError) as caught:
        partition(chain(), tables, rules=[parse_place_rule("b=npu")])
    assert caught.value.message == (
        "'b' cannot go to 'npu', where rule 'b=npu' sends it: "
        "unsupported-shape: too large for the array"
    )
    with pytest.raises(UnsupportedError, match=r"\(2 other nodes neither\): unsupported-op"):
        partition(chain(), tables, rules=[parse_place_rule("*=npu")])


def test_a_forced_node_that_is_given_back_is_an_error_unless_it_is_only_slower() -> None:
    def ask(code: Code):
        return lambda _kind, regions: [keep_calls(r, (), "no", code=code) for r in regions]

    rules = [parse_place_rule("b=npu")]
    made = partition(chain(), [NPU], rules=rules, ask=ask(Code.SLOWER), plan=Plan.COST)
    assert owners(made) == {"b": "npu"}
    with pytest.raises(UnsupportedError, match="dropped: no"):
        partition(chain(), [NPU], rules=rules, ask=ask(Code.DROPPED))


def test_rules_that_contradict_each_other_are_refused() -> None:
    for second in ("?=dsp", "b!=npu"):
        rules = [parse_place_rule("b=npu"), parse_place_rule(second)]
        with pytest.raises(UsageError, match="contradict each other"):
            partition(chain(), [NPU, DSP], rules=rules)


def test_a_kind_that_is_not_in_the_target_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="which is not in the target") as caught:
        check_kinds([parse_place_rule("b=dnl")], ["dnnl", "llvm"])
    assert caught.value.hint == "did you mean 'dnnl'?"
    with pytest.raises(UsageError) as caught:
        check_kinds([parse_place_rule("b!=q")], ["dnnl", "llvm"])
    assert caught.value.hint == "the target has dnnl, llvm"


def slower(_match: Match) -> Support:
    return Support.no("slower", "three times")


@pytest.mark.parametrize("where", ["annotate", "partition"])
def test_greedy_overrules_what_is_only_slower_and_cost_says_so(where: str) -> None:
    row = SupportRow("s", op("sigmoid"), slower if where == "annotate" else graphs.yes)
    tables = [("npu", SupportTable([row]))]

    def ask(_kind, regions):
        if where == "annotate":
            return regions
        return [keep_calls(region, (), "three times", code="slower") for region in regions]

    greedy = partition(chain(), tables, plan=Plan.GREEDY, ask=ask)
    assert owners(greedy) == {"b": "npu"}
    free = Prices(Performance(), {"npu": Performance()}, silent=frozenset({"npu"}))
    by_cost = partition(chain(), tables, prices=free, ask=ask, fallback="loops")
    support = next(row for row in by_cost.placement.verdicts if row.node == "b")
    assert support.code == "slower"
    assert support.detail.endswith("three times")
    text = "1 faster on loops (--plan greedy gives 1 to npu)"
    assert str(by_cost.placement) == f"0/3 nodes offloaded: {text}"
    assert by_cost.placement.idle == {
        "npu": "1 of 3 nodes are faster on loops (--plan greedy gives it 1)"
    }
    assert greedy.placement.idle == {}


def test_what_greedy_would_give_leaves_out_what_a_plugin_cannot_do() -> None:
    """The first node is given back for good, the others are slower."""

    def ask(_kind, regions):
        kept = [keep_calls(r, [c for c in r.origins if c.name != "nn.relu"], "no") for r in regions]
        return kept if len(regions[0].origins) == 3 else [
            keep_calls(r, (), "slow", code="slower") for r in regions
        ]  # fmt: skip

    prices = Prices(Performance(), {"npu": Performance(launch=1.0)})
    made = partition(chain(), [NPU], prices=prices, ask=ask, fallback="loops")
    assert str(made.placement) == (
        "0/3 nodes offloaded: 3 faster on loops (--plan greedy gives 2 to npu)"
    )


def test_a_kind_that_states_nothing_is_presumed_to_be_fast() -> None:
    base = Prices(Performance(), {"npu": Performance(), "dsp": Performance()})
    stated = partition(chain(), [NPU], prices=base)
    assert owners(stated) == {}
    silent = Prices(base.fallback, base.accelerators, silent=frozenset({"npu"}))
    made = partition(chain(), [NPU, DSP], prices=silent)
    assert owners(made) == {"a": "npu", "b": "npu", "c": "npu"}
    assert made.placement.cost is not None
    assert made.placement.cost.sources == {"presumed": 3, "estimated": 3}
    assert CostSource("presumed") is CostSource.PRESUMED


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_relative_performance_needs_a_factor(factor: float) -> None:
    with pytest.raises(TargetError, match="needs a factor above 0"):
        RelativePerformance(flops=factor)
