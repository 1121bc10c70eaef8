# SPDX-License-Identifier: Apache-2.0
"""The plan of a region that was compiled from loops is read as strictly as the model's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    KernelStep,
    TensorSpec,
)
from intarsia_runtime.artifact.unit_plan import print_unit_plan, read_unit_plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError

F = DType.FLOAT32
X, Y = TensorSpec("x", (4,), F), TensorSpec("y", (4,), F)
ARGS = (
    Argument(ArgumentSource.INPUT, 0, (4,), F),
    Argument(ArgumentSource.CONSTANT, 0, (4,), F),
    Argument(ArgumentSource.OUTPUT, 0, (4,), F),
)
PLAN = CallPlan((X,), (Y,), ("w",), (), 64, (KernelStep("k", ARGS, "add", ("n",)),))


def read(data: bytes, **changed: Any) -> CallPlan:
    facts: dict[str, Any] = {"inputs": [X], "outputs": [Y], "constants": {"w": 16}, **changed}
    return read_unit_plan(data, name="npu_0", **facts)


def test_a_plan_survives_its_text() -> None:
    assert read(print_unit_plan(PLAN)) == PLAN


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(print_unit_plan(PLAN)), **fields}).encode()


@pytest.mark.parametrize(
    ("data", "facts", "message"),
    [
        (b"{", {}, "is no JSON"),
        (b"[" * 100_000, {}, "is no JSON"),
        (b"\xff", {}, "is no JSON"),
        (b"[]", {}, "is no JSON object"),
        (b"{}", {}, "inputs"),
        (changed(regions=["npu_1"]), {}, "calls other regions"),
        (changed(workspace_bytes=-1), {}, "workspace_bytes"),
        (changed(), {"inputs": [TensorSpec("x", (3,), F)]}, "other inputs than the region"),
        (changed(), {"outputs": []}, "other outputs than the region"),
        (changed(), {"constants": {}}, "reads a weight 'w' that the unit does not have"),
        (changed(), {"constants": {"w": 8}}, "reads past the end of the weight 'w'"),
    ],
)
def test_a_broken_plan_is_refused(data: bytes, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        read(data, **facts)
    assert "the plan of region 'npu_0'" in caught.value.message
