# SPDX-License-Identifier: Apache-2.0
"""Single operators on one thread beside ONNX Runtime: is there one that has no fast loops?

``python -m tests.bench.operators [--target T] [NAME ...]`` prints a line for each case: best times
of both, run in turn, and ours by theirs. A ratio far above 1 is a kernel that is missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import intarsia

ROUNDS = 30


@dataclass(frozen=True)
class Case:
    """An operator on data of one shape.

    Attributes:
        name: For the table.
        op: ONNX's name.
        shape: Of the data.
        operands: The others, constant: shapes of random float32, or arrays.
        attrs: Attributes.
        dtype: Element type of the data and of random operands.
        opset: Of the model.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    operands: Sequence[tuple[int, ...] | np.ndarray] = ()
    attrs: Mapping[str, object] = field(default_factory=dict[str, object])
    dtype: type = np.float32
    opset: int = 18

    def save(self, path: Path) -> np.ndarray:
        """Write the model; return its data."""
        drawn = np.random.default_rng(0)
        arrays = [
            one if isinstance(one, np.ndarray) else drawn.standard_normal(one).astype(self.dtype)
            for one in self.operands
        ]
        names = [f"w{number}" for number in range(len(arrays))]
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(self.op, ["x", *names], ["y"], **self.attrs)],
            "one",
            [onnx.helper.make_tensor_value_info("x", kind, self.shape)],
            [onnx.helper.make_tensor_value_info("y", kind, None)],
            [onnx.numpy_helper.from_array(a, n) for a, n in zip(arrays, names, strict=True)],
        )
        opset = [onnx.helper.make_opsetid("", self.opset)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
        return drawn.standard_normal(self.shape).astype(self.dtype)


def cases() -> list[Case]:
    """Return what models are made of, in common shapes."""
    picture = (1, 64, 56, 56)
    same, flat = {"pads": [1] * 4}, np.array([1])
    lone = [
        Case(name.lower(), name, (100_000,))
        for name in ("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Softplus", "Sin", "Sqrt", "Round")
    ]
    return [
        Case("conv 1-D", "Conv", (1, 64, 1000), [(64, 64, 5)], {"pads": [2, 2]}),
        Case("conv 3-D", "Conv", (1, 16, 8, 28, 28), [(16, 16, 3, 3, 3)], {"pads": [1] * 6}),
        Case("conv in 4 groups", "Conv", (1, 64, 28, 28), [(64, 16, 3, 3)], {**same, "group": 4}),
        Case("conv float16", "Conv", (1, 32, 28, 28), [(32, 32, 3, 3)], same, np.float16),
        Case("conv_transpose 1-D", "ConvTranspose", (1, 64, 1000), [(64, 32, 4)], {"strides": [2]}),
        *(
            Case(
                f"conv_transpose {k}x{k}, stride {s}",
                *("ConvTranspose", (1, 64, 32, 32), [(64, 32, k, k)]),
                {"strides": [s, s], "pads": [p] * 4},
            )
            for k, s, p in ((4, 2, 1), (3, 2, 1), (2, 2, 0), (3, 1, 1))
        ),
        Case("matmul float16", "MatMul", (256, 256), [(256, 256)], dtype=np.float16),
        Case("matmul float64", "MatMul", (256, 256), [(256, 256)], dtype=np.float64),
        Case("matmul, one row", "MatMul", (1, 2048), [(2048, 2048)]),
        Case("matmul of stacks", "MatMul", (8, 64, 64), [(8, 64, 64)]),
        Case("max_pool 3x3", "MaxPool", (1, 64, 112, 112), attrs={"kernel_shape": [3, 3],
             "strides": [2, 2], **same}),
        Case("avg_pool 5x5", "AveragePool", picture, attrs={"kernel_shape": [5, 5],
             "pads": [2] * 4}),
        Case("softmax", "Softmax", (64, 1000)),
        Case("softmax of channels", "Softmax", picture, attrs={"axis": 1}),
        Case("layer_norm", "LayerNormalization", (128, 768), [(768,), (768,)]),
        Case("instance_norm", "InstanceNormalization", picture, [(64,), (64,)]),
        Case("reduce_mean", "ReduceMean", (64, 3136), [flat]),
        Case("reduce_max", "ReduceMax", (64, 1000), [flat]),
        Case("hardmax", "Hardmax", (64, 1000)),
        Case("cumsum", "CumSum", (64, 1024), [np.array(1)]),
        Case("transpose", "Transpose", picture, attrs={"perm": [0, 2, 3, 1]}),
        Case("pad", "Pad", picture, [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {"mode": "reflect"}),
        Case("depth_to_space", "DepthToSpace", picture, attrs={"blocksize": 2}),
        Case("gather", "Gather", (1000, 256), [np.arange(0, 1000, 3)]),
        Case("scatter_nd", "ScatterND", (1000, 64), [np.arange(0, 1000, 10)[:, None], (100, 64)]),
        Case("lstm", "LSTM", (50, 1, 64), [(1, 256, 64), (1, 256, 64)], {"hidden_size": 64}),
        Case("gru", "GRU", (50, 1, 64), [(1, 192, 64), (1, 192, 64)], {"hidden_size": 64}),
        *lone,
    ]  # fmt: skip


def compare(case: Case, target: str, folder: Path) -> tuple[float, float]:
    """Return the best seconds of ours and of ONNX Runtime's, in turn on one thread."""
    model = folder / "one.onnx"
    data = {"x": case.save(model)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    saved = intarsia.build(str(model), target).save(folder / "one.intarsia")
    with intarsia.load(saved, threads=1) as executable:
        times = [
            (seconds(lambda: executable.run(data)), seconds(lambda: session.run(None, data)))
            for _ in range(ROUNDS)
        ]
    return min(ours for ours, _ in times), min(theirs for _, theirs in times)


def seconds(run: Callable[[], object]) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="llvm")
    parser.add_argument("names", nargs="*", help="parts of names; all if none")
    given = parser.parse_args()
    print("| operator | data | ours, us | ONNX Runtime, us | ratio |\n|---|---|--:|--:|--:|")
    for case in cases():
        if given.names and not any(name in case.name for name in given.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = compare(case, given.target, Path(folder))
        shape = "x".join(map(str, case.shape))
        times = f"{1e6 * ours:.1f} | {1e6 * theirs:.1f} | {ours / theirs:.2f}"
        print(f"| {case.name} | {shape} | {times} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
