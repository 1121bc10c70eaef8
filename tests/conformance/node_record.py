# SPDX-License-Identifier: Apache-2.0
"""The outcomes of ONNX's backend tests as they are kept in the repository: one entry a target."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .node_outcome import Outcome

_REASON = 160
_PACKAGES = ("intarsia", "onnx", "numpy", "emx-onnx-cgen")


def entry(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the counts, every test that does not pass, and what ran in NumPy.

    ``whole`` counts the tests that pass with every node compiled; ``in_numpy`` has, by operator,
    how many tests pass with a node of it in NumPy on the host.
    """
    kinds: dict[str, Counter[str]] = {}
    in_numpy: Counter[str] = Counter()
    for outcome in outcomes:
        counts = kinds.setdefault(outcome.kind, Counter())
        counts[outcome.status] += 1
        if outcome.status == "pass":
            counts["whole"] += not outcome.in_numpy
            in_numpy.update(outcome.in_numpy)
    others: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        if outcome.status != "pass":
            said = " ".join(outcome.reason.split())[:_REASON]
            others.setdefault(outcome.kind, {})[outcome.name] = f"{outcome.status}: {said}"
    return {
        "date": date.today().isoformat(),
        "versions": versions(),
        "counts": {kind: dict(sorted(counts.items())) for kind, counts in kinds.items()},
        "others": others,
        "in_numpy": dict(sorted(in_numpy.items())),
    }


def record(path: Path, target: str, outcomes: Sequence[Outcome]) -> None:
    """Renew the entry of a target in the file at ``path``, which is made if there is none."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"targets": {}}
    kept["targets"][target] = entry(outcomes)
    text = json.dumps({"schema": 1, "targets": kept["targets"]}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Return the versions of what computed, by name."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = _said("git", "rev-parse", "--short", "HEAD")
    if commit and "intarsia" in found:
        found["commit"] = commit
    compiler = _said("cc", "--version")
    if compiler:
        found["cc"] = compiler
    return found


def _said(*command: str) -> str:
    """Return the first line that a program says in this folder; nothing if there is none."""
    if shutil.which(command[0]) is None:
        return ""
    here = Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return run.stdout.partition("\n")[0]
