# SPDX-License-Identifier: Apache-2.0
"""Schedule spaces of this backend: every choice computes the same; builds use what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.main import main
from intarsia.driver.build import build
from intarsia.host.host import Host
from intarsia_ir.tir.records import Record, read_records
from intarsia_runtime.errors import UnsupportedError, UsageError
from intarsia_tools.append import append_record
from intarsia_tools.tune_tasks import Measurer, Tasks, tasks_of

SMALL = "llvm -mcpu=x86-64-v3"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions of kernel 3, one a depthwise one, one of kernel 1, and a product."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int):
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    weights = [
        weight("w0", 24, 8, 3, 3), weight("w1", 24, 1, 3, 3), weight("w2", 40, 24, 1, 1),
        weight("w3", 40 * 81, 20),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1, 1, 1, 1], group=24),
        helper.make_node("Conv", ["b", "w2"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "w3"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 9, 9])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 20])
    graph = helper.make_graph(nodes, "net", [given], [result], weights)
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def tasks(model: Path) -> Tasks:
    host = Host()
    return tasks_of(host, host.target(SMALL), model, {})


def test_the_kernels_of_a_model_that_can_be_tuned(tasks: Tasks) -> None:
    operators = sorted(task.space.operator for task in tasks.tasks.values())
    assert operators == ["cpu.conv", "cpu.conv", "cpu.dense", "cpu.depthwise"]
    assert tasks.machine == "x86_64/x86-64-v3/256"
    assert tasks.weight_bytes >= 4 * 40 * 81 * 20
    assert all(task.weights for task in tasks.tasks.values())


def test_every_value_of_every_knob_computes_the_same(tasks: Tasks) -> None:
    measurer = Measurer(tasks, 1)
    for signature, task in tasks.tasks.items():
        for knob in task.space.knobs:
            for value in knob.values[1::2]:
                found = measurer.measure(signature, {knob.name: value}, 1)
                assert not found.wrong, (signature, knob.name, value)
                assert found.ratio > 0


def test_a_choice_that_is_none_is_refused(tasks: Tasks) -> None:
    signature = next(iter(tasks.tasks))
    with pytest.raises(UnsupportedError, match="refuses"):
        Measurer(tasks, 1).measure(signature, {"rows": 999}, 1)


def best(tasks: Tasks, **changes: object) -> list[Record]:
    return [
        Record(
            **{
                "machine": tasks.machine, "operator": task.space.operator, "space": 1,
                "signature": task.signature, "threads": 1, "state": "best",
                "choice": {"rows": 4} if task.space.operator != "cpu.depthwise" else {},
                **changes,
            }  # type: ignore[arg-type]
        )
        for task in tasks.tasks.values()
    ]  # fmt: skip


def test_a_build_uses_records_and_its_passport_says_so(
    model: Path, tasks: Tasks, tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    for row in best(tasks):
        append_record(records, row)
    plain = build(model, SMALL, records="none")
    tuned = build(model, SMALL, records=records)
    assert plain.passport.tuned == {}
    assert "tuned" not in plain.passport.to_json()
    assert tuned.passport.tuned["machine"] == tasks.machine
    kernels = tuned.passport.tuned["kernels"]
    assert [kernel["choice"] for kernel in kernels.values()] == [{"rows": 4}] * 3  # type: ignore[attr-defined]
    assert tuned.units[0].files != plain.units[0].files
    x = {"x": np.random.default_rng(1).standard_normal((1, 8, 9, 9)).astype(np.float32)}
    expected, found = plain.load().run(x), tuned.load().run(x)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "change",
    [{"machine": "x86_64/znver2/256"}, {"space": 2}, {"choice": {"gone": 1}}, {"state": "ok"}],
)
def test_records_of_something_else_are_not_used(
    model: Path, tasks: Tasks, tmp_path: Path, change: dict
) -> None:
    records = tmp_path / "records.jsonl"
    for row in best(tasks, **change):
        append_record(records, row)
    assert build(model, SMALL, records=records).passport.tuned == {}


def test_a_file_of_records_that_is_not_there_is_an_error(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file of records"):
        build(model, SMALL, records=tmp_path / "absent")


def test_the_command_searches_says_what_it_found_and_goes_on_later(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna", reason="the search is Optuna's")
    records = tmp_path / "records.jsonl"
    words = ["tune", str(model), "--target", "llvm", "--records", str(records), "--trials", "2"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["kernels"]) == 4
    assert said["records"] == str(records)
    assert all(row["trials"] <= 2 for row in said["kernels"])
    before = len(read_records(records).rows)
    assert main(words) == 0
    assert "KERNEL" in capsys.readouterr().out
    assert len(read_records(records).rows) == before
    assert main(["tune", str(model), "--target", "llvm", "--records", "none"]) == 2
    assert "--records FILE" in capsys.readouterr().err
