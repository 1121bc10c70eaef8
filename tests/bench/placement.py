# SPDX-License-Identifier: Apache-2.0
"""A composite target beside its parts: one accelerator by cost, greedily, and the fallback alone.

``python -m tests.bench.placement MODEL.onnx ...`` compiles each model three times, measures the
artifacts in turn on one thread, and prints a line for each model: milliseconds of the fallback
alone, of all that the accelerator can take, and of the choice by cost, and the last one by the
better of the others. The bar is 1.02. Times are processor time, the least of all rounds, so that
other work on the machine counts for nobody. Models of ``open_models.py`` have the sizes named
there; open sizes of others are ``--size``, those of a first axis 1.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import numpy as np

import intarsia
from intarsia.driver.arrays import random_inputs
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.errors import IntarsiaError

from .open_models import MODELS
from .open_sizes import Inputs, interleaved

BAR = 1.02
EVERYTHING = {
    "dnnl": "-min-flops=0 -min-reuse=0 -max-windows=100 -min-gain=0 -min-grain=0",
}
"""Options with which an accelerator takes everything that it can, by kind."""


@dataclass(frozen=True)
class Placed:
    """Milliseconds of one model at one set of sizes.

    Attributes:
        name: Of the model, and its sizes.
        alone: On the fallback.
        greedy: Wherever the accelerator can.
        chosen: By cost.
        offloaded: Nodes that the choice by cost gives to the accelerator, and all nodes.
    """

    name: str
    alone: float
    greedy: float
    chosen: float
    offloaded: str

    @property
    def ratio(self) -> float:
        """The choice by the better one of its parts."""
        return self.chosen / min(self.alone, self.greedy)


def targets_of(accelerator: str, options: str, fallback: str) -> Mapping[str, tuple[str, str]]:
    """Return the targets and plans that are compared, by what the table calls them."""
    everything = f"{accelerator} {EVERYTHING.get(accelerator, '')} {options}, {fallback}"
    return {
        "alone": (fallback, "cost"),
        "greedy": (everything, "greedy"),
        "chosen": (f"{accelerator} {options}, {fallback}", "cost"),
    }


def measure(
    model: Path, targets: Mapping[str, tuple[str, str]], rounds: int, size: int
) -> list[Placed]:
    """Measure one model at its sizes."""
    rows: list[Placed] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        said = ""
        for name, (target, plan) in targets.items():
            path = Path(folder) / f"{name}.intarsia"
            built = intarsia.build(str(model), target=target, plan=Plan(plan))
            said = _offloaded(built)
            built.save(path)
            runs[name] = intarsia.load(path, threads=1)
        for words, inputs in _inputs(model, runs["alone"], size):
            times = interleaved({name: run.run for name, run in runs.items()}, inputs, rounds)
            rows.append(Placed(f"{model.stem}{words}", **times, offloaded=said))
    return rows


def _offloaded(built: intarsia.Artifact) -> str:
    placement = built.passport.placement
    regions = placement["regions"]
    return f"{placement['offloaded']}/{placement['nodes']} in {len(regions)}"


def _inputs(model: Path, loaded: intarsia.Executable, size: int) -> Sequence[tuple[str, Inputs]]:
    if model.stem in MODELS:
        spec = MODELS[model.stem]
        return [("".join(f" {k}={v}" for k, v in s.items()), spec.inputs(s)) for s in spec.sizes]
    named: dict[str, int] = {}
    for one in loaded.inputs:
        for axis, length in enumerate(getattr(one, "shape", None) or ()):
            if isinstance(length, str):
                named.setdefault(length, size if axis else 1)
    given = random_inputs(loaded.inputs, 0, named)
    return [(f" ({size})" if named else "", {k: np.asarray(v) for k, v in given.items()})]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="dnnl")
    parser.add_argument("--options", default="", help="of the accelerator, in all targets")
    parser.add_argument("--fallback", default="llvm")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=64)
    given = parser.parse_args()
    targets = targets_of(given.accelerator, given.options, given.fallback)
    found: list[Placed] = []
    print(f"| model | regions | {given.fallback} | greedy | by cost | by the better |")
    print("|---|---|---|---|---|---|")
    for model in given.models:
        try:
            rows = measure(model, targets, given.rounds, given.size)
        except (IntarsiaError, ValueError) as error:
            print(f"| {model.stem} | {type(error).__name__}: {error} |", flush=True)
            continue
        found += rows
        for row in rows:
            mark = " !" if row.ratio > BAR else ""
            print(
                f"| {row.name} | {row.offloaded} | {row.alone:.3f} | {row.greedy:.3f}"
                f" | {row.chosen:.3f} | {row.ratio:.2f}{mark} |",
                flush=True,
            )
    if found:
        print(f"geometric mean: {geometric_mean(row.ratio for row in found):.3f}")


if __name__ == "__main__":
    main()
