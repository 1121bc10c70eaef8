# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: hook pages match the specifications, the tutorial runs."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import intarsia.host.hookspecs as hookspecs

from .source_tree import ROOT

DOCS = ROOT / "docs"
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"


def hooks() -> dict[str, str]:
    """Name of each hook and its heading."""
    found: dict[str, str] = {}
    for name, value in vars(hookspecs).items():
        if inspect.isfunction(value) and value.__module__ == hookspecs.__name__:
            found[name] = f"## `{name}({', '.join(inspect.signature(value).parameters)})`"
    return found


def test_every_hook_has_its_heading_and_no_heading_is_stale() -> None:
    text = (DOCS / "hooks.md").read_text()
    headings = set(re.findall(r"^## `.*`$", text, re.MULTILINE))
    assert headings == set(hooks().values())


def test_the_tutorial_runs(tmp_path: Path) -> None:
    text = (DOCS / "write-a-backend.md").read_text()
    for name, content in re.findall(r"\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)```", text, re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "digits.onnx").write_bytes(DIGITS.read_bytes())
    site = tmp_path / "site"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path[1:]])}
    outputs: list[str] = []
    for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
        words = shlex.split(line)
        if words[0] == "pip":
            words += ["--no-deps", "--no-build-isolation", "-q", "--target", str(site)]
        run = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"
        outputs.append(run.stdout + run.stderr)
    shown, explained, compiled = outputs[1:4]
    assert "additions and ReLUs in NumPy" in shown
    assert "unsupported-op" in explained
    assert "nodes offloaded" in compiled


def test_pages_link_to_files_that_exist() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text()):
            assert (DOCS / target).exists(), f"{page.name} links to {target}"


def test_readme_commands_exist() -> None:
    sessions = re.findall(r"python3 noxfile\.py (\w+)", (ROOT / "README.md").read_text())
    assert {"demo", "tests"} <= set(sessions)
    source = (ROOT / "noxfile.py").read_text()
    assert [s for s in sessions if f"def {s}(" not in source] == []
