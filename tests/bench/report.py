# SPDX-License-Identifier: Apache-2.0
"""Measures against other runtimes, holds ratios against the committed ones, and writes the page.

``INTARSIA_MODELS=FOLDER python -m tests.bench.report`` measures, fails if a ratio is more than 15 %
worse than the machine's in ``ratios.json``, and else writes that file, the machine's page and
charts in ``docs/performance/``, and the geometric means in ``docs/performance.md``. ``--accept``
writes them anyway. By ``tests.bench.masked``, the machine is one of its own.
With ``INTARSIA_TORCH_PYTHON=PYTHON``, one that has torch, PyTorch's inductor takes part where it
takes the model; see ``torch_modules.py``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from intarsia.target.detect import machine_facts
from intarsia_tools.bench_plot import plot_rows

from . import masked
from .costs import Opened, compare_opening, compile_seconds, compile_times, growth
from .fastest_peer import (
    INDUCTOR,
    TARGETS,
    THREADS,
    TITLES,
    TORCH,
    Latency,
    mean_of,
    measure,
    table,
    took_part,
)
from .gate import read_ratios, regressions, this_machine, write_ratios

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
MACHINES = ROOT / "docs" / "performance"
BEGIN, END = "<!-- geometric means: begin -->", "<!-- geometric means: end -->"

OPENED = ("resnet50", "mobilenet_v2", "bert_base_128", "tiny_resnet8", "resnet50_qdq")
SIZES = (100, 1000, 5000, 10000, 20000)


@dataclass(frozen=True)
class Costs:
    """What a model costs for one target, besides its runs.

    Attributes:
        model: Its name.
        target: What it is compiled for.
        compile_seconds: Processor time of a cold compile.
        opened: Opening and memory beside ONNX Runtime.
    """

    model: str
    target: str
    compile_seconds: float
    opened: Opened

    def ratios(self) -> dict[str, float]:
        """Return the ratios that the gate holds, by name."""
        name = f"{self.model} [{self.target}]"
        return {
            f"open {name}": self.opened.cold_ratio,
            f"open again {name}": self.opened.again_ratio,
            f"memory {name}": self.opened.peak_ratio,
        }


def opening(models: Sequence[Path], rounds: int) -> list[Costs]:
    """Measure compiling, opening and memory of each model for each target."""
    found: list[Costs] = []
    with tempfile.TemporaryDirectory() as folder:
        for model, target in itertools.product(models, TARGETS):
            artifact = Path(folder) / f"{model.stem}.intarsia"
            seconds = compile_seconds(model, target, artifact)
            opened = compare_opening(model, artifact, rounds)
            artifact.unlink()
            found.append(Costs(model.stem, target, seconds, opened))
            print(found[-1], flush=True)
    return found


def ratios_of(rows: Sequence[Latency], costs: Sequence[Costs]) -> dict[str, float]:
    """Return all ratios that the gate holds, by name."""
    found = {row.name: row.fastest.ratio for row in rows}
    for cost in costs:
        found.update(cost.ratios())
    return found


def page_text(
    machine: str, rows: Sequence[Latency], costs: Sequence[Costs], times: dict[int, float]
) -> str:
    """Return the page of a machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        f"# Measured on `{machine}`",
        "",
        f"Measured {today} on {os.cpu_count()} processors ({machine_facts().cpu}), "
        f"{platform.system()}, Python {platform.python_version()}, {_versions()}; batch 1; load "
        f"average {os.getloadavg()[2]:.1f} from other work. {_mask()}A ratio is our time by "
        f"that of the fastest of {_contest(rows)} in the same round, the median over the rounds.",
    ]
    for threads in sorted({row.fastest.threads for row in rows}):
        lines += ["", f"{threads} thread{'s' * (threads > 1)}:", "", *table(rows, threads)]
    lines += [
        "",
        f"![Ratios of latency]({file_of(machine, '-latency.svg')})",
        "",
        "Processor time until a new process has opened a model (an artifact, or a session of ONNX "
        "Runtime), with imports, and to open it once more; peak memory of the process after three "
        "runs; processor time of a cold compile:",
        "",
        "| model | target | open, ms | ONNX Runtime | ratio | again, ms | ONNX Runtime | ratio "
        "| MB | ONNX Runtime | ratio | compile, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_cost_line(cost) for cost in costs),
        "",
        f"Processor time to compile a chain of products and element-wise operators for "
        f"`{TARGETS[1]}`; a node of the longest chain costs {growth(times):.2f} times one of the "
        "second longest:",
        "",
        "| nodes | seconds | milliseconds a node |",
        "|--:|--:|--:|",
        *(f"| {n} | {s:.1f} | {1e3 * s / n:.2f} |" for n, s in times.items()),
        "",
        f"![Compile time by number of nodes]({file_of(machine, '-compile-time.svg')})",
        "",
    ]
    return "\n".join(lines)


def _mask() -> str:
    """Say which instructions the processor hides; empty if it hides none."""
    words = masked.words()
    if words is None:
        return ""
    return (
        f"CPUID was masked for all libraries of the processes (`tests/bench/masked.py`): {words}. "
        "Clock, caches and ports stay those of the processor. "
    )


