# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM against LSTM with the same weights, and against ONNX Runtime's own."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

HIDDEN, SIZE = 7, 5
F = TensorProto.FLOAT


def weights(directions: int, *, per_column: bool, signed: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    low, high, kind = (-128, 128, np.int8) if signed else (0, 256, np.uint8)
    found: dict[str, np.ndarray] = {}
    for name, rows in (("w", SIZE), ("r", HIDDEN)):
        shape = (directions, rows, 4 * HIDDEN)
        found[name] = rng.integers(low, high, shape).astype(kind)
        parts = (directions, 4 * HIDDEN) if per_column else (directions,)
        found[f"{name}_scale"] = rng.uniform(0.002, 0.004, parts).astype(np.float32)
        found[f"{name}_zero"] = np.zeros(parts, kind) if signed else np.full(parts, 128, kind)
    found["b"] = rng.standard_normal((directions, 8 * HIDDEN)).astype(np.float32) / 4
    return found


def model(op: str, arrays: dict[str, np.ndarray], names: str, direction: str) -> onnx.ModelProto:
    inputs = ["" if name == "_" else name for name in names.split()]
    domain = "com.microsoft" if op.startswith("Dynamic") else ""
    node = helper.make_node(
        op, inputs, ["y", "h"], domain=domain, hidden_size=HIDDEN, direction=direction
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "layer",
        [info("x", F, ["t", "n", SIZE])],
        [info("y", F, None), info("h", F, None)],
        [numpy_helper.from_array(arrays[name], name) for name in inputs if name in arrays],
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


NAMES = "x w r b _ _ _ _ w_scale w_zero r_scale r_zero"


def real(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    values, (scale, zero) = arrays[name], (arrays[f"{name}_scale"], arrays[f"{name}_zero"])
    shape = (len(values), 1, -1)
    number = values.astype(np.float32) - zero.reshape(shape).astype(np.float32)
    return np.ascontiguousarray((number * scale.reshape(shape)).transpose(0, 2, 1))


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_it_is_an_lstm_of_the_same_weights(direction: str, per_column: bool, signed: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    arrays = weights(directions, per_column=per_column, signed=signed)
    x = np.random.default_rng(5).standard_normal((6, 2, SIZE)).astype(np.float32)
    proto = model("DynamicQuantizeLSTM", arrays, NAMES, direction)
    found = evaluate(from_onnx(proto, shapes={"x": x.shape}).main, {"x": x})
    plain = {**arrays, "w": real(arrays, "w"), "r": real(arrays, "r")}
    float_ = model("LSTM", plain, "x w r b", direction).SerializeToString()
    for mine, theirs in zip(found, ort.InferenceSession(float_).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(proto.SerializeToString(), options)
    for mine, theirs in zip(found, session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.05)  # it rounds what is multiplied, too


def test_weights_that_do_not_fit_are_refused() -> None:
    arrays = weights(1, per_column=True, signed=True)
    wrong = {**arrays, "w_scale": np.ones(3, np.float32)}
    with pytest.raises(ModelError, match="3 numbers do not fit a weight of shape"):
        from_onnx(model("DynamicQuantizeLSTM", wrong, NAMES, "forward"), shapes={"x": (1, 1, SIZE)})
    wrong = {**arrays, "w": real(arrays, "w")}
    with pytest.raises(ModelError, match="must be eight bits of rank 3"):
        from_onnx(model("DynamicQuantizeLSTM", wrong, NAMES, "forward"), shapes={"x": (1, 1, SIZE)})
    proto = model("DynamicQuantizeLSTM", arrays, NAMES, "forward")
    proto.graph.input.append(helper.make_tensor_value_info("w_zero", TensorProto.INT8, [1, 28]))
    kept = [row for row in proto.graph.initializer if row.name != "w_zero"]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    with pytest.raises(UnsupportedError, match="the zero point of a weight is not known"):
        from_onnx(proto, shapes={"x": (1, 1, SIZE)})
