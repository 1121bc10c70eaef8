# SPDX-License-Identifier: Apache-2.0
"""Artifacts of open sizes beside those of fixed sizes and other runtimes, interleaved in one run.

``python -m tests.bench.open_sizes FOLDER [NAME ...]`` exports the models of ``open_models.py`` to
a folder, measures them on one thread, and prints a table: of each model and size our time by that
of our artifact for that size alone, and by that of each peer; of each model what compiling costs
more, its code, its workspace, and the first run of a size beside the next one. Ratios are of the
least times of all rounds, so that other work on the machine counts for nobody. ``--keep`` keeps
artifacts of fixed sizes in the folder for the next run. ``--workspace`` measures memory alone: what
is reserved and touched, on one thread and on two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import onnx

import intarsia
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_tools.peers import open_peer

from .open_models import MODELS, Inputs, Sizes, export
from .open_workspace import MemoryRow, measure_memory, print_memory

ROUND_SECONDS = 0.015
BARS = {"fixed": 1.10, "mean": 1.04, "peer": 1.0, "first": 2.0}
BUILD_BARS = {"seconds": 1.5, "code": 2.5, "workspace": 1.15}

Run = Callable[[Inputs], object]


@dataclass(frozen=True)
class SizeRow:
    """One model at one set of sizes; milliseconds.

    Attributes:
        sizes: Name of each size and its value.
        ours: Of the artifact of open sizes.
        times: Of everyone else, by name; ``fixed`` is our artifact for these sizes.
        first: The first run after a change of sizes, by the next one.
        memory: Of the workspace, beside that of the artifact for these sizes.
        error: The largest difference from the first peer's results, by their largest value.
    """

    sizes: Mapping[str, int]
    ours: float
    times: dict[str, float]
    first: float
    memory: MemoryRow
    error: float

    def ratio(self, name: str) -> float:
        """Return our time by another one."""
        return self.ours / self.times[name]

    @property
    def peer(self) -> float:
        """Our time by that of the fastest peer."""
        return self.ours / min(time for name, time in self.times.items() if name != "fixed")


@dataclass(frozen=True)
class ModelRow:
    """One model: what compiling costs by what it costs for its first sizes, and its sizes."""

    name: str
    seconds: float
    code: float
    rows: list[SizeRow] = field(default_factory=list[SizeRow])


@dataclass(frozen=True)
class _Built:
    path: Path
    seconds: float
    code: int


def _build(
    model: Path, path: Path, target: str, shapes: Mapping[str, Sequence[int]] | None
) -> _Built:
    notes = path.with_suffix(".json")
    if not path.exists() or not notes.exists():
        start = time.perf_counter()
        made = intarsia.build(str(model), target=target, shapes=shapes)
        seconds = time.perf_counter() - start
        made.save(path)
        notes.write_text(json.dumps(seconds))
    code = sum(len(text) for text in open_artifact(path).unit_files("main").values())
    return _Built(path, json.loads(notes.read_text()), code)


def _seconds(run: Run, inputs: Inputs, runs: int) -> float:
    start = time.process_time()
    for _ in range(runs):
        run(inputs)
    return (time.process_time() - start) / runs


def interleaved(contestants: Mapping[str, Run], inputs: Inputs, rounds: int) -> dict[str, float]:
    """Return the least milliseconds of a run of each contestant; in each round all run in turn."""
    counts = {}
    for name, run in contestants.items():
        run(inputs)
        counts[name] = max(1, int(ROUND_SECONDS / _seconds(run, inputs, 1)))
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            best[name] = min(best[name], _seconds(run, inputs, counts[name]))
    return {name: 1000 * seconds for name, seconds in best.items()}


def _first_by_next(run: Run, inputs: Inputs, others: Inputs) -> float:
    """Return the time of the first run of a size, by the next one; each the least of five."""
    first, after = float("inf"), float("inf")
    for _ in range(5):
        run(others)
        first = min(first, _seconds(run, inputs, 1))
        after = min(after, _seconds(run, inputs, 1))
    return first / after


def _error(ours: object, theirs: object) -> float:
    found = [np.asarray(value) for value in (ours.values() if isinstance(ours, dict) else [])]
    worst = 0.0
    for one, other in zip(found, theirs if isinstance(theirs, list) else [], strict=True):
        scale = float(np.abs(other).max(initial=1e-6))
        worst = max(worst, float(np.abs(one - other).max(initial=0.0)) / scale)
    return worst


def measure(
    name: str, folder: Path, target: str, rounds: int, peers: Sequence[str], keep: bool
) -> ModelRow:
    """Measure one model."""
    model, spec = export(name, folder), MODELS[name]
    with tempfile.TemporaryDirectory() as temporary:
        place = folder if keep else Path(temporary)
        tag = "".join(c if c.isalnum() else "_" for c in target)
        whole = _build(model, Path(temporary) / "open.intarsia", target, None)
        opened = intarsia.load(whole.path, threads=1)
        contestants: dict[str, Run] = {peer: open_peer(peer, model, 1) for peer in peers}
        made: ModelRow | None = None
        for number, sizes in enumerate(spec.sizes):
            inputs = spec.inputs(sizes)
            shapes = {key: array.shape for key, array in inputs.items()}
            words = "-".join(map(str, sizes.values()))
            alone = _build(model, place / f"{name}-{words}{tag}.intarsia", target, shapes)
            if made is None:
                made = ModelRow(name, whole.seconds / alone.seconds, whole.code / alone.code)
            fixed = intarsia.load(alone.path, threads=1)
            results = contestants[peers[0]](inputs)
            error = _error(opened.run(inputs), results)
            everyone = {"ours": opened.run, "fixed": fixed.run, **contestants}
            times = interleaved(everyone, inputs, rounds)
            other = spec.inputs(spec.sizes[number - 1])
            made.rows.append(
                SizeRow(
                    sizes,
                    times.pop("ours"),
                    times,
                    _first_by_next(opened.run, inputs, other),
                    _memory_row(name, sizes, (whole.path, alone.path), inputs, 1),
                    error,
                )
            )
    assert made is not None  # every model has sizes
    return made


def _memory_row(
    name: str, sizes: Sizes, paths: tuple[Path, Path], inputs: Inputs, threads: int
) -> MemoryRow:
    ours, fixed = (measure_memory(path, inputs, threads) for path in paths)
    return MemoryRow(name, sizes, threads, ours, fixed)


def measure_workspaces(name: str, folder: Path, target: str) -> list[MemoryRow]:
    """Measure the memory of one model at its first three sizes, on one thread and on two."""
    model, spec = export(name, folder), MODELS[name]
    rows: list[MemoryRow] = []
    with tempfile.TemporaryDirectory() as temporary:
        whole = _build(model, Path(temporary) / "open.intarsia", target, None)
        for number, sizes in enumerate(spec.sizes[:3]):
            inputs = spec.inputs(sizes)
            shapes = {key: array.shape for key, array in inputs.items()}
            alone = _build(model, Path(temporary) / f"{number}.intarsia", target, shapes)
            paths = (whole.path, alone.path)
            rows += [_memory_row(name, sizes, paths, inputs, threads) for threads in (1, 2)]
    return rows


def line_of(row: SizeRow) -> str:
    """Return a row of the table."""
    words = " ".join(f"{key}={value}" for key, value in row.sizes.items())
    theirs = "".join(f" | {row.ratio(name):.2f}" for name in row.times)
    rest = f"{row.first:.2f} | {row.memory.reserved:.2f} | {row.error:.1e}"
    return f"| {words} | {row.ours:.3f}{theirs} | {rest} |"


def _warm_up(target: str) -> None:
    """Build something small: the first build imports the compiler and starts its workers."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [8])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    intarsia.build(intarsia.from_onnx(model), target=target)


