# SPDX-License-Identifier: Apache-2.0
"""Branches and loops of a plan as JSON: what is damaged is refused before it steers native code."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    Block,
    CallPlan,
    CopyStep,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    OpenSizes,
    SizeGuard,
    SizeSource,
    TensorSpec,
    all_steps,
    plan_stamp,
)
from intarsia_runtime.artifact.plan_json import MOST_DEPTH, plan_from_json, plan_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size import variable
from intarsia_testkit.closed_plan import close_plan

WORK = ArgumentSource.WORKSPACE


def at(offset: int, *shape: int, dtype: DType = DType.FLOAT32, loop: int | None = None) -> Argument:
    return Argument(WORK, offset, shape, dtype, loop)


FLAG = at(0, dtype=DType.BOOL)
COUNT = at(64, dtype=DType.INT64)
ROW = at(128, 4, loop=0)
LOOP = LoopStep(
    Block(
        (KernelStep("k", (ROW, at(512, 4))), IfStep(FLAG, Block(()), Block((CopyStep(ROW, ROW),))))
    ),
    most=3,
    trip=COUNT,
    condition=FLAG,
    iteration=at(448, dtype=DType.INT64),
    label="loop",
    nodes=("l",),
)
PLAN = CallPlan(
    inputs=(TensorSpec("x", (4,), DType.FLOAT32),),
    outputs=(TensorSpec("y", (4,), DType.FLOAT32),),
    constants=("w",),
    regions=(),
    workspace_bytes=576,
    steps=(LOOP,),
)


def test_a_plan_reads_back_and_its_stamp_knows_all_of_it() -> None:
    assert plan_from_json(plan_to_json(PLAN)) == PLAN
    assert [type(step).__name__ for step in all_steps(PLAN.steps)] == [
        "LoopStep",
        "KernelStep",
        "IfStep",
        "CopyStep",
    ]
    others = [
        replace(LOOP, most=2),
        replace(LOOP, trip=None),
        replace(LOOP, condition=None),
        replace(LOOP, iteration=None),
        replace(LOOP, body=Block(())),
    ]
    stamps = {plan_stamp(replace(PLAN, steps=(step,))) for step in (LOOP, *others)}
    assert len(stamps) == 6


def test_a_plan_closes_inside_steps() -> None:
    n = variable("N")
    size: Any = (n,)
    row = Argument(WORK, 0, size, DType.FLOAT32, 0)
    guard = GuardStep(SizeGuard(n, 3, "why"))
    loop = LoopStep(Block((guard, CopyStep(row, row))), most=n)
    opened = replace(
        PLAN,
        inputs=(TensorSpec("x", size, DType.FLOAT32),),
        steps=(loop,),
        open=OpenSizes((SizeSource("N", 0, 0),), (), (n * n * 4,)),
    )
    assert plan_from_json(plan_to_json(opened)) == opened
    closed = close_plan(opened, {"N": 3})
    (found,) = closed.steps
    assert isinstance(found, LoopStep)
    assert found.most == 3
    assert found.body.steps[1] == CopyStep(at(0, 3, loop=0), at(0, 3, loop=0))


def set_at(document: Any, path: tuple[str | int, ...], value: object) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


BODY = ("steps", 0, "loop")
DAMAGED = {
    "a row of no loop": ((*BODY, 0, "args", 0, "loop"), 1, "outside of its workspace"),
    "rows past the end": (("steps", 0, "most"), 40, "outside of its workspace"),
    "rows without a number": (("steps", 0, "most"), "N", "nothing says what size 'N'"),
    "a flag that is a float": (("steps", 0, "condition", "dtype"), "float32", "not one bool"),
    "a count of two": (("steps", 0, "trip", "shape"), [2], "not one int64"),
    "a number of bools": (("steps", 0, "iteration", "dtype"), "bool", "not one int64"),
    "a branch on a float": ((*BODY, 1, "if", "dtype"), "float32", "not one bool"),
    "a branch without steps": ((*BODY, 1, "then"), None, "'then' is not a list"),
    "a row of a weight": ((*BODY, 0, "args", 0, "place"), "constant", "outside of its constant"),
    "a flag outside": (("steps", 0, "condition", "index"), 9999, "outside of its workspace"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused(name: str) -> None:
    path, value, message = DAMAGED[name]
    document = plan_to_json(PLAN)
    if name == "a row of a weight":
        set_at(document, (*path[:-1], "index"), 0)
    set_at(document, path, value)
    with pytest.raises(ArtifactError, match=message):
        plan_from_json(document)


def test_steps_that_nest_too_deep_are_refused() -> None:
    step = LoopStep(Block(()), most=1)
    for _ in range(MOST_DEPTH + 1):
        step = LoopStep(Block((step,)), most=1)
    with pytest.raises(ArtifactError, match="nest deeper than 64"):
        plan_from_json(plan_to_json(replace(PLAN, steps=(step,))))


def test_a_guard_of_one_size_is_refused() -> None:
    document = plan_to_json(replace(PLAN, steps=(GuardStep(SizeGuard(1, 1, "why")),)))
    set_at(document, ("steps", 0, "guard", "sizes"), [1])
    with pytest.raises(ArtifactError, match="1 sizes, not 2"):
        plan_from_json(document)
