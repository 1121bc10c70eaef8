# SPDX-License-Identifier: Apache-2.0
"""Which plugin passes the conformance kit on which Python: measured, kept, shown as a table.

Each Python gets a fresh environment with the wheels of core, the plugins and the kit, as a user
would install them; the kit's first tier runs: contract, packaging, isolation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.conformance.kit import Means, kit_command, means, shipped, variables

from intarsia.host.discovery import HOOK_API
from intarsia.host.host import Host

from .source_tree import ROOT

RESULTS = ROOT / "docs" / "reference" / "conformance.json"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
MINUTES = 20
TIER = 1
EXTRAS = ("intarsia-ethos-u[vela]", "intarsia-tensorrt[tensorrt-rtx]", "pocl-binary-distribution")
"""What a plugin needs to compile or run anything and does not install by itself."""
COUNTED = ("passed", "declined", "exempt")
NOT_MEASURED = "not measured"


def pythons(named: Sequence[str]) -> Iterator[Path]:
    """Interpreters to measure with: those named, else those on the path that start."""
    for name in named or PYTHONS:
        found = shutil.which(name)
        if found is None:
            continue
        code = "import sys; print(sys.executable)"
        run = subprocess.run([found, "-c", code], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            yield Path(run.stdout.strip())


def measure(named: Sequence[str] = ()) -> None:
    """Run the kit on every plugin with every Python; keep what it found."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder, "dist")
        members = (f"{f}/{path.name}" for f in ("core", "plugins") for path in (ROOT / f).iterdir())
        for member in (*members, "tests/testkit"):
            command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
            subprocess.run(command, cwd=ROOT / member, check=True, capture_output=True)
        for python in pythons(named):
            version = _version(python)
            site = Path(folder, version)
            subprocess.run([python, "-m", "venv", "--without-pip", site], check=True)
            inside = site / "bin" / "python"
            pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python")
            every = (*sorted(wheels.glob("*.whl")), f"--find-links={wheels}", *EXTRAS)
            subprocess.run([*pip, inside, "install", *every], check=True)
            for plugin in shipped():
                row = measured(inside, plugin, Path(folder))
                found.setdefault(plugin, {})[version] = row
                print(f"{plugin} on Python {version}: {_cell(row)}", flush=True)
                text = json.dumps(found, indent=1, sort_keys=True)
                RESULTS.write_text(f"{text}\n", encoding="utf-8")


def _version(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def measured(python: Path, plugin: str, folder: Path) -> dict[str, Any]:
    """The result of the kit on one plugin with one Python, or why it cannot run here."""
    about = {"intarsia": metadata.version("intarsia"), "date": datetime.now(UTC).date().isoformat()}
    found = means(str(python), plugin)
    if found.missing:
        return {**about, "missing": found.missing}
    return {**about, **_run(python, plugin, folder, found)}


def _run(python: Path, plugin: str, folder: Path, found: Means) -> dict[str, Any]:
    place = folder / "result.json"
    place.unlink(missing_ok=True)
    command = kit_command(str(python), plugin, folder, place, found, tier=TIER)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= variables(plugin, folder)
    run = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=60 * MINUTES,
    )  # fmt: skip
    if not place.exists():
        raise SystemExit((run.stdout + run.stderr)[-3000:])
    result = json.loads(place.read_text(encoding="utf-8"))
    about = {"target": found.target, "compile_only": found.compile_only}
    return {
        **{name: text for name, text in about.items() if text},
        "tier": result["compiled_tier" if found.compile_only else "tier"],
        **{name: result["counts"][name] for name in COUNTED},
        "failed": sorted(r["check"] for r in result["checks"] if r["outcome"] == "failed"),
    }


def table() -> str:
    """Plugins, the hook API they ask for, and the tier they pass on each Python."""
    results: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    needs = metadata.metadata("intarsia")["Requires-Python"]
    columns = sorted({v for row in results.values() for v in row}, key=_numbers) or ["3.11"]
    heads = " | ".join(f"Python {version}" for version in columns)
    lines = [
        f"`intarsia` {metadata.version('intarsia')}: hook API {HOOK_API}, Python {needs}. Each "
        f"cell is a run of the kit's tier {TIER}. What is compiled and not run is for a device "
        "that the machine which measured does not have.", "",
        f"| plugin | version | hook API | {heads} | measured |",
        f"|---|---|---|{'---|' * len(columns)}---|",
    ]  # fmt: skip
    for row in Host(env={}).plugins():
        if (ROOT / "plugins" / row.name).is_dir():
            found = results.get(row.name, {})
            cells = [_cell(found[v]) if v in found else NOT_MEASURED for v in columns]
            date = max((cell["date"] for cell in found.values()), default="")
            first = (f"`{row.distribution}`", row.version, f"`{row.api}`", *cells, date)
            lines.append(f"| {' | '.join(first)} |")
    return "\n".join(lines)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _cell(found: Mapping[str, Any]) -> str:
    if "missing" in found:
        return f"cannot compile on the machine that measured: {found['missing']}"
    counts = ", ".join(f"{found[name]} {name}" for name in COUNTED if found.get(name))
    how = " compiled, not run" if "compile_only" in found else ""
    target = f" with `{found['target']}`" if "target" in found else ""
    text = f"tier {found['tier']}{how}{target}: {counts}"
    return text if not found["failed"] else f"{text}, fails {', '.join(found['failed'])}"
