# SPDX-License-Identifier: Apache-2.0
"""``auto_pad`` of images whose sizes only the run knows, as tools for TensorFlow write it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

SIZES = [(1, 1), (7, 9), (8, 10), (13, 6), (30, 31)]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def windows(op: str, kernel: int, stride: int, auto: str, rank: int = 2) -> onnx.ModelProto:
    rng = np.random.default_rng(kernel * 10 + stride)
    attrs: dict[str, object] = {"auto_pad": auto, "strides": [stride] * rank}
    weights, inputs, kind = {}, ["x"], TensorProto.FLOAT
    if op == "MaxPool":
        attrs["kernel_shape"] = [kernel] * rank
    elif op == "Conv":
        weights = {"w": rng.standard_normal((16, 4, *[kernel] * rank)).astype(np.float32)}
        inputs = ["x", "w"]
    else:
        kind = TensorProto.UINT8
        weights = {
            "s": np.array(0.05, np.float32),
            "z": np.array(131, np.uint8),
            "w": rng.integers(-128, 128, (16, 4, *[kernel] * rank)).astype(np.int8),
            "ws": np.array(0.01, np.float32),
            "wz": np.array(0, np.int8),
            "ys": np.array(0.5, np.float32),
        }
        inputs = ["x", "s", "z", "w", "ws", "wz", "ys", "z"]
    node = helper.make_node(op, inputs, ["y"], name="window", **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", 4, *"HW"[:rank]])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WINDOWS = [
    *[
        (op, *size)
        for op in ("Conv", "MaxPool", "QLinearConv")
        for size in ((3, 1), (2, 2), (5, 3))
    ],
    *[("Conv", 3, 2), ("MaxPool", 3, 2), ("Conv", 2, 3), ("QLinearConv", 2, 3), ("Conv", 1, 2)],
]


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "kernel", "stride"), WINDOWS)
def test_padding_of_open_images_is_compiled(op: str, kernel: int, stride: int, auto: str) -> None:
    model = windows(op, kernel, stride, auto)
    artifact = intarsia.build(model.SerializeToString(), "llvm")
    assert artifact.passport.parts == ()  # one program, nothing on the host
    peer, rng = session(model), np.random.default_rng(3)
    with artifact.load(threads=1) as executable:
        for size in SIZES:
            x = rng.standard_normal((2, 4, *size), np.float32)
            x = rng.integers(0, 256, x.shape).astype(np.uint8) if op[0] == "Q" else x
            (wanted,) = peer.run(None, {"x": x})
            found = executable.run({"x": x})["y"]
            assert found.shape == wanted.shape
            if op[0] == "Q":
                assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_sounds_are_padded_too() -> None:
    model = windows("Conv", 3, 2, "SAME_UPPER", rank=1)
    artifact = intarsia.build(model.SerializeToString(), "c")
    with artifact.load(threads=1) as executable:
        for length in (1, 8, 13, 200):
            x = np.random.default_rng(length).standard_normal((1, 4, length), np.float32)
            (wanted,) = session(model).run(None, {"x": x})
            np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
