# SPDX-License-Identifier: Apache-2.0
"""Random tensors on the host: their distribution, what a seed fixes, and ONNX's reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import intarsia
from intarsia_runtime.errors import ModelError

from .nodes import f32, one

SEEDED = [
    ("RandomUniform", {"shape": [3, 4], "low": -2.0, "high": 5.0}, None),
    ("RandomUniformLike", {"low": 1.0, "high": 2.0}, np.zeros((2, 5), np.float64)),
    ("RandomNormal", {"shape": [4, 3], "mean": 1.0, "scale": 3.0}, None),
    ("RandomNormalLike", {"dtype": TensorProto.DOUBLE}, np.zeros((7,), np.float32)),
    ("Bernoulli", {}, np.full((40,), 0.3, np.float32)),
]


def model(op: str, attrs: dict, x: np.ndarray | None):
    info = helper.make_tensor_value_info
    given = []
    if x is not None:
        given = [info("x", helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))]
    node = helper.make_node(op, ["x"] if given else [], ["y"], **attrs)
    kind = attrs.get("dtype", given[0].type.tensor_type.elem_type if given else 1)
    shape = attrs.get("shape", None if x is None else list(x.shape))
    graph = helper.make_graph([node], "g", given, [info("y", kind, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(("op", "attrs", "x"), SEEDED, ids=[row[0] for row in SEEDED])
def test_a_seed_gives_the_draw_of_the_reference(op: str, attrs: dict, x: np.ndarray | None) -> None:
    proto = model(op, attrs | {"seed": 7.0}, x)
    values = {} if x is None else {"x": x}
    (wanted,) = ReferenceEvaluator(proto).run(None, values)
    found = one(op, *values.values(), seed=7.0, **attrs)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_seed_begins_anew_at_each_load_and_goes_on_with_each_run() -> None:
    artifact = intarsia.build(
        model("RandomNormal", {"shape": [8], "seed": 3.0}, None).SerializeToString(), "llvm"
    )
    draws = []
    for _ in range(2):
        with artifact.load(threads=1) as executable:
            draws.append([executable.run({})["y"] for _ in range(2)])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0][0] != draws[0][1]).any()


def test_without_a_seed_no_draw_is_like_another() -> None:
    first, second = (one("RandomNormal", shape=[8]) for _ in range(2))
    assert (first != second).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_normal_numbers_have_mean_and_variance(dtype: type) -> None:
    x = np.zeros((200, 100), dtype)
    found = one("RandomNormalLike", x, seed=1.0, mean=2.0, scale=0.5)
    assert found.dtype == x.dtype
    wide = found.astype(np.float64)
    assert wide.mean() == pytest.approx(2, abs=0.02)
    assert wide.var() == pytest.approx(0.25, abs=0.01)


def test_uniform_numbers_fill_their_range_evenly() -> None:
    found = one("RandomUniform", shape=[20000], low=-1.0, high=3.0, seed=2.0)
    assert found.dtype == np.float32
    counts, _ = np.histogram(found, 10, (-1, 3))
    assert counts.sum() == 20000
    assert (np.abs(counts - 2000) < 250).all()
    assert found.var() == pytest.approx(16 / 12, abs=0.03)


def test_bernoulli_follows_each_probability() -> None:
    chances = np.repeat(f32([0, 0.25, 0.75, 1]), 5000).reshape(4, 5000)
    found = one("Bernoulli", chances, seed=4.0, dtype=TensorProto.BOOL)
    assert found.dtype == np.bool_
    np.testing.assert_allclose(found.mean(1), [0, 0.25, 0.75, 1], atol=0.03)


def test_multinomial_follows_the_weights_of_its_row() -> None:
    chances = np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logs = np.log(chances).astype(np.float32) + 5
    found = one("Multinomial", logs, sample_size=8000, seed=5.0)
    assert (found.dtype, found.shape) == (np.dtype(np.int32), (2, 8000))
    shares = [np.bincount(row, minlength=4) / 8000 for row in found]
    np.testing.assert_allclose(shares, chances, atol=0.03)
    wide = one("Multinomial", logs, dtype=TensorProto.INT64)
    assert (wide.dtype, wide.shape) == (np.dtype(np.int64), (2, 1))


def test_random_nodes_that_cannot_be() -> None:
    with pytest.raises(ModelError, match="random numbers of element type object"):
        one("RandomNormal", shape=[2], dtype=TensorProto.STRING)
    with pytest.raises(ModelError, match="rows of at least one class"):
        one("Multinomial", f32([1, 2]))
    with pytest.raises(ModelError, match="attribute 'shape' is missing"):
        one("RandomUniform")
