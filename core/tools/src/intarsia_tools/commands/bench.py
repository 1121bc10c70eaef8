# SPDX-License-Identifier: Apache-2.0
"""``intarsia bench``: measure models for targets, also against other runtimes, interleaved."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import click

from intarsia.cli.composed import ComposedCommand, help_all_option
from intarsia.cli.idle import say_idle
from intarsia.cli.model_options import parse_shape
from intarsia.cli.output import emit_json, progress, table
from intarsia.cli.session import Session
from intarsia.cli.simulated import say_simulated
from intarsia.cli.target_options import NameType, read_targets
from intarsia_ir.size_values import largest
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.errors import UsageError

from .. import bench_plot
from ..bench import bench_models
from ..bench_row import BenchRow
from ..foreign import FOREIGN
from ..peers import PEERS


@click.command("bench", cls=ComposedCommand, families=("target",))
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    type=NameType("target"),
    help="Target to measure; repeat it for each.",
)
@click.option(
    "--vs",
    "peers",
    multiple=True,
    type=click.Choice(sorted({*PEERS, *FOREIGN})),
    help="Peer to compare with; repeat it for each.",
)
@click.option("--threads", default="1", show_default=True, help="Numbers of threads, e.g. 1,2.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME:N,N,...", help="Shape of an input.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="Seed of random inputs.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Plot the table: .svg, .png or .pdf.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@help_all_option()
@click.pass_context
def command(
    ctx: click.Context,
    models: Sequence[Path],
    targets: Sequence[str],
    peers: Sequence[str],
    threads: str,
    rounds: int,
    shapes: Sequence[str],
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure MODELS, ONNX files, in interleaved rounds; ratio = our time / peer's time."""
    if plot is not None:
        bench_plot.check_plot(plot)
    counts = _parse_threads(threads)
    session: Session = ctx.obj
    rows = bench_models(
        models,
        read_targets(ctx, targets),
        peers=peers,
        threads=counts,
        rounds=rounds,
        shapes=largest(dict(parse_shape(text) for text in shapes)),
        seed=seed,
        host=session.host(),
        progress=progress,
        built=_say,
    )
    if plot is not None:
        bench_plot.plot_rows(rows, plot, f"{rounds} rounds, {platform.machine()}")
    if as_json:
        emit_json({"rows": [row.to_json() for row in rows]})
        return
    cells = [
        (r.model, r.target, r.threads, f"{r.median_ms:.3f}", r.peer, *_ratio_cells(r)) for r in rows
    ]
    table(cells, ("model", "target", "threads", "ms", "peer", "peer ms", "ratio", "quartiles"))


def _say(passport: Passport, name: str) -> None:
    say_simulated(passport)
    say_idle(passport, name)


def _parse_threads(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.strip().isdigit() and int(number) for number in numbers):
        raise UsageError(f"'{text}' is no list of thread counts", hint="for example --threads 1,2")
    return [int(number) for number in numbers]


def _ratio_cells(row: BenchRow) -> tuple[str, str, str]:
    if not row.peer:
        return "", "", ""
    return (
        f"{row.peer_ms:.3f}",
        f"{row.ratio:.3f}",
        f"{row.ratio_low:.3f} .. {row.ratio_high:.3f}",
    )
