# SPDX-License-Identifier: Apache-2.0
"""Placing single nodes, and the shape of what comes out."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.graph.expr import (
    Call,
    CallFunction,
    Constant,
    Function,
    If,
    Tuple,
    Var,
    constant,
    get_item,
)
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.pattern import ANY, CONST, Match, op
from intarsia_ir.graph.text import print_module
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.verify import verify
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.merge import merge
from intarsia_ir.partition.partition import codegen_refused, partition
from intarsia_ir.partition.report import bytes_text, check_gates
from intarsia_ir.partition.rules import parse_place_rule
from intarsia_ir.regions.region import keep_calls
from intarsia_ir.regions.support import Code, Support, SupportRow, SupportTable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import GateFailed, PluginError, UnsupportedError, UsageError

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)
node, main_of, takes = graphs.node, graphs.main_of, graphs.takes

X = Var("x", graphs.VECTOR)
W = constant(np.ones((4, 4), np.float32), name="w")
GREEDY = Plan.GREEDY


def no_large(_match: Match) -> Support:
    return Support.no(Code.UNSUPPORTED_SHAPE, "too large for the array")


def explode(_match: Match) -> Support:
    raise ZeroDivisionError("oops")


def explode_on_purpose(_match: Match) -> Support:
    raise UnsupportedError("not today")


def answer_nonsense(_match: Match) -> Support:
    return True  # type: ignore[return-value]


def verdict(made, name: str, accelerator: str = "npu"):
    (found,) = [
        v for v in made.placement.verdicts if v.node == name and v.accelerator == accelerator
    ]
    return found.code, found.detail


def test_the_first_accelerator_that_says_yes_takes_a_node():
    module = main_of([X], node("nn.relu", node("sigmoid", X, at="s"), at="r"))
    tables = [("npu", takes("nn.relu")), ("dsp", takes("nn.relu", "sigmoid"))]
    made = partition(module, tables, plan=GREEDY)
    assert verdict(made, "r") == ("ok", "nn.relu")
    assert verdict(made, "r", "dsp") == ("outvoted", "'npu' comes first")
    assert verdict(made, "s") == ("unsupported-op", "no row for 'sigmoid'")
    assert verdict(made, "s", "dsp") == ("ok", "sigmoid")
    swapped = partition(module, tables[::-1], plan=GREEDY)
    assert [r.kind for r in swapped.regions] == ["dsp"]


def test_a_refusal_keeps_the_reason_of_the_smallest_match():
    fused = SupportRow("relu-of-sigmoid", op("nn.relu", op("sigmoid", ANY)), explode)
    single = SupportRow("relu", op("nn.relu", ANY), no_large)
    module = main_of([X], node("nn.relu", node("sigmoid", X, at="s"), at="r"))
    made = partition(module, [("npu", SupportTable([fused, single]))], plan=GREEDY)
    assert verdict(made, "r") == ("unsupported-shape", "too large for the array")
    assert verdict(made, "s")[1] == "'sigmoid' is taken only as part of row 'relu-of-sigmoid'"


@pytest.mark.parametrize(
    ("predicate", "detail"),
    [
        (explode, "row 'r' of 'npu' raised ZeroDivisionError: oops"),
        (explode_on_purpose, "row 'r' of 'npu' raised UnsupportedError: not today"),
        (answer_nonsense, "row 'r' of 'npu' answered True, not a Support"),
    ],
)
def test_what_a_plugin_does_wrong_is_its_verdict(predicate, detail):
    table = SupportTable([SupportRow("r", op("nn.relu"), predicate)])
    made = partition(main_of([X], node("nn.relu", X, at="r")), [("npu", table)], plan=GREEDY)
    assert verdict(made, "r") == ("plugin-error", detail)


def explode_in_pattern(_call: Call) -> bool:
    raise KeyError("k")


def test_a_condition_in_a_pattern_that_fails_is_a_verdict():
    table = SupportTable([SupportRow("r", op("nn.relu", where=explode_in_pattern), graphs.yes)])
    made = partition(main_of([X], node("nn.relu", X, at="r")), [("npu", table)], plan=GREEDY)
    assert verdict(made, "r") == ("plugin-error", "row 'r' of 'npu' raised KeyError: 'k'")


def test_larger_patterns_take_their_parts_along():
    fused = SupportRow("biased", op("add", op("matmul", ANY, CONST), CONST), graphs.yes)
    table = SupportTable([fused, *takes("matmul").rows])
    x = Var("x", TensorType((4, 4), DType.FLOAT32))
    product = node("matmul", x, W, at="m")
    biased = node("add", product, W, at="a")
    made = partition(main_of([x], biased), [("npu", table)])
    (region,) = made.regions
    assert list(region.rows.values()) == ["biased"]
    assert verdict(made, "m") == ("ok", "biased")
    assert region.function.params[0].type == x.type
    assert len([n for n in post_order(region.function.body) if isinstance(n, Constant)]) == 1
    again = partition(main_of([x], biased, product), [("npu", table)])
    assert verdict(again, "m") == ("ok", "matmul")
    assert verdict(again, "a")[0] == "unsupported-op"


def test_a_pattern_that_lost_a_part_says_so():
    fused = SupportRow("fused", op("negative", op("nn.relu", op("sigmoid", ANY))), graphs.yes)
    tail = SupportRow("tail", op("nn.relu", op("sigmoid", ANY)), graphs.yes)
    tree = node("negative", node("nn.relu", node("sigmoid", X, at="s"), at="r"), at="n")
    tables = [("npu", takes("sigmoid")), ("dsp", SupportTable([fused, tail]))]
    made = partition(main_of([X], tree), tables, plan=GREEDY)
    assert verdict(made, "r", "dsp")[0] == "outvoted"
    assert verdict(made, "r", "dsp")[1].startswith("taken by no one")


def test_regions_with_several_results_return_each_once():
    relu = node("nn.relu", X, at="r")
    twice = node("negative", relu, at="n")
    module = main_of([X], relu, twice, twice, node("sigmoid", relu, at="s"))
    made = partition(module, [("npu", takes("nn.relu", "negative"))], plan=GREEDY)
    verify(made.module)
    (region,) = made.regions
    assert isinstance(region.function.body, Tuple)
    assert len(region.function.body.fields) == 2
    assert print_module(made.module).startswith("""\
