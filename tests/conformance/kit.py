# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance kit on a plugin of this repository, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).parents[2]
MINUTES = 20
CASES = 6
"""Cases of each operator in the sample."""

STAND_INS: Mapping[str, str] = MappingProxyType(
    {
        "cuda": "cuda -emulate",
        "arm_acl": "arm_acl, llvm -mtriple=aarch64-linux-gnu",
        "ethos-n": "ethos-n -simulate, c",
        "ethos-u": "ethos-u -simulate, c",
    }
)
"""Where a machine lacks the device of a plugin: the target that can be checked there instead."""

CONTEXTS: Mapping[str, str] = MappingProxyType({"llvm": "-mcpu=sapphirerapids"})
"""Options of a plugin beside which others take effect: of a processor with matrix registers."""


def variables(plugin: str, folder: Path) -> dict[str, str]:
    """What keeps drivers and their bindings from leaving caches of their own where users are."""
    if plugin == "opencl":
        return {"PYOPENCL_NO_CACHE": "1", "POCL_CACHE_DIR": str(folder / "pocl")}
    return {}


def exempt(plugin: str) -> dict[str, str]:
    """The checks that cannot apply to a plugin on this machine, each with its reason."""
    if plugin == "ethos-n" and not os.environ.get("ETHOSN_ROOT"):
        reason = "the vendor's compiler, which the options are for, is not on this machine"
        return {"contract_options_take_effect": reason}
    return {}


def shipped() -> list[str]:
    """Names of the accelerators and backends whose sources are in this repository."""
    manifests = (ROOT / "plugins").glob("*/src/*/plugin.toml")
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in manifests]
    return sorted(table["name"] for table in tables if table.get("target-kind"))


_LOAD = """
import json
import sys
from intarsia_testkit.blocks import choose_blocks, sample_graph
from intarsia_testkit.running import compile_module
from intarsia_testkit.subject import open_subject
from intarsia_runtime.errors import ArtifactError, TargetError, ToolchainError, WorkerLost

subject = open_subject(sys.argv[1], sys.argv[2])
found = {"compiles": "", "runs": ""}
try:
    own = subject.table(subject.host()) if subject.is_accelerator else None
    made = compile_module(subject, sample_graph(choose_blocks(own)))
except (TargetError, ToolchainError) as error:  # no compiler of the vendor's, another processor
    found["compiles"] = error.message
else:
    try:
        made.load(threads=1).close()
    except (ArtifactError, TargetError, ToolchainError, WorkerLost) as error:  # another machine
        found["runs"] = error.message
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Means:
    """What of a plugin can be checked on this machine.

    Attributes:
        target: Target to check it with; empty for the default.
        missing: Why nothing can be compiled; empty if it can.
        compile_only: Why what is compiled cannot run; empty if it can.
    """

    target: str = ""
    missing: str = ""
    compile_only: str = ""


def means(python: str, plugin: str) -> Means:
    """What of a plugin can be checked here: with its own target, else with its stand-in."""
    own = _tried(python, plugin, "")
    if not (own.missing or own.compile_only) or plugin not in STAND_INS:
        return own
    return _tried(python, plugin, STAND_INS[plugin])


def _tried(python: str, plugin: str, target: str) -> Means:
    command = [python, "-c", _LOAD, plugin, target]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(run.stdout)
    return Means(target, found["compiles"], found["runs"])


def kit_command(
    python: str, plugin: str, folder: Path, place: Path, with_: Means = Means(), *, tier: int = 3
) -> list[str]:
    """The command that runs the kit's sample on a plugin and writes its result to ``place``."""
    command = [python, "-m", "pytest", "--pyargs", "intarsia_testkit", "-q", "-c", os.devnull]
    command += [f"--rootdir={folder}", "-p", "no:cacheprovider", f"--intarsia-cases={CASES}"]
    command += [f"--intarsia-exempt={c}={r}" for c, r in exempt(plugin).items()]
    command += [f"--intarsia-context={CONTEXTS[plugin]}"] if plugin in CONTEXTS else []
    command += [f"--intarsia-target={with_.target}"] if with_.target else []
    if with_.compile_only:
        command.append(f"--intarsia-compile-only={with_.compile_only}")
    command.append(f"--intarsia-tier={tier}")
    return [*command, f"--intarsia-plugin={plugin}", f"--intarsia-json={place}"]


def run_kit(plugin: str, folder: Path, with_: Means) -> dict[str, Any]:
    """Run the kit's sample in a process of its own; returns its result."""
    place = folder / "result.json"
    command = kit_command(sys.executable, plugin, folder, place, with_)
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables(plugin, folder)}
    run = subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, capture_output=True,
        text=True, check=False, timeout=60 * MINUTES,
    )  # fmt: skip
    assert place.exists(), (run.stdout + run.stderr)[-3000:]
    return json.loads(place.read_text(encoding="utf-8"))
