# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals are decided while a model is imported; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import print_module
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'
X = np.arange(12, dtype=np.float32).reshape(4, 3)
EMPTY = "g (float[4,3] x) => (float y) { s = SequenceEmpty () "
THREE = "g (float[4,3] x) => (float y) { a = Exp (x) b = Neg (x) s = SequenceConstruct (x, a, b) "


def proto(text: str) -> onnx.ModelProto:
    made = parser.parse_model(HEAD + text)
    for info in made.graph.output:
        if not info.type.tensor_type.shape.dim:
            info.ClearField("type")  # the text has no type of unknown rank
    return made


def imported(made: onnx.ModelProto) -> IRModule:
    with collecting_guards():
        return from_onnx(made, control_flow=True)


def check(made: onnx.ModelProto, **feeds: np.ndarray) -> None:
    """Compare a model of known sizes with ONNX Runtime."""
    feeds = feeds or {"x": X}
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    found = evaluate(from_onnx(made).main, feeds)
    for one, wanted in zip(found, peer.run(None, feeds), strict=True):
        assert (one.shape, one.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


STATIC = {
    "concat along an axis": THREE + "y = ConcatFromSequence <axis = -1> (s) }",
    "concat along a new axis": THREE + "y = ConcatFromSequence <axis = 1, new_axis = 1> (s) }",
    "an element from the back": THREE + "n = Constant <value_int = -1> () y = SequenceAt (s, n) }",
    "an inserted element": THREE
    + "c = Sin (x) n = Constant <value_int = -1> () t = SequenceInsert (s, c, n)"
    " y = ConcatFromSequence <axis = 0> (t) }",
    "an appended element": THREE
    + "c = Sin (x) t = SequenceInsert (s, c) y = ConcatFromSequence <axis = 0> (t) }",
    "an element less": THREE + "n = Constant <value_int = 1> () t = SequenceErase (s, n)"
    " y = ConcatFromSequence <axis = 0> (t) }",
    "the last element less": THREE
    + "t = SequenceErase (s) y = ConcatFromSequence <axis = 0> (t) }",
    "from nothing": EMPTY + "t = SequenceInsert (s, x) u = SequenceInsert (t, x)"
    " y = ConcatFromSequence <axis = 0> (u) }",
    "a split into elements": "g (float[4,3] x) => (float y) {"
    " s = SplitToSequence <keepdims = 0, axis = 1> (x) y = ConcatFromSequence <axis = 0> (s) }",
    "a split that keeps its axis": "g (float[4,3] x) => (float y) {"
    " s = SplitToSequence (x) y = ConcatFromSequence <axis = 1> (s) }",
    "a split into equal parts": "g (float[4,3] x) => (float y) {"
    " k = Constant <value_int = 3> () s = SplitToSequence (x, k) n = Constant <value_int = 1> ()"
    " y = SequenceAt (s, n) }",
    "a split into parts": "g (float[4,3] x) => (float y) {"
    " k = Constant <value_ints = [1, 3]> () s = SplitToSequence (x, k)"
    " n = Constant <value_int = 1> () y = SequenceAt (s, n) }",
    "elements of one length": THREE.replace("float y", "int64 y") + "y = SequenceLength (s) }",
    "a copy": THREE + "t = Identity (s) y = ConcatFromSequence <axis = 0> (t) }",
    "a body for each element": "g (float[4,3] x) => (float y) {"
    " s = SplitToSequence (x) t = SequenceMap (s, s, x) <body = f"
    " (float[1,3] v, float[1,3] u, float[4,3] w) => (float[4,3] o) { k = Mul (v, w) o = Add (k, u)"
    " }> y = ConcatFromSequence <axis = 0> (t) }",
}


@pytest.mark.parametrize("name", STATIC)
def test_sequences_of_known_length(name: str) -> None:
    check(proto(STATIC[name]))


def test_a_loop_of_known_turns_is_written_out_with_its_sequence() -> None:
    made = proto(
        """g (float[4,3] x) => (float y) {
             n = Constant <value_int = 3> () e = SequenceEmpty ()
             s, z = Loop (n, , e, x) <body = b (int64 i, bool c, seq(float[4,3]) q, float[4,3] v)
               => (bool d, seq(float[4,3]) r, float[4,3] w) {
               d = Identity (c) w = Add (v, v) o = Constant <value_int = 0> ()
               r = SequenceInsert (q, w, o)
             }> y = ConcatFromSequence <axis = 0> (s) }"""
    )
    check(made)


def test_an_optional_is_what_it_holds() -> None:
    made = proto(
        """g (float[4,3] x) => (float[4,3] y, bool a, bool b) {
             o = Optional (x) y = OptionalGetElement (o) a = OptionalHasElement (o)
             n = Optional <type = float[4,3]> () b = OptionalHasElement (n) }"""
    )
    y, a, b = evaluate(from_onnx(made).main, {"x": X})
    np.testing.assert_array_equal(y, X)
    assert (bool(a), bool(b)) == (True, False)


def test_the_position_of_an_element_may_be_one_of_the_run() -> None:
    made = proto(
        """g (float[4,3] x, int64 p) => (float[4,3] y) {
             a = Exp (x) s = SequenceConstruct (x, a) y = SequenceAt (s, p) }"""
    )
    for position in (0, 1, -1, -2):
        check(made, x=X, p=np.array(position))


def test_slices_of_an_open_axis_are_one_tensor() -> None:
    made = proto(
        """g (float[n,3] x) => (float[a,b] y, int64 k) {
             s = SplitToSequence <keepdims = 0> (x) k = SequenceLength (s)
             y = ConcatFromSequence <axis = 1, new_axis = 1> (s) }"""
    )
    assert print_module(imported(made)) == (
        "def @main(%x: Tensor[(n, 3), float32]) -> (Tensor[(3, n), float32], Tensor[(), int64])"
        ' as ("y", "k") {\n'
        "  %0 = transpose(%x, axes=(1, 0));  // y (ConcatFromSequence)\n"
        "  %1 = sizes(sizes=(`n`,));  // k (SequenceLength)\n"
        "  %2 = reshape(%1, shape=());  // k (SequenceLength)\n"
        "  (%0, %2)\n}\n"
    )


APPENDS = """g (float[n,3] x, int64 t, bool go) => (float[m,3] y) {{
  e = SequenceEmpty () {first}
  s = Loop (t, go, e) <body = b (int64 i, bool c, seq(float) q) => (bool d, seq(float) r) {{
    d = Identity (c) v = Gather (x, i) {body}
  }}> y = ConcatFromSequence <axis = 0> (s) }}"""


def test_a_loop_that_appends_collects_rows() -> None:
    made = proto(APPENDS.format(first="", body="r = SequenceInsert (q, v)"))
    text = print_module(imported(made))
    assert "control.loop" in text
    assert text.count("concatenate(%collected_0") == 1


OPEN_REFUSALS = {
    "a loop that hands on an optional": APPENDS.replace("seq(float)", "optional(float)")
    .replace("go, e)", "go, o)")
    .replace("ConcatFromSequence <axis = 0>", "OptionalGetElement")
    .format(first="o = Optional <type = float[2]> ()", body="r = Identity (q)"),
    "of elements whose rank is not known": "g (float[n,3] x, int64 p) => (float y) {"
    " a = ReduceSum <keepdims = 0> (x) s = SequenceConstruct (x, a) y = SequenceAt (s, p) }",
    "branches give sequences of different lengths": "g (float[n,3] x, bool c) => (int64 y) {"
    " s = If (c) <then_branch = t () => (seq(float) p) { a = Exp (x) p = SequenceConstruct (a) },"
    " else_branch = u () => (float q) { q = Exp (x) }> y = SequenceLength (s) }",
    "is no tensor but a sequence": "g (float[n,3] x, bool c) => (float y) {"
    " y = If (c) <then_branch = t () => (seq(float) p) { a = Exp (x) p = SequenceConstruct (a) },"
    " else_branch = u () => (seq(float) q) { b = Sin (x) q = SequenceConstruct (b) }> }",
    "operator 'Exp' of a sequence": "g (float[n,3] x) => (float y) {"
    " s = SequenceConstruct (x) y = Exp (s) }",
    "a sequence of 1500 elements": "g (float[3000,3] x) => (float y) { k = Constant <value_int = 2>"
    " () s = SplitToSequence (x, k) y = ConcatFromSequence <axis = 0> (s) }",
}


@pytest.mark.parametrize("words", OPEN_REFUSALS)
def test_what_only_the_evaluator_can_do_is_refused(words: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        imported(proto(OPEN_REFUSALS[words]))
    assert words in str(caught.value)


BROKEN = {
    "the operand is no sequence": "g (float[4,3] x) => (int64 y) { y = SequenceLength (x) }",
    "position 3 is outside": THREE + "n = Constant <value_int = 3> () y = SequenceAt (s, n) }",
    "position 0 is outside": EMPTY + "n = Constant <value_int = 0> () t = SequenceErase (s, n)"
    " y = ConcatFromSequence <axis = 0> (t) }",
    "parts of 0 elements": "g (float[4,3] x) => (float y) { k = Constant <value_int = 0> ()"
    " s = SplitToSequence (x, k) y = ConcatFromSequence <axis = 0> (s) }",
    "parts of [1, 2] for 4": "g (float[4,3] x) => (float y) { k = Constant <value_ints = [1, 2]> ()"
    " s = SplitToSequence (x, k) y = ConcatFromSequence <axis = 0> (s) }",
    "the optional holds nothing": "g (float[4,3] x) => (float y) {"
    " n = Optional <type = float[4,3]> () y = OptionalGetElement (n) }",
    "sequences of 4 and 3 elements": "g (float[4,3] x) => (float y) { s = SplitToSequence (x)"
    " u = SplitToSequence <axis = 1> (x) t = SequenceMap (s, u) <body = f"
    " (float[1,3] v, float[4,1] w) => (float[4,3] o) { o = Mul (v, w) }>"
    " y = ConcatFromSequence <axis = 0> (t) }",
    "a graph inside gives a sequence": "g (float[4,3] x) => (float y) { s = SplitToSequence (x)"
    " y = SequenceMap (s) <body = f (float[1,3] v) => (seq(float) o) { o = SequenceConstruct (v)"
    " }> }",
    "hands on another kind of value": APPENDS.format(first="", body="r = Exp (v)"),
    "branches give 1 and 2 results": "g (float[n,3] x, bool c) => (float y) {"
    " y = If (c) <then_branch = t () => (float p) { p = Exp (x) },"
    " else_branch = u () => (float q, float r) { q = Exp (x) r = Sin (x) }> }",
}
EMPTY_ROWS = {
    "ConcatFromSequence": EMPTY + "y = ConcatFromSequence <axis = 0> (s) }",
    "SequenceAt": EMPTY.replace("x)", "x, int64 p)") + "y = SequenceAt (s, p) }",
}


@pytest.mark.parametrize("words", BROKEN)
def test_broken_sequences(words: str) -> None:
    with pytest.raises(IntarsiaError) as caught:
        imported(proto(BROKEN[words]))
    assert isinstance(caught.value, ModelError)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", EMPTY_ROWS)
def test_a_sequence_without_elements_gives_none(name: str) -> None:
    with pytest.raises(ModelError, match="the sequence has no elements"):
        imported(proto(EMPTY_ROWS[name]))
