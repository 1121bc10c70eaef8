# SPDX-License-Identifier: Apache-2.0
"""The plan of open sizes as JSON: what is damaged is refused before it steers native code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.plan import (
    THREADS,
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    OpenSizes,
    RegionStep,
    SizeGuard,
    SizeSource,
    TensorSpec,
    calls_open_regions,
    frame_entries,
    plan_stamp,
)
from intarsia_runtime.artifact.plan_json import plan_from_json, plan_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size import variable
from intarsia_testkit.closed_plan import close_plan

N = variable("N")
ROWS: Any = (N, 4)


def argument(place: ArgumentSource, index: int) -> Argument:
    return Argument(place, index, ROWS, DType.FLOAT32)


PLAN = CallPlan(
    inputs=(TensorSpec("x", ROWS, DType.FLOAT32),),
    outputs=(TensorSpec("y", ROWS, DType.FLOAT32),),
    constants=(),
    regions=(),
    workspace_bytes=0,
    steps=(
        KernelStep(
            "k",
            (argument(ArgumentSource.INPUT, 0), argument(ArgumentSource.WORKSPACE, 1)),
            sizes=("N",),
        ),
        CopyStep(argument(ArgumentSource.WORKSPACE, 1), argument(ArgumentSource.OUTPUT, 0)),
    ),
    open=OpenSizes((SizeSource("N", 0, 0),), (SizeGuard(N, N, "why"),), (N * 4, N * 16)),
)


def test_a_plan_reads_back() -> None:
    document = plan_to_json(PLAN)
    assert document["open"] == {
        "variables": [{"name": "N", "input": 0, "axis": 0}],
        "guards": [{"sizes": ["N", "N"], "why": "why"}],
        "slots": ["4*N", "16*N"],
    }
    assert plan_from_json(document) == PLAN
    assert frame_entries(PLAN) == 1 + 1 + 2 + 2


def test_the_stamp_knows_slots_and_guards() -> None:
    assert PLAN.open is not None
    others = [replace(PLAN.open, slots=(N, N)), replace(PLAN.open, guards=())]
    stamps = {plan_stamp(PLAN), *(plan_stamp(replace(PLAN, open=other)) for other in others)}
    assert len(stamps) == 3


def test_slots_may_lie_behind_several_others() -> None:
    assert PLAN.open is not None
    plan = replace(PLAN, open=replace(PLAN.open, behind=((), ())))
    document = plan_to_json(plan)
    assert document["open"]["behind"] == [[], []]
    assert plan_from_json(document) == plan
    assert plan_stamp(plan) != plan_stamp(PLAN)
    assert close_plan(plan, {"N": 5}).workspace_bytes == 128  # both begin at 0


def test_the_threads_of_a_run_are_a_size_of_no_input() -> None:
    assert PLAN.open is not None
    variables = (*PLAN.open.variables, SizeSource(THREADS, 7, 0))
    plan = replace(PLAN, open=replace(PLAN.open, variables=variables))
    assert plan_from_json(plan_to_json(plan)) == plan


def test_a_call_of_a_region_takes_sizes() -> None:
    call = RegionStep(
        0, (argument(ArgumentSource.INPUT, 0), argument(ArgumentSource.OUTPUT, 0)), "npu:r", ("n",)
    )
    plan = replace(PLAN, regions=("r",), steps=(replace(call, sizes=("N",)),))
    document = plan_to_json(plan)
    assert plan_from_json(document) == plan
    without = replace(plan, steps=(call,))
    assert calls_open_regions(plan)
    assert not calls_open_regions(without)
    assert plan_stamp(plan) != plan_stamp(without)
    assert "sizes" not in plan_to_json(without)["steps"][0]
    document["steps"][0]["sizes"] = ["M"]
    with pytest.raises(ArtifactError, match="nothing says what size 'M' of the plan is"):
        plan_from_json(document)


def test_a_plan_closes_for_numbers() -> None:
    closed = close_plan(PLAN, {"N": 5})
    assert closed.open is None
    assert closed.workspace_bytes == 64 + 128
    assert closed.inputs[0].shape == (5, 4)
    assert closed.steps[1] == CopyStep(
        Argument(ArgumentSource.WORKSPACE, 64, (5, 4), DType.FLOAT32),
        Argument(ArgumentSource.OUTPUT, 0, (5, 4), DType.FLOAT32),
    )
    assert close_plan(closed, {}) is closed


def _set(path: tuple[str | int, ...], value: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


DAMAGED = {
    "no size": (_set(("inputs", 0, "shape"), ["N", 1.5]), r"1.5 is no size"),
    "a negative size": (_set(("inputs", 0, "shape"), ["N", -1]), r"-1 is no size"),
    "a size that is code": (_set(("open", "slots"), ["f(N)", 1]), r"'f\(N\)' is no size"),
    "one size in a guard": (_set(("open", "guards", 0, "sizes"), ["N"]), r"a guard .* 1 sizes"),
    "no such input": (_set(("open", "variables", 0, "input"), 7), r"'N' .* is that of no input"),
    "no such axis": (_set(("open", "variables", 0, "axis"), 2), r"'N' .* is that of no input"),
    "an unknown name": (_set(("steps", 0, "sizes"), ["M"]), r"nothing says what size 'M'"),
    "an unknown name in a slot": (_set(("open", "slots", 0), "Q"), r"nothing says what size 'Q'"),
    "no such slot": (_set(("steps", 0, "args", 1, "index"), 2), r"outside of its workspace"),
    "no such output": (_set(("steps", 1, "args", 1, "index"), 1), r"outside of its output"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused(name: str) -> None:
    change, message = DAMAGED[name]
    document = plan_to_json(PLAN)
    change(document)
    with pytest.raises(ArtifactError, match=message):
        plan_from_json(document)
