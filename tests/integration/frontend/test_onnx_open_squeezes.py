# SPDX-License-Identifier: Apache-2.0
"""Squeeze without axes of several open sizes: each may be 1, as ONNX Runtime decides in the run."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from tests.unit.frontend.test_onnx_sequences import proto

import intarsia
from intarsia_ir.diagnostics import ModelWarning
from intarsia_runtime.errors import ModelError

MODELS = {
    "two sizes": (
        "g (float[n,m,1] x) => (float[k] y) { a = Squeeze (x) y = Relu (a) }",
        ((1, 4, 1), (4, 1, 1)),
        (2, 4, 1),
    ),
    "three sizes": (
        "g (float[n,m,l] x) => (float[k] y) { a = Squeeze (x) y = Relu (a) }",
        ((1, 4, 1), (4, 1, 1), (1, 1, 7)),
        (2, 1, 3),
    ),
    "any rank, summed": (
        "g (float[n,m,3] x) => (float y) { a = Squeeze (x) s = ReduceSum <keepdims = 0> (a)"
        " y = Relu (s) }",
        ((1, 4, 3), (4, 1, 3), (2, 4, 3), (1, 1, 3)),
        None,
    ),
    "a declared rank that no open size gives": (
        "g (float[n,3] x) => (float[k] y) { a = Squeeze (x) y = Relu (a) }",
        ((4, 3), (2, 3)),
        (1, 3),
    ),
    "a declared rank that no two open sizes give": (
        "g (float[n,m,3] x) => (float[k] y) { a = Squeeze (x) y = Relu (a) }",
        ((4, 2, 3), (2, 5, 3)),
        (4, 1, 3),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_open_size_is_left_out_where_it_is_one(name: str) -> None:
    text, shapes, wrong = MODELS[name]
    made = proto(text)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # a rank that is declared wrongly
        artifact = intarsia.build(made.SerializeToString(), "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    with artifact.load(threads=1) as executable:
        for shape in shapes:
            given = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
            (wanted,) = session.run(None, given)
            (found,) = executable.run(given).values()
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        if wrong is not None:
            with pytest.raises(ModelError, match="without axes, an open size of 1 is left out"):
                executable.run({"x": np.zeros(wrong, np.float32)})
