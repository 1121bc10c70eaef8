# SPDX-License-Identifier: Apache-2.0
"""What claims of oneDNN cost, measured: once, and the same decision afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from intarsia.cli.main import main

TARGET = "dnnl -min-gain=0 -min-grain=0, llvm"


def model(folder: Path) -> Path:
    """A product, and one behind it."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.random((64, 64), np.float32), name) for name in ("w1", "w2")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "second"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 64]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "two", values[:1], values[1:], weights)
    path = folder / "two.onnx"
    opset = [helper.make_opsetid("", 21)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def test_claims_are_measured_once_and_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    path = model(tmp_path)
    command = ["explain", str(path), "--target", TARGET, "--measure", "--json"]
    reports = []
    for _ in range(2):
        assert main(command) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    costs = reports[0]["cost"]
    assert costs["sources"]["measured"] == 2
    assert costs["chosen"] <= min(costs["greedy"], costs["fallback"])
    rows = {row["node"]: row for row in reports[0]["verdicts"]}
    assert rows["first"]["cost"]["source"] == rows["second"]["cost"]["source"] == "measured"
    kept = (tmp_path / "cache" / "claims.jsonl").read_text().splitlines()
    found = {(row["target"][:4], row["what"].partition("(")[0]) for row in map(json.loads, kept)}
    assert found >= {("llvm", "an empty run"), ("llvm", "matmul"), ("dnnl", "matmul")}
    artifact = tmp_path / "two.intarsia"
    compiling = ["compile", str(path), "--target", TARGET, "--measure", "-o", str(artifact)]
    assert main(compiling) == 0
    assert (tmp_path / "cache" / "claims.jsonl").read_text().splitlines() == kept
    capsys.readouterr()
    assert main(["explain", str(path), "--target", TARGET]) == 0
    assert "measured" not in capsys.readouterr().out