def _contest(rows: Sequence[Latency]) -> str:
    """Who took part, and how many models the one takes that does not take all."""
    peers = took_part(rows)
    models = {row.fastest.model for row in rows if INDUCTOR in row.peers}
    several = f", which takes {len(models)} of the models" if INDUCTOR in peers else ""
    return " and ".join(TITLES[peer] for peer in peers) + several + ("," if several else "")


def _cost_line(cost: Costs) -> str:
    ours, theirs = cost.opened.ours, cost.opened.theirs
    opened = (
        f"{1e3 * ours.cold:.0f} | {1e3 * theirs.cold:.0f} | {_shown(cost.opened.cold_ratio)} "
        f"| {1e3 * ours.again:.1f} | {1e3 * theirs.again:.1f} | {_shown(cost.opened.again_ratio)} "
        f"| {ours.peak / 1e6:.0f} | {theirs.peak / 1e6:.0f} | {_shown(cost.opened.peak_ratio)} "
    )
    return f"| {cost.model} | `{cost.target}` | {opened}| {cost.compile_seconds:.1f} |"


def file_of(machine: str, ending: str) -> str:
    """Return the name of a machine's page or chart."""
    return f"{machine.replace('/', '-')}{ending}"


def with_means(page: str, machines: Mapping[str, Mapping[str, float]]) -> str:
    """Return the page with the geometric means of each machine between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no marks {BEGIN} and {END}")
    columns = [(target, threads) for threads in THREADS for target in TARGETS]
    lines = [
        "| processor | models "
        + "".join(f"| `{target}`, {n} thread{'s' * (n > 1)} " for target, n in columns)
        + "|",
        "|---|---" + "|--:" * len(columns) + "|",
    ]
    for machine, ratios in sorted(machines.items()):
        link = f"[`{machine}`](performance/{file_of(machine, '.md')})"
        for models, bytewise in (("fp32", False), ("8 bits", True)):
            means = [mean_of(ratios, *column, bytewise=bytewise) for column in columns]
            if any(means):
                cells = "".join(f"| {mean:.2f} " if mean else "| " for mean in means)
                lines.append(f"| {link} | {models} {cells}|")
    return "\n".join([before + begin, *lines, end + after])


def plot_times(times: dict[int, float], path: Path) -> None:
    """Draw compile time by number of nodes, with the line from the first point to the last."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "intarsia", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.0, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.plot(list(times), list(times.values()), "o-", color="#2a6f97", label="measured")
        ends = sorted(times)[:: len(times) - 1]
        axes.plot(ends, [times[n] for n in ends], "--", color="#333333", label="linear")
        axes.set_xlabel("nodes")
        axes.set_ylabel("seconds of processor time")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend()
        figure.savefig(path, metadata={"Date": None})


def _shown(ratio: float) -> str:
    """As the file of ratios, rounded once more has it."""
    return f"{round(ratio, 3):.2f}"


def _versions() -> str:
    names = ("intarsia", "onnxruntime", "openvino", "llvmlite", "onednn-cpu-gomp")
    installed = {made.name for made in importlib.metadata.distributions()}
    here = [f"{name} {importlib.metadata.version(name)}" for name in names if name in installed]
    return ", ".join([*here, *_torch()])


def _torch() -> list[str]:
    """The version of torch where the variable names a Python that has it."""
    python = os.environ.get(TORCH)
    code = "import torch; print('torch', torch.__version__)"
    if not python:
        return []
    return [subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()]


def main() -> int:
    """Measure, gate, write; 10 if the gate fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--accept", action="store_true", help="write also what is worse")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=list(THREADS))
    chosen = parser.parse_args()
    folder = Path(os.environ.get("INTARSIA_MODELS", ""))
    models = sorted(folder.glob("*.onnx")) if os.environ.get("INTARSIA_MODELS") else []
    if not models:
        print("set INTARSIA_MODELS to a folder of ONNX models with static shapes")
        return 2
    machine = this_machine()
    committed = read_ratios().get(machine, {})
    rows = measure(models, chosen.rounds, committed, chosen.threads)
    opened = [model for model in models if model.stem in OPENED]
    costs = opening(opened, max(3, chosen.rounds // 2))
    times = compile_times(SIZES, TARGETS[1])
    new = ratios_of(rows, costs)
    worse = regressions(committed, new)
    for one in worse:
        print(f"worse: {one}")
    if worse and not chosen.accept:
        return 10
    write_ratios(machine, new)
    MACHINES.mkdir(exist_ok=True)
    bars = [row.fastest for row in rows if row.fastest.threads == 1]
    title = "latency beside the fastest other runtime, one thread"
    plot_rows(bars, MACHINES / file_of(machine, "-latency.svg"), title)
    plot_times(times, MACHINES / file_of(machine, "-compile-time.svg"))
    page = MACHINES / file_of(machine, ".md")
    page.write_text(page_text(machine, rows, costs, times))
    PAGE.write_text(with_means(PAGE.read_text(), read_ratios()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
