# SPDX-License-Identifier: Apache-2.0
"""``intarsia doctor``: this machine, every plugin used in a child process, and what to mend."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence

import click

from intarsia_runtime.cpu import this_machine
from intarsia_runtime.errors import PluginError
from intarsia_runtime.threads import available_threads, load_openmp

from ..host.discovery import HOOK_API, repeated_distributions
from ..host.examine import PluginFinding
from .findings import probe_lines
from .output import echo, emit_json, table
from .plugin_names import PluginName
from .session import Session


@click.command("doctor")
@click.argument("names", nargs=-1, type=PluginName(), metavar="[PLUGIN]...")
@click.option("--check", is_flag=True, help="Exit with 5 if any plugin is broken.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(session: Session, names: tuple[str, ...], check: bool, as_json: bool) -> None:
    """Try every PLUGIN in a child process; show each fault and its remedy.

    Exits with 5 if a named PLUGIN is broken, and with --check if any plugin is.
    """
    findings = session.host().examine(names)
    environment = _environment()
    repeated = repeated_distributions()
    if as_json:
        emit_json(
            {
                "environment": environment,
                "hook_api": HOOK_API,
                "plugins": [finding.to_json() for finding in findings],
                "repeated": {name: list(places) for name, places in repeated.items()},
                "broken": [finding.name for finding in findings if finding.broken],
            }
        )
    else:
        _print(environment, findings, repeated)
    broken = [finding for finding in findings if finding.broken]
    if broken and (check or names):
        raise PluginError(
            f"broken: {', '.join(sorted(finding.name for finding in broken))}",
            hint="see above, or intarsia plugins why NAME",
        )


def _environment() -> dict[str, object]:
    machine = this_machine()
    features = machine.cpu_features
    return {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "executable": sys.executable,
        "os": f"{machine.os} ({platform.platform()})",
        "arch": machine.arch,
        "cpu_features": sorted(features) if features is not None else None,
        "processors": available_threads(),
        "openmp": "libgomp.so.1" if load_openmp() is not None else "",
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith("INTARSIA_")},
    }


_TELLING = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "amx_int8", "asimd", "asimddp", "sve")


def _print(
    environment: Mapping[str, object],
    findings: Sequence[PluginFinding],
    repeated: Mapping[str, Sequence[str]],
) -> None:
    has = environment["cpu_features"]
    features = [name for name in _TELLING if isinstance(has, list) and name in has]
    openmp = environment["openmp"] or "not found: parallel loops run on one thread"
    for key, value in (
        ("python", f"{environment['python']}, {environment['executable']}"),
        ("os", environment["os"]),
        ("processor", f"{environment['arch']}, {environment['processors']} usable: "
         f"{' '.join(features) or 'features unknown'}"),
        ("openmp", openmp),
        ("hook api", HOOK_API),
    ):  # fmt: skip
        echo(f"{key + ':':11}{value}")
    echo("")
    rows = [
        (
            f.name,
            f.version,
            f.api,
            _fit(f.fits),
            f.state,
            f"{f.seconds * 1000:.0f} ms",
            f.distribution,
        )
        for f in findings
    ]
    table(rows, ("plugin", "version", "hook api", "fits", "state", "import", "distribution"))
    for finding in findings:
        for line in _remarks(finding):
            echo(line)
    for name, places in repeated.items():
        echo(f"\n{name} is installed more than once: {', '.join(places)}")
        echo(f"  hint: the first counts; pip uninstall {name} until none is left, then install")


def _remarks(finding: PluginFinding) -> list[str]:
    lines = probe_lines(finding)
    if finding.reason:
        lines += [f"{finding.name} ({finding.distribution}): {finding.reason}"]
        lines += [f"  hint: {finding.remedy}"] if finding.remedy else []
    if finding.noise:
        lines.append(f"{finding.name}: prints {finding.noise} bytes")
    lines += [f"{finding.name}: its import {change}" for change in finding.changes]
    return ["", *lines] if lines else []


def _fit(fits: bool | None) -> str:
    return "?" if fits is None else "yes" if fits else "no"
