# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: hook pages match the specifications, the tutorial runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import intarsia.host.hookspecs as hookspecs

from .doc_examples import execute
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
    """What its commands print is what the page shows: the accelerator gets nodes."""
    (tmp_path / "digits.onnx").write_bytes(DIGITS.read_bytes())
    ran = execute(DOCS / "write-a-backend.md", tmp_path)
    assert sum(line.startswith("intarsia ") for line in ran) == 5


def test_a_page_that_offloads_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(DIGITS.read_bytes())
    page = tmp_path / "page.md"
    command = 'intarsia compile model.onnx --target "ethos-u, llvm" -o m.intarsia'
    page.write_text(f"```console\n$ {command}\n...\n```\n")
    with pytest.raises(AssertionError, match="offloads nothing"):
        execute(page, tmp_path)


def test_pages_link_to_files_that_exist() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text()):
            assert (DOCS / target).exists(), f"{page.name} links to {target}"


def test_readme_commands_exist() -> None:
    sessions = re.findall(r"python3 noxfile\.py (\w+)", (ROOT / "README.md").read_text())
    assert {"demo", "tests"} <= set(sessions)
    source = (ROOT / "noxfile.py").read_text()
    assert [s for s in sessions if f"def {s}(" not in source] == []
