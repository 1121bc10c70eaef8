# SPDX-License-Identifier: Apache-2.0
"""What a plugin's ``partition`` hook returns is what is built, and nothing impossible is."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.graph.expr import Var
from intarsia_ir.graph.pattern import ANY, op
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan, Prices
from intarsia_ir.partition.partition import partition
from intarsia_ir.performance import Performance
from intarsia_ir.regions.region import keep_calls, split_region
from intarsia_ir.regions.support import SupportRow, SupportTable
from intarsia_runtime.errors import PluginError

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)
node, main_of, takes = graphs.node, graphs.main_of, graphs.takes

X = Var("x", graphs.VECTOR)
GREEDY = Plan.GREEDY
ALL = takes("nn.relu", "sigmoid", "negative", "tanh", "add")


def diamond():
    """a, then b and c side by side, then d."""
    a = node("nn.relu", X, at="a")
    b, c = node("sigmoid", a, at="b"), node("tanh", a, at="c")
    return main_of([X], node("negative", node("add", b, c, at="d"), at="e"))


def split_into(*groups: str):
    """Cut every region that is offered whole into parts with these nodes."""

    def ask(_kind, regions):
        (region,) = regions
        by_name = {call.span.name: call for call in region.origins}
        return split_region(region, [[by_name[n] for n in group] for group in groups], "too wide")

    return ask


@pytest.mark.parametrize("groups", [("a", "bc", "de"), ("ab", "cde"), ("abcd", "e"), ("a", "bcd")])
def test_regions_are_built_as_they_are_split(groups: tuple[str, ...]) -> None:
    module = diamond()
    made = partition(module, [("npu", ALL)], plan=GREEDY, ask=split_into(*groups))
    verify(made.module)
    assert ["".join(region.nodes) for region in made.regions] == [*groups]
    x = np.array([1, -2, 3, -4], np.float32)
    (here,) = evaluate(made.module.main, {"x": x}, made.module)
    (there,) = evaluate(module.main, {"x": x}, module)
    assert np.array_equal(here, there)
    left = "".join(v.node for v in made.placement.verdicts if v.code == "dropped")
    assert set(left) == set("abcde") - set("".join(groups))
    assert all(v.detail == "too wide" for v in made.placement.verdicts if v.code == "dropped")


def test_split_regions_stay_split_when_cost_decides() -> None:
    prices = Prices(Performance(), {"npu": Performance()}, silent=frozenset({"npu"}))
    made = partition(diamond(), [("npu", ALL)], prices=prices, ask=split_into("a", "bc", "de"))
    assert ["".join(region.nodes) for region in made.regions] == ["a", "bc", "de"]
    assert all(row.cost is not None for row in made.placement.regions)


def test_every_region_is_asked_about_once() -> None:
    """What is dropped goes to the other accelerator, which hears of its new region."""
    asked: list[tuple[str, str]] = []

    def ask(kind, regions):
        for region in regions:
            asked.append((kind, "".join(region.nodes)))
        if kind == "npu":
            return [keep_calls(r, [c for c in r.origins if c.span.name in "ab"]) for r in regions]
        return regions

    made = partition(diamond(), [("npu", ALL), ("dsp", ALL)], plan=GREEDY, ask=ask)
    assert {region.kind: "".join(region.nodes) for region in made.regions} == {
        "npu": "ab",
        "dsp": "cde",
    }
    assert asked == [("npu", "abcde"), ("dsp", "cde")]


def test_a_cycle_of_parts_is_the_plugins_error() -> None:
    match = r"'npu' returned a region of 'a', 'd', 'e' in partition\(\) that needs .* a cycle"
    with pytest.raises(PluginError, match=match):
        partition(diamond(), [("npu", ALL)], plan=GREEDY, ask=split_into("ade", "bc"))
    with pytest.raises(PluginError, match="a cycle"):
        partition(diamond(), [("npu", ALL)], plan=GREEDY, ask=split_into("ade"))


def test_a_match_stays_whole() -> None:
    fused = SupportRow("f", op("negative", op("add", ANY, ANY)), graphs.yes)
    table = SupportTable([fused, *ALL.rows])
    with pytest.raises(PluginError, match=r"cut a match of row 'f' apart in 'npu_0'"):
        partition(diamond(), [("npu", table)], plan=GREEDY, ask=split_into("abcd", "e"))


def test_a_region_keeps_its_kind_and_its_code_is_one() -> None:
    def other(_kind, regions):
        return [replace(region, kind="dsp") for region in regions]

    with pytest.raises(PluginError, match="gave region 'npu_0' to 'dsp'"):
        partition(diamond(), [("npu", ALL)], plan=GREEDY, ask=other)

    def nonsense(_kind, regions):
        return [replace(region, origins={}, code="lazy") for region in regions]

    with pytest.raises(PluginError, match="gives region 'npu_0' back as 'lazy', no code"):
        partition(diamond(), [("npu", ALL)], plan=GREEDY, ask=nonsense)
