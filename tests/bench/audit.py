# SPDX-License-Identifier: Apache-2.0
"""An audit of single operators of published networks beside ONNX Runtime and OpenVINO.

``python -m tests.bench.audit measure FILE [--part 1/4] [--names NAME ...]`` measures the lines of
``model_shapes.csv``, one thread each, the three in turn, and appends a line to FILE for each; lines
that FILE has are left out, so a run can go on where it ended. Each shape is measured once, by one
rule: CPU time of the process, which does not count what other work takes of the processor, in
rounds of the three in turn until :data:`SECONDS` are over; rounds go on where the quartiles of a
time are far apart, and the medians of all rounds count. ``python -m tests.bench.audit write FILE
...`` writes ``docs/performance/audit.md`` from such files, one for each instruction set. Run it by
``tests.bench.masked`` for an older processor.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

import intarsia
from intarsia.target.detect import machine_facts
from intarsia_tools.peers import open_peer

from . import masked
from .gate import this_machine
from .shapes import Shape, read_shapes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance" / "audit.md"
PEERS = ("onnxruntime", "openvino")
ROUNDS, LEAST, SECONDS = 60, 7, 0.4
LEAST_SECONDS = 1e-4
"""Calls of all three are repeated until the fastest takes so long: a clock is read in 1e-6 s."""
WIDE, MORE = 0.15, 3
"""Quartiles so far apart, of the median, take so many times the rounds."""
SLOW = 1.2


@dataclass(frozen=True)
class Row:
    """Median microseconds of each for a shape; ``machine`` says what CPUID showed."""

    machine: str
    model: str
    name: str
    ours: float
    onnxruntime: float
    openvino: float

    @property
    def ratio(self) -> float:
        """Our time by that of the faster peer."""
        return self.ours / min(self.onnxruntime, self.openvino)


def measure(shape: Shape, target: str, folder: Path) -> tuple[float, ...]:
    """Return the median seconds of ours and of each peer; infinity of who does not take it.

    Raises:
        AssertionError: Our results are not those of ONNX Runtime.
    """
    model = folder / "one.onnx"
    data = shape.save(model)
    built = intarsia.build(str(model), target).save(folder / "one.intarsia")
    runs: dict[str, Callable[[], object]] = {}
    with intarsia.load(built, threads=1) as executable:
        runs["intarsia"] = lambda: executable.run(data)
        for name in PEERS:
            try:
                run = open_peer(name, model, 1)
            except intarsia.IntarsiaError as error:
                print(f"{shape.name}: {str(error)[:120]}", file=sys.stderr)
                continue
            runs[name] = lambda run=run: run(data)
        _check(shape, executable.run(data), runs[PEERS[0]]())
        short = [min(_seconds(run) for _ in range(3)) for run in runs.values()]
        calls = max(1, int(LEAST_SECONDS / min(short)))
        times = _rounds(runs, calls, 1)
        if any(_is_wide(column) for column in zip(*times, strict=True)):
            times += _rounds(runs, calls, MORE - 1)
    columns = zip(*times, strict=True)
    medians = dict(zip(runs, (statistics.median(column) for column in columns), strict=True))
    return tuple(medians.get(name, math.inf) for name in ("intarsia", *PEERS))


def _rounds(runs: Mapping[str, Callable[[], object]], calls: int, share: int) -> list[list[float]]:
    """Return the seconds of rounds of all in turn, ``share`` times the usual number at most."""
    times: list[list[float]] = []
    until = time.perf_counter() + share * SECONDS
    while len(times) < LEAST or (len(times) < share * ROUNDS and time.perf_counter() < until):
        times.append([_seconds(run, calls) for run in runs.values()])
    return times


def _is_wide(times: Sequence[float]) -> bool:
    """Whether the quartiles of times are far apart."""
    low, middle, high = statistics.quantiles(times, n=4)
    return high - low > WIDE * middle


def _check(shape: Shape, ours: dict[str, object], theirs: object) -> None:
    """Compare; bytes may differ where ONNX Runtime's sums of pairs saturate."""
    assert isinstance(theirs, list)
    for got, wanted in zip(ours.values(), theirs, strict=True):
        got, wanted = np.asarray(got), np.asarray(wanted)
        assert got.shape == wanted.shape
        if wanted.dtype.kind == "f":
            apart = float(np.abs(got - wanted).max()) / max(1e-6, float(np.abs(wanted).max()))
            assert apart < 1e-3, f"{shape.name}: {apart:g} apart"


def _seconds(run: Callable[[], object], calls: int = 1) -> float:
    start = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - start) / calls


