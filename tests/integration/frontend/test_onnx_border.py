# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals as inputs and outputs of models that are compiled whole.

Results are those of ONNX Runtime, and of the kernels of the host where that has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import intarsia
from intarsia.driver.artifact import Artifact
from intarsia_ir.graph.guards import collecting_guards
from intarsia_onnx.dynamic import DynamicModel, plan_read, run_reference
from intarsia_onnx.reader import read_model
from intarsia_runtime.errors import ModelError

RNG = np.random.default_rng(11)
TARGETS = ("llvm", "c")


def floats(*shapes: Sequence[int]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def vector(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def model(text: str) -> bytes:
    head = '<ir_version: 9, opset_import: ["" : 18]>\n'
    return onnx.parser.parse_model(head + text).SerializeToString()


def compiled(data: bytes, target: str) -> Artifact:
    artifact = intarsia.build(data, target)
    assert artifact.placement.host == ()
    assert [part.name for part in artifact.passport.parts] == ["piece0"]
    return artifact


def check(text: str, *sets: Mapping[str, Any], target: str = "llvm") -> None:
    """Compare machine code and the reference with ONNX Runtime."""
    data = model(text)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with collecting_guards():
        planned = plan_read(read_model(data, any_value=True), opens=True)
    assert isinstance(planned, DynamicModel)
    with compiled(data, target).load(threads=1) as executable:
        for feeds in sets:
            wanted = session.run(None, dict(feeds))
            for found in (
                executable.run(feeds).values(),
                run_reference(planned, [*feeds.values()]),
            ):
                for mine, theirs in zip(found, wanted, strict=True):
                    same(mine, theirs)


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert isinstance(mine, list)
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)
        return
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


RAGGED = floats((2, 3), (0, 4), (5, 1))
"""Elements of one rank."""
MIXED = floats((2, 3), (), (4,), (1, 0, 2))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("position", [0, 2, 3, -1, -3])
def test_elements_are_inserted_at_any_position(position: int, target: str) -> None:
    text = """g (seq(float[a, b]) s, float[n, m] x, int64 p)
        => (seq(float[]) y, seq(float[]) z, int64 n) {
        y = SequenceInsert (s, x, p)
        z = SequenceInsert (s, x)
        n = SequenceLength (z)
    }"""
    (x,) = floats((3, 2))
    check(text, {"s": RAGGED, "x": x, "p": np.array(position)}, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_elements_are_taken_and_erased(target: str) -> None:
    text = """g (seq(float[a, b]) s, int64 p) => (float[n, m] y, seq(float[]) z, seq(float[]) w) {
        x = SequenceAt (s, p)
        y = Exp (x)
        z = SequenceErase (s, p)
        w = SequenceErase (s)
    }"""
    sets = [{"s": RAGGED, "p": np.array(p)} for p in (0, 1, -1)]
    check(text, *sets, {"s": RAGGED[:1], "p": np.array(0)}, target=target)


def test_elements_may_differ_in_rank() -> None:
    text = """g (seq(float[]) s, float[n] x) => (seq(float[]) y, seq(float[]) z) {
        y = Identity (s)
        z = SequenceInsert (s, x)
    }"""
    data = model(text)
    (x,) = floats((2,))
    with compiled(data, "llvm").load(threads=1) as executable:
        for s in (MIXED, MIXED[1:2], []):
            y, z = executable.run({"s": s, "x": x}).values()
            same(y, s)
            same(z, [*s, x])
        with pytest.raises(ModelError, match="an element has 9 dimensions; 8 is the most"):
            executable.run({"s": [np.zeros((1,) * 9, np.float32)], "x": x})


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_is_carried_out_for_each_element(target: str) -> None:
    text = """g (seq(float[n, m]) s, seq(float[k]) t, float[2] x)
        => (seq(float[]) y, seq(int64[]) z) {
        y, z = SequenceMap (s, t, x) <body = b (float[n, m] a, float[k] c, float[2] d)
            => (float[n, m] u, int64[q] v) {
                e = ReduceSum <keepdims = 0> (c)
                f = Mul (a, e)
                u = Add (f, d)
                v = Shape (a)
            }>
    }"""
    (x,) = floats((2,))
    s, t = floats((3, 2), (0, 2), (1, 2)), floats((4,), (1,), (0,))
    check(text, {"s": s, "t": t, "x": x}, {"s": s[:1], "t": t[:1], "x": x}, target=target)
    with compiled(model(text), target).load(threads=1) as executable:
        y, z = executable.run({"s": [], "t": [], "x": x}).values()
        assert (y, z) == ([], [])


def test_sizes_of_elements_that_do_not_fit_end_the_run() -> None:
    text = """g (seq(float[n]) s, seq(float[n]) t) => (seq(float[]) y) {
        y = SequenceMap (s, t) <body = b (float[n] a, float[m] c) => (float[k] u) {
            u = Add (a, c) }>
    }"""
    s, t = floats((3,), (2,)), floats((3,), (2,))
    check(text, {"s": s, "t": t})
    with compiled(model(text), "llvm").load(threads=1) as executable:
        with pytest.raises(ModelError, match="must be equal"):
            executable.run({"s": s, "t": t[::-1]})
        with pytest.raises(ModelError, match="an index is outside"):
            executable.run({"s": s, "t": t[:1]})


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_appends_elements_of_its_own_sizes(target: str) -> None:
    text = """g (int64 n, seq(float[1]) s, float[k] x) => (seq(float[]) y, float[m] last) {
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        last, y = Loop (n, , x, s) <body = b (int64 i, bool go, float[q] c, seq(float[]) r)
            => (bool o, float[w] e, seq(float[]) t) {
                o = Identity (go)
                j = Unsqueeze (i, zero)
                end = Add (j, one)
                a = Slice (x, zero, end, zero)
                t = SequenceInsert (r, a)
                e = Concat <axis = 0> (c, a)
            }>
    }"""
    (x,) = floats((5,))
    sets = [{"n": np.array(n), "s": floats((1,), (1,))[:n], "x": x} for n in (0, 1, 4, 9)]
    check(text, *sets, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_tensor_is_split_into_parts_of_the_run(axis: int, target: str) -> None:
    for sizes in ("4, 6, 2", "n, m, 2"):
        text = f"""g (float[{sizes}] x, int64[3] p, int64 k) => (seq(float[]) y, seq(float[]) z) {{
            y = SplitToSequence <axis = {axis}> (x, p)
            z = SplitToSequence <axis = {axis}> (x, k)
        }}"""
        (x,) = floats((4, 6, 2))
        length = x.shape[axis]
        rows = [(1, 0, length - 1), (0, length, 0), (length - 1, 1, 0)]
        sets = [
            {"x": x, "p": vector(*row), "k": np.array(k)}
            for row, k in zip(rows, (1, 4, 7), strict=True)
        ]
        check(text, *sets, target=target)
        with compiled(model(text), target).load(threads=1) as executable:
            for p, k, words in (
                (vector(1, 1, 7), 1, "do not add up"),
                (vector(-1, 1, length), 1, "do not add up"),
                (vector(0, 0, length), 0, "size of a part is not positive"),
            ):
                with pytest.raises(ModelError, match=words):
                    executable.run({"x": x, "p": p, "k": np.array(k)})


@pytest.mark.parametrize("target", TARGETS)
def test_elements_of_any_sizes_are_joined(target: str) -> None:
    text = """g (seq(float[n, m]) s, float[6, 2] x, int64 p, int64 i)
        => (float[q, m] y, float[j, k, 2] z, float[u, v] o) {
        y = ConcatFromSequence <axis = 0> (s)
        t = SplitToSequence (x, p)
        z = ConcatFromSequence <axis = 0, new_axis = 1> (t)
        a = Transpose (x)
        r = SequenceConstruct (x, a)
        o = SequenceAt (r, i)
    }"""
    (x,) = floats((6, 2))
    s = floats((2, 3), (0, 3), (4, 3))
    sets = [{"s": s, "x": x, "p": np.array(p), "i": np.array(i)} for p, i in ((3, 0), (2, -1))]
    check(text, *sets, target=target)
    feeds = {**sets[0], "s": floats((2, 3), (2, 2))}
    with compiled(model(text), target).load(threads=1) as executable:
        for wrong in (feeds, {**sets[0], "p": np.array(4)}):
            with pytest.raises(ModelError, match="elements that are joined differ in size"):
                executable.run(wrong)


def test_results_may_be_lists_of_known_lengths() -> None:
    text = """g (float[3, n] x, bool c) => (seq(float[]) y, seq(float[]) z, seq(float[]) w) {
        e = Exp (x)
        y = SequenceConstruct (x, e)
        z = SplitToSequence <keepdims = 0> (x)
        w = If (c) <then_branch = t () => (seq(float[]) a) { a = SequenceConstruct (e, e, x) },
                    else_branch = f () => (seq(float[]) b) { b = SplitToSequence <axis = 1> (x) }>
    }"""
    for target in TARGETS:
        sets = [{"x": floats((3, n))[0], "c": np.array(c)} for n in (1, 4) for c in (True, False)]
        check(text, *sets, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_the_run_says_whether_an_optional_holds_a_value(target: str) -> None:
    text = """g (optional(float[3]) o, optional(seq(float[n])) s, float[3] x)
        => (float[3] y, bool h, int64 n, optional(float[3]) p) {
        h = OptionalHasElement (o)
        y = If (h) <then_branch = t () => (float[3] a) { a = OptionalGetElement (o) },
                    else_branch = f () => (float[3] b) { b = Neg (x) }>
        q = OptionalHasElement (s)
        n = If (q) <then_branch = g1 () => (int64 c) {
                        l = OptionalGetElement (s)
                        c = SequenceLength (l) },
                    else_branch = g2 () => (int64 d) { d = Constant <value_int = -1> () }>
        p = Identity (o)
    }"""
    o, x = floats((3,), (3,))
    with compiled(model(text), target).load(threads=1) as executable:
        found = [*executable.run({"o": o, "s": floats((2,), (1,)), "x": x}).values()]
        same(found, [o, np.array(True), np.array(2), o])
        *found, held = executable.run({"o": None, "s": None, "x": x}).values()
        same(found, [-x, np.array(False), np.array(-1)])
        assert held is None


@pytest.mark.parametrize(("size", "target"), [("n", "llvm"), ("n", "c"), ("4", "llvm")])
def test_a_branch_hands_an_optional_on(size: str, target: str) -> None:
    text = """g (bool c, optional(float[3]) o, optional(seq(float[n])) s, float[3] x)
        => (bool h, bool k, float[3] y, int64 n, optional(float[3]) p) {
        p = If (c) <then_branch = t () => (optional(float[3]) a) {
                        a = Optional <type = float[3]> () },
                    else_branch = e () => (optional(float[3]) b) { b = Optional (x) }>
        q = If (c) <then_branch = t2 () => (optional(float[3]) a2) { a2 = Identity (o) },
                    else_branch = e2 () => (optional(float[3]) b2) { b2 = Optional (x) }>
        r = If (c) <then_branch = t3 () => (optional(seq(float[n])) a3) { a3 = Identity (s) },
                    else_branch = e3 () => (optional(seq(float[n])) b3) {
                        b3 = Optional <type = seq(float[n])> () }>
        h = OptionalHasElement (p)
        k = OptionalHasElement (r)
        y = OptionalGetElement (q)
        n = If (k) <then_branch = t4 () => (int64 a4) {
                        l = OptionalGetElement (r)
                        a4 = SequenceLength (l) },
                    else_branch = e4 () => (int64 b4) { b4 = Constant <value_int = -1> () }>
    }"""
    (x, o), s = floats((3,), (3,)), floats((4,), (4,))
    data = model(text.replace("float[n]", f"float[{size}]"))
    with compiled(data, target).load(threads=1) as executable:
        for c in (True, False):
            found = executable.run({"c": np.array(c), "o": o, "s": s, "x": x})
            assert bool(found["h"]) == (not c)
            assert bool(found["k"]) == c
            np.testing.assert_array_equal(found["y"], o if c else x)
            assert found["n"].item() == (2 if c else -1)
            assert (found["p"] is None) == c
            if not c:
                np.testing.assert_array_equal(found["p"], x)
        with pytest.raises(ModelError, match="the optional holds nothing"):
            executable.run({"c": np.array(True), "o": None, "s": None, "x": x})


@pytest.mark.parametrize("kind", ["float[2]", "seq(float[2])", "seq(float[])"])
def test_what_an_empty_optional_holds_is_an_error(kind: str) -> None:
    result = kind.replace("[2]", "[]")
    text = f"g (optional({kind}) o) => ({result} y) {{ y = OptionalGetElement (o) }}"
    (x,) = floats((2,))
    value = [x, x] if "seq" in kind else x
    with compiled(model(text), "llvm").load(threads=1) as executable:
        same(executable.run({"o": value})["y"], value)
        with pytest.raises(ModelError, match="the optional holds nothing"):
            executable.run({"o": None})


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("seq(float[2])", floats((3,)), r"element 0 of input 'o' has shape \(3,\), not \(2,\)"),
        ("seq(float[n])", floats((3,), ()), "element 1 of input 'o' has 0 dimensions, not 1"),
        ("seq(float[])", [vector(1)], "element 0 of input 'o' is int64, not float32"),
        ("seq(float[])", [[vector(1)]], "element 0 of input 'o' is no tensor"),
        ("optional(float[2])", floats((3,))[0], r"input 'o' must be float32\(2,\), or nothing"),
        ("optional(float[2])", floats((2,)), "or nothing, got no tensor"),
    ],
)
def test_values_that_are_not_what_the_model_declares(kind: str, value: Any, message: str) -> None:
    text = f"g ({kind} o) => ({kind} y) {{ y = Identity (o) }}"
    with (
        compiled(model(text), "llvm").load(threads=1) as executable,
        pytest.raises(ModelError, match=message),
    ):
        executable.run({"o": value})


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("g (seq(string) s) => (int64 n) { n = SequenceLength (s) }", "SequenceLength"),
        ("g (seq(float[]) s, int64 i) => (float[] y) { y = SequenceAt (s, i) }", "SequenceAt"),
        ("g (optional(float[n]) o) => (bool y) { y = OptionalHasElement (o) }",
         "OptionalHasElement"),
        ("""g (bool c, float[n] x) => (optional(float[n]) p) {
             p = If (c) <then_branch = t () => (optional(float[n]) a) {
                             a = Optional <type = float[n]> () },
                         else_branch = e () => (optional(float[n]) b) { b = Optional (x) }> }""",
         "If"),
    ],
)  # fmt: skip
def test_what_is_not_compiled_runs_on_the_host(text: str, op: str) -> None:
    artifact = intarsia.build(model(text), "llvm")
    assert [row.op for row in artifact.placement.host] == [op]
