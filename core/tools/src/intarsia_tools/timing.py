# SPDX-License-Identifier: Apache-2.0
"""Times artifacts in a process of its own: whatever one of them does, the others are not lost."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np

from intarsia_runtime.abi import numpy_dtype
from intarsia_runtime.artifact.passport import TensorSpec
from intarsia_runtime.errors import IntarsiaError, UnsupportedError
from intarsia_runtime.load import Executable, load

SECONDS = 0.1
BATCH_SECONDS = 1e-4
LEAST_BATCHES = 5


def time_artifact(path: Path) -> float:
    """Return the seconds of one run, the least of many batches; floats are 0.5, integers 0.

    Raises:
        UnsupportedError: The size of an input is not known.
        IntarsiaError: It cannot be loaded here, or does not run.
    """
    executable = load(path)
    try:
        inputs: dict[str, np.ndarray] = {}
        for spec in executable.inputs:
            if not isinstance(spec, TensorSpec):
                raise UnsupportedError(f"input '{spec.name}' cannot be made up: its size is open")
            value = 0.5 if spec.dtype.is_float else 0
            inputs[spec.name] = np.full(spec.shape, value, numpy_dtype(spec.dtype))
        executable.run(inputs)  # what the first run sets up is not the region's cost
        begin = time.perf_counter()
        executable.run(inputs)
        runs = max(1, int(BATCH_SECONDS / max(time.perf_counter() - begin, 1e-7)))
        best, end = float("inf"), begin + SECONDS
        for _ in range(LEAST_BATCHES):  # other work on the machine only ever adds time
            best = min(best, _batch(executable, inputs, runs))
        while time.perf_counter() < end:
            best = min(best, _batch(executable, inputs, runs))
        return best
    finally:
        executable.close()


def _batch(executable: Executable, inputs: Mapping[str, np.ndarray], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        executable.run(inputs)
    return (time.perf_counter() - start) / runs


def run(job: Mapping[str, object]) -> None:
    """Time the ``files`` of a job; after each, its ``answer`` gets a line: seconds, or why not."""
    for file in cast("list[str]", job["files"]):
        try:
            timed: object = time_artifact(Path(file))
        except IntarsiaError as error:
            timed = error.message
        except Exception as error:  # what a plugin's loader made may raise anything
            timed = f"{type(error).__name__}: {error}"
        with Path(str(job["answer"])).open("a", encoding="utf-8") as answer:
            answer.write(json.dumps(timed) + "\n")
