# SPDX-License-Identifier: Apache-2.0
"""Single operators on one thread beside ONNX Runtime: is there one that has no fast loops?

``python -m tests.bench.operators [--target T] [--part 1/4] [NAME ...]`` prints a line for each case
of ``operator_cases.py`` and ``model_cases.py``: best times of both, run in turn, and ours by
theirs; then their mean. A ratio far above 1 is a kernel that is missing.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

import intarsia

from .model_cases import model_cases
from .operator_cases import Case, cases

ROUNDS = 30
LONGEST = 0.6
"""Seconds of one case after which no round begins."""


def compare(case: Case, target: str, folder: Path) -> tuple[float, float]:
    """Return the best seconds of ours and of ONNX Runtime's, in turn on one thread."""
    model = folder / "one.onnx"
    data = case.save(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    saved = intarsia.build(str(model), target).save(folder / "one.intarsia")
    times: list[tuple[float, float]] = []
    with intarsia.load(saved, threads=1) as executable:
        for got, want in zip(executable.run(data).values(), session.run(None, data), strict=True):
            check(case, np.asarray(got), want)
        until = time.perf_counter() + LONGEST
        while len(times) < 3 or (len(times) < ROUNDS and time.perf_counter() < until):
            ours = seconds(lambda: executable.run(data))
            times.append((ours, seconds(lambda: session.run(None, data))))
    return min(ours for ours, _ in times), min(theirs for _, theirs in times)


def check(case: Case, got: np.ndarray, want: np.ndarray) -> None:
    """Say on standard error how far the results of both are apart, if they are."""
    half = want.dtype.itemsize == 2
    if want.dtype.kind == "f" and want.size:
        want, got = want.astype(np.float64), got.astype(np.float64)
        apart = float(np.nanmax(np.abs(got - want)) / max(float(np.nanmax(np.abs(want))), 1e-6))
        wrong = apart > (1e-2 if half else 1e-4)
    else:
        wrong = bool((got != want).any())
        apart = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0))
    if wrong or got.shape != want.shape:
        print(f"{case.name}: the results are {apart:g} apart", file=sys.stderr)


def seconds(run: Callable[[], object]) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def chosen(names: list[str], part: str) -> list[Case]:
    """Return the cases with one of the names in theirs, and of those every n-th (``k/n``)."""
    every = [*cases(), *model_cases()]
    wanted = [case for case in every if not names or any(name in case.name for name in names)]
    number, parts = (int(word) for word in part.split("/"))
    return wanted[number - 1 :: parts]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--part", default="1/1", help="k/n: every n-th case, from the k-th on")
    parser.add_argument("names", nargs="*", help="parts of names; all if none")
    given = parser.parse_args()
    print("| operator | data | ours, us | ONNX Runtime, us | ratio |\n|---|---|--:|--:|--:|")
    ratios: list[float] = []
    for case in chosen(given.names, given.part):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = compare(case, given.target, Path(folder))
        ratios.append(ours / theirs)
        shape = "x".join(map(str, case.shape))
        times = f"{1e6 * ours:.1f} | {1e6 * theirs:.1f} | {ratios[-1]:.2f}"
        print(f"| {case.name} | {shape} | {times} |", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / max(len(ratios), 1))
    print(f"\n{len(ratios)} cases: geometric mean {mean:.2f}, worst {max(ratios, default=0):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
