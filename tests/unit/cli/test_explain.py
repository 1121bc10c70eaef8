# SPDX-License-Identifier: Apache-2.0
"""``intarsia explain``: one row for every node and accelerator, and gates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.explain import command
from intarsia.cli.verdicts import MOST
from intarsia.driver.configured import Configured
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.plugin import RelativePerformance, Role, Target, TargetKind, hookimpl
from intarsia_ir.graph.pattern import op
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_runtime.errors import GateFailed, UsageError


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A kind without options."""


def yes(_match: object) -> Support:
    return Support.yes()


class Npu:
    """Takes products and ReLU."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npu", Role.ACCELERATOR, NoOptions)]

    @hookimpl
    def performance(self, target: Target) -> RelativePerformance:
        return RelativePerformance()

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        return SupportTable([SupportRow(name, op(name), yes) for name in ("matmul", "nn.relu")])


class Loops:
    """A backend."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("loops", Role.BACKEND, NoOptions)]


class Session:
    """Stands in for the session of the command line, with plugins that are not installed."""

    def configured(self) -> Configured:
        return Configured()

    def host(self) -> Host:
        rows = (("npu", Npu(), Role.ACCELERATOR), ("loops", Loops(), Role.BACKEND))
        plugins = [
            LocalPlugin(
                Manifest(name, ">=2.0,<3", "", "", (KindRow(name, role, ""),), (), ()), hooks, name
            )
            for name, hooks, role in rows
        ]
        return Host(env={}, path=[], local=plugins)


@pytest.fixture
def model(tmp_path: Path) -> str:
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Relu", ["a"], ["b"], "rectify"),
        helper.make_node("Tanh", ["b"], ["c"], "squash"),
        helper.make_node("MatMul", ["c", "w"], ["d"], "product2"),
        helper.make_node("Add", ["d", "b"], ["y"], "residual"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--target", "npu, loops"], obj=Session())


def test_the_table_has_a_row_for_every_node_and_a_line_at_the_end(model):
    result = run(model, "--shape", "x:2,4")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["NODE", "OP", "ACCELERATOR", "VERDICT", "CODE", "DETAIL"]
    assert lines[1].split() == ["product", "matmul", "npu", "yes", "ok", "matmul"]
    assert "squash    tanh     npu          no       unsupported-op  no row for 'tanh'" in lines
    assert "npu_0   npu          2      32 B      32 B       1.01 us  1.01 us" in lines
    assert lines[-1] == "3/5 nodes offloaded (60 %), 2 regions, 128 B across borders"


def test_json_has_verdicts_and_regions(model):
    result = run(model, "--json")
    found = json.loads(result.output)
    assert found["schema"] == 1
    assert [row["verdict"] for row in found["verdicts"]] == ["yes", "yes", "no", "yes", "no"]
    assert set(found["verdicts"][0]) >= {"node", "accelerator", "verdict", "code", "detail"}
    assert [region["nodes"] for region in found["regions"]] == [
        ["product", "rectify"],
        ["product2"],
    ]


def test_nodes_may_be_named_by_patterns(model):
    result = run(model, "product*", "squash", "--json")
    assert [v["node"] for v in json.loads(result.output)["verdicts"]] == [
        "product",
        "squash",
        "product2",
    ]


def test_a_wrong_node_gets_the_nearest_name(model):
    result = run(model, "prodct")
    assert isinstance(result.exception, UsageError)
    assert "no node is called 'prodct'" in result.exception.message
    assert "'product'" in result.exception.hint


def test_rules_and_plans_are_obeyed(model):
    result = run(model, "rectify", "--place", "product!=npu", "--json")
    (row,) = json.loads(result.output)["verdicts"]
    assert row["code"] == "slower"
    result = run(model, "rectify", "--place", "product!=npu", "--plan", "greedy", "--json")
    (row,) = json.loads(result.output)["verdicts"]
    assert row["code"] == "ok"


def test_gates_fail_after_the_report_is_printed(model):
    result = run(model, "--require-offload", "90")
    assert isinstance(result.exception, GateFailed)
    assert "3/5 nodes offloaded" in result.output
    assert isinstance(run(model, "--max-regions", "1").exception, GateFailed)
    assert run(model, "--max-regions", "2", "--require-offload", "60").exit_code == 0


def test_merges_refused_are_explained(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"], "first"),
        helper.make_node("Tanh", ["a"], ["b"], "detour"),
        helper.make_node("MatMul", ["a", "b"], ["y"], "second"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    result = run(str(tmp_path / "m.onnx"))
    assert (
        "'first' and 'second' are in two regions of 'npu': "
        "merged, they would make a cycle through 'detour'" in result.output
    )


def test_images_are_written(model: str, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("p.html", "p.dot", "p.onnx")]
    options = [part for file in files for part in (f"--{FORMATS[file.suffix]}", str(file))]
    done = run(model, *options)
    assert done.exit_code == 0, done.output
    assert [f"wrote {file}" in done.stderr for file in files] == [True] * 3
    assert "product2" in files[0].read_text()
    assert files[1].read_text().startswith("digraph")
    placed = onnx.load(str(files[2]))
    onnx.checker.check_model(placed)
    (product,) = [node for node in placed.graph.node if node.name == "product"]
    properties = {entry.key: entry.value for entry in product.metadata_props}
    assert properties["intarsia.placed"] == "npu"
    assert properties["intarsia.verdict.npu"] == "yes"
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.stem == "p") == [
        ".dot",
        ".html",
        ".onnx",
    ]


def test_properties_that_are_there_are_replaced(model: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert run(model, "--netron", str(first)).exit_code == 0
    assert run(str(first), "--netron", str(second)).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


FORMATS = {".html": "html", ".dot": "dot", ".onnx": "netron"}


def test_quantized_operators_without_a_form_on_integers_are_named(tmp_path):
    scale = numpy_helper.from_array(np.float32(0.1), "s")
    zero = numpy_helper.from_array(np.uint8(3), "z")
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"], "real"),
        helper.make_node("LogSoftmax", ["a"], ["b"], "weigh"),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"], "stored"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, [2, 4])
    graph = helper.make_graph(nodes, "g", [x], [y], [scale, zero])
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "quantized.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    reason = "its logarithms are not kept in 8 bits"
    note = f"'nn.log_softmax' has no form on these integers ({reason}): computed in float32"
    assert f"weigh: {note}" in run(str(path)).output.splitlines()
    found = json.loads(run(str(path), "--json").output)
    assert found["notes"] == [{"node": "weigh", "note": note}]


def test_a_large_model_is_counted_until_nodes_are_named(tmp_path: Path) -> None:
    names = ["x", *(f"v{at}" for at in range(MOST)), "y"]
    nodes = [
        helper.make_node("Tanh" if at % 2 == 0 else "Relu", [names[at]], [names[at + 1]], f"n{at}")
        for at in range(MOST + 1)
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "deep", [x], [y])
    path = str(tmp_path / "deep.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    lines = run(path).output.splitlines()
    assert lines[1].split()[:5] == ["21", "tanh", "npu", "no", "unsupported-op"]
    assert lines[1].split()[-1] == "n0"
    assert "41 verdicts; name nodes to see them one by one" in lines[4]
    every = run(path, "*").output.splitlines()
    assert len([line for line in every if line.startswith("n") and "nodes" not in line]) == 41
