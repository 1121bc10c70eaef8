# SPDX-License-Identifier: Apache-2.0
"""Code of the fallback against what this processor can do: multiplications and additions a second.

The peak is measured by a loop of independent fused multiply-adds in registers, compiled by the C
compiler, in turns with the code under test; each is taken at its best.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia
from intarsia_runtime.cpu import this_machine

LEAST = 0.85
ROUNDS = 100
CHAINS = 20  # sums on their way at once: more than a processor can keep waiting
STEPS = 100_000

PEAK = """
typedef float lanes __attribute__((vector_size(%(bytes)d)));
float peak(long steps, float seed) {
    lanes factor = {0}, term = {0}, %(clear)s;
    factor += seed; term += seed; %(begin)s
    for (long i = 0; i < steps; ++i) {
        %(add)s
    }
    lanes all = %(all)s;
    return all[0];
}
"""


def compile_peak(folder: Path) -> tuple[Callable[[], object], float]:
    """Return a loop of multiply-adds, and how many operations a call does."""
    compiler = shutil.which("cc")
    features = this_machine().cpu_features or frozenset[str]()
    if compiler is None or "fma" not in features:
        pytest.skip("needs a C compiler and a processor with fused multiply-adds of x86-64")
    size = 64 if "avx512f" in features else 32
    names = [f"s{number}" for number in range(CHAINS if size == 64 else CHAINS // 2)]
    text = PEAK % {
        "bytes": size,
        "clear": ", ".join(f"{name} = {{0}}" for name in names),
        # Chains that begin alike would be computed once.
        "begin": " ".join(f"{name} += {number} * seed;" for number, name in enumerate(names)),
        "add": " ".join(f"{name} = {name} * factor + term;" for name in names),
        "all": " + ".join(names),
    }
    source, library = folder / "peak.c", folder / "peak.so"
    source.write_text(text)
    flags = ["-O2", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).peak
    function.argtypes, function.restype = (ctypes.c_long, ctypes.c_float), ctypes.c_float

    def run() -> object:
        return function(STEPS, 0.5)

    return run, 2.0 * len(names) * (size // 4) * STEPS


def product() -> tuple[onnx.NodeProto, list[int], list[int], list[int]]:
    """Return a product of matrices, the shapes of data, weights and result."""
    square = [1024, 1024]
    return onnx.helper.make_node("MatMul", ["x", "w"], ["y"]), square, square, square


def convolution() -> tuple[onnx.NodeProto, list[int], list[int], list[int]]:
    """Return a 3x3 convolution of a residual block of ResNet-50."""
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    return node, [1, 64, 56, 56], [64, 64, 3, 3], [1, 64, 56, 56]


def compile_model(
    folder: Path, node: onnx.NodeProto, data: list[int], weights: list[int], result: list[int]
) -> Callable[[], object]:
    """Return a call of the model on one thread."""
    values = np.random.default_rng(0).standard_normal(weights).astype(np.float32)
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, data)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)],
        [onnx.numpy_helper.from_array(values, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    built = intarsia.build(intarsia.from_onnx(model), target="llvm")
    executable = intarsia.load(built.save(folder / "one.intarsia"), threads=1)
    inputs = {"x": np.ones(data, np.float32)}
    outputs = {"y": np.empty(result, np.float32)}
    return lambda: executable.run_into(inputs, outputs)


def seconds(run: Callable[[], object]) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@pytest.mark.bench
@pytest.mark.parametrize("make", [product, convolution])
def test_code_reaches_the_processors_peak(
    tmp_path: Path, make: Callable[[], tuple[onnx.NodeProto, list[int], list[int], list[int]]]
) -> None:
    peak, peak_operations = compile_peak(tmp_path)
    node, data, weights, result = make()
    run = compile_model(tmp_path, node, data, weights, result)
    operations = 2.0 * np.prod(result) * (weights[0] if len(weights) == 2 else np.prod(weights[1:]))
    rounds = [(seconds(peak), seconds(run)) for _ in range(ROUNDS)]
    best = peak_operations / min(first for first, _ in rounds)
    ours = float(operations) / min(second for _, second in rounds)
    print(f"\n{make.__name__}: {ours / 1e9:.0f} of {best / 1e9:.0f} GFLOP/s, {ours / best:.1%}")
    assert ours >= LEAST * best
