# SPDX-License-Identifier: Apache-2.0
"""TfIdfVectorizer of numbers against ONNX Runtime, for rows of every length."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

RNG = np.random.default_rng(5)
POOL = {
    "ngram_counts": [0, 4, 12],
    "ngram_indexes": [6, 0, 1, 5, 2, 3, 4, 7, 8, 9],
    "pool_int64s": [2, 3, 5, 4, 2, 3, 3, 3, 7, 1, 1, 2, 2, 3, 1, 1, 1, 1],
}
"""Four words, four pairs and two triples."""


def model(rank: int, kind: int = TensorProto.INT64, **attrs: object) -> bytes:
    """One node whose sizes are open."""
    usual = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, **POOL}
    made = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**usual, **attrs})
    shape = ["rows", "words"][-rank:] if rank else []
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"mode": "TF"},
        {"mode": "TF", "max_skip_count": 2, "min_gram_length": 2},
        {"mode": "IDF", "max_skip_count": 9, "weights": np.arange(10.0) / 4},
        {"mode": "TFIDF", "max_gram_length": 2, "weights": np.arange(10.0) - 3},
        {"mode": "IDF", "max_gram_length": 1},
    ],
)
def test_counts_are_those_of_onnx_runtime(attrs: dict[str, object], target: str) -> None:
    for rank, kind in ((1, np.int32), (2, np.int64)):
        data = model(rank, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), **attrs)
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        artifact = intarsia.build(data, target)
        assert not artifact.placement.host
        with artifact.load(threads=1) as executable:
            for shape in ((1, 1), (3, 12), (2, 5), (4, 40)):
                x = RNG.integers(1, 5, shape[-rank:]).astype(kind)
                (wanted,) = session.run(None, {"x": x})
                np.testing.assert_array_equal(executable.run({"x": x})["y"], wanted)


@pytest.mark.parametrize(
    ("rank", "attrs", "message"),
    [
        (0, {}, "takes words of one row or several"),
        (1, {"ngram_indexes": [0, 1]}, "10 n-grams for 2 places"),
        (1, {"ngram_indexes": [*range(9), -1]}, "10 n-grams for 10 places"),
        (1, {"ngram_counts": [0, 4, 13]}, "9 words are no n-grams of 2"),
        (1, {"pool_int64s": [2, 2, *POOL["pool_int64s"][2:]]}, "an n-gram of 1 words is there"),
        (1, {"mode": "DF"}, "mode='DF' is not defined"),
        (1, {"mode": "IDF", "weights": [1.0]}, "1 weights for 10 n-grams"),
    ],
)
def test_a_pool_that_does_not_fit(rank: int, attrs: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(model(rank, **attrs), shapes={"x": (4,)} if rank else None)
