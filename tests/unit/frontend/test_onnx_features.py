# SPDX-License-Identifier: Apache-2.0
"""Encoders, imputers and vectorizers of features against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

NAN = float("nan")
KINDS = {
    "f": (TensorProto.FLOAT, np.float32),
    "d": (TensorProto.DOUBLE, np.float64),
    "i": (TensorProto.INT64, np.int64),
    "s": (TensorProto.STRING, object),
}


def model(op: str, *shapes: tuple[object, ...], kind: str = "f", **attrs: object):
    """Return a model of one node with an operand of each shape."""
    names = [f"x{number}" for number in range(len(shapes))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain="ai.onnx.ml", **attrs)],
        "features",
        [
            helper.make_tensor_value_info(name, KINDS[kind][0], list(shape))
            for name, shape in zip(names, shapes, strict=True)
        ],
        [onnx.ValueInfoProto(name="y")],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


CASES = [
    ("OneHotEncoder", "f", [("n",)], [[1, 2.7, 5, -1.5]], {"cats_int64s": [1, 2, 5, 2, -1]}),
    ("OneHotEncoder", "d", [("n", 1)], [[[1], [2.9]]], {"cats_int64s": [1, 2]}),
    ("OneHotEncoder", "i", [("n", 1)], [[[1], [9], [2]]], {"cats_int64s": [2, 1]}),
    ("OneHotEncoder", "i", [("n",)], [[1, 2, 1]], {"cats_int64s": [2, 1], "zeros": 0}),
    ("OneHotEncoder", "s", [("n", 2)], [[["a", "z"], ["b", "a"]]], {"cats_strings": ["a", "b"]}),
    ("OneHotEncoder", "s", [("n",)], [["b", "a"]], {"cats_strings": ["b", "a"], "zeros": 0}),
    ("Imputer", "f", [("n", 2)], [[[1, NAN], [NAN, 4]]],
     {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": NAN}),
    ("Imputer", "f", [("n", "c")], [[[1, NAN], [NAN, 4]]],
     {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": NAN}),
    ("Imputer", "f", [("n",)], [[1, NAN, 0]], {"imputed_value_floats": [7.0]}),
    ("Imputer", "i", [("n", 2)], [[[1, 2], [3, 1]]],
     {"imputed_value_int64s": [7, 8], "replaced_value_int64": 1}),
    ("FeatureVectorizer", "f", [("n", 2), ("n", 1)], [[[1, 2], [3, 4]], [[5], [6]]],
     {"inputdimensions": [2, 1]}),
    ("FeatureVectorizer", "i", [("n", 2), ("n", 2)], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
     {"inputdimensions": [3, 1]}),
    ("FeatureVectorizer", "f", [(2,), (2,)], [[1, 2], [3, 4]], {"inputdimensions": [2, 1]}),
    ("CategoryMapper", "s", [("n", 2)], [[["a", "z"], ["b", "c"]]],
     {"cats_strings": ["a", "b", "c", "a"], "cats_int64s": [4, 5, 6, 7], "default_int64": 9}),
    ("CategoryMapper", "i", [("n",)], [[4, 9]],
     {"cats_strings": ["a", "b"], "cats_int64s": [4, 5]}),
]  # fmt: skip


def _parts(op: str, shape: tuple[object, ...]) -> list[slice]:
    """Return the rows of each run; ONNX Runtime aborts on a FeatureVectorizer of none."""
    if isinstance(shape[0], int):
        return [slice(None)]
    return [slice(None), slice(1, 2), *([] if op == "FeatureVectorizer" else [slice(0)])]


@pytest.mark.parametrize(("op", "kind", "shapes", "rows", "attrs"), CASES)
def test_each_agrees_with_onnx_runtime(
    op: str,
    kind: str,
    shapes: list[tuple[object, ...]],
    rows: list[list[object]],
    attrs: dict[str, object],
) -> None:
    proto = model(op, *shapes, kind=kind, **attrs).SerializeToString()
    given = {f"x{number}": np.array(row, KINDS[kind][1]) for number, row in enumerate(rows)}
    with intarsia.build(proto, "llvm").load(threads=1) as executable:
        for part in _parts(op, shapes[0]):
            feeds = {name: x[part] for name, x in given.items()}
            (wanted,) = ort.InferenceSession(proto).run(None, feeds)
            (found,) = executable.run(feeds).values()
            assert np.asarray(found).dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("kind", "attr", "x"), [
    ("i", {"cats_int64s": [1, 2]}, [1, 3]),
    ("s", {"cats_strings": ["a", "b"]}, ["a", "c"]),
])  # fmt: skip
def test_a_run_with_an_unknown_category_fails_where_all_must_be_known(
    kind: str, attr: dict[str, object], x: list[object]
) -> None:
    proto = model("OneHotEncoder", ("n",), kind=kind, zeros=0, **attr).SerializeToString()
    executable = intarsia.build(proto, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="none of the 2 categories"):
        executable.run({"x0": np.array(x, KINDS[kind][1])})


def test_encoders_of_numbers_are_compiled() -> None:
    proto = model("OneHotEncoder", ("n",), kind="i", cats_int64s=[1, 2]).SerializeToString()
    assert not intarsia.build(proto, "llvm").placement.host


REFUSED = [
    ("OneHotEncoder", [(2,)], {"cats_strings": ["a"]}, ModelError, "cats_int64s lists no category"),
    ("Imputer", [(2,)], {"imputed_value_int64s": [1]}, ModelError, "imputed_value_floats is empty"),
    ("Imputer", [(2, 3)], {"imputed_value_floats": [1.0, 2.0]}, ModelError,
     "2 values for 3 features"),
    ("Imputer", [(1, 2, 3)], {"imputed_value_floats": [1.0, 2.0, 3.0]}, UnsupportedError,
     r"Imputer of Tensor\[\(1, 2, 3\)"),
    ("FeatureVectorizer", [(1, 2)], {"inputdimensions": [1, 2]}, ModelError,
     "2 widths for 1 operands"),
    ("FeatureVectorizer", [(1, 2, 3)], {"inputdimensions": [1]}, UnsupportedError,
     "of a tensor of 3 dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shapes", "attrs", "kind", "message"), REFUSED)
def test_what_is_wrong_is_refused(
    op: str,
    shapes: list[tuple[object, ...]],
    attrs: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        from_onnx(model(op, *shapes, **attrs))


def test_columns_of_an_open_number_wait_for_the_run() -> None:
    proto = model("FeatureVectorizer", (1, "c"), inputdimensions=[2])
    with pytest.raises(UnsupportedError, match="FeatureVectorizer of c columns"):
        from_onnx(proto)
    with intarsia.build(proto.SerializeToString(), "llvm").load(threads=1) as executable:
        for row, wanted in (([3.0], [[3, 0]]), ([3.0, 4.0, 5.0], [[3, 4]])):
            (found,) = executable.run({"x0": np.array([row], np.float32)}).values()
            np.testing.assert_array_equal(found, wanted)


def test_names_and_numbers_of_categories_are_pairs() -> None:
    attrs = {"cats_strings": ["a"], "cats_int64s": [1, 2]}
    proto = model("CategoryMapper", ("n",), kind="s", **attrs).SerializeToString()
    executable = intarsia.build(proto, "llvm").load(threads=1)
    with executable, pytest.raises(ModelError, match="1 names for 2 numbers"):
        executable.run({"x0": np.array(["a"], object)})
