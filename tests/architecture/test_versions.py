# SPDX-License-Identifier: Apache-2.0
"""Distributions are released together: one version, and bounds that follow from it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from . import versions
from .source_tree import ROOT


def test_there_is_one_version() -> None:
    assert len(set(versions.versions().values())) == 1, versions.versions()


@pytest.mark.parametrize("path", versions.projects(), ids=lambda path: path.parent.name)
def test_distributions_bound_each_other_by_it(path: Path) -> None:
    known = versions.versions()
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    for text in project["dependencies"]:
        need = Requirement(text)
        if need.name in known:
            assert need.specifier == SpecifierSet(versions.bounds_of(known[need.name])), text


def test_a_new_version_is_written_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in versions.projects():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        shutil.copy(path, copy)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    versions.set_version("0.7.1")
    assert set(versions.versions().values()) == {"0.7.1"}
    host = (tmp_path / "core" / "host" / "pyproject.toml").read_text(encoding="utf-8")
    assert '"intarsia-ir>=0.7.1,<0.8"' in host
    with pytest.raises(SystemExit, match="'7' is no version of three numbers"):
        versions.set_version("7")


def test_hooks_before_a_commit_run_the_linter_of_the_project() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (linter,) = groups["dependency-groups"]["lint"]
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert text.count(f"[{linter}]") == text.count("additional_dependencies")
