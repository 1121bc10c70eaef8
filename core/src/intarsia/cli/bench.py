# SPDX-License-Identifier: Apache-2.0
"""``intarsia bench``: measure models for targets, also against other runtimes, interleaved."""

from __future__ import annotations

import functools
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import click

from ..artifact.abandoned import temporary_folder
from ..build.build import build
from ..build.sizes import largest
from ..errors import UsageError
from ..target.target import CompositeTarget
from . import bench_plot, contestant
from .bench_row import BenchRow
from .composed import ComposedCommand, help_all_option
from .contestant import Contestant
from .foreign import FOREIGN, ForeignContestant
from .idle import say_idle
from .model_options import parse_shape
from .output import emit_json, progress, table
from .peers import PEERS
from .session import Session
from .simulated import say_simulated
from .target_options import NameType, read_targets

ROUND_SECONDS = 0.05
"""Time that one contestant gets in one round, at least one run."""

_REST_SECONDS = 0.02  # lets the threads of the contestant before, which wait actively, go to sleep


class Timed(Protocol):
    """What can be measured."""

    def seconds(self, runs: int) -> float:
        """Warm up, then run so often; return the seconds of one run."""
        ...


@click.command("bench", cls=ComposedCommand, families=("target",))
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    type=NameType("target"),
    help="Once for each target.",
)
@click.option(
    "--vs",
    "peers",
    multiple=True,
    type=click.Choice(sorted({*PEERS, *FOREIGN})),
    help="Another runtime; once for each.",
)
@click.option("--threads", default="1", show_default=True, help="Numbers, e.g. 1,2.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME:N,N,...", help="Shape of an input.")
@click.option("--seed", default=0, show_default=True, help="Of the random inputs.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Draw the rows: .svg, .png or .pdf.")  # fmt: skip
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
    """Measure MODELS, ONNX files. In each round everyone runs in turn; ratio = ours / peer's."""
    if plot is not None:
        bench_plot.check_plot(plot)
    counts = _parse_threads(threads)
    chosen = read_targets(ctx, targets)
    sizes = largest(dict(parse_shape(text) for text in shapes))
    rows: list[BenchRow] = []
    with progress("measuring", len(models) * len(counts)) as advance:
        for model in models:
            for count in counts:
                rows += _measure(ctx.obj, model, chosen, peers, count, rounds, sizes, seed)
                advance(1)
    if plot is not None:
        bench_plot.plot_rows(rows, plot, f"{rounds} rounds, {platform.machine()}")
    if as_json:
        emit_json({"rows": [row.to_json() for row in rows]})
        return
    cells = [
        (r.model, r.target, r.threads, f"{r.median_ms:.3f}", r.peer, *_ratio_cells(r)) for r in rows
    ]
    table(cells, ("model", "target", "threads", "ms", "peer", "peer ms", "ratio", "quartiles"))


def _measure(
    session: Session,
    model: Path,
    targets: Mapping[str, CompositeTarget],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    shapes: dict[str, tuple[int, ...]],
    seed: int,
) -> list[BenchRow]:
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("bench"))
        inputs = folder / "inputs.npz"
        contestants: dict[tuple[str, str], Timed] = {}
        for index, (target, parts) in enumerate(targets.items()):
            path = folder / f"{index}.intarsia"
            built = build(model, parts, host=session.host(), shapes=shapes, mod_name=model.stem)
            say_simulated(built.passport)
            say_idle(built.passport, f"{model.stem}, {target}")
            built.save(path)
            if not index:
                contestant.write_inputs(path, inputs, seed)
            opened = functools.partial(contestant.ours, path, inputs, threads)
            contestants["ours", target] = stack.enter_context(Contestant(target, opened))
        for peer in peers:
            contestants["peer", peer] = stack.enter_context(_peer(peer, model, inputs, threads))
        times = interleave(contestants, rounds)
    rows: list[BenchRow] = []
    for target in targets:
        ours = times["ours", target]
        found = [
            compare(model.stem, target, peer, threads, ours, times["peer", peer]) for peer in peers
        ]
        rows += found or [BenchRow(model.stem, target, "", threads, 1e3 * statistics.median(ours))]
    return rows


def _peer(name: str, model: Path, inputs: Path, threads: int) -> Contestant | ForeignContestant:
    """Open a model in another runtime."""
    if name in FOREIGN:
        return ForeignContestant(name, model, inputs, threads)
    opened = functools.partial(contestant.peers, name, model, inputs, threads)
    return Contestant(name, opened)


def interleave(
    contestants: Mapping[tuple[str, str], Timed], rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Let everyone run in turn, ``rounds`` times; return the seconds of one run in each round.

    Everybody begins a round, and comes after each of the others, equally often.
    """
    repeats = {
        name: max(1, int(ROUND_SECONDS / max(timed.seconds(1), 1e-7)))
        for name, timed in contestants.items()
    }
    times: dict[tuple[str, str], list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    orders = balanced_orders(len(names))
    for number in range(rounds):
        for name in (names[place] for place in orders[number % len(orders)]):
            time.sleep(_REST_SECONDS)
            times[name].append(contestants[name].seconds(repeats[name]))
    return times


def balanced_orders(count: int) -> list[list[int]]:
    """Return orders in which each of ``count`` things comes after each other one equally often.

    What runs before leaves its mark: threads that still wait, caches, a processor that has become
    slower. These are the Latin squares of E. J. Williams, "Experimental designs balanced for the
    estimation of residual effects of treatments", 1949: one for an even number, two for an odd.
    """
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    square = [[(first + step) % count for step in zigzag] for first in range(count)]
    return square if count % 2 == 0 else square + [order[::-1] for order in square]


def compare(
    model: str,
    target: str,
    peer: str,
    threads: int,
    ours: Sequence[float],
    theirs: Sequence[float],
) -> BenchRow:
    """Return the row of one comparison from the seconds of each round."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, high = ratios[0], ratios[0]
    if len(ratios) > 1:
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return BenchRow(
        model,
        target,
        peer,
        threads,
        1e3 * statistics.median(ours),
        1e3 * statistics.median(theirs),
        statistics.median(ratios),
        low,
        high,
    )


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
