# SPDX-License-Identifier: Apache-2.0
"""``intarsia diff``: what changed between two builds, and what made nodes move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from intarsia.cli.output import echo, emit_json, table
from intarsia_runtime.errors import GateFailed

from ..builds import Build, Moved, moved_nodes, read_build

_FALLBACK = "(fallback)"


@click.command("diff")
@click.argument("before", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("after", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--check", is_flag=True, help="Exit with 10 if any node moved.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(before: Path, after: Path, check: bool, as_json: bool) -> None:
    """Compare two builds: artifacts, or reports of ``explain --json``.

    Shows target, versions and every node that moved to another accelerator, with the cause.
    """
    old, new = read_build(before), read_build(after)
    moved = moved_nodes(old, new)
    changes = _changes(old, new)
    if as_json:
        emit_json(
            {
                "changes": [
                    {"what": what, "before": was, "after": now} for what, was, now in changes
                ],
                "nodes": [row.to_json() for row in moved],
            }
        )
    else:
        _print(changes, moved)
    if check and moved:
        raise GateFailed(f"{len(moved)} nodes moved", hint=f"first: '{moved[0].node}'")


def _changes(old: Build, new: Build) -> list[tuple[str, str, str]]:
    """Facts of the builds that differ: name, before, after."""
    rows = [("target", old.target, new.target), ("model", old.model, new.model)]
    for name in sorted(old.versions.keys() | new.versions.keys()):
        rows.append((name, old.versions.get(name, "-"), new.versions.get(name, "-")))
    rows.append(("placement", old.summary, new.summary))
    return [row for row in rows if row[1] != row[2]]


def _print(changes: list[tuple[str, str, str]], moved: list[Moved]) -> None:
    for what, was, now in changes:
        echo(f"{what}:\n  - {was}\n  + {now}")
    if changes:
        echo("")
    print_moved(moved)


def print_moved(moved: Sequence[Moved]) -> None:
    """Print one line for every node that moved, with the causes."""
    rows = [
        (row.node, row.before or _FALLBACK, row.after or _FALLBACK, "; ".join(row.causes))
        for row in moved
    ]
    if rows:
        table(rows, ("node", "before", "after", "because"))
        echo("")
    echo(f"{len(moved)} nodes moved" if moved else "no node moved")
