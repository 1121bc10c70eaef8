# SPDX-License-Identifier: Apache-2.0
"""``intarsia tune``: search for faster schedules of a model's kernels; later builds use them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from intarsia.cli.composed import ComposedCommand
from intarsia.cli.model_options import parse_shape
from intarsia.cli.output import echo, emit_json, progress, table
from intarsia.cli.session import Session
from intarsia.cli.target_options import TargetChoice, target_options
from intarsia.driver.tuned import records_path
from intarsia_ir.size_values import largest
from intarsia_ir.tir.space import Choice
from intarsia_runtime.errors import UsageError

from ..tune import TuneResult, tune_model


@click.command("tune", cls=ComposedCommand, families=("target",))
@click.argument("model", type=click.Path(path_type=Path))
@target_options()
@click.option(
    "--records", metavar="FILE",
    help="File of tuning records; default: in the user's data folder.  [env: INTARSIA_RECORDS]",
)  # fmt: skip
@click.option("--trials", type=click.IntRange(1), default=32, show_default=True,
              help="Choices for each kernel, including earlier searches.")  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Time limit of the search.")  # fmt: skip
@click.option("--trial-limit", type=click.FloatRange(0, min_open=True), default=30.0,
              show_default=True, metavar="SECONDS", help="Time limit of a choice.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME:N,N,...", help="Shape of an input.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the search.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    session: Session,
    model: Path,
    target: TargetChoice,
    records: str | None,
    trials: int,
    time_limit: float | None,
    trial_limit: float,
    threads: int,
    shapes: Sequence[str],
    seed: int,
    as_json: bool,
) -> None:
    """Search for faster schedules of the kernels of MODEL, an ONNX file, on this machine.

    Every result is stored at once, and an interrupted search continues where it stopped. Builds for
    the same machine use the results.
    """
    path = records_path(records, os.environ)
    if path is None:
        raise UsageError("tune needs a file of records", hint="--records FILE")
    found = tune_model(
        model,
        target.read(session.host()),
        path,
        disabled=session.disabled,
        shapes=largest(dict(parse_shape(text) for text in shapes)),
        trials=trials,
        time_limit=time_limit,
        trial_limit=trial_limit,
        threads=threads,
        seed=seed,
        progress=progress,
    )
    document = found.to_json()
    if as_json:
        front = {
            "model": model.stem,
            "target": document.pop("target"),
            "machine": document.pop("machine"),
        }
        emit_json({**front, "records": str(path), "threads": threads, **document})
    else:
        _print(found, path)


def _print(
    found: TuneResult,
    path: Path,
) -> None:
    cells = [
        (
            row.task.signature,
            row.task.uses,
            f"{100 * row.share:.1f}",
            f"{row.microseconds:.0f}",
            f"{row.tried} ({row.failed} failed)" if row.failed else row.tried,
            f"{row.found.ratio:.2f}" if row.found and row.found.choice else "",
            _words(row.found.choice) if row.found else "",
        )
        for row in found.kernels
    ]
    table(cells, ("kernel", "uses", "%", "us", "trials", "ratio", "choice"))
    for reason in found.failures:
        echo(f"failed: {reason}")
    whole = found.whole
    if whole["ratio"] is None:
        echo("nothing is faster than the rules' choices")
        return
    echo(
        f"model: {whole['rules_ms']:.3f} ms -> {whole['tuned_ms']:.3f} ms, ratio "
        f"{whole['ratio']:.3f} (quartiles {whole['ratio_low']:.3f} .. {whole['ratio_high']:.3f})"
    )
    echo(f"records: {path}")


def _words(choice: Choice) -> str:
    return " ".join(f"{name}={value}" for name, value in choice.items())
