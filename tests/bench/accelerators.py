# SPDX-License-Identifier: Apache-2.0
"""What accelerators make of quantized models: placement, difference to ONNX Runtime, estimates.

``python -m tests.bench.accelerators TARGET MODEL.onnx...`` prints Markdown: for each model the line
of its placement and the largest difference to ONNX Runtime in steps of the output's scale; and
for each region a bar of the cycles that the vendor's own tools estimate. Those are Vela's
``cycles_total``, and of the Ethos-N Support Library the cycles of the multiply-accumulate engine
over all passes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import intarsia
from intarsia.driver.artifact import Artifact

_BAR = 40


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: Of the file.
        placement: What was offloaded, in words.
        quanta: Largest difference of an output to ONNX Runtime, in steps between its numbers.
        cycles: Estimated cycles by region; empty if the vendor's tools are not there.
    """

    name: str
    placement: str
    quanta: float
    cycles: dict[str, float]


def measure(path: Path, target: str) -> Row:
    """Build a model, simulate it on random inputs, and compare."""
    artifact = intarsia.build(path, target)
    simulated = intarsia.build(path, target.replace(",", " -simulate,", 1))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    inputs = {
        spec.name: rng.standard_normal(spec.shape).astype(np.float32)
        for spec in session.get_inputs()
    }
    found = simulated.load().run(inputs)
    apart = 0.0
    for spec, given in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        wanted = np.asarray(given)
        levels = np.unique(wanted)
        step = np.diff(levels).min() if levels.size > 1 else 1.0
        apart = max(apart, float(np.abs(found[spec.name] - wanted).max() / step))
    return Row(path.stem, str(artifact.placement), apart, cycles_of(artifact))


def cycles_of(artifact: Artifact) -> dict[str, float]:
    """Return the vendor's estimate for each region: of Vela, or of the Support Library."""
    found: dict[str, float] = {}
    for unit in artifact.units:
        if "estimate.json" in unit.files:
            estimates = json.loads(unit.files["estimate.json"])["estimates"]
            found[unit.name] = estimates["cycles_total"]
        if "performance.json" in unit.files:
            passes = json.loads(unit.files["performance.json"])["Stream"]
            found[unit.name] = sum(each["Mce"]["CycleCount"] for each in passes)
    return found


def print_rows(rows: list[Row]) -> str:
    """Return the table and the chart."""
    lines = ["| model | placement | difference |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.placement} | {row.quanta:.0f} |" for row in rows]
    bars = [
        (f"{row.name} {region}", cycles) for row in rows for region, cycles in row.cycles.items()
    ]
    if bars:
        most, width = max(cycles for _, cycles in bars), max(len(name) for name, _ in bars)
        lines += ["", "```text"]
        for name, cycles in bars:
            bar = "#" * max(1, round(_BAR * cycles / most))
            lines.append(f"{name:{width}}  {bar:{_BAR}} {cycles:>12,.0f} cycles")
        lines.append("```")
    return "\n".join(lines)


if __name__ == "__main__":
    print(print_rows([measure(Path(path), sys.argv[1]) for path in sys.argv[2:]]))
