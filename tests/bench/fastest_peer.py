# SPDX-License-Identifier: Apache-2.0
"""Latency of a folder of models beside the fastest of other runtimes, and its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from intarsia_tools.bench_row import BenchRow

from .gate import regressions

TARGETS = ("dnnl, llvm", "llvm")
PEERS = ("onnxruntime", "openvino")
INDUCTOR = "inductor"
TORCH = "INTARSIA_TORCH_PYTHON"
"""Environment variable with a Python that has torch; without it, ``inductor`` takes no part."""

TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", INDUCTOR: "PyTorch (inductor)"}
THREADS = (1, 2)
TRIES = 3
"""A row that seems worse is measured again: other work is more likely than a regression."""

BAD_MODEL = 3
"""What the command ends with if somebody does not take the model."""


@dataclass(frozen=True)
class Latency:
    """One model for one target and number of threads, in one run with its peers.

    Attributes:
        fastest: The comparison with the fastest peer.
        peers: Milliseconds of each peer that takes the model.
    """

    fastest: BenchRow
    peers: dict[str, float]

    @property
    def name(self) -> str:
        """What the gate calls its ratio."""
        row = self.fastest
        return name_of(row.model, row.target, row.threads)


def name_of(model: str, target: str, threads: int) -> str:
    """Return what the gate calls the ratio of a model."""
    return f"latency {model} [{target}] {threads}"


def is_bytewise(model: str) -> bool:
    """Whether a model of the harness computes in 8 bits."""
    return model.endswith("_qdq")


def mean_of(
    ratios: Mapping[str, float], target: str, threads: int, *, bytewise: bool
) -> float | None:
    """Return the geometric mean of a machine's latencies; ``None`` if none was measured.

    Args:
        ratios: Name of a measurement to its ratio, as the gate keeps them.
        target: What the models were compiled for.
        threads: Threads of a run.
        bytewise: Whether of the models in 8 bits, else of those in fp32.
    """
    before, after = name_of("|", target, threads).split("|")
    models = {
        name.removeprefix(before).removesuffix(after): ratio
        for name, ratio in ratios.items()
        if name.startswith(before) and name.endswith(after)
    }
    chosen = [ratio for model, ratio in models.items() if is_bytewise(model) is bytewise]
    return geometric_mean(chosen) if chosen else None


def measure(
    models: Sequence[Path],
    rounds: int,
    committed: Mapping[str, float],
    threads: Sequence[int] = THREADS,
) -> list[Latency]:
    """Measure all models; again, up to three times, one that seems worse than committed."""
    found: list[Latency] = []
    for model in models:
        best: dict[str, Latency] = {}
        for _ in range(TRIES):
            for one in by_fastest(_rows(model, rounds, peers_here(), threads)):
                known = best.get(one.name, one)
                best[one.name] = min(known, one, key=_ratio)
            was = {name: committed[name] for name in best if name in committed}
            if not regressions(was, {name: _ratio(one) for name, one in best.items()}):
                break
        found += best.values()
        print(*(f"{name}: {_ratio(one):.3f}" for name, one in best.items()), sep="\n", flush=True)
    return found


def peers_here() -> tuple[str, ...]:
    """Return who takes part in this environment."""
    return (*PEERS, INDUCTOR) if os.environ.get(TORCH) else PEERS


def _rows(
    model: Path, rounds: int, peers: tuple[str, ...], threads: Sequence[int]
) -> list[BenchRow]:
    """Measure one model through the command line; no rows if a peer does not take it.

    ``inductor`` takes few models: it stays out of those that it does not.
    """
    argv = [sys.executable, "-m", "intarsia", "bench", str(model), "--rounds", str(rounds)]
    argv += [word for target in TARGETS for word in ("--target", target)]
    argv += [word for peer in peers for word in ("--vs", peer)]
    argv += ["--threads", ",".join(map(str, threads)), "--json"]
    env = {**os.environ, "INTARSIA_RECORDS": "none"}
    run = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    if run.returncode == BAD_MODEL and f"'{INDUCTOR}' does not take" in run.stderr:
        return _rows(model, rounds, PEERS, threads)
    if run.returncode == BAD_MODEL:
        print(f"{model.stem} is left out: {run.stderr.strip().splitlines()[-1]}", flush=True)
        return []
    run.check_returncode()
    return [BenchRow(**row) for row in json.loads(run.stdout)["rows"]]


def by_fastest(rows: Iterable[BenchRow]) -> list[Latency]:
    """Gather the rows of each model, target and number of threads."""
    groups: dict[tuple[str, str, int], list[BenchRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.target, row.threads), []).append(row)
    return [
        Latency(max(group, key=_row_ratio), {row.peer: row.peer_ms for row in group})
        for group in groups.values()
    ]


def table(found: Sequence[Latency], threads: int) -> list[str]:
    """Return the lines of a table of one number of threads, fp32 and 8-bit models apart."""
    peers = took_part(found)
    lines = [
        "| model "
        + "".join(f"| {TITLES[peer]}, ms " for peer in peers)
        + "".join(f"| `{target}`, ms | ratio | quartiles " for target in TARGETS)
        + "|",
        "|---" + "|--:" * len(peers) + "|--:|--:|--:" * len(TARGETS) + "|",
    ]
    mine = [one for one in found if one.fastest.threads == threads]
    names = list(dict.fromkeys(one.fastest.model for one in mine))
    for title, group in (
        ("geometric mean, fp32", [name for name in names if not is_bytewise(name)]),
        ("geometric mean, 8-bit", [name for name in names if is_bytewise(name)]),
    ):
        if not group:
            continue
        lines += [_line(name, mine, peers) for name in group]
        means = [
            geometric_mean(_ratio(one) for one in mine if _is(one, target, group))
            for target in TARGETS
        ]
        cells = "".join(f"| | **{mean:.2f}** | " for mean in means)
        lines.append(f"| **{title}** {'| ' * len(peers)}{cells}|")
    return lines


def took_part(found: Sequence[Latency]) -> list[str]:
    """Return the peers that were measured on a model at least."""
    return [peer for peer in TITLES if any(peer in one.peers for one in found)]


def _line(model: str, found: Sequence[Latency], peers: Sequence[str]) -> str:
    mine = [one for target in TARGETS for one in found if _is(one, target, [model])]
    times = mine[0].peers
    theirs = "".join(f"| {_ms(times[peer])} " if peer in times else "| " for peer in peers)
    cells = "".join(
        f"| {_ms(one.fastest.median_ms)} | {round(_ratio(one), 3):.2f} "
        f"| {one.fastest.ratio_low:.2f} to {one.fastest.ratio_high:.2f} "
        for one in mine
    )
    return f"| {model} {theirs}{cells}|"


def _is(one: Latency, target: str, models: Sequence[str]) -> bool:
    return one.fastest.target == target and one.fastest.model in models


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _row_ratio(row: BenchRow) -> float:
    return row.ratio


def _ratio(one: Latency) -> float:
    return one.fastest.ratio
