# SPDX-License-Identifier: Apache-2.0
"""Programs with compiled pieces of open sizes, from the file to results, against ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from tests.unit.frontend.dynamic.test_open_plan import CASES, ML, F, body, drawn, hosted, looped, op

import intarsia
from intarsia.cli.main import main
from intarsia.driver import open_program
from intarsia.driver.artifact import Artifact
from intarsia.driver.request import BuildRequest
from intarsia_onnx.dynamic.program import PIECE
from intarsia_onnx.dynamic.program_json import PROGRAM_FILE
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.executors.vm import VmExecutor

pytest.importorskip("intarsia_llvm", reason="needs a backend whose kernels take sizes")


@pytest.mark.parametrize("name", CASES)
def test_compiled_pieces_agree_with_onnx_runtime(name: str) -> None:
    make, _, inputs = CASES[name]
    data = make().SerializeToString()
    names = [info.name for info in make().graph.input]
    session = ort.InferenceSession(data)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        if isinstance(executable, VmExecutor):  # others are compiled whole
            assert any(isinstance(piece, OpenExecutor) for piece in executable.pieces.values())
        for row in [*inputs, *inputs[::-1]]:  # sizes change, and come again
            wanted = session.run(None, dict(zip(names, row, strict=True)))
            found = list(executable.run(row).values())
            for mine, theirs in zip(found, wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_size_that_a_piece_rules_out_is_an_error() -> None:
    make, _, _ = CASES["a loop"]
    executable = intarsia.build(make().SerializeToString(), "llvm").load()
    with executable, pytest.raises(ModelError, match="must be float32"):
        executable.run([np.zeros((2, 5), np.float32), np.array(1)])


def test_a_node_of_which_no_code_can_be_made_becomes_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_program = open_program.compile_program
    failures = ["y (Exp)"]

    def failing(request: BuildRequest, program: object) -> Artifact:
        if failures:
            raise UnsupportedError("no code for it", where=failures.pop())
        return compile_program(request, program)  # type: ignore[arg-type]

    monkeypatch.setattr(open_program, "compile_program", failing)
    made = intarsia.build(hosted().SerializeToString(), "llvm")
    assert [(row.op, row.reason) for row in made.placement.host] == [
        ("LabelEncoder", "LabelEncoder runs on the host"),
        ("Exp", "no code for it"),
    ]
    with made.load() as executable:
        x = drawn(3, 4)
        wanted = ort.InferenceSession(hosted().SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_allclose(executable.run([x])["y"], wanted, rtol=1e-5)


def test_the_reason_of_a_step_is_why_it_is_not_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that it could not be written out while the model was read."""
    flat = op("Flatten", "s", "f", axis=0)
    data = looped(body(flat, op("Squeeze", "f", "t"), op("ReduceMax", "t", "r"), t=F, r=F))
    data = data.SerializeToString()
    reason = "'body': the rank of what Squeeze leaves of (1, 4*n) is only known at run time"
    made = intarsia.build(data, "llvm")
    assert made.placement.host[0].reason == reason
    (tmp_path / "m.onnx").write_bytes(data)
    assert main(["explain", str(tmp_path / "m.onnx"), "--target", "llvm"]) == 0
    assert f"'last' (Loop) runs on the host: {reason}" in capsys.readouterr().out


def test_a_failure_that_names_no_node_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(request: BuildRequest, program: object) -> Artifact:
        raise UnsupportedError("no code at all")

    monkeypatch.setattr(open_program, "compile_program", failing)
    with pytest.raises(UnsupportedError, match="nor can it be a program of pieces: no code"):
        intarsia.build(hosted().SerializeToString(), "llvm")


def test_a_piece_inside_a_loop_must_be_there() -> None:
    labels = {"domain": ML, "keys_floats": [0.0], "values_floats": [0.5]}
    nodes = [op("LabelEncoder", "s", "d", **labels), op("MatMul", "s w", "m"), op("Tanh", "m", "p")]
    partly = looped(body(*nodes, op("Add", "p m", "t"), op("ReduceMax", "d", "r"), t=1, r=1))
    made = intarsia.build(partly.SerializeToString(), "llvm")
    unit = made.units[0]
    program = json.loads(unit.files[PROGRAM_FILE])
    (loop,) = [step for step in program["steps"] if step.get("op") == "Loop"]
    nodes = loop["attrs"]["body"]["graph"]["nodes"]
    for node in nodes:
        if node["op"] == PIECE:
            node["attrs"]["name"] = "gone"
    files = {**unit.files, PROGRAM_FILE: json.dumps(program).encode()}
    from intarsia_onnx.dynamic import load
    from intarsia_runtime.loading import ProgramRequest

    with pytest.raises(ArtifactError, match="calls piece 'gone', which is not there"):
        load(ProgramRequest(files, {}))


def test_the_command_line_compiles_runs_and_verifies(tmp_path: Path) -> None:
    model, out, inputs = tmp_path / "m.onnx", tmp_path / "m.intarsia", tmp_path / "x.npz"
    model.write_bytes(hosted().SerializeToString())
    np.savez(inputs, x=drawn(7, 4))

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "intarsia", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    made = run("compile", model, "--target", "llvm", "-o", out)
    assert made.returncode == 0, made.stderr
    assert "1 node runs in NumPy on the host (LabelEncoder)" in made.stdout + made.stderr
    checked = run("run", out, "--model", model, "--inputs", inputs, "--verify", "--json")
    assert checked.returncode == 0, checked.stderr
    said = json.loads(checked.stdout)
    assert [row["name"] for row in said["regions"]] == ["piece0", "piece1"]
    assert all(row["ok"] for row in (*said["verify"], *said["regions"]))
    explained = json.loads(run("explain", model, "--target", "llvm", "--json").stdout)
    assert [row["op"] for row in explained["host"]] == ["LabelEncoder"]