def @main(%x: Tensor[(4,), float32]) -> (Tensor[(4,), float32], Tensor[(4,), float32], \
Tensor[(4,), float32], Tensor[(4,), float32]) {
  %0 = @npu_0(%x): (Tensor[(4,), float32], Tensor[(4,), float32]);  // npu_0 (npu)
  %1 = %0[0];  // r (nn.relu)
  %2 = %0[1];  // n (negative)
  %3 = sigmoid(%1);  // s (sigmoid)
  (%1, %2, %2, %3)
}
""")


def test_parts_of_a_split_stay_with_it():
    parts = node("split", X, sections=(2, 2), axis=0, at="p")
    total = node("add", get_item(parts, 0), get_item(parts, 1), at="t")
    made = partition(
        main_of([X], total, get_item(parts, 1)), [("npu", takes("split"))], plan=GREEDY
    )
    verify(made.module)
    assert [c.name for c in calls(made.module.main)] == ["add"]
    whole = main_of([X], parts)
    made = partition(whole, [("npu", takes("split"))], plan=GREEDY)
    assert verdict(made, "p")[1] == "its tuple result is used as a whole"
    assert made.regions == ()


def test_regions_do_not_reach_into_branches():
    flag = Var("c", TensorType((), DType.BOOL))
    outer = node("nn.relu", X, at="outer")
    inner = node("negative", node("nn.relu", outer, at="inner"), at="inner2")
    tree = If(flag, inner, outer, inner.type)
    made = partition(
        main_of([X, flag], node("nn.relu", tree, at="after")),
        [("npu", takes("nn.relu", "negative"))],
        plan=GREEDY,
    )
    verify(made.module)
    assert [r.nodes for r in made.regions] == [("outer",), ("inner", "inner2"), ("after",)]
    fused = SupportRow("f", op("negative", op("nn.relu", ANY)), graphs.yes)
    choice = If(flag, node("negative", node("nn.relu", X, at="r"), at="n"), X, X.type)
    made = partition(main_of([X, flag], choice), [("npu", SupportTable([fused]))], plan=GREEDY)
    assert [r.nodes for r in made.regions] == [("r", "n")]


def test_a_merge_that_would_make_a_cycle_is_refused_and_reported():
    first = node("nn.relu", X, at="first")
    detour = node("sigmoid", first, at="detour")
    second = node("maximum", first, detour, at="second")
    made = partition(main_of([X], second), [("npu", takes("nn.relu", "maximum"))], plan=GREEDY)
    assert [r.nodes for r in made.regions] == [("first",), ("second",)]
    (apart,) = made.placement.apart
    assert (apart.producer.name, apart.consumer.name) == ("first", "second")
    assert apart.via.name == "detour"
    budgetless = merge(annotate(main_of([X], second).main, [("npu", takes("nn.relu"))]), budget=-1)
    assert budgetless.apart == ()


def test_light_regions_go_back_and_are_offered_to_the_next():
    tree = node("nn.relu", X, at="r")
    tables = [("npu", takes("nn.relu")), ("dsp", takes("nn.relu"))]
    made = partition(main_of([X], tree), tables)
    assert made.regions == ()
    assert verdict(made, "r")[0] == verdict(made, "r", "dsp")[0] == "slower"
    heavy = node("nn.relu", node("matmul", W, W, at="m"), at="r")
    made = partition(main_of([], heavy), [("npu", takes("nn.relu", "matmul"))])
    assert made.regions[0].nodes == ("m", "r")


def test_user_rules_force_and_forbid():
    module = main_of([X], node("nn.relu", node("nn.relu", X, at="a/1"), at="b"))
    tables = [("npu", takes("nn.relu")), ("dsp", takes("nn.relu"))]
    rules = [parse_place_rule("a/*=dsp"), parse_place_rule("b != npu"), parse_place_rule("b!=dsp")]
    made = partition(module, tables, plan=GREEDY, rules=rules)
    assert verdict(made, "a/1") == ("excluded-by-user", "rule 'a/*=dsp'")
    assert verdict(made, "a/1", "dsp") == ("ok", "nn.relu")
    assert verdict(made, "b")[0] == verdict(made, "b", "dsp")[0] == "excluded-by-user"
    with pytest.raises(UsageError, match=r"rule 'q=npu' names no node"):
        partition(module, tables, rules=[parse_place_rule("q=npu")])


def test_no_match_holds_an_excluded_call():
    fused = SupportRow("f", op("negative", op("nn.relu", ANY)), graphs.yes)
    module = main_of([X], node("negative", node("nn.relu", X, at="r"), at="n"))
    rules = [parse_place_rule("r!=npu")]
    made = partition(module, [("npu", SupportTable([fused]))], plan=GREEDY, rules=rules)
    assert verdict(made, "n") == ("excluded-by-user", "rule 'r!=npu'")


@pytest.mark.parametrize("text", ["conv", "=npu", "conv=", "!=npu", ""])
def test_a_bad_rule_is_refused(text):
    with pytest.raises(UsageError, match="is not of the form NODES=KIND"):
        parse_place_rule(text)


def ask_with(answer):
    def ask(_kind, regions):
        return answer(regions)

    return ask


def three_in_a_row():
    tree = node("negative", node("sigmoid", node("nn.relu", X, at="a"), at="b"), at="c")
    return main_of([X], tree), [("npu", takes("nn.relu", "sigmoid", "negative"))]


def test_a_plugin_may_keep_drop_and_reduce_regions():
    module, tables = three_in_a_row()
    kept = partition(module, tables, plan=GREEDY, ask=ask_with(tuple))
    assert kept.regions[0].nodes == ("a", "b", "c")
    dropped = partition(module, tables, plan=GREEDY, ask=ask_with(lambda _regions: ()))
    assert dropped.regions == ()
    assert verdict(dropped, "a") == ("dropped", "'npu' gave it back after seeing its region")

    def none_with_a_reason(regions):
        return [keep_calls(region, (), "too slow") for region in regions]

    explained = partition(module, tables, plan=GREEDY, ask=ask_with(none_with_a_reason))
    assert explained.regions == ()
    assert verdict(explained, "b") == ("dropped", "too slow")

    def without_the_middle(regions):
        (region,) = regions
        return [keep_calls(region, [c for c in region.origins if c.name != "sigmoid"])]

    reduced = partition(module, tables, plan=GREEDY, ask=ask_with(without_the_middle))
    verify(reduced.module)
    assert [r.nodes for r in reduced.regions] == [("a",), ("c",)]


def test_a_plugin_may_not_add_or_repeat_calls():
    module, tables = three_in_a_row()
    foreign = node("nn.relu", X)

    def add(regions):
        return [replace(regions[0], origins={foreign: foreign})]

    with pytest.raises(PluginError, match="'npu' added calls to region 'npu_0'"):
        partition(module, tables, plan=GREEDY, ask=ask_with(add))
    with pytest.raises(PluginError, match="returned a call of region 'npu_0' twice"):
        partition(module, tables, plan=GREEDY, ask=ask_with(lambda regions: [*regions, *regions]))

    def keep_foreign(regions):
        return [keep_calls(regions[0], [foreign])]

    with pytest.raises(PluginError, match=r"call of .nn\.relu. is not in region .npu_0."):
        partition(module, tables, plan=GREEDY, ask=ask_with(keep_foreign))


def test_a_region_that_cannot_be_compiled_is_the_plugins_error():
    module, tables = three_in_a_row()
    (region,) = partition(module, tables, plan=GREEDY).regions
    error = codegen_refused(region, UnsupportedError("no sigmoid after all"))
    assert "'npu' took region 'npu_0' (rows negative, nn.relu, sigmoid)" in str(error)
    assert "--place 'NODE!=npu'" in error.hint


def test_names_of_regions_and_nodes_are_unique():
    taken = main_of(
        [X], node("nn.relu", node("sigmoid", node("nn.relu", X, at="n"), at="n"), at="n")
    )
    taken = taken.with_functions({**taken.functions, "my_npu_0": Function((X,), X)})
    made = partition(taken, [("my-npu", takes("nn.relu")), ("1d", takes("sigmoid"))], plan=GREEDY)
    assert [r.name for r in made.regions] == ["my_npu_1", "_1d_0", "my_npu_2"]
    assert [v.node for v in made.placement.verdicts][::2] == ["n", "n#2", "n#3"]
    clash = main_of([X], node("nn.relu", node("nn.relu", node("sin", X, at="n#2"), at="n"), at="n"))
    made = partition(clash, [("npu", takes())], plan=GREEDY)
    assert [v.node for v in made.placement.verdicts] == ["n#2", "n", "n#3"]


def test_the_report_is_one_line_and_gates_hold_against_it():
    module, _ = three_in_a_row()
    made = partition(module, [("npu", takes("nn.relu", "negative"))], plan=GREEDY)
    text = "2/3 nodes offloaded (67 %), 2 regions, 64 B across borders"
    assert str(made.placement) == made.placement.to_json()["summary"] == text
    check_gates(made.placement, require_offload=50, max_regions=2)
    with pytest.raises(GateFailed, match=r"66\.7 % of the nodes are offloaded, 70 % required") as e:
        check_gates(made.placement, require_offload=70)
    assert "most often 'npu' says unsupported-op: no row for 'sigmoid' (1 nodes)" in e.value.hint
    with pytest.raises(GateFailed, match="2 regions, at most 1 allowed"):
        check_gates(made.placement, max_regions=1)
    everything = partition(*three_in_a_row(), plan=GREEDY)
    assert str(everything.placement).startswith("3/3 nodes offloaded (100 %), 1 region, ")
    with pytest.raises(GateFailed) as e:
        check_gates(everything.placement, max_regions=0)
    assert e.value.hint == "see every reason with 'intarsia explain'"
    assert partition(main_of([X], X), []).placement.percent == 100
    assert [bytes_text(n) for n in (9, 1500, 1_240_000, 2 * 10**9)] == [
        "9 B",
        "1.5 kB",
        "1.2 MB",
        "2.0 GB",
    ]
    row = everything.placement.to_json()["regions"]
    assert row == [
        {
            "name": "npu_0",
            "accelerator": "npu",
            "nodes": ["a", "b", "c"],
            "bytes_in": 16,
            "bytes_out": 16,
        }
    ]


def test_wildcards_at_the_root_match_any_call():
    table = SupportTable([SupportRow("any", ANY, graphs.yes)])
    call_ = node("nn.relu", X, at="r")
    assert match_pattern(ANY, call_, {call_: 1}) is not None
    made = partition(main_of([X], call_), [("npu", table)], plan=GREEDY)
    assert verdict(made, "r") == ("ok", "any")


@pytest.mark.slow
def test_twenty_thousand_nodes_are_cut_quickly():
    tree = X
    for i in range(20_000):
        tree = node("nn.relu" if i % 2 else "sigmoid", tree)
    start = time.process_time()
    made = partition(main_of([X], tree), [("npu", takes("nn.relu"))], plan=GREEDY)
    assert time.process_time() - start < 10
    assert len(made.regions) == 10_000
    assert isinstance(made.module.main.body, CallFunction)