def main() -> None:
    """Measure, print, and write ``FOLDER/open_sizes.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--workspace", action="store_true", help="measure memory alone")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    peers = given.peer or ["onnxruntime"]
    _warm_up(given.target)
    names: Sequence[str] = given.names or tuple(MODELS)
    if given.workspace:
        memory = [measure_workspaces(name, given.folder, given.target) for name in names]
        print_memory([row for rows in memory for row in rows])
        return
    found: list[ModelRow] = []
    for name in names:
        try:
            row = measure(name, given.folder, given.target, given.rounds, peers, given.keep)
        except Exception as error:
            print(f"## {name}: {type(error).__name__}: {error}", flush=True)
            continue
        found.append(row)
        print(f"## {name}: compile {row.seconds:.2f}x, code {row.code:.2f}x", flush=True)
        print(f"| sizes | ms | {' | '.join(row.rows[0].times)} | first | workspace | error |")
        print(*map(line_of, row.rows), sep="\n", flush=True)
    rows = [row for one in found for row in one.rows]
    if rows:
        print(
            f"geometric mean: {geometric_mean(row.ratio('fixed') for row in rows):.3f} of fixed, "
            f"{geometric_mean(row.peer for row in rows):.3f} of the fastest peer"
        )
    (given.folder / "open_sizes.json").write_text(json.dumps([asdict(row) for row in found]))


if __name__ == "__main__":
    main()
