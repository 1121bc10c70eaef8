# SPDX-License-Identifier: Apache-2.0
"""The type of hardware goes from a tag through text to the passport and to tuning records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intarsia.driver.artifact import Artifact
from intarsia.driver.build import build
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.plugin import FusedGroup, Role, Target, hookimpl
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.records import Record
from intarsia_ir.tir.space import Choice, Knob, ScheduleSpace, ScheduleSpaces, signature_of
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_loops.loops import default_loops
from intarsia_loops.tensors import stages_of
from intarsia_runtime.dtype import DType
from intarsia_tools.append import append_record

from .toy import Backend

TAGS = """schema = 1
[[hardware]]
name = "acme/soc"
kind = "soc"
summary = "a chip"
target = "toy"
keys = ["acme"]
source = "a test"
[[hardware]]
name = "acme/board"
kind = "board"
summary = "a board around it"
parents = ["acme/soc"]
source = "a test"
"""


def schedule(group: FusedGroup, target: Target, choice: Choice) -> PrimFunc:
    return default_loops(group.name, stages_of(group.function))


class Tunable(Backend):
    """A backend whose products can be tuned."""

    @hookimpl
    def schedule_spaces(self, target: Target) -> ScheduleSpaces:
        knobs = (Knob("rows", (0, 2, 4), "rows"),)
        return ScheduleSpaces("any machine", (ScheduleSpace("matmul", 1, knobs, schedule),))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "tags.toml").write_text(TAGS)
    rows = (KindRow("toy", Role.BACKEND, "words"),)
    manifest = Manifest("toy", ">=2.0,<3", "", "", rows, (), ("tags.toml",))
    plugin = LocalPlugin(manifest, Tunable(), "acme-toy", tmp_path)
    return Host(env={}, path=[str(tmp_path)], local=[plugin])


def module() -> IRModule:
    x = Var("x", TensorType((4, 5), DType.FLOAT32))
    weight = constant(np.ones((5, 3), np.float32), name="w")
    product = call(Matmul, x, weight, attrs=Matmul.Attrs())
    return IRModule.from_function(Function((x,), product, ("y",)))


def compiled(host: Host, target: object, records: Path) -> Artifact:
    return build(module(), target, host=host, records=records)  # type: ignore[arg-type]


def test_records_are_found_by_the_type_of_the_hardware(host: Host, tmp_path: Path) -> None:
    (group,) = [item.group for item in fuse(module().main).items if isinstance(item, KernelCall)]
    records = tmp_path / "records.jsonl"
    best = {"machine": "acme/soc", "operator": "matmul", "signature": signature_of(group)}
    append_record(records, Record(**best, space=1, threads=1, choice={"rows": 4}, state="best"))
    board = host.target("acme/board")
    assert board.fallback.keys == ("acme", "toy", "cpu")
    for target in ("acme/board", str(board), board.json_text(), board.to_json(), "toy/board"):
        passport = compiled(host, target, records).passport
        assert passport.target == "toy -hardware=acme/board"
        (kernel,) = passport.tuned["kernels"].values()  # type: ignore[attr-defined]
        assert kernel["choice"] == {"rows": 4}
    assert not compiled(host, "toy", records).passport.tuned
