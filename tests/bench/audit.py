# SPDX-License-Identifier: Apache-2.0
"""An audit of single operators of published networks beside ONNX Runtime and OpenVINO.

``python -m tests.bench.audit measure FILE [--part 1/4] [--names NAME ...]`` measures the lines of
``model_shapes.csv``, one thread each, the three in turn, and appends a line to FILE for each; lines
that FILE has are left out, so a run can go on where it ended. With ``--again 1.2``, those above
that ratio are measured once more, and the session with the smaller ratio is kept: other work is
more likely than a slow kernel. ``python -m tests.bench.audit write FILE ...`` writes
``docs/performance/audit.md`` from such files, one for each instruction set. Run it by
``tests.bench.masked`` for an older processor.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

import intarsia
from intarsia.target.detect import machine_facts
from intarsia_tools.peers import open_peer

from . import masked
from .shapes import Shape, read_shapes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance" / "audit.md"
PEERS = ("onnxruntime", "openvino")
ROUNDS, LEAST, SECONDS = 60, 7, 0.4
SLOW = 1.2


@dataclass(frozen=True)
class Row:
    """Best microseconds of each for a shape; ``machine`` says what CPUID showed."""

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
    """Return the best seconds of ours and of each peer, in turn; infinity of who does not take it.

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
        times = [[_seconds(run) for run in runs.values()] for _ in range(2)]
        until = time.perf_counter() + SECONDS
        while len(times) < LEAST or (len(times) < ROUNDS and time.perf_counter() < until):
            times.append([_seconds(run) for run in runs.values()])
    best = dict(zip(runs, (min(column) for column in zip(*times, strict=True)), strict=True))
    return tuple(best.get(name, math.inf) for name in ("intarsia", *PEERS))


def _check(shape: Shape, ours: dict[str, object], theirs: object) -> None:
    """Compare; bytes may differ where ONNX Runtime's sums of pairs saturate."""
    assert isinstance(theirs, list)
    for got, wanted in zip(ours.values(), theirs, strict=True):
        got, wanted = np.asarray(got), np.asarray(wanted)
        assert got.shape == wanted.shape
        if wanted.dtype.kind == "f":
            apart = float(np.abs(got - wanted).max()) / max(1e-6, float(np.abs(wanted).max()))
            assert apart < 1e-3, f"{shape.name}: {apart:g} apart"


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def read_rows(path: Path) -> list[Row]:
    """Read what was measured."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row(*line[:3], *map(float, line[3:])) for line in csv.reader(file)]


def measure_all(path: Path, shapes: Sequence[Shape], target: str) -> None:
    """Measure and append what the file does not have."""
    machine = masked.words() or "all instructions of the processor"
    done = {(row.machine, row.name) for row in read_rows(path)}
    for shape in shapes:
        if (machine, shape.name) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            best = measure(shape, target, Path(folder))
        row = Row(machine, shape.model, shape.name, *(round(1e6 * time, 2) for time in best))
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(astuple(row))
        print(f"{row.ratio:5.2f} {row.model}: {row.name} {row.ours:.1f}", flush=True)


def measure_again(path: Path, shapes: Sequence[Shape], target: str, limit: float) -> None:
    """Measure shapes above ``limit`` once more, and keep the session with the smaller ratio."""
    by_name = {shape.name: shape for shape in shapes}
    rows: list[Row] = []
    for row in read_rows(path):
        shape = by_name.get(row.name)
        if row.ratio > limit and shape is not None:
            with tempfile.TemporaryDirectory() as folder:
                best = measure(shape, target, Path(folder))
            again = Row(row.machine, row.model, row.name, *(round(1e6 * t, 2) for t in best))
            print(f"{row.ratio:5.2f} -> {again.ratio:.2f} {row.model}: {row.name}", flush=True)
            row = min(row, again, key=_ratio)
        rows.append(row)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(map(astuple, rows))


def _ratio(row: Row) -> float:
    return row.ratio


def mean(rows: Sequence[Row]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(sum(math.log(row.ratio) for row in rows) / max(1, len(rows)))


def page_text(files: Sequence[Path]) -> str:
    """Return the page: means by operator, and each shape by instruction set."""
    sets = [rows for path in files if (rows := read_rows(path))]
    lines = [
        "# Shapes of published networks",
        "",
        f"Shapes of published networks (`tests/bench/model_shapes.csv`), one thread, `llvm`, beside"
        f" ONNX Runtime and OpenVINO (fp32) in turn, from Python; {machine_facts().cpu}. A ratio is"
        " our best time by that of the faster one. The processor was masked with"
        " `python -m tests.bench.masked` where a row of the table says so: CPUID answers as an"
        " older one's, for all three; clock, caches and ports stay its own. Other work ran on the"
        " machine: shapes above 1.15 were measured up to three times, and the smallest ratio kept,"
        " which favors us."
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
    parser.add_argument("--again", type=float, help="measure what is above this ratio once more")
    given = parser.parse_args()
    if given.what == "write":
        PAGE.write_text(page_text(given.files))
        return 0
    wanted = [s for s in read_shapes() if not given.names or any(n in s.name for n in given.names)]
    number, parts = (int(word) for word in given.part.split("/"))
    wanted = wanted[number - 1 :: parts]
    if given.again:
        measure_again(given.files[0], wanted, given.target, given.again)
    else:
        measure_all(given.files[0], wanted, given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
