# SPDX-License-Identifier: Apache-2.0
"""What a model costs besides its runs: opening it, memory, and compile time by number of nodes.

Every measurement is a process of its own, and what is counted is its processor time. Ours and ONNX
Runtime's alternate. The byte code of modules is there, as installing a wheel leaves it. Memory is
what Linux calls VmHWM: the maximum that ``getrusage`` gives begins with that of the parent process.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .chains import write_chain

_OURS = """
import json, sys, time
import numpy as np
from intarsia_runtime.load import load
model = load(sys.argv[1], threads=1)
cold = time.process_time()
from intarsia.driver.arrays import random_inputs
inputs = random_inputs(model.inputs, 0)
for _ in range(3): model.run(inputs)
kib = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))
start = time.process_time()
load(sys.argv[1], threads=1)
again = time.process_time() - start
print(json.dumps([cold, again, kib * 1024]))
"""

_ONNXRUNTIME = """
import json, sys, time
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 3
def open_model():
    return onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
model = open_model()
cold = time.process_time()
kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
inputs = {i.name: np.zeros([d if isinstance(d, int) else 1 for d in i.shape], kinds[i.type])
          for i in model.get_inputs()}
for _ in range(3): model.run(None, inputs)
kib = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))
start = time.process_time()
open_model()
again = time.process_time() - start
print(json.dumps([cold, again, kib * 1024]))
"""


@dataclass(frozen=True)
class Cost:
    """Opening and memory of one model in one runtime.

    Attributes:
        cold: Processor time of a new process until it is open: imports, and an artifact loaded or
            a session made.
        again: Processor time to open it a second time in that process.
        peak: Bytes of memory of the process once it opened it and ran it three times.
    """

    cold: float
    again: float
    peak: float


@dataclass(frozen=True)
class Opened:
    """A comparison; times and sizes are medians over rounds, ratios those of each round.

    Attributes:
        ours: Of the artifact.
        theirs: Of ONNX Runtime.
        cold_ratio: Ours by theirs.
        again_ratio: Ours by theirs.
        peak_ratio: Ours by theirs.
    """

    ours: Cost
    theirs: Cost
    cold_ratio: float
    again_ratio: float
    peak_ratio: float


def _cost(program: str, path: Path) -> Cost:
    env = {**os.environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # the first, which is not counted, compiles modules
    argv = [sys.executable, "-c", program, str(path)]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    return Cost(*json.loads(run.stdout))


def compare_opening(model: Path, artifact: Path, rounds: int = 5) -> Opened:
    """Open and run a model both ways, in turn.

    Args:
        model: The ONNX file.
        artifact: What it was compiled to.
        rounds: How often.
    """
    ours: list[Cost] = []
    theirs: list[Cost] = []
    _cost(_OURS, artifact)
    for _ in range(rounds):
        ours.append(_cost(_OURS, artifact))
        theirs.append(_cost(_ONNXRUNTIME, model))
    pairs = list(zip(ours, theirs, strict=True))
    return Opened(
        _middle(ours),
        _middle(theirs),
        _median(a.cold / b.cold for a, b in pairs),
        _median(a.again / b.again for a, b in pairs),
        _median(a.peak / b.peak for a, b in pairs),
    )


def compile_seconds(model: Path, target: str, artifact: Path | None = None) -> float:
    """Compile in a process of its own; return the seconds of processor time that it took.

    Args:
        model: The ONNX file.
        target: What for.
        artifact: Where to; nowhere that lasts if ``None``.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = artifact or Path(folder) / "m.intarsia"
        argv = [sys.executable, "-m", "intarsia", "compile", str(model), "--target", target]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {**os.environ, "INTARSIA_RECORDS": "none"}
        subprocess.run(
            [*argv, "--no-cache", "-o", str(out)], check=True, capture_output=True, env=env
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compile_times(sizes: tuple[int, ...], target: str) -> dict[int, float]:
    """Return the processor time to compile a chain of each number of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        return {nodes: compile_seconds(write_chain(path, nodes), target) for nodes in sizes}


def growth(times: dict[int, float]) -> float:
    """How much more a node costs in the largest model than in the second largest; 1 is linear.

    What every compilation costs, that of the smallest, is taken off both.
    """
    sizes = sorted(times)
    base, middle, last = sizes[0], sizes[-2], sizes[-1]
    return ((times[last] - times[base]) / (last - base)) / (
        (times[middle] - times[base]) / (middle - base)
    )


def _middle(costs: list[Cost]) -> Cost:
    return Cost(
        _median(c.cold for c in costs),
        _median(c.again for c in costs),
        _median(c.peak for c in costs),
    )


def _median(values: object) -> float:
    return statistics.median(values)  # type: ignore[call-overload]
