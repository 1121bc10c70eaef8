# SPDX-License-Identifier: Apache-2.0
"""What users say of the placement, and what commands say back, on a real model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.main import main

DIGITS = str(Path(__file__).parent / "models" / "digits" / "digits.onnx")
TARGET = ("--target", "dnnl, llvm")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    return str(tmp_path / "model.intarsia")


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A model of which one node runs on the host: Conv, Relu, NonZero."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("NonZero", ["r"], ["y"], "found"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [4, "n"])
    w = numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")
    graph = helper.make_graph(nodes, "program", [x], [y], [w])
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "program.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


@pytest.mark.parametrize("target", ["llvm", "dnnl, llvm"])
@pytest.mark.parametrize(
    ("rule", "code", "message"),
    [
        ("cnv=llvm", 2, "did you mean 'conv'?"),
        ("relu#2!=llvm", 2, "names no node of the model"),
    ],
)
def test_what_cannot_be_placed_in_a_program_is_an_error(
    target: str,
    rule: str,
    code: int,
    message: str,
    program: str,
    out: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (["compile", program, "-o", out], ["explain", program]):
        assert main([*command, "--target", target, "--place", rule]) == code
        assert message in capsys.readouterr().err
    assert not Path(out).exists()


def test_rules_of_a_program_without_accelerators_hold(program: str, out: str) -> None:
    place = ("--place", "conv=llvm", "--place", "found=llvm")
    assert main(["compile", program, "--target", "llvm", *place, "-o", out]) == 0


def test_an_alias_names_the_accelerator_it_stands_for(
    out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", DIGITS, *TARGET, "--place", "node_Conv_95=onednn", "-o", out]) == 0
    assert capsys.readouterr().out.startswith("1/20 nodes offloaded (5 %)")
    assert main(["compile", DIGITS, *TARGET, "--place", "node_Conv_95=acl", "-o", out]) == 2
    assert "names 'acl', which is not in the target" in capsys.readouterr().err


def test_greedy_offloads_all_that_can_be(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", DIGITS, *TARGET, "--plan", "greedy", "-o", out]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("20/20 nodes offloaded (100 %)")
    assert all("-special=exact keeps it" in line for line in said.err.splitlines())


def test_who_gets_nothing_is_said_with_the_reason(
    out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "note: 'dnnl' is not used: 20 of 20 nodes are faster on llvm (--plan greedy gives it 20)"
    for _ in ("built", "kept"):
        assert main(["compile", DIGITS, *TARGET, "-o", out]) == 0
        said = capsys.readouterr()
        text = "0/20 nodes offloaded: 20 faster on llvm (--plan greedy gives 20 to dnnl)"
        assert said.out.startswith(text)
        assert said.err.splitlines() == [note]
    assert main(["run", out, "--verify", "--model", DIGITS]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == note
    assert "--verify compared nothing of an accelerator" in lines[1]
    assert main(["bench", DIGITS, *TARGET, "--rounds", "1"]) == 0
    assert f"note: digits, dnnl, llvm: {note[6:]}" in capsys.readouterr().err
    target = ("--target", "ethos-u, llvm")
    assert main(["compile", DIGITS, *target, "-o", out]) == 0
    assert "'ethos-u' is not used: most often it says unsupported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "code", "message"),
    [
        ("nod_softmax=dnnl", 2, "did you mean 'node_softmax'?"),
        ("node_softmax=dnl", 2, "did you mean 'dnnl'?"),
        ("node_softmax=ethos-u", 4, "'node_softmax' cannot go to 'ethos-u'"),
    ],
)
def test_what_cannot_be_placed_is_an_error(
    rule: str, code: int, message: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ("--target", "ethos-u, dnnl, llvm")
    for command in (["compile", DIGITS, *target, "-o", out], ["explain", DIGITS, *target]):
        assert main([*command, "--place", rule]) == code
        assert message in capsys.readouterr().err
    assert not Path(out).exists()


def test_a_node_goes_where_the_user_sends_it(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--place", "node_Conv_9*=dnnl", "--place", "node_softmax=llvm")
    assert main(["run", DIGITS, *TARGET, *place, "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {node for row in found["regions"] for node in row["nodes"]} == {
        "node_Conv_95",
        "node_Conv_97",
        "node_Conv_99",
    }
    assert all(row["ok"] for row in found["regions"])
