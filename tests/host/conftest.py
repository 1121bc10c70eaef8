# SPDX-License-Identifier: Apache-2.0
"""Fixture plugins as real wheels, installed into a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.source_path import CORE

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of every fixture plugin, by the name of its folder."""
    folder = tmp_path_factory.mktemp("wheels")
    built: dict[str, Path] = {}
    for project in sorted(path for path in PLUGINS.iterdir() if path.is_dir()):
        before = set(folder.iterdir())
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
        (built[project.name],) = set(folder.iterdir()) - before
    return built


@pytest.fixture(scope="session")
def site(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all fixture plugins installed by pip."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--target", str(folder)]
    command += [str(wheel) for wheel in wheels.values()]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def run_python(site: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python with the fixture plugins installed; returns output and exit code."""

    def run(*arguments: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(site), CORE, *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run
