# SPDX-License-Identifier: Apache-2.0
"""Loops over sequences are compiled whole, and compute what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.unit.frontend.test_onnx_sequences import proto

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

RNG = np.random.default_rng(5)


def rows(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def counts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


REPEATED = """g (float[{batch},n,3] x, int64[n] d) => (float y) {{
  one = Constant <value_ints = [1]> () s = Shape (d) ones = ConstantOfShape <value = {width}> (s)
  r = SplitToSequence <axis = 0> (d, ones) v = SplitToSequence <axis = 1> (x, ones)
  e = SequenceEmpty () t = Size (d) go = Constant <value = bool {{1}}> ()
  q = Loop (t, go, e) <body = b (int64 i, bool c, seq(float) p) => (bool k, seq(float) o) {{
    k = Identity (c) a = SequenceAt (r, i) w = SequenceAt (v, i)
    two = Constant <value_ints = [2]> () u = Unsqueeze (w, two)
    head = Constant <value_ints = [{batch}, 1]> ()
    tail = Constant <value_ints = [3]> () z = Concat <axis = 0> (head, a, tail)
    minus = Constant <value_int = -1> () h = Shape (z)
    f = ConstantOfShape <value = int64[1] {{1}}> (h)
    g = Mul (f, minus) is = Equal (z, g) shape = Where (is, f, z) m = Expand (u, shape)
    to = Constant <value_ints = [{batch}, -1, 3]> () l = Reshape (m, to) o = SequenceInsert (p, l)
  }}> y = ConcatFromSequence <axis = 1> (q) }}"""
"""What torch.onnx writes for ``repeat_interleave`` along axis 1."""

LOOP = """g (float[n,3] x, int64 t) => (float y) {{
  e = SequenceEmpty () {first}
  s = Loop (t, , e) <body = b (int64 i, bool c, seq(float) q) => (bool d, seq(float) r) {{
    d = Identity (c) zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
    nought = Constant <value_int = 0> () end = Add (i, one) v = Slice (x, zero, end) {body}
  }}> {last} }}"""
JOINED = "y = ConcatFromSequence <axis = 0> (s)"

X = {"x": rows(5, 3)}
MODELS = {
    "rows as they were before": (
        """g (float[n] x, int64 t) => (float[n] y, float[m, n] z) {
             y, z = Loop (t, , x) <body = b
               (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] q) {
                 d = Identity (c) q = Identity (s) r = Add (s, x) }> }""",
        [{"x": rows(5), "t": np.array(n)} for n in (1, 3, 20)],
    ),
    "rows that trade places": (
        """g (float[n] x, float[n] w, int64 t) => (float[n] y, float[n] v, float[m, n] z) {
             y, v, z = Loop (t, , x, w) <body = b
               (int64 i, bool c, float[n] s, float[n] u)
               => (bool d, float[n] r, float[n] p, float[n] q) {
                 d = Identity (c) q = Identity (u) r = Identity (u) p = Add (s, u) }> }""",
        [{"x": rows(5), "w": rows(5) + 1, "t": np.array(n)} for n in (1, 4, 20)],
    ),
    "repeated rows": (
        REPEATED.format(batch=1, width="int64[1] {1}"),
        [{"x": rows(1, 5, 3), "d": counts(2, 0, 3, 1, 4)}, {"x": rows(1, 1, 3), "d": counts(3)}],
    ),
    "repeated rows of a batch": (
        REPEATED.format(batch=2, width="int64[1] {1}"),
        [{"x": rows(2, 4, 3), "d": counts(1, 5, 0, 2)}, {"x": rows(2, 1, 3), "d": counts(1)}],
    ),
    "elements before others": (
        LOOP.format(first="", body="r = SequenceInsert (q, v, nought)", last=JOINED),
        [{**X, "t": np.array(n)} for n in (1, 3, 5)],
    ),
    "elements at places of the run": (
        LOOP.format(
            first="",
            body="two = Constant <value_int = 2> () p = Div (i, two) r = SequenceInsert (q, v, p)",
            last=JOINED,
        ),
        [{**X, "t": np.array(n)} for n in (1, 4)],
    ),
    "elements that are erased again": (
        LOOP.format(
            first="",
            body="a = SequenceInsert (q, v) w = Neg (v) b = SequenceInsert (a, w)"
            " r = SequenceErase (b, nought)",
            last=JOINED,
        ),
        [{**X, "t": np.array(n)} for n in (1, 2, 5)],
    ),
    "the last element is read": (
        LOOP.format(
            first="f = SequenceInsert (e, x)",
            body="m = Constant <value_int = -1> () w = SequenceAt (q, m)"
            " u = Mul (w, w) r = SequenceInsert (q, u)",
            last="y = ConcatFromSequence <axis = 1> (s)",
        ).replace("(t, , e)", "(t, , f)"),
        [{"x": rows(n, 3), "t": np.array(t)} for n, t in ((2, 0), (1, 1), (4, 3))],
    ),
    "a loop that appends in one that appends": (
        """g (float[n,3] x, int64 t) => (float y, float z, int64 k) {
             e = SequenceEmpty () f = SequenceEmpty ()
             s, u = Loop (t, , e, f) <body = b (int64 i, bool c, seq(float) q, seq(float) w)
                 => (bool d, seq(float) r, seq(float) v) {
               d = Identity (c) h = SequenceEmpty () one = Constant <value_int = 1> ()
               m = Add (i, one)
               p = Loop (m, , h) <body = l (int64 j, bool cc, seq(float) qq)
                   => (bool dd, seq(float) rr) {
                 dd = Identity (cc) next = Constant <value_ints = [1]> ()
                 zero = Constant <value_ints = [0]> () end = Add (j, next)
                 part = Slice (x, zero, end) o = Cast <to = 1> (i) scaled = Mul (part, o)
                 rr = SequenceInsert (qq, scaled) }>
               a = ConcatFromSequence <axis = 0> (p) r = SequenceInsert (q, a)
               total = ReduceSum (a) v = SequenceInsert (w, total) }>
             y = ConcatFromSequence <axis = 0> (s) z = ConcatFromSequence <axis = 1> (u)
             k = SequenceLength (s) }""",
        [{"x": rows(n, 3), "t": np.array(t)} for n, t in ((5, 1), (30, 20), (5, 5))],
    ),
    "parts of two rows": (
        """g (float[n,3] x) => (float y) {
             n = Size (x) k = Constant <value_ints = [6]> () h = Div (n, k)
             two = ConstantOfShape <value = int64[1] {2}> (h) s = SplitToSequence (x, two)
             y = ConcatFromSequence <axis = 1> (s) }""",
        [{"x": rows(n, 3)} for n in (2, 8)],
    ),
    "parts of one row": (
        """g (float[3,n,2] x) => (float y) {
             one = Constant <value_int = 1> () s = SplitToSequence <axis = 1> (x, one)
             y = ConcatFromSequence <axis = 0> (s) }""",
        [{"x": rows(3, n, 2)} for n in (1, 4)],
    ),
    "parts of any size beside each other": (
        """g (float[2,n,3] x, int64[k] d) => (float y) {
             s = SplitToSequence <axis = 1> (x, d) y = ConcatFromSequence <axis = 1> (s) }""",
        [{"x": rows(2, 7, 3), "d": counts(3, 0, 4)}, {"x": rows(2, 2, 3), "d": counts(1, 1)}],
    ),
    "bags of rows whose limits are slices": (
        """g (float[n,3] x, int64[k] offsets) => (float y) {
             e = SequenceEmpty () none = Constant <value_int = 0> () bags = Size (offsets)
             end = Shape <start = 0, end = 1> (x) all = Concat <axis = 0> (offsets, end)
             first = Less (none, bags)
             s, last = Loop (, first, e, none) <body = b
                 (int64 t, bool c, seq(float) q, int64 i) => (bool go, seq(float) r, int64 j) {
               flat = Constant <value_ints = [-1]> () one = Constant <value_ints = [1]> ()
               place = Reshape (i, flat) more = Add (place, one) low = Slice (all, place, more)
               two = Constant <value_ints = [2]> () even = Add (place, two)
               high = Slice (all, more, even) none_here = Equal (low, high)
               row = If (none_here) <then_branch = f () => (float[1,3] u) {
                   u = Constant <value = float[1,3] {0, 0, 0}> () },
                 else_branch = h () => (float v) {
                   part = Slice (x, low, high) axis = Constant <value_ints = [0]> ()
                   total = ReduceSum (part, axis) len = Sub (high, low) count = Cast <to = 1> (len)
                   v = Div (total, count) }>
               r = SequenceInsert (q, row) step = Constant <value_int = 1> () j = Add (i, step)
               go = Less (j, bags)
             }> y = ConcatFromSequence <axis = 0> (s) }""",
        [{"x": rows(n, 3), "offsets": counts(*o)} for n, o in ((7, (0, 2, 2)), (3, (0,)))],
    ),
    "many elements": (
        """g (float[2000,3] x) => (float y) {
             s = SplitToSequence <keepdims = 0> (x)
             y = ConcatFromSequence <axis = 1, new_axis = 1> (s) }""",
        [{"x": rows(2000, 3)}],
    ),
    "many parts of one row": (
        """g (float[2001,3] x) => (float y) { k = Constant <value_int = 1> ()
             s = SplitToSequence (x, k) y = ConcatFromSequence <axis = 1> (s) }""",
        [{"x": rows(2001, 3)}],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loop_over_sequences_is_compiled_whole(name: str) -> None:
    text, feeds = MODELS[name]
    made = proto(text)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    with collecting_guards():
        module = from_onnx(made, control_flow=True)
    artifact = intarsia.build(made.SerializeToString(), "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    assert artifact.placement.host == ()
    with artifact.load(threads=1) as executable:
        for given in feeds:
            wanted = session.run(None, given)
            for found in ([*executable.run(given).values()], evaluate(module.main, given, module)):
                for mine, theirs in zip(found, wanted, strict=True):
                    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


NO_ITERATIONS = {
    "sizes that are broadcast": (
        """g (float[n] x, float[m] w, int64 t) => (float y) {
             y = Loop (t, , x) <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] r) {
               d = Identity (c) q = Mul (x, w) e = Exp (q) r = Add (s, e) }> }""",
        {"x": rows(4), "w": rows(3)},
        "m is broadcast, so it must be 1",
    ),
    "rows that are read": (
        """g (float[n,3] x, int64 t) => (float y, float z) {
             k = Constant <value_floats = [0.0, 0.0, 0.0]> ()
             y, z = Loop (t, , k) <body = b
                 (int64 i, bool c, float[3] s) => (bool d, float[3] r, float[3] q) {
               d = Identity (c) q = Gather (x, i) r = Add (s, q) }> }""",
        {"x": rows(0, 3)},
        "must have elements",
    ),
}


@pytest.mark.parametrize("name", NO_ITERATIONS)
def test_what_iterations_require_need_not_hold_without_any(name: str) -> None:
    text, given, why = NO_ITERATIONS[name]
    made = proto(text)
    none = {**given, "t": np.array(0)}
    wanted = onnxruntime.InferenceSession(made.SerializeToString()).run(None, none)
    artifact = intarsia.build(made.SerializeToString(), "llvm")
    with artifact.load(threads=1) as executable:
        for mine, theirs in zip(executable.run(none).values(), wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_array_equal(mine, theirs)
        with pytest.raises(ModelError, match=why):
            executable.run({**given, "t": np.array(2)})


def test_parts_that_do_not_add_up_end_the_run() -> None:
    text, _ = MODELS["repeated rows"]
    made = proto(text.replace("int64[1] {1}> (s)", "int64[1] {2}> (s)"))
    artifact = intarsia.build(made.SerializeToString(), "llvm")
    with artifact.load() as executable, pytest.raises(ModelError, match="parts do not add up to n"):
        executable.run({"x": rows(1, 5, 3), "d": counts(2, 0, 3, 1, 4)})
