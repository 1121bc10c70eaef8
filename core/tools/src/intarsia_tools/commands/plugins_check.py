# SPDX-License-Identifier: Apache-2.0
"""``intarsia plugins check``: run the conformance kit on a plugin, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import click

from intarsia.cli.output import echo, emit_json, table
from intarsia.cli.plugin_names import PluginName
from intarsia.cli.session import Session
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.errors import GateFailed, PluginError, ResourceError, UsageError

Result: TypeAlias = "Mapping[str, Any]"
"""What the kit says, or one row of it: plain JSON."""

KIT = "intarsia_testkit"
"""Package of the conformance kit, a distribution of its own."""

_REFUSED_OPTION = 4  # exit code of pytest


@click.command("plugins check")
@click.argument("name", type=PluginName())
@click.option("--tier", type=click.IntRange(1, 3), default=3, help="Highest tier to check.")
@click.option("--target", default="", help="Target for the checks.")
@click.option("--exempt", multiple=True, metavar="CHECK=REASON", help="Exempt a check.")
@click.option("--compile-only", default="", metavar="REASON", help="Only compile, for this reason.")
@click.option("--badge", type=click.Path(path_type=Path, dir_okay=False), help="Write an SVG.")
@click.option("--time-limit", type=click.IntRange(1), default=900, help="Limit in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    session: Session,
    name: str,
    tier: int,
    target: str,
    exempt: tuple[str, ...],
    compile_only: str,
    badge: Path | None,
    time_limit: int,
    as_json: bool,
) -> None:
    """Run the conformance kit on the plugin NAME.

    Tier 1: contract, packaging, isolation. Tier 2: numeric, determinism. Tier 3: partition,
    borders. Exits with 10 if a check fails. With --compile-only, checks that would run code are
    exempt, and their tier is "compiled", not "passed".
    """
    import importlib.util  # listing plugins does without, also below

    session.host().plugin(name)
    if importlib.util.find_spec(KIT) is None:
        raise UsageError(
            "the conformance kit is not installed", hint="pip install intarsia-testkit"
        )
    options = [f"--intarsia-plugin={name}", f"--intarsia-tier={tier}"]
    options += [f"--intarsia-target={target}"] if target else []
    options += [f"--intarsia-exempt={text}" for text in exempt]
    options += [f"--intarsia-compile-only={compile_only}"] if compile_only else []
    options += [f"--intarsia-badge={badge.resolve()}"] if badge is not None else []
    result = _run(options, time_limit)
    if as_json:
        emit_json({key: value for key, value in result.items() if key != "schema"})
    else:
        _show(result)
    failed = result["counts"]["failed"]
    if failed:
        raise GateFailed(
            f"'{name}' fails {failed} of {len(result['checks'])} checks",
            hint=f"pytest --pyargs {KIT} --intarsia-plugin {name} -k CHECK runs one",
        )


def _run(options: list[str], time_limit: int) -> Result:
    """Run pytest on the kit; returns its result.

    Raises:
        UsageError: pytest refuses an option.
        PluginError: The process died, with the plugin in it.
        ResourceError: It took too long.
    """
    import subprocess

    with temporary_folder("check") as folder:
        place = folder / "result.json"
        command = [sys.executable, "-m", "pytest", "--pyargs", KIT, "-q", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, f"--rootdir={folder}", f"--intarsia-json={place}", *options]
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        try:
            run = subprocess.run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=time_limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ResourceError(
                f"the checks took more than {time_limit} s", hint="--time-limit SECONDS"
            ) from None
        printed = (run.stdout + run.stderr).strip()[-1500:]
        if run.returncode == _REFUSED_OPTION:
            raise UsageError(printed)
        if run.returncode not in (0, 1) or not place.exists():
            raise PluginError(f"the checks ended with exit code {run.returncode}: {printed}")
        return cast("Result", json.loads(place.read_text(encoding="utf-8")))


def _show(result: Result) -> None:
    """Print what matters: every check but operators that nothing is known of, and the tiers."""
    shown = [row for row in result["checks"] if not _is_quiet(row)]
    table(
        [(row["tier"], row["outcome"], row["check"], f"{row['seconds']:.1f}") for row in shown],
        ("tier", "outcome", "check", "s"),
    )
    for row in shown:
        if row["outcome"] in ("failed", "exempt"):
            echo(f"\n{row['check']}: {row['detail']}")
    counts = ", ".join(f"{count} {word}" for word, count in result["counts"].items() if count)
    tiers = ", ".join(f"tier {tier} {verdict}" for tier, verdict in result["tiers"].items())
    echo(f"\n{result['distribution']}: {counts}; {tiers}")


def _is_quiet(row: Result) -> bool:
    return row["outcome"] in ("declined", "exempt") and "[" in row["check"]
