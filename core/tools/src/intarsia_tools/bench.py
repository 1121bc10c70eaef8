# SPDX-License-Identifier: Apache-2.0
"""Measures models for targets, also against other runtimes, interleaved."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from intarsia.driver.build import build
from intarsia.host.host import Host
from intarsia.target.target import CompositeTarget
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.artifact.passport import Passport

from . import contestant
from .bench_row import BenchRow
from .contestant import Contestant
from .foreign import FOREIGN, ForeignContestant
from .watch import Watch, quiet

ROUND_SECONDS = 0.05
"""Time that one contestant gets in one round, at least one run."""

_REST_SECONDS = 0.02  # lets the threads of the contestant before, which wait actively, go to sleep


class Timed(Protocol):
    """What can be measured."""

    def seconds(self, runs: int) -> float:
        """Warm up, then run so often; return the seconds of one run."""
        ...


def bench_models(
    models: Sequence[Path],
    targets: Mapping[str, CompositeTarget],
    *,
    peers: Sequence[str] = (),
    threads: Sequence[int] = (1,),
    rounds: int = 7,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    host: Host | None = None,
    progress: Watch = quiet,
    built: Callable[[Passport, str], object] | None = None,
) -> list[BenchRow]:
    """Measure models for targets and in other runtimes; in each round everyone runs in turn.

    Every contestant runs in a process of its own.

    Args:
        models: ONNX files.
        targets: What to compile for, by the name that rows call it.
        peers: Other runtimes, of :data:`~intarsia_tools.peers.PEERS` and
            :data:`~intarsia_tools.foreign.FOREIGN`.
        threads: Numbers of threads; each model is measured with each.
        rounds: How often everyone runs.
        shapes: Shapes of inputs whose sizes a model leaves open.
        seed: Of the random inputs.
        host: The plugins; those installed if ``None``.
        progress: Shows how far it is; it is told of each model and number of threads.
        built: Called with the passport of each artifact, and what to call it.

    Returns:
        A row for each model, number of threads, target and peer; times in milliseconds.

    Raises:
        UsageError: A peer is not installed.
        ModelError: A peer, or the importer, does not take a model.
        WorkerLost: The process of a contestant ended without an answer.
        IntarsiaError: A build or a run fails.
    """
    host, built = host or Host(), built or _nobody_asks
    rows: list[BenchRow] = []
    with progress("measuring", len(models) * len(threads)) as advance:
        for model in models:
            for count in threads:
                race = _Race(model, count, rounds, shapes or {}, seed)
                rows += _measure(race, targets, peers, host, built)
                advance(1)
    return rows


def _nobody_asks(passport: Passport, name: str) -> None:
    """What is done with a passport if nobody wants it."""


class _Race(Struct, frozen=True):
    """What all contestants of a race have in common."""

    model: Path
    threads: int
    rounds: int
    shapes: Mapping[str, tuple[int, ...]]
    seed: int


def _measure(
    race: _Race,
    targets: Mapping[str, CompositeTarget],
    peers: Sequence[str],
    host: Host,
    told: Callable[[Passport, str], object],
) -> list[BenchRow]:
    model, threads = race.model, race.threads
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("bench"))
        inputs = folder / "inputs.npz"
        contestants: dict[tuple[str, str], Timed] = {}
        for index, (target, parts) in enumerate(targets.items()):
            path = folder / f"{index}.intarsia"
            built = build(model, parts, host=host, shapes=race.shapes, mod_name=model.stem)
            told(built.passport, f"{model.stem}, {target}")
            built.save(path)
            if not index:
                contestant.write_inputs(path, inputs, race.seed)
            opened = functools.partial(contestant.ours, path, inputs, threads)
            contestants["ours", target] = stack.enter_context(Contestant(target, opened))
        for peer in peers:
            contestants["peer", peer] = stack.enter_context(_peer(peer, model, inputs, threads))
        times = interleave(contestants, race.rounds)
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
