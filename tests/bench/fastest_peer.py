# SPDX-License-Identifier: Apache-2.0
"""Latency of a folder of models beside the faster of two other runtimes, and its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from intarsia.cli.bench_row import BenchRow

from .gate import regressions

TARGETS = ("dnnl, llvm", "llvm")
PEERS = ("onnxruntime", "openvino")
THREADS = (1, 2)
TRIES = 3
"""A row that seems worse is measured again: other work is more likely than a regression."""

BAD_MODEL = 3
"""What the command ends with if somebody does not take the model."""


@dataclass(frozen=True)
class Latency:
    """One model for one target and number of threads, in one run with its peers.

    Attributes:
        fastest: The comparison with the faster peer.
        peers: Milliseconds of each peer.
    """

    fastest: BenchRow
    peers: dict[str, float]

    @property
    def name(self) -> str:
        """What the gate calls its ratio."""
        row = self.fastest
        return f"latency {row.model} [{row.target}] {row.threads}"


def measure(models: Sequence[Path], rounds: int, committed: dict[str, float]) -> list[Latency]:
    """Measure all models; again, up to three times, one that seems worse than committed."""
    found: list[Latency] = []
    for model in models:
        best: dict[str, Latency] = {}
        for _ in range(TRIES):
            for one in by_fastest(_rows(model, rounds)):
                known = best.get(one.name, one)
                best[one.name] = min(known, one, key=_ratio)
            was = {name: committed[name] for name in best if name in committed}
            if not regressions(was, {name: _ratio(one) for name, one in best.items()}):
                break
        found += best.values()
        print(*(f"{name}: {_ratio(one):.3f}" for name, one in best.items()), sep="\n", flush=True)
    return found


def _rows(model: Path, rounds: int) -> list[BenchRow]:
    """Measure one model through the command line; no rows if a peer does not take it."""
    argv = [sys.executable, "-m", "intarsia", "bench", str(model), "--rounds", str(rounds)]
    argv += [word for target in TARGETS for word in ("--target", target)]
    argv += [word for peer in PEERS for word in ("--vs", peer)]
    argv += ["--threads", ",".join(map(str, THREADS)), "--json"]
    env = {**os.environ, "INTARSIA_RECORDS": "none"}
    run = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
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
    lines = [
        "| model | ONNX Runtime, ms | OpenVINO, ms "
        + "".join(f"| `{target}`, ms | ratio | quartiles " for target in TARGETS)
        + "|",
        "|---|--:|--:" + "|--:|--:|--:" * len(TARGETS) + "|",
    ]
    mine = [one for one in found if one.fastest.threads == threads]
    names = list(dict.fromkeys(one.fastest.model for one in mine))
    for title, group in (
        ("geometric mean, fp32", [name for name in names if not name.endswith("_qdq")]),
        ("geometric mean, 8-bit", [name for name in names if name.endswith("_qdq")]),
    ):
        if not group:
            continue
        lines += [_line(name, mine) for name in group]
        means = [
            geometric_mean(_ratio(one) for one in mine if _is(one, target, group))
            for target in TARGETS
        ]
        cells = "".join(f"| | **{mean:.2f}** | " for mean in means)
        lines.append(f"| **{title}** | | {cells}|")
    return lines


def _line(model: str, found: Sequence[Latency]) -> str:
    mine = [one for target in TARGETS for one in found if _is(one, target, [model])]
    peers = "".join(f"| {_ms(mine[0].peers[peer])} " for peer in PEERS)
    cells = "".join(
        f"| {_ms(one.fastest.median_ms)} | {round(_ratio(one), 3):.2f} "
        f"| {one.fastest.ratio_low:.2f} to {one.fastest.ratio_high:.2f} "
        for one in mine
    )
    return f"| {model} {peers}{cells}|"


def _is(one: Latency, target: str, models: Sequence[str]) -> bool:
    return one.fastest.target == target and one.fastest.model in models


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _row_ratio(row: BenchRow) -> float:
    return row.ratio


def _ratio(one: Latency) -> float:
    return one.fastest.ratio
