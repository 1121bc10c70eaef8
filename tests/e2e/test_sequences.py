# SPDX-License-Identifier: Apache-2.0
"""Sequences in compiled code, on two targets: results as ONNX Runtime's, from one artifact."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import intarsia

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'
TARGETS = ("llvm", "dnnl, llvm")

COLLECTS = """g (float[n,5] x, int64 trip, bool go) => (float[m,5] y, int64 count) {
  first = Constant <value_ints = [0]> () x0 = Gather (x, first) e = SequenceConstruct (x0)
  s = Loop (trip, go, e) <body = b (int64 i, bool c, seq(float) q) => (bool d, seq(float) r) {
    v = Gather (x, i) w = Add (v, v) axes = Constant <value_ints = [0]> ()
    u = Unsqueeze (w, axes) r = SequenceInsert (q, u)
    total = ReduceSum <keepdims = 0> (w) most = Constant <value_float = 40.0> ()
    d = Less (total, most)
  }>
  y = ConcatFromSequence <axis = 0> (s) count = SequenceLength (s) }"""
SPLITS = """g (float[n,7] x, int64 p) => (float[a,b] y, float[c,d] z, int64 k) {
  s = SplitToSequence <axis = 0, keepdims = 0> (x)
  y = ConcatFromSequence <axis = 1, new_axis = 1> (s)
  t = SplitToSequence <axis = 0> (x) z = SequenceAt (t, p) k = SequenceLength (t) }"""
BRANCHES = """g (float[n,7] x, bool c) => (float[a,b] y, int64 k) {
  s = If (c) <
    then_branch = t () => (seq(float) p) {
      k1 = Exp (x) l = Sin (k1) m = MatMul (x, W) p = SequenceConstruct (k1, l, m) },
    else_branch = u () => (seq(float) q) {
      k2 = Tanh (x) l2 = Sin (k2) m2 = Cos (l2) q = SequenceConstruct (k2, l2, m2) }>
  y = ConcatFromSequence <axis = 0> (s) k = SequenceLength (s) }"""
LENGTHS = """g (float[n,7] x, bool c) => (float[a,b] y, int64 k) {
  s = If (c) <
    then_branch = t () => (seq(float) p) { p = SequenceEmpty () },
    else_branch = u () => (seq(float) q) {
      k2 = MatMul (x, W) l2 = Sin (k2) q = SequenceConstruct (k2, l2) }>
  r = SequenceInsert (s, x) y = ConcatFromSequence <axis = 0> (r) k = SequenceLength (r) }"""
MAPS = """g (float[n,7] x) => (float[a,b] y) {
  s = SplitToSequence <axis = 1> (x)
  t = SequenceMap (s, x) <body = f (float[n,1] v, float[n,7] w) => (float[n,7] o) {
    o = Mul (v, w) }>
  y = ConcatFromSequence <axis = 0> (t) }"""
OPTIONAL = """g (float[n,7] x) => (float[a,b] y, bool has) {
  o = Optional (x) v = OptionalGetElement (o) y = MatMul (v, W) has = OptionalHasElement (o) }"""

MODELS = {
    "a loop appends until a condition ends it": (
        COLLECTS,
        [
            {"n": n, "trip": np.array(t), "go": np.array(g > 0)}
            for n, t, g in ((9, 7, 1), (4, 0, 1))
        ],
    ),
    "a loop that does not begin": (
        COLLECTS,
        [{"n": 3, "trip": np.array(3), "go": np.array(False)}],
    ),
    "slices of an open axis": (SPLITS, [{"n": n, "p": np.array(p)} for n, p in ((11, -3), (1, 0))]),
    "branches of one length": (
        BRANCHES,
        [{"n": n, "c": np.array(c)} for n, c in ((3, True), (8, False))],
    ),
    "branches of different lengths": (
        LENGTHS,
        [{"n": n, "c": np.array(c)} for n, c in ((3, True), (8, False))],
    ),
    "a body for each element": (MAPS, [{"n": 5}, {"n": 2}]),
    "an optional": (OPTIONAL, [{"n": 5}]),
}


def model(text: str) -> onnx.ModelProto:
    made = parser.parse_model(HEAD + text)
    weights = np.random.default_rng(3).standard_normal((7, 7)).astype(np.float32)
    if "W)" in text:
        made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "W"))
    return made


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_sequences_run_in_compiled_code(name: str, target: str) -> None:
    text, runs = MODELS[name]
    data = model(text).SerializeToString()
    peer = onnxruntime.InferenceSession(data)
    artifact = intarsia.build(data, target)
    assert artifact.passport.executor["kind"] == "aot"
    rng = np.random.default_rng(5)
    columns = artifact.passport.plan.inputs[0].shape[1]
    with artifact.load(threads=1) as executable:
        for run in runs:
            feeds = {name: np.asarray(value) for name, value in run.items() if name != "n"}
            feeds["x"] = rng.random((run["n"], columns), np.float32)
            found = executable.run(feeds)
            for one, wanted in zip(found.values(), peer.run(None, feeds), strict=True):
                assert (one.shape, one.dtype) == (wanted.shape, wanted.dtype)
                np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)
