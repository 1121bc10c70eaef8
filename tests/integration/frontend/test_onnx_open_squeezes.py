# SPDX-License-Identifier: Apache-2.0
"""Squeeze without axes of several open sizes: each may be 1, as ONNX Runtime decides in the run."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import parser
from tests.unit.frontend.test_onnx_sequences import HEAD, proto

import intarsia
from intarsia.cli.model_options import parse_shape
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


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_declared_scalar_is_compiled_for_one_row_and_for_others_on_demand(target: str) -> None:
    text = "g (float[n,1] x) => (float y) { a = Squeeze (x) y = Sigmoid (a) }"
    data = parser.parse_model(HEAD + text).SerializeToString()
    session = onnxruntime.InferenceSession(data)
    with pytest.warns(ModelWarning, match="the declared outputs alone, where n = 1; other sizes"):
        alone = intarsia.build(data, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        more = intarsia.build(data, target, shapes={"x": parse_shape("x:2..,1")[1]})
    for artifact, rows, others in ((alone, (1,), 2), (more, (2, 5), 1)):
        with artifact.load(threads=1) as executable:
            for row in rows:
                given = {"x": np.linspace(-1, 1, row, dtype=np.float32).reshape(row, 1)}
                (wanted,) = session.run(None, given)
                (found,) = executable.run(given).values()
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-6)
            with pytest.raises(ModelError):
                executable.run({"x": np.zeros((others, 1), np.float32)})


BRANCHES = {
    "that meet again": "(float y) { a = IF y = ReduceSum <keepdims = 0> (a) }",
    "whose sizes are read": "(int64[r] y) { a = IF y = Shape (a) }",
    "of the results themselves": "(float[r] y) { a = IF y = Exp (a) }",
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_different_ranks(name: str) -> None:
    choice = """If (c) <then_branch = t () => (float[n,3] p) { p = Relu (x) },
        else_branch = e () => (float[m] q) {
            flat = Constant <value = int64[1] {-1}> () q = Reshape (x, flat) }>"""
    data = proto(f"g (float[n,3] x, bool c) => {BRANCHES[name]}".replace("IF", choice))
    session = onnxruntime.InferenceSession(data.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)  # either branch can be taken
        artifact = intarsia.build(data.SerializeToString(), "llvm")
    with artifact.load(threads=1) as executable:
        for chosen in (True, False):
            x = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
            given = {"x": x, "c": np.array(chosen)}
            (wanted,) = session.run(None, given)
            (found,) = executable.run(given).values()
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
