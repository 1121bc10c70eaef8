# SPDX-License-Identifier: Apache-2.0
"""Results that are maps: a classifier as scikit-learn's converter writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.driver.arrays import plain_arrays

KEYS = {
    "integers": (TensorProto.INT64, {"classlabels_int64s": [4, 2, 9]}),
    "text": (TensorProto.STRING, {"classlabels_strings": ["cat", "dog", "cow"]}),
}


def classifier(path: Path, kind: str) -> Path:
    key, labels = KEYS[kind]
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    weights = np.arange(12).astype(np.float32).tolist()
    nodes = [
        helper.make_node(
            "LinearRegressor", ["x"], ["scores"], domain="ai.onnx.ml",
            coefficients=weights, intercepts=[0.5, 0.0, -1.0], targets=3,
        ),
        helper.make_node("ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", **labels),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_value_info("y", maps)],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=versions, ir_version=9)
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("kind", KEYS)
def test_a_map_of_each_row_as_onnx_runtime(tmp_path: Path, kind: str) -> None:
    path = classifier(tmp_path / "m.onnx", kind)
    intarsia.build(path, "llvm").save(tmp_path / "m.intarsia")
    executor = intarsia.load(tmp_path / "m.intarsia")
    session = ort.InferenceSession(str(path))
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        found, wanted = executor.run({"x": x})["y"], session.run(None, {"x": x})[0]
        assert isinstance(found, list)
        assert isinstance(wanted, list)
        for one, other in zip(found, wanted, strict=True):
            assert isinstance(one, dict)
            assert set(one) == set(other)
            for key in other:
                np.testing.assert_allclose(one[key], other[key], rtol=1e-5)


def test_a_map_is_written_with_its_keys() -> None:
    arrays = plain_arrays({"y": [{"cat": 0.25, "dog": 0.75}, {"cat": 1.0, "dog": 0.0}]})
    assert list(arrays) == ["y[0][cat]", "y[0][dog]", "y[1][cat]", "y[1][dog]"]
    assert arrays["y[0][dog]"].dtype == np.float32
