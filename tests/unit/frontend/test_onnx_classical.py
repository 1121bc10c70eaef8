# SPDX-License-Identifier: Apache-2.0
"""Linear models, support vector machines and scalers against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

FEATURES = 4


def model(
    op: str, outputs: int = 1, shape: tuple[object, ...] = ("n", FEATURES), **attrs: object
) -> onnx.ModelProto:
    """Return a model of one node; the first of two results is the label."""
    names = ["label", "y"][-outputs:]
    kinds = [TensorProto.INT64, TensorProto.FLOAT][-outputs:]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attrs)],
        "classical",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


def weights(*shape: int) -> list[float]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32).ravel().tolist()


def vectors(kernel: str, *params: float, **given: object) -> dict[str, object]:
    return {
        "kernel_type": kernel,
        "kernel_params": list(params),
        "n_supports": 5,
        "support_vectors": weights(5, FEATURES),
        "coefficients": weights(5),
        "rho": [0.3],
        **given,
    }


CASES = [
    ("Scaler", 1, {"offset": [0.5], "scale": [2.0]}),
    ("Scaler", 1, {"offset": [0.5, 1.0, -1.0, 0.0], "scale": [2.0, 0.1, 1.0, -1.0]}),
    ("Normalizer", 1, {"norm": "MAX"}),
    ("Normalizer", 1, {"norm": "L1"}),
    ("Normalizer", 1, {"norm": "L2"}),
    ("LinearRegressor", 1, {"coefficients": weights(FEATURES), "intercepts": [0.5]}),
    ("LinearRegressor", 1, {"coefficients": weights(2, FEATURES), "targets": 2}),
    ("LinearClassifier", 2, {
        "coefficients": weights(3, FEATURES), "intercepts": [0.1, -0.2, 0.3],
        "classlabels_ints": [5, 2, 9], "post_transform": "SOFTMAX"}),
    ("LinearClassifier", 2, {
        "coefficients": weights(2, FEATURES), "intercepts": [0.1, -0.2],
        "classlabels_ints": [0, 1], "post_transform": "LOGISTIC"}),
    ("SVMRegressor", 1, vectors("RBF", 0.25, 0.0, 3.0)),
    ("SVMRegressor", 1, vectors("POLY", 0.25, 4.0, 3.0)),
    ("SVMRegressor", 1, vectors("SIGMOID", 0.25, 0.5, 3.0)),
    ("SVMRegressor", 1, vectors("LINEAR", 0.0, 0.0, 0.0)),
    ("SVMRegressor", 1, vectors("RBF", 0.25, 0.0, 3.0, one_class=1)),
    ("SVMRegressor", 1, {"coefficients": weights(FEATURES), "rho": [0.5],
                         "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "outputs", "attrs"), CASES)
def test_each_agrees_with_onnx_runtime(op: str, outputs: int, attrs: dict[str, object]) -> None:
    proto = model(op, outputs, **attrs)
    x = np.random.default_rng(1).standard_normal((17, FEATURES)).astype(np.float32)
    x[3] = 0
    wanted = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = evaluate(from_onnx(proto, shapes={"x": x.shape}).main, {"x": x})
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_a_vector_is_one_row() -> None:
    main = from_onnx(model("Normalizer", shape=(FEATURES,), norm="L1")).main
    assert main.body.type.shape == (1, FEATURES)


REFUSED = [
    ("Scaler", 1, {"offset": [0.5, 1.0], "scale": [2.0]}, ModelError, "2 offsets and 1 scales"),
    ("Normalizer", 1, {"norm": "L7"}, ModelError, "norm='L7' is not defined"),
    ("LinearRegressor", 1, {"coefficients": weights(3), "targets": 2}, ModelError,
     "3 coefficients are given for 2 results"),
    ("LinearClassifier", 2, {"coefficients": weights(FEATURES), "intercepts": [0.1],
     "classlabels_ints": [0, 1, 2]}, ModelError, "1 scores are given for 3 labels"),
    ("LinearClassifier", 2, {"coefficients": weights(FEATURES), "intercepts": [0.1],
     "classlabels_ints": [0, 1], "post_transform": "PROBIT"}, UnsupportedError,
     "of one score with post_transform=PROBIT"),
    ("LinearRegressor", 1, {"coefficients": weights(FEATURES), "post_transform": "LOGISTIC"},
     UnsupportedError, "of one target with post_transform=LOGISTIC"),
    ("SVMRegressor", 1, vectors("RBF", 0.0, 0.0, 0.0, post_transform="PROBIT"), UnsupportedError,
     "SVMRegressor with post_transform=PROBIT"),
    ("SVMRegressor", 1, vectors("WAVE", 0.0, 0.0, 0.0), ModelError,
     "kernel_type='WAVE' is not defined"),
    ("SVMRegressor", 1, {"rho": [0.5]}, ModelError, "no coefficients are given"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "outputs", "attrs", "kind", "message"), REFUSED)
def test_what_is_wrong_is_refused(
    op: str, outputs: int, attrs: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        from_onnx(model(op, outputs, **attrs))


def test_other_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"Normalizer of Tensor\[\(2, 3, 4\)"):
        from_onnx(model("Normalizer", shape=(2, 3, 4)))
