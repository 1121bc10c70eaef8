# SPDX-License-Identifier: Apache-2.0
"""``run --verify`` on regions and on programs: what differs is named."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.driver.build import request_build
from intarsia.driver.dynamic import import_any, is_open
from intarsia.driver.model_partition import ModelPartition, partition_model, prepare_module
from intarsia.driver.source import ModuleSource
from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia_ir.graph.expr import call
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.rules import PlaceRule, parse_place_rule
from intarsia_runtime.errors import GateFailed, ModelError, UsageError
from intarsia_runtime.executors.vm import VmExecutor
from intarsia_tools.verify import (
    OutputCheck,
    RegionCheck,
    built_regions,
    require_agreement,
    verify_outputs,
    verify_regions,
)

pytest.importorskip("intarsia_llvm", reason="needs a backend that generates code")
pytest.importorskip("intarsia_dnnl", reason="needs an accelerator")

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def ranking(rows: int | str = 4, *, two: bool = True) -> bytes:
    """``relu(x @ w)``; with ``two``, its largest values and ``tanh(values @ v)`` after that."""
    info = helper.make_tensor_value_info
    generator = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Unique", ["r"], ["t"], "best", sorted=1),
        helper.make_node("TopK", ["t", "k"], ["s", "i"], "take"),
        helper.make_node("Reshape", ["s", "shape"], ["q"], "square"),
        helper.make_node("MatMul", ["q", "v"], ["n"], "second"),
        helper.make_node("Tanh", ["n"], ["y"], "tanh"),
    ]
    weights = {
        "w": generator.standard_normal((64, 32)).astype(np.float32),
        "v": generator.standard_normal((4, 32)).astype(np.float32),
        "k": np.array([16]),
        "shape": np.array([4, 4]),
    }
    chosen = nodes if two else nodes[:2]
    graph = helper.make_graph(
        chosen,
        "g",
        [info("x", F, [rows, 64])],
        [info("y" if two else "r", F, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


def checked(data: bytes, *, wrong: str = "") -> tuple[RegionCheck, ...]:
    """Build, run and compare region by region; the reference of a piece may be made wrong."""
    host = Host()
    target = read_target(host, "dnnl, llvm", None)
    with collecting_guards():  # pieces have open sizes
        imported = import_any(ModuleSource(data), None, None, None)
        modules = {"main": imported} if isinstance(imported, IRModule) else imported.pieces
        prepared = {name: prepare_module(host, m, target).module for name, m in modules.items()}
    artifact = intarsia.build(data, "dnnl, llvm", plan=Plan.GREEDY)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    with artifact.load(executor="graph", threads=1) as executable:
        regions = built_regions(executable, prepared)
        assert regions is not None
        if wrong:
            name, first = next(iter(regions[wrong].items()))
            body = call(OPERATORS["negative"], first.function.body)
            function = dataclasses.replace(first.function, body=body)
            regions[wrong][name] = dataclasses.replace(first, function=function)
        return verify_regions(executable, prepared, regions, {"x": x})


def test_a_region_is_compared_on_what_it_was_given() -> None:
    (row,) = checked(ranking(two=False))
    assert (row.name, row.ok, row.nodes) == ("dnnl_0", True, ("first", "relu"))
    (row,) = checked(ranking(two=False), wrong="main")
    assert not row.ok


def test_pieces_and_their_regions_are_compared() -> None:
    rows = checked(ranking())
    assert [row.name for row in rows][:2] == ["piece0.dnnl_0", "piece0"]
    assert all(row.ok for row in rows)
    assert len(rows) == 4
    rows = checked(ranking(), wrong="piece1")
    assert [row.name for row in rows if not row.ok] == ["piece1.dnnl_0"]


def test_outputs_of_a_program_have_a_reference() -> None:
    imported = import_any(ModuleSource(ranking()), None, None, None)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    with intarsia.build(ranking(), "llvm").load(threads=1) as executable:
        results = {name: np.asarray(value) for name, value in executable.run({"x": x}).items()}
        (check,) = verify_outputs(imported, {"x": x}, results)
        assert check.ok
        (check,) = verify_outputs(imported, {"x": x}, {"y": results["y"] + 1})
        assert not check.ok
    with pytest.raises(ModelError, match="the model has 1 outputs, 2 were computed"):
        verify_outputs(imported, {"x": x}, {"y": x, "z": x})


def test_the_first_region_that_differs_is_named() -> None:
    wrong, right = OutputCheck("y", False, 2.0), OutputCheck("z", True, 0.0)
    regions = (
        RegionCheck("dnnl_0", ("a",), True, 0.0),
        RegionCheck("dnnl_1", ("b", "c"), False, 0.5),
        RegionCheck("dnnl_2", ("d",), False, float("inf")),
    )
    with pytest.raises(GateFailed, match=r"'dnnl_1' is the first to differ .* by 0.5; 1 of 2"):
        require_agreement((wrong, right), regions)
    with pytest.raises(GateFailed, match="1 of 2 outputs differ from the reference: 'y'") as caught:
        require_agreement((wrong, right), regions[:1])
    assert caught.value.hint.startswith("no region differs, so the fallback does")
    assert regions[2].to_json()["max_error"] == "inf"
    require_agreement((right,), regions[:1])


def test_a_program_is_profiled_step_by_step(tmp_path: Path) -> None:
    path = intarsia.build(ranking(), "llvm").save(tmp_path / "m.intarsia")
    x = np.zeros((4, 64), np.float32)
    x[0, :20] = np.arange(20)
    with intarsia.load(path, executor="graph", threads=1) as executable:
        assert isinstance(executable, VmExecutor)
        rows = executable.profile({"x": x}, repeat=2)
        assert [row.label for row in rows] == ["piece0", "Unique", "piece1"]
        assert rows[1].nodes == ("best",)
        assert sum(row.share for row in rows) == pytest.approx(1)
        with pytest.raises(UsageError, match="median of 0 runs"):
            executable.profile({"x": x}, repeat=0)


def test_the_command_line(tmp_path: Path) -> None:
    model, out = tmp_path / "m.onnx", tmp_path / "m.intarsia"
    model.write_bytes(ranking())

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "intarsia", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    greedy = ("--target", "dnnl, llvm", "--plan", "greedy")
    ran = run("run", model, *greedy, "--verify", "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert [row["name"] for row in said["regions"]][-1] == "piece1"
    assert [row["ok"] for row in said["verify"]] == [True]
    explained = run("explain", model, *greedy, "--json")
    rows = json.loads(explained.stdout)
    assert [row["op"] for row in rows["host"]] == ["Unique"]
    assert {row["name"] for row in rows["regions"]} == {"piece0.dnnl_0", "piece1.dnnl_0"}
    assert ("take", "no") in {(row["node"], row["verdict"]) for row in rows["verdicts"]}
    drawn = run("explain", model, *greedy, "--dot", tmp_path / "m.dot")
    assert (drawn.returncode, "runs as a program" in drawn.stderr) == (4, True)
    rule = ("--place", "second!=dnnl", "-o", out)
    assert run("compile", model, *greedy, *rule).returncode == 0
    inspected = run("inspect", out)
    assert "input   x     float32  4x64" in inspected.stdout
    assert "piece0.dnnl_0" in inspected.stdout
    verified = run("run", out, "--model", model, "--verify", "--json")
    assert verified.returncode == 0, verified.stderr
    names = [row["name"] for row in json.loads(verified.stdout)["regions"]]
    assert "piece0.dnnl_0" in names  # the regions of the artifact, whatever would be cut now
    other = tmp_path / "other.onnx"
    other.write_bytes(model.read_bytes().replace(b"relu", b"ulre"))
    differently = run("run", out, "--model", other, "--verify")
    assert differently.returncode == 0, differently.stderr
    assert "cut in another way" in differently.stderr


def test_rules_and_gates_hold_for_a_program_as_a_whole() -> None:
    def placed_by(rules: list[PlaceRule]) -> ModelPartition:
        chosen = {"plan": Plan.GREEDY, "rules": rules}
        return partition_model(request_build(ranking(), "dnnl, llvm", **chosen))

    rules = [parse_place_rule(f"{name}!=dnnl") for name in ("square", "second", "tanh")]
    placed = placed_by(rules)
    assert [row.name for row in placed.placement.regions] == ["piece0.dnnl_0"]
    built = intarsia.build(ranking(), "dnnl, llvm", plan=Plan.GREEDY, rules=rules, max_regions=1)
    assert str(built.placement) == str(placed.placement)
    with pytest.raises(GateFailed, match="2 regions, at most 1 allowed"):
        intarsia.build(ranking(), "dnnl, llvm", plan=Plan.GREEDY, max_regions=1)
    wrong = [parse_place_rule("secnd!=dnnl")]
    for attempt in (
        lambda: placed_by(wrong),
        lambda: intarsia.build(ranking(), "dnnl, llvm", plan=Plan.GREEDY, rules=wrong),
    ):
        with pytest.raises(UsageError, match="names no node") as caught:
            attempt()
        assert "second" in caught.value.hint


def test_open_sizes_are_explained_if_the_executor_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ranking("N"))
    assert is_open(import_any(ModuleSource(path), None, None, None))
    placed = partition_model(request_build(path, "dnnl, llvm", executor="vm"))
    assert {row.verdict for row in placed.placement.verdicts if row.node == "first"} == {"no"}
