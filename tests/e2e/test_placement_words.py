# SPDX-License-Identifier: Apache-2.0
"""What users say of the placement, and what commands say back, on a real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intarsia.cli.main import main

DIGITS = str(Path(__file__).parent / "models" / "digits" / "digits.onnx")
TARGET = ("--target", "dnnl, llvm")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    return str(tmp_path / "model.intarsia")


def test_greedy_offloads_all_that_can_be(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", DIGITS, *TARGET, "--plan", "greedy", "-o", out]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("20/20 nodes offloaded (100 %)")
    assert said.err == ""


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