def read_rows(path: Path) -> list[Row]:
    """Read what was measured."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row(*line[:3], *map(float, line[3:])) for line in csv.reader(file)]


def measure_all(path: Path, shapes: Sequence[Shape], target: str) -> None:
    """Measure and append what the file does not have."""
    instructions = masked.words() or f"{this_machine().split('/')[1]}, all instructions"
    machine = f"{instructions}; {machine_facts().cpu}"
    done = {(row.machine, row.name) for row in read_rows(path)}
    for shape in shapes:
        if (machine, shape.name) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            medians = measure(shape, target, Path(folder))
        row = Row(machine, shape.model, shape.name, *(round(1e6 * time, 2) for time in medians))
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(astuple(row))
        print(f"{row.ratio:5.2f} {row.model}: {row.name} {row.ours:.1f}", flush=True)


def mean(rows: Sequence[Row]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(sum(math.log(row.ratio) for row in rows) / max(1, len(rows)))


def page_text(files: Sequence[Path]) -> str:
    """Return the page: means by operator, and each shape by instruction set."""
    sets = [rows for path in files if (rows := read_rows(path))]
    lines = [
        "# Shapes of published networks",
        "",
        "Shapes of published networks (`tests/bench/model_shapes.csv`), one thread, `llvm`, beside"
        " ONNX Runtime and OpenVINO (fp32) in turn, from Python. A ratio is"
        " our median time by that of the faster one. The processor was masked with"
        " `python -m tests.bench.masked` where a row of the table says so: CPUID answers as an"
        " older one's, for all three; clock, caches and ports stay its own. Times are CPU time of"
        " the process, as other work ran on the machine. Every shape was measured once, by the"
        f" same rule: rounds of all three in turn for {SECONDS} s, {MORE} times as many where the"
        f" quartiles of a time are more than {WIDE:.0%} of it apart, and the medians of all rounds."
        " `python -m tests.bench.audit`.",
        "",
        "| instructions | shapes | geometric mean | above 1.0 | above 1.2 | worst |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for rows in sets:
        above = [sum(row.ratio > limit for row in rows) for limit in (1.0, SLOW)]
        worst = max(row.ratio for row in rows)
        lines.append(
            f"| {rows[0].machine} | {len(rows)} | {mean(rows):.2f} | {above[0]} | {above[1]} "
            f"| {worst:.2f} |"
        )
    lines += ["", *_by_operator(sets), "", "Slower than the faster one by a fifth or more:", ""]
    lines += ["| instructions | network | shape | ours, us | ONNX Runtime | OpenVINO | ratio |"]
    lines += ["|---|---|---|--:|--:|--:|--:|"]
    for rows in sets:
        slow = sorted((row for row in rows if row.ratio > SLOW), key=lambda row: -row.ratio)
        lines += [f"| {_short(row.machine)} | {_line(row)} |" for row in slow]
    lines += ["", "All others:", "", "| instructions | network | shape | ours, us | ONNX Runtime "]
    lines[-1] += "| OpenVINO | ratio |"
    lines += ["|---|---|---|--:|--:|--:|--:|"]
    for rows in sets:
        lines += [f"| {_short(row.machine)} | {_line(row)} |" for row in rows if row.ratio <= SLOW]
    return "\n".join([*lines, ""])


def _by_operator(sets: Sequence[Sequence[Row]]) -> list[str]:
    names = sorted({row.name.split()[0] for rows in sets for row in rows})
    heads = "".join(f"| {_short(rows[0].machine)} | worst " for rows in sets)
    lines = [f"| operator | shapes {heads}|", "|---|--:" + "|--:|--:" * len(sets) + "|"]
    for name in names:
        groups = [[row for row in rows if row.name.split()[0] == name] for rows in sets]
        cells = "".join(
            f"| {mean(group):.2f} | {max(row.ratio for row in group):.2f} " if group else "| | "
            for group in groups
        )
        lines.append(f"| `{name}` | {max(map(len, groups))} {cells}|")
    return lines


def _short(machine: str) -> str:
    return machine.partition(",")[0].partition(" (")[0].partition(" of ")[0]


def _line(row: Row) -> str:
    peers = " | ".join("" if math.isinf(t) else f"{t:.1f}" for t in (row.onnxruntime, row.openvino))
    return f"{row.model} | `{row.name}` | {row.ours:.1f} | {peers} | {row.ratio:.2f}"


def main() -> int:
    """Measure, or write the page."""
    assert [entry.name for entry in fields(Row)][4:] == list(PEERS)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("measure", "write"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--names", nargs="*", default=[], help="parts of lines; all if none")
    parser.add_argument("--part", default="1/1", help="k/n: every n-th line, from the k-th on")
    parser.add_argument("--target", default="llvm")
    given = parser.parse_args()
    if given.what == "write":
        PAGE.write_text(page_text(given.files))
        return 0
    wanted = [s for s in read_shapes() if not given.names or any(n in s.name for n in given.names)]
    number, parts = (int(word) for word in given.part.split("/"))
    wanted = wanted[number - 1 :: parts]
    measure_all(given.files[0], wanted, given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
