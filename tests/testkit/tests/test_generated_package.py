# SPDX-License-Identifier: Apache-2.0
"""Generated packages, built as wheels and installed, pass their own tests as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow


def python(sample: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(sample), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_its_own_tests_pass(sample: Path) -> None:
    project = sample.parent / "intarsia-sample"
    run = python(sample, project, "pytest", "-q", "-p", "no:cacheprovider", "--intarsia-tier=2")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_tests_of_a_backend_pass(tiny: Path) -> None:
    project = tiny.parent / "intarsia-tiny"
    options = ("--intarsia-tier=2", "--intarsia-target=tiny -opt-level=0")  # cc takes most time
    run = python(tiny, project, "pytest", "-q", "-p", "no:cacheprovider", *options)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_command_gives_json_a_badge_and_exit_codes(sample: Path, tmp_path: Path) -> None:
    badge = tmp_path / "badge.svg"
    options = ("--tier", "1", "--json", "--badge", str(badge))
    run = python(sample, tmp_path, "intarsia", "plugins", "check", "sample", *options)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout)
    assert result["schema"] == 1
    assert result["tiers"] == {"1": "passed", "2": "not run", "3": "not run"}
    assert "tier 1" in "".join(ElementTree.fromstring(badge.read_text()).itertext())
    assert [p.name for p in tmp_path.iterdir()] == ["badge.svg"]
    exempt = ("--tier", "1", "--exempt", "contract_manifest_is_read=")
    run = python(sample, tmp_path, "intarsia", "plugins", "check", "sample", *exempt)
    assert run.returncode == 2
    assert "CHECK=REASON" in run.stderr
