# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance kit on a plugin of this repository, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MINUTES = 10
CASES = 6
"""Cases of each operator in the sample."""


def exempt(plugin: str) -> dict[str, str]:
    """The checks that cannot apply to a plugin on this machine, each with its reason."""
    if plugin == "ethos-n" and not os.environ.get("ETHOSN_ROOT"):
        reason = "the vendor's compiler, which the options are for, is not on this machine"
        return {"contract_options_take_effect": reason}
    return {}


def shipped() -> list[str]:
    """Names of the plugins whose sources are in this repository."""
    manifests = (ROOT / "plugins").glob("*/src/*/plugin.toml")
    return sorted(tomllib.loads(path.read_text(encoding="utf-8"))["name"] for path in manifests)


_LOAD = """
import sys
from intarsia_testkit.blocks import choose_blocks, sample_graph
from intarsia_testkit.running import compile_module
from intarsia_testkit.subject import open_subject
from intarsia.errors import TargetError, ToolchainError, WorkerLost

subject = open_subject(sys.argv[1])
own = subject.table(subject.host()) if subject.is_accelerator else None
try:
    compile_module(subject, sample_graph(choose_blocks(own))).load(threads=1).close()
except (TargetError, ToolchainError, WorkerLost) as error:  # another machine, no compiler or device
    print(error.message)
"""


def missing_device(python: str, plugin: str) -> str:
    """Why what the plugin compiles cannot run on this machine; empty if it can."""
    command = [python, "-c", _LOAD, plugin]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return run.stdout.strip()


def kit_command(python: str, plugin: str, folder: Path, place: Path, *, tier: int = 3) -> list[str]:
    """The command that runs the kit's sample on a plugin and writes its result to ``place``."""
    command = [python, "-m", "pytest", "--pyargs", "intarsia_testkit", "-q", "-c", os.devnull]
    command += [f"--rootdir={folder}", "-p", "no:cacheprovider", f"--intarsia-cases={CASES}"]
    command += [f"--intarsia-exempt={c}={r}" for c, r in exempt(plugin).items()]
    command.append(f"--intarsia-tier={tier}")
    return [*command, f"--intarsia-plugin={plugin}", f"--intarsia-json={place}"]


def run_kit(plugin: str, folder: Path) -> dict[str, Any]:
    """Run the kit's sample in a process of its own; returns its result."""
    place = folder / "result.json"
    command = kit_command(sys.executable, plugin, folder, place)
    path = os.pathsep.join(filter(None, sys.path))
    run = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=False, timeout=60 * MINUTES,
    )  # fmt: skip
    assert place.exists(), (run.stdout + run.stderr)[-3000:]
    return json.loads(place.read_text(encoding="utf-8"))
