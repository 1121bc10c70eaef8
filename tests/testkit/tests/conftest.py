# SPDX-License-Identifier: Apache-2.0
"""A generated plugin, installed from its wheel, on which the kit is tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intarsia_tools.scaffold.scaffold import new_plugin

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


@pytest.fixture(scope="session")
def kit_server() -> Iterator[subprocess.Popen[str]]:
    """The process that runs the kit in forks of itself: of fifty runs, each has a second less."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("kit_server.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment(None), stdin=pipe, stdout=pipe, text=True
    ) as server:
        yield server


@pytest.fixture
def run_kit(tmp_path: Path, kit_server: subprocess.Popen[str]) -> Check:
    """Run the kit on a plugin, in a process of its own; returns its result."""

    def run(plugin: str, *options: str, site: Path | None = None) -> dict[str, Any]:
        result, output = tmp_path / "result.json", tmp_path / "output.txt"
        arguments = ["--pyargs", "intarsia_testkit", "-q", "-p", "no:cacheprovider"]
        arguments += ["-c", os.devnull, f"--rootdir={tmp_path}"]
        arguments += [f"--intarsia-plugin={plugin}", f"--intarsia-json={result}", *options]
        job = {
            "arguments": arguments,
            "folder": str(tmp_path),
            "environment": environment(site),
            "path": [str(site)] if site else [],
            "output": str(output),
            "seconds": 300,
        }
        assert kit_server.stdin is not None
        assert kit_server.stdout is not None
        print(json.dumps(job), file=kit_server.stdin, flush=True)
        code = kit_server.stdout.readline().strip()
        assert result.exists(), f"exit code {code}: {output.read_text(encoding='utf-8')}"
        return json.loads(result.read_text(encoding="utf-8"))

    return run
