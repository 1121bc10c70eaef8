# SPDX-License-Identifier: Apache-2.0
"""Schedule spaces: signatures of groups, and what lowering makes of records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Function, constant
from intarsia_ir.tir.space import Knob, ScheduleSpace, ScheduleSpaces, Tuned, signature_of
from intarsia_loops.cpu.schedule_spaces import cpu_spaces, shape_with
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_loops.loops import default_loops
from intarsia_loops.tensors import stages_of
from intarsia_runtime.errors import PluginError

from .conftest import apply, lower, make_target, var


def product(columns: int, *, node: str = "", weight: int = 0, then: str = "nn.relu") -> Function:
    a, scale = var("a", 4, 8), constant(np.full((8, columns), weight, np.float32))
    made = replace(apply("matmul", a, scale), span=Span(node))
    return Function((a,), apply(then, made))


def groups(function: Function) -> list:
    return [item.group for item in fuse(function).items if isinstance(item, KernelCall)]


def signature(function: Function) -> str:
    (group,) = groups(function)
    return signature_of(group)


def test_a_signature_is_of_operators_types_and_attributes_alone() -> None:
    plain = signature(product(16))
    assert plain.startswith("matmul+nn.relu#")
    assert signature(product(16, node="layer7", weight=3)) == plain
    assert signature(product(17)) != plain
    assert signature(product(16, then="tanh")) != plain


def space(schedule, operator: str = "matmul") -> ScheduleSpace:
    return ScheduleSpace(operator, 1, (Knob("rows", (0, 2, 4), "rows"),), schedule)


@pytest.mark.parametrize(
    "choice, allowed",
    [({}, True), ({"rows": 4}, True), ({"rows": 3}, False), ({"columns": 2}, False)],
)
def test_a_space_allows_its_values_only(choice: dict, allowed: bool) -> None:
    assert space(None).allows(choice) is allowed


def lowered(schedule, choice, operator: str = "matmul"):
    asked: list[str] = []

    def best(_: ScheduleSpace, signature: str):
        asked.append(signature)
        return choice

    tuned = Tuned(ScheduleSpaces("here", (space(schedule, operator),)), best)
    return lower(product(16), (), target=make_target(), tuned=tuned), asked


def rules_kernel(group, target, choice):
    return default_loops(group.name, stages_of(group.function))


def test_lowering_takes_the_choice_of_records_and_says_so() -> None:
    found, asked = lowered(rules_kernel, {"rows": 4})
    assert asked == [signature(product(16))]
    (kernel,) = found.chosen.values()
    assert kernel.choice == {"rows": 4}
    assert list(found.chosen) == [function.name for function in found.module.functions]


@pytest.mark.parametrize("choice", [None, {}, {"rows": 3}])
def test_without_a_choice_of_the_space_the_rules_decide(choice) -> None:
    found, _ = lowered(rules_kernel, choice)
    assert not found.chosen


def test_a_schedule_may_refuse_a_choice_but_give_no_nonsense() -> None:
    found, _ = lowered(lambda *_: None, {"rows": 4})
    assert not found.chosen
    assert len(found.module.functions) == 1
    with pytest.raises(PluginError, match="returned no kernel"):
        lowered(lambda *_: "kernel", {"rows": 4})


def test_other_operators_are_not_asked_about() -> None:
    found, asked = lowered(rules_kernel, {"rows": 4}, operator="nn.conv")
    assert not asked
    assert not found.chosen


def test_knobs_of_cpu_schedules_change_the_register_tile() -> None:
    plain = CpuTiling(16, 14)
    assert shape_with(plain, {}) == plain
    changed = shape_with(
        plain,
        {"rows": 6, "strip_kib": 16, "tile_columns": 7, "panel_kib": 24, "copy_rows": 2,
         "neighbours": 4},
    )  # fmt: skip
    assert changed.rows == 6
    assert changed.strip_bytes == 16 * 1024
    assert (changed.tile_columns, changed.panel_bytes) == (7, 24 * 1024)
    assert (changed.copies_rows, changed.neighbours) == (False, 4)


def test_every_knob_leaves_the_size_to_the_rule_at_its_first_value() -> None:
    plain = CpuTiling(16, 14)
    spaces = cpu_spaces(lambda target, dtype: plain)
    assert {s.operator for s in spaces} >= {"cpu.conv", "cpu.dense", "cpu.depthwise", "matmul"}
    for one in spaces:
        assert len({knob.name for knob in one.knobs}) == len(one.knobs)
        assert shape_with(plain, {knob.name: knob.values[0] for knob in one.knobs}) == plain
        assert all(len(set(knob.values)) == len(knob.values) for knob in one.knobs)


@pytest.mark.parametrize(
    "keys, chosen",
    [((), "plain"), (("mine",), "mine"), (("unknown",), "plain"), (("unknown", "mine"), "mine")],
)
def test_of_a_table_by_key_the_most_special_key_decides(keys: tuple, chosen: str) -> None:
    asked: list[str] = []

    def schedule(name: str):
        return lambda *_: asked.append(name)

    table = {"mine": schedule("mine"), "default": schedule("plain")}
    target = replace(make_target(matmul=table), keys=(*keys, "loops"))
    lower(product(16), (), target=target)
    assert asked == [chosen]
    only = make_target(matmul={"mine": schedule("other")})
    assert lower(product(16), (), target=only).module.functions
    assert asked == [chosen]
