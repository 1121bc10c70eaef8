# SPDX-License-Identifier: Apache-2.0
"""What a call of a compiled graph costs beside the work; run alone, with ``-s``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx needs it")
pytestmark = pytest.mark.bench


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
