# SPDX-License-Identifier: Apache-2.0
"""Facts of installed distributions, found without importlib.metadata."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from intarsia_runtime.installed import entry_point, installed_version, read_fact

POINTS = """
[console_scripts]
toy = toy.main:run

[intarsia.loaders]
other = toy.other:load
toy= toy.loader:load
"""


def test_a_file_of_exactly_that_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("new", "2.0"), ("old", "1.0")):
        facts = tmp_path / folder / f"my_toy_kit-{version}.dist-info"
        facts.mkdir(parents=True)
        (facts / "entry_points.txt").write_text(POINTS)
    monkeypatch.setattr(sys, "path", ["", *(str(tmp_path / name) for name in ("new", "old"))])
    assert read_fact("My-Toy.kit", "1.0", "entry_points.txt") == (tmp_path / "old", POINTS)
    assert read_fact("my-toy-kit", "3.0", "entry_points.txt") is None
    assert read_fact("my-toy-kit", "1.0", "RECORD") is None


def test_the_version_of_the_first_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/my_toy-2.0.dist-info", "b/my_toy-1.0.dist-info", "b/ruamel.toy-0.1.dist-info"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "METADATA").write_text("Name: ruamel.toy\nVersion: 0.1\n")
    (tmp_path / "a" / "my_toy").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in ("absent", "a", "b")])
    assert installed_version("My.Toy") == "2.0"
    assert installed_version("ruamel.toy") == "0.1"  # an older builder keeps the dot
    assert installed_version("my") is None


def test_an_entry_point_of_its_group() -> None:
    assert entry_point(POINTS, "intarsia.loaders", "toy") == "toy.loader:load"
    assert entry_point(POINTS, "intarsia.loaders", "absent") == ""
    assert entry_point(POINTS, "absent", "toy") == ""


def test_opening_a_model_leaves_out_what_only_messages_need() -> None:
    slow = {"importlib.metadata", "difflib", "statistics", "tempfile", "subprocess"}
    code = (
        "import numpy, sys; before = set(sys.modules)\n"
        f"import intarsia_runtime.load; print({slow} & (set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
