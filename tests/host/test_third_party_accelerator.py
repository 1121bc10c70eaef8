# SPDX-License-Identifier: Apache-2.0
"""A third party's accelerator from its wheel: compile, run, explain; and two bad ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.source_path import CORE

Run = Callable[..., subprocess.CompletedProcess[str]]
MODEL = Path(__file__).resolve().parents[1] / "e2e" / "models" / "digits" / "digits.onnx"


@pytest.fixture
def target(run_python: Run) -> str:
    """The accelerator in front of whatever backend for the CPU is installed."""
    kinds = json.loads(run_python("-m", "intarsia", "targets", "list", "--json").stdout)["targets"]
    names = [row["name"] for row in kinds if row["role"] == "backend"]
    if "llvm" not in names:
        pytest.skip("the llvm plugin is not installed in this environment")
    return "acme, llvm"


def test_its_regions_run_and_agree_with_the_reference(
    run_python: Run, target: str, tmp_path: Path
) -> None:
    artifact = str(tmp_path / "digits.intarsia")
    options = ("--target", target, "--plan", "greedy")
    run = run_python("-m", "intarsia", "compile", str(MODEL), *options, "-o", artifact)
    assert run.returncode == 0, run.stderr
    assert "nodes offloaded" in run.stdout + run.stderr
    assert "0 regions" not in run.stdout + run.stderr
    run = run_python("-m", "intarsia", "run", str(MODEL), *options, "--verify")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ok" in run.stdout + run.stderr
    code = (
        "import sys\n"
        "from intarsia_runtime.load import load\n"
        f"load({artifact!r})\n"
        "compiler = ('intarsia_acme.plugin', 'intarsia.host', 'pluggy')\n"
        "print([m for m in compiler if m in sys.modules])\n"
    )
    run = run_python("-c", code)
    assert run.stdout == "[]\n", run.stderr


def test_every_node_has_its_verdict(run_python: Run, target: str) -> None:
    run = run_python("-m", "intarsia", "explain", str(MODEL), "--target", target, "--json")
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["verdicts"]
    assert {row["accelerator"] for row in rows} == {"acme"}
    assert len({row["node"] for row in rows}) == len(rows)
    assert all(row["verdict"] == "yes" or (row["code"] and row["detail"]) for row in rows)


def test_a_broken_accelerator_stops_only_builds_that_name_it(
    run_python: Run, target: str, tmp_path: Path
) -> None:
    artifact = tmp_path / "digits.intarsia"
    run = run_python(
        *("-m", "intarsia", "compile", str(MODEL)),
        *("--target", target.replace("acme", "broken"), "-o", str(artifact)),
    )
    assert run.returncode == 5
    assert "plugin 'broken' (intarsia-broken 1.2.3)" in run.stderr
    assert not artifact.exists()


def test_a_greedy_accelerator_is_an_error_of_its_own(
    run_python: Run, target: str, tmp_path: Path
) -> None:
    run = run_python(
        *("-m", "intarsia", "compile", str(MODEL)),
        *("--target", target.replace("acme", "greedy"), "-o", str(tmp_path / "x.intarsia")),
    )
    assert run.returncode == 5
    assert "plugin 'greedy' (intarsia-greedy 6.6.6) gave no answer to rewrite_relay()" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_without_its_plugin_says_what_to_install(
    run_python: Run, target: str, tmp_path: Path
) -> None:
    artifact = str(tmp_path / "digits.intarsia")
    options = ("--target", target, "--plan", "greedy")
    run = run_python("-m", "intarsia", "compile", str(MODEL), *options, "-o", artifact)
    assert run.returncode == 0, run.stderr
    without = {"PYTHONPATH": CORE, "COLUMNS": "200"}
    run = run_python("-m", "intarsia", "run", artifact, **without)
    assert run.returncode == 7
    assert "needs intarsia-acme==0.3.0, which is not installed" in run.stderr
    assert "hint: pip install 'intarsia-acme==0.3.0'" in run.stderr
