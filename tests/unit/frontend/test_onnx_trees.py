# SPDX-License-Identifier: Apache-2.0
"""Ensembles of trees: what they become against ONNX Runtime, and the definition on the host."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

from .dynamic.nodes import run as on_the_host

ML = "ai.onnx.ml"
TARGETS, FEATURES, INNER = 3, 4, 5


def forest(kind: str, dtype: type = np.float32, **given: object) -> dict[str, object]:
    """Attributes of TreeEnsemble: two chains of five nodes, each of which has a leaf."""
    rng = np.random.default_rng(4)
    splits = rng.integers(-2, 3, 2 * INNER).astype(dtype)
    chain = [(n + 1, n) for n in range(INNER - 1)] + [(INNER - 1, INNER)]
    leaves = 2 * (INNER + 1)
    following = [a if n < INNER - 1 else b for n, (a, b) in enumerate(chain)]
    attrs: dict[str, object] = {
        "n_targets": TARGETS,
        "tree_roots": [0, INNER],
        "nodes_featureids": rng.integers(0, FEATURES, 2 * INNER).tolist(),
        "nodes_modes": numpy_helper.from_array(np.full(2 * INNER, int(kind), np.uint8)),
        "nodes_splits": numpy_helper.from_array(splits),
        "nodes_truenodeids": [*following, *(n + INNER if at < INNER - 1 else n + INNER + 1
                                            for at, n in enumerate(following))],
        "nodes_trueleafs": [0] * (INNER - 1) + [1] + [0] * (INNER - 1) + [1],
        "nodes_falsenodeids": [*range(INNER), *range(INNER + 1, 2 * INNER + 1)],
        "nodes_falseleafs": [1] * (2 * INNER),
        "leaf_targetids": rng.integers(0, TARGETS, leaves).tolist(),
        "leaf_weights": numpy_helper.from_array(rng.standard_normal(leaves).astype(dtype)),
    }  # fmt: skip
    return {**attrs, **given}


def model(op: str, dtype: type, attrs: dict[str, object]) -> onnx.ModelProto:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain=ML, **attrs)],
        "trees",
        [helper.make_tensor_value_info("x", code, ["n", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    versions = [
        helper.make_opsetid("", 18),
        helper.make_opsetid(ML, 5 if op == "TreeEnsemble" else 3),
    ]
    made = helper.make_model(graph, opset_imports=versions, ir_version=9)
    if op == "TreeEnsemble":
        made.graph.output[0].type.tensor_type.elem_type = code
    return made


def rows(dtype: type) -> np.ndarray:
    x = np.random.default_rng(8).integers(-3, 4, (40, FEATURES)).astype(dtype)
    x[::7, 1] = np.nan
    return x


def compiled(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    main = from_onnx(proto, shapes={"x": x.shape}).main
    return evaluate(main, {"x": x})[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["0", "1", "2", "3"])
def test_each_test_of_nodes_is_that_of_the_host(kind: str, dtype: type) -> None:
    x = rows(dtype)
    for given in (
        {},
        {"nodes_missing_value_tracks_true": [1, 0] * INNER},
        {"aggregate_function": 0, "post_transform": 2},
        {"aggregate_function": 2, "leaf_targetids": [0] * (2 * INNER + 2), "n_targets": 1},
        {"aggregate_function": 3, "leaf_targetids": [0] * (2 * INNER + 2), "n_targets": 1},
        {"post_transform": 1},
    ):
        attrs = forest(kind, dtype, **given)
        (wanted,) = on_the_host("TreeEnsemble", x, domain=ML, outputs=1, **attrs)
        found = compiled(model("TreeEnsemble", dtype, attrs), x)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def regressor(mode: str, **given: object) -> dict[str, object]:
    """Attributes of TreeEnsembleRegressor: two trees of three tests and four leaves."""
    rng = np.random.default_rng(6)
    inner, leaves = 3, 4
    attrs: dict[str, object] = {
        "n_targets": 2,
        "nodes_treeids": [0] * (inner + leaves) + [5] * (inner + leaves),
        "nodes_nodeids": [*range(inner + leaves)] * 2,
        "nodes_featureids": rng.integers(0, FEATURES, 2 * (inner + leaves)).tolist(),
        "nodes_values": rng.integers(-2, 3, 2 * (inner + leaves)).astype(np.float32).tolist(),
        "nodes_modes": ([f"BRANCH_{mode}"] * inner + ["LEAF"] * leaves) * 2,
        "nodes_truenodeids": ([1, 3, 5] + [0] * leaves) * 2,
        "nodes_falsenodeids": ([2, 4, 6] + [0] * leaves) * 2,
        "target_treeids": [0] * leaves + [5] * leaves,
        "target_nodeids": [3, 4, 5, 6] * 2,
        "target_ids": [0, 1, 0, 1, 1, 0, 1, 0],
        "target_weights": rng.standard_normal(2 * leaves).astype(np.float32).tolist(),
    }
    return {**attrs, **given}


@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"base_values": [0.5], "n_targets": 1, "target_ids": [0] * 8},
        {"aggregate_function": "AVERAGE"},
        {"post_transform": "LOGISTIC"},
        {"post_transform": "PROBIT", "n_targets": 1, "target_ids": [0] * 8},
        {"nodes_missing_value_tracks_true": [1, 0] * 7},
    ],
)
def test_regressors_agree_with_onnx_runtime(mode: str, given: dict[str, object]) -> None:
    proto, x = (
        model("TreeEnsembleRegressor", np.float32, regressor(mode, **given)),
        rows(np.float32),
    )
    wanted = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(compiled(proto, x), wanted, rtol=1e-6, atol=1e-6)


def classifier(mode: str, labels: int, **given: object) -> onnx.ModelProto:
    """Return a model of TreeEnsembleClassifier: the trees of ``regressor``, two results."""
    attrs = {
        name.replace("target_", "class_"): value for name, value in regressor(mode).items()
    } | {"classlabels_int64s": [7 * n - 3 for n in range(labels)]}
    del attrs["n_targets"]
    made = model("TreeEnsembleClassifier", np.float32, attrs | given)
    made.graph.node[0].output[:] = ["label", "y"]
    made.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, None))
    return made


@pytest.mark.parametrize("mode", ["LEQ", "GT"])
@pytest.mark.parametrize(
    ("labels", "given"),
    [
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1]}),
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1], "base_values": [0.5, 0.1, -0.2]}),
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1], "post_transform": "SOFTMAX"}),
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1], "post_transform": "LOGISTIC"}),
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1], "post_transform": "SOFTMAX_ZERO"}),
        (3, {"class_ids": [0, 1, 2, 0, 1, 2, 0, 1], "post_transform": "PROBIT"}),
        (2, {"class_ids": [0] * 8}),
        (2, {"class_ids": [1] * 8, "post_transform": "SOFTMAX"}),
        (2, {"class_ids": [1] * 8, "class_weights": [0.1, 0.6, 0.2, 0.3, 0.0, 0.4, 0.5, 0.1]}),
        (
            2,
            {
                "class_ids": [0] * 8,
                "class_weights": [0.1, 0.6, 0.2, 0.3, 0.0, 0.4, 0.5, 0.1],
                "post_transform": "LOGISTIC",
            },
        ),
        (2, {"class_ids": [0] * 8, "base_values": [0.25], "post_transform": "LOGISTIC"}),
        (2, {"class_ids": [0] * 8, "class_weights": [0.1, 0.6, 0.2, 0.3, 0.0, 0.4, 0.5, 0.1]}),
    ],
)
def test_classifiers_agree_with_onnx_runtime(
    mode: str, labels: int, given: dict[str, object]
) -> None:
    proto, x = classifier(mode, labels, **given), rows(np.float32)
    wanted = ort.InferenceSession(proto.SerializeToString()).run(["label", "y"], {"x": x})
    scores, label = evaluate(from_onnx(proto, shapes={"x": x.shape}).main, {"x": x})
    np.testing.assert_array_equal(label, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-6, atol=1e-6)


def test_two_scored_classes_have_the_label_of_the_larger() -> None:
    weights = [0.1, 0.6, 0.2, 0.3, 0.0, 0.4, 0.5, 0.1]
    proto = classifier("LEQ", 2, class_ids=[0, 1] * 4, class_weights=weights)
    x = rows(np.float32)
    scores, label = evaluate(from_onnx(proto, shapes={"x": x.shape}).main, {"x": x})
    np.testing.assert_array_equal(label, np.where(scores[:, 1] > scores[:, 0], 4, -3))
    assert len(set(label.tolist())) == 2


BASES = [
    ({"class_ids": [0] * 8, "base_values": [0.25, -0.5]}, "2 base values, of which only class 0"),
    ({"class_ids": [1] * 8, "base_values": [0.25]}, "1 base values, of which only class 1"),
]


@pytest.mark.parametrize(("given", "message"), BASES)
def test_base_values_beside_one_scored_class_are_refused(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(classifier("LEQ", 2, **given))


REFUSED = [
    ({"nodes_modes": ["BRANCH_EQ"] * 3 + ["LEAF"] * 4 + ["BRANCH_EQ"] * 3 + ["LEAF"] * 4},
     UnsupportedError, "with tests EQ"),
    ({"post_transform": "LOGISTIC", "n_targets": 1, "target_ids": [0] * 8}, UnsupportedError,
     "of one target with post_transform=LOGISTIC"),
    ({"aggregate_function": "MEDIAN"}, ModelError, "aggregate_function='MEDIAN' is not defined"),
    ({"target_ids": [0, 1, 0, 1, 1, 0, 1, 7]}, ModelError, r"node \(5, 6\), target 7"),
    ({"target_ids": [0, 1]}, ModelError, "different lengths: target_treeids 8, .* target_ids 2, "),
    ({"nodes_modes": ["LEAF"]}, ModelError, "different lengths: .* nodes_modes 1, "),
    ({"nodes_featureids": [9] * 14}, ModelError, "asks for feature 9 of 4"),
    ({"nodes_truenodeids": [1, 33, 5, 0, 0, 0, 0] * 2}, ModelError, "goes on where no node is"),
    ({"nodes_truenodeids": [1, 0, 5, 0, 0, 0, 0] * 2}, ModelError, "form a cycle"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "message"), REFUSED)
def test_what_is_no_forest_is_refused(
    given: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        from_onnx(model("TreeEnsembleRegressor", np.float32, regressor("LEQ", **given)))


def test_other_types_and_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="TreeEnsembleRegressor of float64"):
        from_onnx(model("TreeEnsembleRegressor", np.float64, regressor("LEQ")))
    proto = model("TreeEnsembleRegressor", np.float32, regressor("LEQ"))
    del proto.graph.input[0].type.tensor_type.shape.dim[0]
    with pytest.raises(UnsupportedError, match=r"TreeEnsembleRegressor of Tensor\[\(4,\)"):
        from_onnx(proto)
    with pytest.raises(ModelError, match="begins where no node is"):
        from_onnx(model("TreeEnsemble", np.float32, forest("0", tree_roots=[0, 99])))
