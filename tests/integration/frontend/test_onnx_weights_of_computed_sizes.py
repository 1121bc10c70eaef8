# SPDX-License-Identifier: Apache-2.0
"""A computed size that meets a dimension of a weight is checked to be it when the model runs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.unit.frontend.onnx_models import model, node

import intarsia
from intarsia_runtime.errors import ModelError

HALVED = [node("MaxPool", "x", "h", kernel_shape=[1, 1], strides=[1, 2])]
TURNED = [*HALVED, node("Transpose", "h", "t", perm=[0, 3, 1, 2])]
ROWS = np.array([-1, 24], np.int64)
CASES = {
    "product": ([*HALVED, node("MatMul", "h w")], {"w": (4, 5)}),
    "sum": ([*HALVED, node("Add", "h w")], {"w": (3, 4)}),
    "convolution": ([*TURNED, node("Conv", "t w")], {"w": (7, 4, 1, 1)}),
    "groups": ([*TURNED, node("Conv", "t w", group=2)], {"w": (6, 2, 1, 1)}),
    "einsum": ([*HALVED, node("Einsum", "h w", equation="abcd,de->abce")], {"w": (4, 5)}),
    "rows": ([*HALVED, node("Reshape", "h rows", "r"), node("Gemm", "r w")], {"w": (24, 5)}),
    "recurrence": (
        [*HALVED, node("Reshape", "h steps", "r"), node("GRU", "r w v", "y", hidden_size=3)],
        {"w": (1, 9, 4), "v": (1, 9, 3)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_computed_size_is_that_of_the_weight(name: str) -> None:
    nodes, shapes = CASES[name]
    rng = np.random.default_rng(0)
    weights = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    steps = np.array([2, 3, -1], np.int64)
    used = {value for item in nodes for value in item.input}
    weights |= {key: value for key, value in {"rows": ROWS, "steps": steps}.items() if key in used}
    proto = model(nodes, {"x": (1, 2, 3, "W")}, weights=weights)
    judge = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    with intarsia.build(proto, "llvm").load() as program:
        for width in 7, 8:
            x = rng.standard_normal((1, 2, 3, width)).astype(np.float32)
            np.testing.assert_allclose(
                next(iter(program.run([x]).values())), judge.run(None, {"x": x})[0], 1e-4, 1e-5
            )
        for width in 5, 6, 9, 12:
            x = np.ones((1, 2, 3, width), np.float32)
            with pytest.raises(ModelError):
                program.run([x])
