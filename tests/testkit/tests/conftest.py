# SPDX-License-Identifier: Apache-2.0
"""A generated plugin, installed from its wheel, on which the kit is tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intarsia.scaffold.scaffold import new_plugin

Check = Callable[..., dict[str, Any]]


def installed(project: Path, folder: Path) -> Path:
    """Build a project as a wheel and install it into a folder."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(wheel, cwd=project, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    site = folder / "site"
    options = ["--no-deps", "--no-index", "--target", str(site), str(built)]
    subprocess.run([*pip, "install", *options], check=True, capture_output=True)
    return site


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder on ``sys.path`` with the generated accelerator ``sample``."""
    folder = tmp_path_factory.mktemp("sample")
    return installed(new_plugin("sample", "accelerator", folder), folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder on ``sys.path`` with the generated backend ``tiny``."""
    folder = tmp_path_factory.mktemp("tiny")
    return installed(new_plugin("tiny", "backend", folder), folder)


def environment(site: Path | None) -> dict[str, str]:
    """The environment of a child that has ``site`` installed."""
    path = [str(site)] if site else []
    path += [entry for entry in sys.path if entry]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run_kit(tmp_path: Path) -> Check:
    """Run the kit on a plugin; returns its result."""

    def run(plugin: str, *options: str, site: Path | None = None) -> dict[str, Any]:
        result = tmp_path / "result.json"
        command = [sys.executable, "-m", "pytest", "--pyargs", "intarsia_testkit", "-q"]
        command += ["-c", os.devnull, f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
        command += [f"--intarsia-plugin={plugin}", f"--intarsia-json={result}", *options]
        run = subprocess.run(
            command, cwd=tmp_path, env=environment(site), capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert result.exists(), run.stdout + run.stderr
        return json.loads(result.read_text(encoding="utf-8"))

    return run
