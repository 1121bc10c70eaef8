# SPDX-License-Identifier: Apache-2.0
"""Open sizes that are broadcast, beside ONNX Runtime: equal ones, and 1 next to others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import control
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

RNG = np.random.default_rng(5)

SUMS = """g (float[n, 8] x, float[m, 8] y) => (float[p, 8] o) {
    z = Add (x, y)
    r = Relu (z)
    s = Mul (r, x)
    o = Sub (s, y)
}"""
PRODUCTS = (
    """g (float[n, 4, 16] x, float[m, 16, 5] y) => (float[p, 4, 5] o) { o = MatMul (x, y) }"""
)
JOINS = """g (float[n] x, float[m] y) => (float[p] o)
<float[3] w = {1, 2, 3}> {
    c = Concat <axis = 0> (w, x)
    o = Add (c, y)
}"""
CHOICES = """g (float[n, m] c, float[n, k] x, float[k, m] y) => (float[p, q] o) {
    z = Greater (c, x)
    o = Where (z, x, y)
}"""
SPREADS = """g (float[n, 8] x, float[m, 8] y) => (float[p, 8] o) {
    s = Shape (y)
    o = Expand (x, s)
}"""

SHIFTS = """g (float[n, c, h, 6] x) => (float[n, k, h, 6] o)
<float[3, 1, 1] mean = {1, 2, 3}, float[2, 1, 6] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
    z = Sub (x, mean)
    r = ReduceMax <keepdims = 1> (z)
    s = Add (x, r)
    t = Mul (s, mean)
    u = Add (t, x)
    v = Transpose <perm = [1, 0, 2, 3]> (u)
    y = Mul (v, w)
    o = Transpose <perm = [1, 0, 2, 3]> (y)
}"""
KERNELS = """g (float[1, 3, h, w] x, float[3, 4, k, k] y) => (float[1, 4, p, q] o)
<float[3] scale = {1, 2, 3}> {
    z = Mul (y, scale)
    c = ConvTranspose (x, y)
    m = ReduceMax <keepdims = 1> (z)
    o = Add (c, m)
}"""

UNITS = """g (float[n] x, float[m, 6] y) => (float[p] o, float[q] l, float[r, 6] f)
<float[3] w = {1, 2, 3}, float[2] v = {1, 2},
 int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {2}> {
    o = Add (x, w)
    l = Mul (x, v)
    s = Slice (y, a, b)
    t = Slice (s, c, b)
    f = Sub (s, t)
}"""

COUNTS = """g (float[n, 1] x) => (float[p, 7] o)
<int64[1] a = {0}, int64[1] b = {99}, int64[1] c = {9}, int64[2] s = {4, 7}> {
    t = Slice (x, a, b, a, c)
    o = Expand (t, s)
}"""

FIRSTS = """g (float[n, m, 8] x) => (float[n, k, 8] a, float[p, q, 8] b)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] axis = {1}, int64[2] none = {0, 0},
     int64[2] both = {1, 1}, int64[2] axes = {0, 1}, int64[1] minus = {-1},
     int64[1] end = {2147483647}> {
    y = Abs (x)
    r = Slice (y, zero, one, axis)
    c = Slice (y, none, both, axes)
    d = Sub (x, r)
    l = Slice (y, minus, end, axis)
    a = Div (d, l)
    g = Mul (c, x)
    z = Greater (g, c)
    b = Where (z, g, c)
}"""


def model(text: str) -> bytes:
    head = '<ir_version: 9, opset_import: ["" : 18]>\n'
    return onnx.parser.parse_model(head + text).SerializeToString()


def feeds(data: bytes, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    inputs = onnx.load_from_string(data).graph.input
    shapes = {
        info.name: [d.dim_value or sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        for info in inputs
    }
    return {name: RNG.random(shape, np.float32) - 0.5 for name, shape in shapes.items()}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (SUMS, [{"n": n, "m": m} for n, m in ((3, 3), (1, 5), (5, 1), (1, 1), (0, 0), (0, 1))]),
        (PRODUCTS, [{"n": n, "m": m} for n, m in ((2, 2), (1, 3), (3, 1), (1, 1))]),
        (
            CHOICES,
            [
                {"n": n, "m": m, "k": k}
                for n, m, k in itertools.product((1, 2, 3), repeat=3)
                if len({n, m, k} - {1}) <= 1
            ],
        ),
        (SPREADS, [{"n": n, "m": m} for n, m in ((4, 4), (1, 6), (6, 1))]),
        (SHIFTS, [{"n": n, "c": c, "h": h} for n, c, h in ((2, 3, 4), (1, 1, 5), (2, 1, 1))]),
        (KERNELS, [{"h": 5, "w": 6, "k": 3}]),
        (JOINS, [{"n": n, "m": m} for n, m in ((1, 1), (2, 1), (2, 5))]),
        (COUNTS, [{"n": n} for n in (3, 9, 28, 36)]),
        (UNITS, [{"n": 1, "m": m} for m in (3, 7)]),
        (FIRSTS, [{"n": n, "m": m} for n, m in ((2, 5), (1, 1), (3, 1), (0, 4), (4, 0))]),
    ],
    ids=[
        "sums",
        "products",
        "choices",
        "spreads",
        "shifts",
        "kernels",
        "joins",
        "counts",
        "units",
        "firsts",
    ],
)
def test_a_size_of_the_run_may_be_1(
    text: str, rows: Sequence[Mapping[str, int]], target: str
) -> None:
    data = model(text)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with intarsia.build(data, target).load(threads=1) as executable:
        for sizes in rows:
            given = feeds(data, sizes)
            wanted = session.run(None, dict(given))
            for mine, theirs in zip(executable.run(given).values(), wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("text", "n"), [(SUMS, 2), (SPREADS, 2), (SPREADS, 4)])
def test_sizes_that_do_not_broadcast_are_refused_by_name(text: str, n: int) -> None:
    data = model(text)
    why = pytest.raises(ModelError, match=r"[nm] is broadcast, so it must be 1, or as large")
    with intarsia.build(data, "llvm").load(threads=1) as executable, why:
        executable.run(feeds(data, {"n": n, "m": 3}))


def test_halves_of_one_size_stay_equal_next_to_another_size() -> None:
    """An operand that nobody says is 1 is not repeated to the size of two others."""
    text = """g (float[n] x, float[m] y) => (float[p] o)
    <int64[1] z = {0}, int64[1] e = {9999}, int64[1] s = {2}> {
        h = Slice (x, z, e, z, s)
        a = Add (x, h)
        o = Add (a, y)
    }"""
    data = model(text)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        given = feeds(data, {"n": 1, "m": 3})
        (found,) = executable.run(given).values()
        np.testing.assert_allclose(found, 2 * given["x"] + given["y"], rtol=1e-6)
        with pytest.raises(ModelError, match="is broadcast, so it must be 1"):
            executable.run(feeds(data, {"n": 2, "m": 3}))


def test_weights_are_there_once() -> None:
    """The form for equal sizes and the one for others pack the same weights."""
    text = """g (float[n, s, 64] x, float[m, s, 64] y) => (float[p, s, 96] o)
        <float[64, 96] w = {%s}> {
        z = Add (x, y)
        o = MatMul (z, w)
    }"""
    data = model(text % ", ".join(str(number % 7) for number in range(64 * 96)))
    artifact = intarsia.build(data, "llvm")
    sizes = [array.nbytes for array in artifact.constants.values()]
    assert [size for size in sizes if size >= 64 * 96 * 4] == [64 * 96 * 4]
    with artifact.load(threads=1) as executable:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for n, m in ((2, 2), (1, 3), (3, 1)):
            given = feeds(data, {"n": n, "m": m, "s": 5})
            (wanted,) = session.run(None, dict(given))
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def forms(text: str) -> int:
    """Return how many calls choose between two forms of a model."""
    with collecting_guards():
        module = from_onnx(model(text), control_flow=True)
    return sum(call.op is control.If for call in calls(module.main))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (SUMS, 1),
        ("g (float[n, 8] x, float[n, 8] y) => (float[n, 8] o) { o = Add (x, y) }", 0),
        ("g (float[n, 8] x, float[1, 8] y) => (float[n, 8] o) { o = Add (x, y) }", 0),
        ("g (float[n, m] x, float[n, 8] y) => (float[n, m] o) { o = Add (x, y) }", 1),
        # The product says that m is 2.
        (
            """g (float[n, m] x) => (float[n, 2] o)
            <float[2] b = {1, 2}, float[2, 2] w = {1, 2, 3, 4}> {
                y = Add (x, b)
                z = MatMul (x, w)
                o = Add (y, z)
            }""",
            0,
        ),
        # No kernel takes a transposed window of open sizes, so k is 3.
        (KERNELS, 0),
        # Next to two numbers it is 1.
        (
            """g (float[n] x) => (float[p] o, float[q] l)
            <float[3] w = {1, 2, 3}, float[2] v = {1, 2}> {
                o = Add (x, w)
                l = Mul (x, v)
            }""",
            0,
        ),
        # Weights say what an expression is.
        (
            """g (float[n] x) => (float[p] o)
            <int64[1] z = {0}, int64[1] e = {9999}, int64[1] s = {2}, float[3] w = {1, 2, 3}> {
                h = Slice (x, z, e, z, s)
                o = Add (h, w)
            }""",
            0,
        ),
        # min(2, n) is 1 where n is.
        (
            """g (float[n] x) => (float[p] o) <int64[1] z = {0}, int64[1] e = {2}> {
                y = Slice (x, z, e)
                o = Add (x, y)
            }""",
            0,
        ),
        # Two expressions of one size.
        (
            """g (float[n] x) => (float[p] o)
            <int64[1] z = {0}, int64[1] e = {9999}, int64[1] s = {2}> {
                y = Slice (x, z, e, z, s)
                o = Add (x, y)
            }""",
            0,
        ),
        (
            """g (float[n] x, float[m] y) => (float[p] o) <int64[1] z = {0}, int64[1] e = {3}> {
                s = Slice (y, z, e)
                o = Add (x, s)
            }""",
            1,
        ),
    ],
    ids=[
        "two",
        "one",
        "1",
        "a number",
        "a product",
        "a window",
        "two numbers",
        "half next to a number",
        "never 1 alone",
        "half of it",
        "a part of another",
    ],
)
def test_a_model_has_two_forms_where_one_of_two_sizes_may_be_1(text: str, count: int) -> None:
    assert forms(text) == count
