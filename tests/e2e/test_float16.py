# SPDX-License-Identifier: Apache-2.0
"""float16 graphs agree with ONNX Runtime as closely as two float16 implementations can.

Two correct implementations differ: each may round wherever it stores a value, and sums in an order
of its own. So neither is the truth. Both are compared with the same model in float32, whose weights
are the same numbers; our largest error may be 1.5 times theirs and one unit in the last place of
the largest result more, for the store that either has and the other has not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import intarsia

TARGETS = ("llvm", "dnnl, llvm")
NODE = helper.make_node


class Net(NamedTuple):
    """Nodes from ``x`` to ``y``, and what they need, in any float type."""

    nodes: Sequence[onnx.NodeProto]
    weights: dict[str, np.ndarray]
    shape: Sequence[int]
    mean: float = 0.0
    scale: float = 1.0

    def proto(self, dtype: type[np.floating]) -> bytes:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        weights = [numpy_helper.from_array(w.astype(dtype), n) for n, w in self.weights.items()]
        inputs = [helper.make_tensor_value_info("x", code, self.shape)]
        outputs = [helper.make_tensor_value_info("y", code, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()

    def data(self) -> np.ndarray:
        drawn = np.random.default_rng(1).standard_normal(self.shape)
        return (drawn * self.scale + self.mean).astype(np.float16)


def normal(*shape: int, scale: float) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float16)


def conv_net() -> Net:
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * 4),
        NODE("BatchNormalization", ["a", "s", "b1", "b1", "s"], ["n"]),
        NODE("Relu", ["n"], ["b"]),
        NODE("Conv", ["b", "w2"], ["c"], pads=[1] * 4),
        NODE("Add", ["c", "b"], ["r"]),
        NODE("Conv", ["r", "w3"], ["d"], pads=[1] * 4, strides=[2, 2], group=16),
        NODE("Sigmoid", ["d"], ["e"]),
        NODE("Mul", ["d", "e"], ["f"]),
        NODE("GlobalAveragePool", ["f"], ["g"]),
        NODE("Flatten", ["g"], ["h"]),
        NODE("Gemm", ["h", "w4", "b4"], ["y"], transB=1),
    ]
    weights = {
        "w1": normal(16, 3, 3, 3, scale=0.2), "b1": normal(16, scale=0.2),
        "s": np.ones(16, np.float16), "w2": normal(16, 16, 3, 3, scale=0.1),
        "w3": normal(16, 1, 3, 3, scale=0.3), "w4": normal(10, 16, scale=0.2),
        "b4": normal(10, scale=0.2),
    }  # fmt: skip
    return Net(nodes, weights, (1, 3, 32, 32))


def mlp() -> Net:
    nodes = [
        NODE("MatMul", ["x", "w1"], ["a"]),
        NODE("Add", ["a", "b1"], ["b"]),
        NODE("Relu", ["b"], ["c"]),
        NODE("MatMul", ["c", "w2"], ["d"]),
        NODE("Tanh", ["d"], ["y"]),
    ]
    weights = {
        "w1": normal(512, 1024, scale=0.04),
        "b1": normal(1024, scale=0.04),
        "w2": normal(1024, 256, scale=0.03),
    }
    return Net(nodes, weights, (8, 512))


def attention() -> Net:
    nodes = [NODE("MatMul", ["x", w], [f"x{w}"]) for w in ("q", "k", "v")]
    nodes += [
        NODE("Transpose", ["xk"], ["kt"], perm=[0, 2, 1]),
        NODE("MatMul", ["xq", "kt"], ["s"]),
        NODE("Mul", ["s", "eighth"], ["t"]),
        NODE("Softmax", ["t"], ["p"], axis=-1),
        NODE("MatMul", ["p", "xv"], ["o"]),
        NODE("Add", ["o", "x"], ["y"]),
    ]
    weights = {w: normal(64, 64, scale=0.125) for w in ("q", "k", "v")}
    return Net(nodes, weights | {"eighth": np.array(0.125, np.float16)}, (2, 96, 64))


def block() -> Net:
    """Layer normalization, GELU and a residual."""
    nodes = [
        NODE("LayerNormalization", ["x", "s", "b"], ["n"], axis=-1),
        NODE("MatMul", ["n", "w1"], ["h"]),
        NODE("Div", ["h", "root"], ["g1"]),
        NODE("Erf", ["g1"], ["g2"]),
        NODE("Add", ["g2", "one"], ["g3"]),
        NODE("Mul", ["h", "g3"], ["g4"]),
        NODE("Mul", ["g4", "half"], ["g5"]),
        NODE("MatMul", ["g5", "w2"], ["u"]),
        NODE("Add", ["u", "x"], ["y"]),
    ]
    weights = {
        "s": normal(64, scale=1), "b": normal(64, scale=0.1),
        "w1": normal(64, 256, scale=0.125), "w2": normal(256, 64, scale=0.06),
        "root": np.array(1.4142, np.float16), "one": np.array(1, np.float16),
        "half": np.array(0.5, np.float16),
    }  # fmt: skip
    return Net(nodes, weights, (2, 24, 64))


def softmax() -> Net:
    return Net([NODE("Softmax", ["x"], ["y"], axis=-1)], {}, (16, 1000), scale=3)


def mean_of_rows() -> Net:
    """Sums of 200,000, which float16 has not."""
    return Net([NODE("ReduceMean", ["x"], ["y"], axes=[-1])], {}, (4, 20_000), mean=10)


def mean_of_columns() -> Net:
    return Net([NODE("ReduceMean", ["x"], ["y"], axes=[0])], {}, (20_000, 4), mean=10)


def long_norm() -> Net:
    return Net([NODE("ReduceL2", ["x"], ["y"], axes=[-1])], {}, (4, 8192), scale=9)


def log_of_sums() -> Net:
    nodes = [NODE("Abs", ["x"], ["a"]), NODE("ReduceLogSum", ["a"], ["y"], axes=[-1])]
    return Net(nodes, {}, (4, 2000), scale=100)


def unit_vectors() -> Net:
    return Net([NODE("LpNormalization", ["x"], ["y"], axis=-1)], {}, (4, 64), scale=100)


def standardized() -> Net:
    nodes = [NODE("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])]
    return Net(nodes, {}, (1, 8, 16, 16), scale=100)


def norm_pooled() -> Net:
    nodes = [NODE("LpPool", ["x"], ["y"], kernel_shape=[3, 3], p=2)]
    return Net(nodes, {}, (1, 4, 16, 16), scale=100)


def pooled() -> Net:
    return Net([NODE("GlobalAveragePool", ["x"], ["y"])], {}, (1, 8, 128, 128), mean=10)


def deep_product() -> Net:
    return Net([NODE("MatMul", ["x", "w"], ["y"])], {"w": normal(16384, 8, scale=1)}, (4, 16384))


def deep_conv() -> Net:
    nodes = [NODE("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    return Net(nodes, {"w": normal(8, 512, 3, 3, scale=0.1)}, (1, 512, 7, 7))


NETS: tuple[Callable[[], Net], ...] = (
    conv_net, mlp, attention, block, softmax, mean_of_rows, mean_of_columns, long_norm, log_of_sums,
    unit_vectors, standardized, norm_pooled, pooled, deep_product, deep_conv,
)  # fmt: skip


def reference(model: bytes, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0]).astype(np.float64)


def check(ours: np.ndarray, theirs: np.ndarray, truth: np.ndarray) -> None:
    error, limit = np.abs(ours - truth).max(), 1.5 * np.abs(theirs - truth).max()
    limit += float(np.spacing(np.abs(truth).max().astype(np.float16)))
    assert error <= limit


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_errors_are_those_of_onnx_runtime(
    build: Callable[[], Net], target: str, tmp_path: Path
) -> None:
    net = build()
    x = net.data()
    model = net.proto(np.float16)
    path = intarsia.build(model, target=target).save(tmp_path / "net.tar")
    ours = intarsia.load(path).run([x])["y"]
    assert ours.dtype == np.float16
    truth = reference(net.proto(np.float32), x.astype(np.float32))
    check(ours.astype(np.float64), reference(model, x), truth)


@pytest.mark.parametrize("build", [mean_of_rows, long_norm, deep_product])
def test_the_bound_refuses_sums_in_float16(build: Callable[[], Net]) -> None:
    net = build()
    x = net.data()
    truth = reference(net.proto(np.float32), x.astype(np.float32))
    with np.errstate(over="ignore"):
        if build is deep_product:
            sums = [np.cumsum(x * w, 1, dtype=np.float16)[:, -1] for w in net.weights["w"].T]
            ours = np.stack(sums, 1)
        elif build is long_norm:
            ours = np.sqrt(np.cumsum(x * x, 1, dtype=np.float16)[:, -1:])
        else:
            ours = np.cumsum(x, 1, dtype=np.float16)[:, -1:] / np.float16(20_000)
    with pytest.raises(AssertionError):
        check(ours.astype(np.float64), reference(net.proto(np.float16), x), truth)
