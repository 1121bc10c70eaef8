# SPDX-License-Identifier: Apache-2.0
"""Support vector machines, labels that are text, and maps, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from tests.unit.frontend.test_onnx_trees import classifier

import intarsia
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

FEATURES = 4
VERSIONS = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
PARAMS = [0.25, 0.5, 3.0]


def weights(*shape: int) -> list[float]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32).ravel().tolist()


def model(op: str, **attrs: object) -> bytes:
    """Return a model of one classifier; its labels are text if the attributes say so."""
    kind = TensorProto.STRING if "classlabels_strings" in attrs else TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["label", "y"], domain="ai.onnx.ml", **attrs)],
        "vectors",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [
            helper.make_tensor_value_info("label", kind, None),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    made = helper.make_model(graph, opset_imports=VERSIONS, ir_version=9)
    return made.SerializeToString()


def vectors(kernel: str, supports: tuple[int, ...], **attrs: object) -> dict[str, object]:
    """Attributes of SVMClassifier, with so many support vectors for each class."""
    classes, count = len(supports), sum(supports)
    return {
        "kernel_type": kernel,
        "kernel_params": PARAMS,
        "vectors_per_class": list(supports),
        "support_vectors": weights(count, FEATURES),
        "coefficients": weights(classes - 1, count),
        "rho": weights(classes * (classes - 1) // 2),
        **attrs,
    }


def probabilities(supports: tuple[int, ...]) -> dict[str, object]:
    pairs = len(supports) * (len(supports) - 1) // 2
    return {"prob_a": weights(pairs), "prob_b": weights(pairs)}


def check(made: bytes) -> None:
    session = ort.InferenceSession(made)
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for rows in (5, 0, 1):
            x = np.random.default_rng(rows).standard_normal((rows, FEATURES)).astype(np.float32)
            label, y = session.run(["label", "y"], {"x": x})
            found = executable.run({"x": x})
            assert found["label"].dtype == label.dtype
            np.testing.assert_array_equal(found["label"], label)
            assert found["y"].shape == y.shape
            np.testing.assert_allclose(found["y"], y, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("supports", [(3, 4), (2, 3, 1), (2, 0, 3, 1)])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_scores_and_probabilities_of_each_kernel(kernel: str, supports: tuple[int, ...]) -> None:
    labels = {"classlabels_ints": [7, 3, 9, 1][: len(supports)]}
    check(model("SVMClassifier", **vectors(kernel, supports, **labels)))
    check(model("SVMClassifier", **vectors(kernel, supports, **labels, **probabilities(supports))))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_each_transform_of_scores(transform: str) -> None:
    chosen = {"post_transform": transform, "classlabels_ints": [7, 3, 9]}
    for supports in ((3, 4), (2, 3, 1)):
        given = {**chosen, "classlabels_ints": [7, 3, 9][: len(supports)]}
        check(
            model("SVMClassifier", **vectors("RBF", supports, **given, **probabilities(supports)))
        )
        if transform != "PROBIT" or len(supports) > 2:
            check(model("SVMClassifier", **vectors("RBF", supports, **given)))
        linear = {"kernel_type": "LINEAR", "kernel_params": PARAMS, "rho": [0.3]}
        coefficients = weights(len(supports), FEATURES)
        made = {**given, **linear, "coefficients": coefficients}
        check(model("SVMClassifier", **made))
        check(model("SVMClassifier", **{**made, "coefficients": np.abs(coefficients).tolist()}))
        check(model("SVMClassifier", **{**made, "prob_a": [1.0], "prob_b": [1.0]}))
    if transform != "PROBIT":
        one = {"coefficients": weights(FEATURES), "intercepts": [0.3]}
        both = {"post_transform": transform, "classlabels_ints": [7, 3]}
        check(model("LinearClassifier", **one, **both))


def test_fewer_scores_than_labels() -> None:
    made = {"coefficients": weights(2, FEATURES), "intercepts": [0.1, -0.2]}
    check(model("LinearClassifier", classlabels_ints=[7, 3, 9], **made))


def test_labels_that_are_text() -> None:
    for names in (["cat", "dog"], ["cat", "dog", "emu"]):
        supports = (2, 3, 1)[: len(names)]
        check(model("SVMClassifier", classlabels_strings=names, **vectors("RBF", supports)))
        linear = {"coefficients": weights(len(names), FEATURES), "intercepts": weights(len(names))}
        check(model("LinearClassifier", classlabels_strings=names, **linear))
    one = {"coefficients": weights(FEATURES), "intercepts": [0.3]}
    check(model("LinearClassifier", classlabels_strings=["cat", "dog"], **one))
    trees = classifier("LEQ", 3, class_ids=[0, 1, 2, 0, 1, 2, 0, 1])
    attributes = trees.graph.node[0].attribute
    (labels,) = (one for one in attributes if one.name == "classlabels_int64s")
    labels.CopyFrom(helper.make_attribute("classlabels_strings", ["cat", "dog", "emu"]))
    trees.graph.output[1].type.tensor_type.elem_type = TensorProto.STRING
    check(trees.SerializeToString())


def test_a_label_nobody_reads_needs_no_text() -> None:
    made = onnx.load_from_string(
        model("SVMClassifier", classlabels_strings=["a", "b"], **vectors("RBF", (2, 3)))
    )
    made.graph.node[0].output[0] = ""
    del made.graph.output[0]
    text = made.SerializeToString()
    with intarsia.build(text, "llvm").load(threads=1) as executable:
        x = np.ones((3, FEATURES), np.float32)
        assert executable.run({"x": x})["y"].shape == (3, 2)


REFUSED = [
    ({"vectors_per_class": [2, 3]}, ModelError, "vectors of 2 classes for 3 labels"),
    ({"rho": [0.5]}, ModelError, "12 coefficients, 1 of rho and 24 elements"),
    ({"prob_a": [1.0], "prob_b": [1.0]}, ModelError, "1 and 1 parameters of probabilities"),
    ({"vectors_per_class": [], "rho": []}, ModelError, "12 coefficients and 0 of rho for 3 labels"),
    ({"post_transform": "WAVE"}, ModelError, "post_transform='WAVE' is not defined"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "message"), REFUSED)
def test_what_is_no_classifier_is_refused(
    given: dict[str, object], kind: type[Exception], message: str
) -> None:
    made = vectors("RBF", (2, 3, 1), classlabels_ints=[7, 3, 9]) | given
    empty = {name for name, value in made.items() if value == []}
    with pytest.raises(kind, match=message):
        intarsia.build(
            model("SVMClassifier", **{k: v for k, v in made.items() if k not in empty}), "llvm"
        )


def test_one_score_has_no_quantile() -> None:
    given = {"classlabels_ints": [7, 3], "post_transform": "PROBIT"}
    with pytest.raises(UnsupportedError, match="of one score with post_transform=PROBIT"):
        intarsia.build(model("SVMClassifier", **vectors("RBF", (2, 3), **given)), "llvm")


def of_map(op: str, key: int, value: int, result: int, **attrs: object) -> bytes:
    """Return a model whose input is a map."""
    map_type = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attrs)],
        "maps",
        [helper.make_value_info("x", map_type)],
        [helper.make_tensor_value_info("y", result, None)],
    )
    made = helper.make_model(graph, opset_imports=VERSIONS, ir_version=9)
    return made.SerializeToString()


CASTS = {
    "TO_FLOAT": TensorProto.FLOAT,
    "TO_INT64": TensorProto.INT64,
    "TO_STRING": TensorProto.STRING,
}


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("kind", CASTS)
def test_the_values_of_a_map(kind: str, form: str) -> None:
    attrs = {"cast_to": kind, "map_form": form, "max_map": 6}
    made = of_map("CastMap", TensorProto.INT64, TensorProto.FLOAT, CASTS[kind], **attrs)
    session = ort.InferenceSession(made)
    with intarsia.build(made, "llvm").load() as executable:
        for given in ({3: 1.5, 1: -2.25, 5: 3e10}, {9: 1.0}, {0: 1e-7}):
            wanted = session.run(None, {"x": given})[0]
            found = executable.run({"x": given})["y"]
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    made = of_map("CastMap", TensorProto.INT64, TensorProto.STRING, CASTS[kind], **attrs)
    with intarsia.build(made, "llvm").load() as executable:
        found = executable.run({"x": {1: "7", 0: "-2"}})["y"]
        assert found[0, :2].tolist() == {
            "TO_FLOAT": [-2.0, 7.0], "TO_INT64": [-2, 7], "TO_STRING": ["-2", "7"]
        }[kind]  # fmt: skip


BAD_MAPS = [
    ({"cast_to": "TO_BOOL"}, {1: 1.0}, "cast_to='TO_BOOL' is not defined"),
    ({"map_form": "SPARSE"}, {-1: 1.0}, "key -1, which is no place in a row"),
    ({}, {"a": 1.0}, "whose keys are integers"),
    ({}, np.float32(1), "takes a map, which is a dict, got float"),
]


@pytest.mark.parametrize(("attrs", "given", "message"), BAD_MAPS)
def test_a_map_that_does_not_fit_is_refused(
    attrs: dict[str, object], given: object, message: str
) -> None:
    made = of_map("CastMap", TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT, **attrs)
    executable = intarsia.build(made, "llvm").load()
    with executable, pytest.raises(IntarsiaError, match=message):
        executable.run({"x": given})


def test_the_words_of_a_map_become_columns() -> None:
    real, double = TensorProto.FLOAT, TensorProto.DOUBLE
    words = {"string_vocabulary": ["a", "c", "b"]}
    made = of_map("DictVectorizer", TensorProto.STRING, real, real, **words)
    given = {"a": 1.5, "b": 2.0, "z": 9.0}
    wanted = ort.InferenceSession(made).run(None, {"x": given})[0]
    np.testing.assert_array_equal(
        intarsia.build(made, "llvm").load().run({"x": given})["y"], wanted
    )
    made = of_map("DictVectorizer", TensorProto.STRING, double, double, **words)
    found = intarsia.build(made, "llvm").load().run({"x": {"b": 0.1}})["y"]
    assert found.dtype == np.float64
    assert found.tolist() == [[0.0, 0.0, 0.1]]
    text = TensorProto.STRING
    made = of_map("DictVectorizer", TensorProto.INT64, text, text, int64_vocabulary=[3, 1, 2])
    found = intarsia.build(made, "llvm").load().run({"x": {1: "x", 3: "y"}})["y"]
    assert found.tolist() == [["y", "x", ""]]
