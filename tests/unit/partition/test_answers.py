# SPDX-License-Identifier: Apache-2.0
"""What plugins give back of what they are offered, and how they read what they keep."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from intarsia_ir.graph.expr import Var
from intarsia_ir.graph.pattern import ANY, Pattern, op
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import partition
from intarsia_ir.regions.answers import (
    count_macs,
    drop_regions,
    region_matches,
    too_few_macs,
    unknown_call,
)
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import SupportRow, SupportTable
from intarsia_runtime.errors import PluginError

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)
node = graphs.node

X = Var("x", graphs.VECTOR)
A, B = Var("a", graphs.VECTOR.with_shape((2, 3))), Var("b", graphs.VECTOR.with_shape((3, 5)))


@dataclass(frozen=True)
class Row:
    """A row of a plugin's own."""

    name: str
    pattern: Pattern
    kernel: int


ROWS = (Row("fused", op("negative", op("tanh", ANY)), 1), Row("abs", op("abs", ANY), 2))


def region_of(body, *params: Var, rows=ROWS) -> Region:
    table = SupportTable([SupportRow(row.name, row.pattern, graphs.yes) for row in rows])
    module = graphs.main_of(list(params), body)
    (region,) = partition(module, [("npu", table)], plan=Plan.GREEDY).regions
    return region


def product() -> Region:
    return region_of(node("matmul", A, B), A, B, rows=(Row("matmul", op("matmul", ANY, ANY), 3),))


def test_regions_go_back_with_the_objection():
    small, large = region_of(node("abs", X), X), product()
    kept = drop_regions([small, large], partial(too_few_macs, least=30))
    assert kept[1] is large
    assert not kept[0].origins
    assert kept[0].why == "its region does 0 multiply-accumulates, fewer than -min-macs=30"


def test_multiply_accumulates_are_counted():
    assert count_macs(product()) == 2 * 3 * 5
    assert "fewer than -min-macs=31" in too_few_macs(product(), 31)
    assert too_few_macs(product(), 30) == ""


def test_matches_cover_a_region_in_order():
    region = region_of(node("abs", node("negative", node("tanh", X))), X)
    found = region_matches(region, ROWS)
    assert [(row.kernel, match.root.name) for row, match in found] == [(1, "negative"), (2, "abs")]
    assert [call.name for call in found[0][1].calls] == ["tanh", "negative"]


def test_a_call_that_no_row_takes_is_the_plugins_error():
    region = region_of(node("abs", X), X)
    with pytest.raises(PluginError, match="region 'npu_0' has a abs that no row"):
        region_matches(replace(region, rows={}), ROWS)
    assert "no row of the support table" in str(unknown_call(region, region.calls()[0]))
