# SPDX-License-Identifier: Apache-2.0
"""Steps of training and operators of classical machine learning: compiled code against the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

from .dynamic.nodes import run as on_the_host

RNG = np.random.default_rng(5)
TRAINING, CLASSICAL = "ai.onnx.preview.training", "ai.onnx.ml"


def compiled(op: str, domain: str, values: list, outputs: int, **attrs: object) -> list:
    """Results of a node by the operators it is compiled to."""
    names, results = [f"x{i}" for i in range(len(values))], [f"y{i}" for i in range(outputs)]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, values, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attrs)],
        "g",
        infos,
        [helper.make_tensor_value_info(name, 1, None) for name in results],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    module = from_onnx(helper.make_model(graph, opset_imports=imports).SerializeToString())
    return list(evaluate(module.main, dict(zip(names, values, strict=True))))


METHODS = [
    ("Adagrad", 3, {"norm_coefficient": 0.01, "epsilon": 1e-5, "decay_factor": 0.1}),
    ("Adam", 4, {"norm_coefficient": 0.01, "alpha": 0.95, "beta": 0.9, "epsilon": 1e-2}),
    ("Adam", 4, {"norm_coefficient_post": 0.05}),
    ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "standard"}),
    ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"}),
]


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("tensors", [1, 2])
@pytest.mark.parametrize(("op", "width", "attrs"), METHODS)
def test_a_step_is_that_of_the_host(op, width, attrs, tensors, count) -> None:
    values = [np.float32(0.1).reshape(()), np.array(count, np.int64)]
    for part in range(width):
        made = [RNG.standard_normal((2, 3)).astype(np.float32) for _ in range(tensors)]
        values += [np.abs(x) if part > 1 else x for x in made]
    outputs = tensors * (width - 1)
    found = compiled(op, TRAINING, values, outputs, **attrs)
    wanted = on_the_host(op, *values, domain=TRAINING, outputs=outputs, **attrs)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_steps_that_cannot_be() -> None:
    rate, count, x = np.float32(0.1).reshape(()), np.array(1), np.zeros(2, np.float32)
    with pytest.raises(ModelError, match="2 tensors cannot be shared among groups of 3"):
        compiled("Adagrad", TRAINING, [rate, count, x, x], 2)
    attrs = {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.0, "mode": "fast"}
    with pytest.raises(ModelError, match="mode='fast'"):
        compiled("Momentum", TRAINING, [rate, count, x, x, x], 2, **attrs)


def test_columns_and_thresholds() -> None:
    x = RNG.standard_normal((3, 5)).astype(np.float32)
    (found,) = compiled("Binarizer", CLASSICAL, [x], 1, threshold=0.25)
    np.testing.assert_array_equal(found, (x > 0.25).astype(np.float32))
    which = np.array([[4, 0]])
    (found,) = compiled("ArrayFeatureExtractor", CLASSICAL, [x, which], 1)
    np.testing.assert_array_equal(found, x[:, [4, 0]])
    (found,) = compiled("ArrayFeatureExtractor", CLASSICAL, [x[0], which], 1)
    np.testing.assert_array_equal(found, x[:1, [4, 0]])
