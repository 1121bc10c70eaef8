# SPDX-License-Identifier: Apache-2.0
"""``intarsia diff``: which nodes moved between two builds, and the cause of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from intarsia_runtime.errors import ArtifactError, GateFailed, ModelError
from intarsia_tools.builds import Build, moved_nodes, read_build
from intarsia_tools.commands.diff import command

Report = Callable[..., str]


def build(
    placed: dict[str, str], target: str = "npu, loops", version: str = "1.0", model: str = "m"
) -> Build:
    return Build(target, model, {"acme-npu": version}, {"npu": "acme-npu"}, placed, "summary")


def causes(old: Build, new: Build) -> dict[str, tuple[str, ...]]:
    return {row.node: row.causes for row in moved_nodes(old, new)}


def test_equal_builds_have_no_difference() -> None:
    assert moved_nodes(build({"a": "npu"}), build({"a": "npu"}, version="2.0")) == []


def test_a_new_version_is_the_cause() -> None:
    found = causes(build({"a": "npu", "b": "npu"}), build({"a": "npu"}, version="2.0"))
    assert found == {"b": ("acme-npu 1.0 became 2.0",)}


def test_an_option_is_the_cause() -> None:
    found = causes(build({}), build({"a": "npu"}, target="npu -level=2, loops"))
    assert found == {"a": ("options: npu became npu -level=2",)}


def test_an_accelerator_that_went_is_the_cause() -> None:
    found = causes(build({"a": "npu"}), build({}, target="loops"))
    assert found == {"a": ("'npu' is no longer in the target",)}


def test_the_order_is_the_cause() -> None:
    old = build({"a": "npu"}, target="npu, gpu, loops")
    new = build({"a": "gpu"}, target="gpu, npu, loops")
    assert causes(old, new) == {"a": ("the order of the accelerators",)}


def test_the_model_is_the_cause() -> None:
    assert causes(build({"a": "npu"}), build({}, model="other")) == {"a": ("the model",)}


def test_what_is_left_are_settings() -> None:
    ((cause,),) = causes(build({"a": "npu"}), build({})).values()
    assert "--place" in cause


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Write what ``explain --json`` prints, for nodes a and b."""

    def write(name: str, version: str, second: str, detail: str) -> str:
        rows = [
            {"node": node, "op": "nn.relu", "accelerator": "npu", "verdict": verdict,
             "code": "ok" if verdict == "yes" else "unsupported-shape", "detail": words}
            for node, verdict, words in (("a", "yes", "relu"), ("b", second, detail))
        ]  # fmt: skip
        taken = [row["node"] for row in rows if row["verdict"] == "yes"]
        value = {
            "schema": 1, "target": "npu, loops", "plugins": {"npu": "acme-npu"},
            "versions": {"acme-npu": version}, "summary": f"{len(taken)}/2", "nodes": 2,
            "regions": [{"name": "npu_0", "accelerator": "npu", "nodes": taken}],
            "verdicts": rows,
        }  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps(value))
        return str(path)

    return write


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_reports_say_what_the_accelerator_said(report: Report) -> None:
    old = report("old.json", "1.0", "yes", "relu")
    new = report("new.json", "2.0", "no", "rank 5")
    run = invoke(old, new, "--json")
    assert run.exit_code == 0, run.output
    value = json.loads(run.output)
    assert value["schema"] == 1
    assert value["nodes"] == [
        {
            "node": "b",
            "before": "npu",
            "after": "",
            "causes": [
                "acme-npu 1.0 became 2.0",
                "'npu' said yes, says unsupported-shape: rank 5",
            ],
        }
    ]
    assert [row["what"] for row in value["changes"]] == ["acme-npu", "placement"]
    text = invoke(old, new).output
    assert "acme-npu:\n  - 1.0\n  + 2.0\n" in text
    assert "b     npu     (fallback)  acme-npu 1.0 became 2.0" in text
    assert text.endswith("1 nodes moved\n")


def test_a_gate_fails_when_a_node_moved(report: Report) -> None:
    old, new = report("old.json", "1.0", "yes", "relu"), report("new.json", "1.0", "no", "x")
    assert invoke(old, old, "--check").exit_code == 0
    assert invoke(old, old).output == "no node moved\n"
    assert isinstance(invoke(old, new, "--check").exception, GateFailed)


@pytest.mark.parametrize("text", ["{", "{}", '{"verdicts": 3}', '{"verdicts": [{}]}'])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ModelError, match="not a report of a placement"):
        read_build(path)


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    with pytest.raises(ArtifactError):
        read_build(path)
