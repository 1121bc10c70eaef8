# SPDX-License-Identifier: Apache-2.0
"""What compiled graphs cost in PyTorch: the first call, a call, a new size; run with ``-s``.

Contestants are this backend, torch itself and inductor. First calls are those of processes of their
own: of inductor once after another graph has filled its folder, so that its headers are compiled
(``first``), and once more with its cache of this graph (``again``); of ours with an empty cache and
a filled one. ``torch_calls_child.py`` is what such a process runs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.bench

MODULES = ("mlp", "bert", "resnet", "gru", "decoder")


def microseconds(run: Callable[[object], object], x: object) -> float:
    start = time.perf_counter()
    run(x)
    return 1e6 * (time.perf_counter() - start)


def test_torch_call() -> None:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    x = torch.randn(1, 8)
    options = {"target": "llvm", "threads": 1, "fallback": False}
    models = {
        "intarsia": torch.compile(model, backend="intarsia", options=options),
        "dynamo": torch.compile(model, backend="eager"),
        "eager": model,
    }
    times: dict[str, list[float]] = {name: [] for name in models}
    with torch.no_grad():
        for turn in range(1100):
            for name, run in models.items():
                took = microseconds(run, x)
                if turn >= 100:
                    times[name].append(took)
    medians = {name: statistics.median(values) for name, values in times.items()}
    print({name: f"{value:.1f} us" for name, value in medians.items()})
    assert medians["intarsia"] - medians["dynamo"] < 100


def _child(backend: str, module: str, folder: Path) -> dict[str, float]:
    """Return what a process measures that compiles a module and calls it at several sizes."""
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "INTARSIA_CACHE_DIR": str(folder / "intarsia"),
    }
    script = Path(__file__).with_name("torch_calls_child.py")
    command = [sys.executable, str(script), backend, module]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=600)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("module", MODULES)
def test_first_calls_and_new_sizes(module: str, tmp_path: Path) -> None:
    _child("inductor", "headers", tmp_path)
    rows: dict[str, dict[str, float]] = {}
    for backend in ("intarsia", "inductor"):
        first, again = (_child(backend, module, tmp_path) for _ in range(2))
        rows[backend] = {**first, "again": again["first"]}
    for backend, row in rows.items():
        print(module, backend, {name: round(value, 4) for name, value in row.items()})
    assert rows["intarsia"]["first"] <= 1.5 * rows["inductor"]["first"]
