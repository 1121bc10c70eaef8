# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN with limits, coupled gates and other activations, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.unit.frontend.onnx_models import model, node

import intarsia
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.load import load

SIZE, HIDDEN = 3, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FORMS = [
    ("LSTM", {"clip": 0.4, "direction": "reverse"}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"activations": ["HardSigmoid"] * 3, "activation_alpha": [0.3, 0.25],
              "activation_beta": [0.4]}),
    ("LSTM", {"activations": ["Affine", "ScaledTanh", "ThresholdedRelu"],
              "activation_alpha": [0.1, 0.5, 0.2], "activation_beta": [0.5, 0.7]}),
    ("GRU", {"clip": 0.4, "activations": ["hardsigmoid", "LeakyRelu"],
             "activation_alpha": [0.3, 0.2], "activation_beta": [0.4]}),
    ("GRU", {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.2]}),
    ("RNN", {"clip": 0.4, "activations": ["Elu"], "activation_alpha": [0.5]}),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [0.7]}),
]  # fmt: skip


def layer(op: str, attrs: dict[str, object], sizes: tuple[int | str, int | str]) -> onnx.ModelProto:
    rows, rng = GATES[op] * HIDDEN, np.random.default_rng(4)
    shapes = {"w": (1, rows, SIZE), "r": (1, rows, HIDDEN), "b": (1, 2 * rows)}
    weights = {
        name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()
    }
    steps, batch = sizes
    made = node(op, "x w r b l", "y h", hidden_size=HIDDEN, **attrs)
    inputs = {"x": (steps, batch, SIZE), "l": (batch,)}
    proto = model([made], inputs, outputs=["y", "h"], weights=weights)
    proto.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT32
    return proto


@pytest.mark.parametrize("sizes", [("T", "B"), (6, 3)], ids=["open", "fixed"])
@pytest.mark.parametrize(("op", "attrs"), FORMS, ids=lambda value: str(value)[:40])
def test_forms_of_layers_are_those_of_onnx_runtime(
    tmp_path: Path, op: str, attrs: dict[str, object], sizes: tuple[int | str, int | str]
) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(layer(op, attrs, sizes), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    intarsia.build(path, "llvm").save(tmp_path / "layer.intarsia")
    rng = np.random.default_rng(6)
    with load(tmp_path / "layer.intarsia") as executable:
        for steps, batch in [(6, 3)] if sizes == (6, 3) else [(6, 3), (1, 1), (9, 2)]:
            x = rng.standard_normal((steps, batch, SIZE)).astype(np.float32)
            given = {"x": x, "l": rng.integers(1, steps + 1, batch).astype(np.int32)}
            got, want = executable.run(given), session.run(None, given)
            for mine, theirs in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [("T", "B"), (6, 3)], ids=["open", "fixed"])
def test_an_unknown_activation_is_refused_when_compiling(
    sizes: tuple[int | str, int | str],
) -> None:
    proto = layer("LSTM", {"activations": ["Sigmoid", "Swish", "Tanh"]}, sizes)
    with pytest.raises(UnsupportedError, match="activation 'Swish' of LSTM"):
        intarsia.build(proto, "llvm")
