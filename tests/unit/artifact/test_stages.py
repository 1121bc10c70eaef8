# SPDX-License-Identifier: Apache-2.0
"""Plans whose steps compute sizes, as JSON: no step is ahead of the sizes that it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    Block,
    CallPlan,
    CopyStep,
    KernelStep,
    LoopStep,
    OpenSizes,
    RunSize,
    SizeSource,
    SizesStep,
    TensorSpec,
    frame_entries,
    passed_outputs,
    plan_stamp,
)
from intarsia_runtime.artifact.plan_json import plan_from_json, plan_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size import variable

Source = ArgumentSource
N, FOUND = variable("N"), variable("n#0")
ROWS: Any = (N,)
SOME: Any = (FOUND,)


def argument(place: Source, index: int, shape: Any, dtype: DType = DType.INT64) -> Argument:
    return Argument(place, index, shape, dtype)


COUNT = argument(Source.WORKSPACE, 0, ())
PLAN = CallPlan(
    inputs=(TensorSpec("x", ROWS, DType.INT64),),
    outputs=(TensorSpec("y", SOME, DType.INT64), TensorSpec("z", ROWS, DType.INT64)),
    constants=(),
    regions=(),
    workspace_bytes=0,
    steps=(
        KernelStep("count", (argument(Source.INPUT, 0, ROWS), COUNT), sizes=("N",)),
        SizesStep(1, (RunSize("n#0", COUNT),)),
        KernelStep("find", (argument(Source.WORKSPACE, 1, SOME),), sizes=("n#0",)),
        CopyStep(argument(Source.WORKSPACE, 1, SOME), argument(Source.OUTPUT, 0, SOME)),
        CopyStep(argument(Source.INPUT, 0, ROWS), argument(Source.OUTPUT, 1, ROWS)),
    ),
    open=OpenSizes((SizeSource("N", 0, 0),), (), (8, FOUND * 8), (("n#0",),)),
)


def test_a_plan_with_stages_reads_back() -> None:
    document = plan_to_json(PLAN)
    assert document["open"]["stages"] == [["n#0"]]  # type: ignore[index]  # plain JSON
    assert document["steps"][1]["sizes"] == ["n#0"]  # type: ignore[index]  # plain JSON
    assert plan_from_json(document) == PLAN


def test_stages_of_sizes() -> None:
    assert PLAN.open is not None
    assert PLAN.open.names == ("N", "n#0")
    assert [PLAN.open.stage(size) for size in (3, N, FOUND, N * FOUND)] == [0, 0, 1, 1]


def test_the_frame_has_the_bytes_of_each_stage_and_a_status() -> None:
    assert frame_entries(PLAN) == 2 + 2 + 2 + 2 + 1


def test_outputs_whose_sizes_steps_compute_are_not_passed() -> None:
    assert [spec.name for spec in passed_outputs(PLAN)] == ["z"]


def test_the_stamp_knows_stages() -> None:
    assert PLAN.open is not None
    other = replace(PLAN, open=replace(PLAN.open, stages=(("m#0",),)))
    step = replace(PLAN, steps=(PLAN.steps[0], *PLAN.steps[2:]))
    assert len({plan_stamp(plan) for plan in (PLAN, other, step)}) == 3


def _set(path: tuple[str | int, ...], value: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


def _moved(document: Any) -> None:
    document["steps"].insert(0, document["steps"].pop(2))


def _dropped(document: Any) -> None:
    del document["steps"][1]


OPEN = str(FOUND)
DAMAGED = {
    "a name twice": (_set(("open", "stages"), [["n#0"], ["n#0"]]), r"reads size 'n#0' twice"),
    "a name of an input": (_set(("open", "stages"), [["n#0", "N"]]), r"reads size 'N' twice"),
    "no list": (_set(("open", "stages"), ["n#0"]), r"not a list"),
    "no text": (_set(("open", "stages"), [[7]]), r"not a list of texts"),
    "an input of the run": (
        _set(("inputs", 0, "shape"), ['"n#0"']),
        r"an input .* a step computes",
    ),
    "other names": (_set(("steps", 1, "sizes"), ["m#0"]), r"other sizes"),
    "too many names": (_set(("steps", 1, "sizes"), ["n#0", "m"]), r"reads 2 sizes of 1"),
    "another type": (_set(("steps", 1, "args", 0, "dtype"), "int32"), r"no element of int64"),
    "many elements": (_set(("steps", 1, "args", 0, "shape"), [2]), r"no element of int64"),
    "a stage that is not there": (_set(("steps", 1, "stage"), 2), r"stage"),
    "no such slot": (_set(("steps", 1, "args", 0, "index"), 9), r"outside of its workspace"),
    "a size of its own stage": (_set(("steps", 1, "args", 0, "index"), 1), r"before a step"),
    "a step ahead": (_moved, r"uses a size before a step computes it"),
    "no step": (_dropped, r"stage"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused(name: str) -> None:
    change, message = DAMAGED[name]
    document = plan_to_json(PLAN)
    change(document)
    with pytest.raises(ArtifactError, match=message):
        plan_from_json(document)


def test_memory_of_a_stage_is_outdated_when_an_earlier_one_is_read_again() -> None:
    assert PLAN.open is not None
    more = variable("m#1")
    both: Any = (FOUND * more,)
    place = argument(Source.WORKSPACE, 2, both)
    fill = KernelStep("fill", (place,), sizes=("n#0", "m#1"))
    again = PLAN.steps[1]
    opened = replace(PLAN.open, slots=(8, FOUND * 8, FOUND * more * 8), stages=(("n#0",), ("m#1",)))
    steps = (*PLAN.steps[:2], SizesStep(2, (RunSize("m#1", COUNT),)), fill)
    good = replace(PLAN, open=opened, steps=steps)
    assert plan_from_json(plan_to_json(good)) == good
    for bad in ((*steps, again, fill), (*steps, LoopStep(Block((fill, again))))):
        with pytest.raises(ArtifactError, match="uses a size before"):
            plan_from_json(plan_to_json(replace(good, steps=bad)))
    fine = (*steps, LoopStep(Block((again, steps[2], fill))))
    assert plan_from_json(plan_to_json(replace(good, steps=fine))).steps == fine
