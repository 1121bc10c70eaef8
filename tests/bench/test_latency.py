# SPDX-License-Identifier: Apache-2.0
"""Latency, compile time and call overhead against ONNX Runtime, interleaved in one run.

Models: those in the folder named by ``INTARSIA_MODELS`` (``tests/e2e/real_models.py``). Times are
medians over rounds; ratios are medians of the ratios of each round, so that drift cancels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia

MODELS = ("resnet50", "vgg16", "bert_base_128", "mobilenet_v2")
BARS = {"dnnl, llvm": 1.0, "llvm": 1.2}
"""Our time by that of ONNX Runtime, at most."""

COMPILE_SECONDS = {
    ("resnet50", "dnnl, llvm"): 2.0,
    ("resnet50", "llvm"): 6.0,
    ("bert_base_128", "dnnl, llvm"): 4.0,
    ("bert_base_128", "llvm"): 10.0,
}
CALL_MICROSECONDS = 10.0


def model_path(name: str) -> Path:
    """Return the model's file, or skip."""
    folder = os.environ.get("INTARSIA_MODELS")
    path = Path(folder or "") / f"{name}.onnx"
    if folder is None or not path.exists():
        pytest.skip(f"set INTARSIA_MODELS to a folder with {name}.onnx")
    return path


@pytest.mark.bench
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", BARS)
@pytest.mark.parametrize("name", MODELS)
def test_latency(name: str, target: str, threads: int) -> None:
    argv = [sys.executable, "-m", "intarsia", "bench", str(model_path(name)), "--target", target]
    argv += ["--vs", "onnxruntime", "--threads", str(threads), "--rounds", "7", "--json"]
    run = subprocess.run(argv, capture_output=True, text=True, check=True)
    (row,) = (r for r in json.loads(run.stdout)["rows"] if r["peer"] == "onnxruntime")
    print(
        f"\n{name} {target!r} {threads} thread(s): {row['ratio']:.2f}x of ONNX Runtime"
        f" [{row['ratio_low']:.2f}-{row['ratio_high']:.2f}], {row['median_ms']:.2f} ms"
    )
    assert row["ratio"] <= BARS[target]


@pytest.mark.bench
@pytest.mark.parametrize(("name", "target"), COMPILE_SECONDS)
def test_cold_compile(tmp_path: Path, name: str, target: str) -> None:
    argv = [sys.executable, "-m", "intarsia", "compile", str(model_path(name))]
    argv += ["--target", target, "--no-cache", "-o", str(tmp_path / "m.intarsia")]
    start = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    print(f"\ncold compile of {name} for {target!r}: {seconds:.2f} s")
    assert seconds <= COMPILE_SECONDS[name, target]


@pytest.mark.bench
def test_call_overhead(tmp_path: Path) -> None:
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8])
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "relu", [shape], [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    executable = intarsia.load(
        intarsia.build(intarsia.from_onnx(model), target="llvm").save(tmp_path / "relu.intarsia")
    )
    inputs = {"x": np.ones((1, 8), np.float32)}
    rounds: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(500):
            executable.run(inputs)
        rounds.append((time.perf_counter() - start) / 500)
    best, median = 1e6 * min(rounds), 1e6 * float(np.median(rounds))
    print(f"\none relu from NumPy: median {median:.2f} us, best {best:.2f} us a call")
    assert median <= CALL_MICROSECONDS
