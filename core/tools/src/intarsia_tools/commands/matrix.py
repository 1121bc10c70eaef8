# SPDX-License-Identifier: Apache-2.0
"""``intarsia matrix``: run models for targets, and say what works where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from intarsia.cli.composed import ComposedCommand, help_all_option
from intarsia.cli.output import echo, emit_json, progress, table
from intarsia.cli.session import Session
from intarsia.cli.target_options import NameType, read_targets
from intarsia_runtime.errors import GateFailed

from ..matrix import CellResult, run_matrix


@click.command("matrix", cls=ComposedCommand, families=("target",))
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, required=True, type=NameType("target"),
              help="Target; repeat it for each.")  # fmt: skip
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File of finished cells; a second command continues it.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True,
              help="Parallel cells; use 1 for meaningful times.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(0, min_open=True), default=600.0,
              show_default=True, metavar="SECONDS", help="Time limit of a cell.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Timed runs.")
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="Compare with the reference.")  # fmt: skip
@click.option("--check", is_flag=True, help="Exit with 10 if a cell is not ok.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@help_all_option()
@click.pass_context
def command(
    ctx: click.Context,
    models: Sequence[Path],
    targets: Sequence[str],
    results: Path | None,
    jobs: int,
    limit: float,
    threads: int,
    repeat: int,
    verify: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Compile and run each of MODELS, ONNX files, for each target, and compare the results."""
    session: Session = ctx.obj
    chosen = {text: str(parts) for text, parts in read_targets(ctx, targets).items()}
    found = run_matrix(
        models,
        chosen,
        host=session.host(),
        disabled=session.disabled,
        results=results,
        jobs=jobs,
        limit=limit,
        threads=threads,
        repeat=repeat,
        verify=verify,
        progress=progress,
    )
    if as_json:
        emit_json({"cells": [row.to_json() for row in found]})
    else:
        _print(found)
    bad = [row for row in found if row.state != "ok"]
    if check and bad:
        named = ", ".join(f"{row.cell.model.stem} for '{row.cell.target}'" for row in bad[:3])
        raise GateFailed(f"{len(bad)} of {len(found)} cells are not ok: {named}")


def _print(rows: Sequence[CellResult]) -> None:
    targets = list(dict.fromkeys(row.cell.target for row in rows))
    models = list(dict.fromkeys(row.cell.model for row in rows))
    by_place = {(row.cell.model, row.cell.target): row for row in rows}
    cells = [[m.stem, *(_word(by_place[m, t]) for t in targets)] for m in models]
    table(cells, ("model", *targets))
    for row in rows:
        if row.error:
            echo(f"{row.cell.model.stem} for '{row.cell.target}': {row.error}")


def _word(row: CellResult) -> str:
    return f"{row.milliseconds:.2f} ms" if row.state == "ok" else row.state.upper()
