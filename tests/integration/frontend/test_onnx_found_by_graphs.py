# SPDX-License-Identifier: Apache-2.0
"""Combinations that random graphs of open sizes found wrong or refused, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser
from tests.integration.frontend.test_onnx_counted import check, floats

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError

HEAD = '<ir_version: 10, opset_import: ["": 20]> g '


def parsed(text: str) -> bytes:
    return parser.parse_model(HEAD + text).SerializeToString()


def test_the_depth_of_categories_is_a_count_of_the_run() -> None:
    made = parsed(
        """(float[n] x) => (float[p] u, float[q, r] y)
        <float[2] v = {0, 1}, int64[1] one = {1}> {
          u, i, j, c = Unique <sorted = 1> (x)
          m = Max (c, one)
          d = ReduceMax <keepdims = 1> (m)
          y = OneHot <axis = -1> (c, d, v)
        }"""
    )
    rows = ([1, 1, 2], [5], [3, 1, 3, 3, 2, 1], [4, 4])
    check(made, *({"x": np.array(row, np.float32)} for row in rows))


@pytest.mark.parametrize(
    ("kind", "depth_kind"), [("int64", "int64"), ("int32", "int32"), ("int32", "float")]
)
def test_the_depth_of_categories_is_an_input(kind: str, depth_kind: str) -> None:
    made = parsed(
        f"""({kind}[n] x, {depth_kind}[1] d, float[2] v) => (float[r, n] y)
        {{ y = OneHot <axis = 0> (x, d, v) }}"""
    )
    dtype = np.float32 if depth_kind == "float" else np.dtype(depth_kind)
    x, v = np.array([0, 1, -1, 7, -9], np.dtype(kind)), np.array([3, 5], np.float32)
    check(made, *({"x": x, "d": np.array([depth], dtype), "v": v} for depth in (1, 2, 8)))
    nothing = {"x": x, "d": np.array([0], dtype), "v": v}
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="depth of OneHot must be positive"):
        executable.run(nothing)


def test_boxes_of_negative_width_share_nothing() -> None:
    made = parsed(
        """(float[1, n, 4] b, float[1, 1, n] s) => (int64[m, 3] y)
        <int64[1] k = {20}, float[1] t = {0.3}> {
          y = NonMaxSuppression <center_point_box = 1> (b, s, k, t)
        }"""
    )
    draws = np.random.default_rng(0)
    rows: list[dict[str, np.ndarray]] = []
    for signs in ([-1, 1], [1, -1], [-1, -1]):
        boxes = draws.random((1, 9, 4), np.float32) * 4
        boxes[..., 2:] *= np.where(draws.random((1, 9, 2)) < 0.5, 1, signs)
        rows.append({"b": boxes, "s": draws.random((1, 1, 9), np.float32)})
    check(made, *rows)


def test_widths_of_four_dimensions_are_cut_and_wrapped() -> None:
    made = parsed(
        """(float[a, b, c, d] x, int64[8] p) => (float[e, f, g, h] y)
        { y = Pad <mode = "wrap"> (x, p) }"""
    )
    x = np.arange(3 * 4 * 5 * 2, dtype=np.float32).reshape(3, 4, 5, 2)
    rows = ([-1, 2, 0, 1, 0, -2, 3, -1], [1, -2, -1, 0, -2, 1, 2, 2], [0, 5, -3, 0, 0, 6, 1, 0])
    check(made, *({"x": x, "p": np.array(row)} for row in rows))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_nothing_is_repeated_where_widths_take_all_away(mode: str) -> None:
    made = parsed(
        f"""(float[n] x, int64[2] p) => (float[m] y) {{ y = Pad <mode = "{mode}"> (x, p) }}"""
    )
    x = np.arange(4, dtype=np.float32)
    check(made, *({"x": x, "p": np.array(row)} for row in ((-3, 0), (-1, -2), (1, -2), (0, 2))))
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="has nothing to fill with"):
        executable.run({"x": x, "p": np.array([3, -4])})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_no_element_is_chosen_where_the_result_is_empty(op: str) -> None:
    made = parsed(f"(float[n, m] x) => (int64[m] y) {{ y = {op} <axis = 0, keepdims = 0> (x) }}")
    check(made, *({"x": np.ones(size, np.float32)} for size in ((0, 0), (3, 0), (2, 5))))
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="must be elements to choose from"):
        executable.run({"x": np.ones((0, 2), np.float32)})


def test_regions_of_images_without_channels_are_empty() -> None:
    made = parsed(
        """(float[1, c, h, 4] x, float[n, 4] r, int64[n] i) => (float[n, c, 1, 1] y)
        { y = RoiAlign <sampling_ratio = 2> (x, r, i) }"""
    )
    regions = np.array([[0, 0, 2, 3]], np.float32)
    rows = [(0, 3, regions), (2, 3, regions), (2, 0, regions[:0])]
    check(
        made,
        *({"x": floats(1, c, h, 4), "r": r, "i": np.zeros(len(r), np.int64)} for c, h, r in rows),
        tolerance=1e-5,
    )


def test_a_window_larger_than_its_image_is_refused() -> None:
    """By ONNX's text there are 0 windows; ONNX Runtime's division rounds up to 1."""
    made = parsed(
        """(float[1, 1, n] x) => (float[1, 1, m] y)
        { y = MaxPool <kernel_shape = [2], strides = [2]> (x) }"""
    )
    check(made, *({"x": floats(1, 1, size)} for size in (2, 3, 5)))
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="must fit into what it moves over"):
        executable.run({"x": floats(1, 1, 1)})


@pytest.mark.parametrize("rows", ["n", "1"])
@pytest.mark.parametrize(("low", "high"), [(3, -2), (-2, 3), (4, -3), (2, -3)])
def test_a_pad_of_constants_may_take_more_than_there_is(rows: str, low: int, high: int) -> None:
    made = parsed(
        f"""(float[{rows}] x) => (float[m] y) <int64[2] p = {{{low}, {high}}}, float v = {{7}}> {{
          y = Pad (x, p, v)
        }}"""
    )
    sizes = (1,) if rows == "1" else (1, 2, 3, 9)
    check(made, *({"x": floats(size)} for size in sizes))


def test_a_pad_of_constants_that_takes_all_and_more_is_refused() -> None:
    made = parsed("(float[1] x) => (float[m] y) <int64[2] p = {1, -4}> { y = Pad (x, p) }")
    with pytest.raises(ModelError, match="take more than shape"):
        from_onnx(made)


@pytest.mark.parametrize(
    "text",
    [
        "(float[n, 1, 3] x) => (float[a, b] y) { y = Squeeze (x) }",
        "(float[n, 1, 1] x) => (float[a] y) { s = Squeeze (x) y = Relu (s) }",
    ],
)
def test_no_rows_are_not_one_row(text: str) -> None:
    made, width = parsed(text), 3 if "3" in text.partition("x)")[0] else 1
    check(made, *({"x": floats(n, 1, width)} for n in (2, 0, 5)))
    executable = intarsia.build(made, "llvm").load(threads=1)
    with (
        executable,
        pytest.raises(ModelError, match=r"an open size of 1 is left out .*: 1, more than"),
    ):
        executable.run({"x": floats(1, 1, width)})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        "kernel_shape = [3, 2]",
        "kernel_shape = [2, 2], dilations = [2, 1]",
        "kernel_shape = [3, 2], strides = [2, 1], ceil_mode = 1",
    ],
)
def test_a_pool_has_no_position_if_its_window_is_one_larger(op: str, attrs: str) -> None:
    text = f"=> (float[n, 2, p, q] y) {{ y = {op} <{attrs}> (x) }}"
    images = [{"x": floats(n, 2, h, w)} for n, h, w in ((1, 2, 5), (2, 4, 1), (1, 2, 1), (1, 4, 5))]
    check(parsed(f"(float[n, 2, h, w] x) {text}"), *images)
    check(parsed(f"(float[1, 2, 2, 5] x) {text}"), images[0])


def test_a_pool_of_larger_steps_needs_a_whole_window() -> None:
    made = parsed(
        "(float[1, 2, h, 4] x) => (float[1, 2, p, 2] y)"
        "{ y = MaxPool <kernel_shape = [3, 2], strides = [2, 2]> (x) }"
    )
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(ModelError, match="a window must fit into what it moves over"):
        executable.run({"x": floats(1, 2, 2, 4)})


def check_built(made: bytes, *sets: dict[str, np.ndarray]) -> None:
    """Compare what is built, parts of which may run on the host, with ONNX Runtime."""
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for given in sets:
            for mine, theirs in zip(
                executable.run(given).values(), session.run(None, given), strict=True
            ):
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rows", ["n", "0"])
def test_a_split_of_no_rows_has_no_parts(rows: str) -> None:
    made = parsed(
        f"(float[{rows}, 4] x) => (int64 y) <int64 k = {{2}}>"
        "{ q = SplitToSequence <axis = 0> (x, k) y = SequenceLength (q) }"
    )
    check_built(made, {"x": floats(0, 4)})


def test_a_rolled_dimension_is_as_long_as_before() -> None:
    made = parsed(
        """(float[b, h, 4] x) => (float[b, h, 4] y)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] end = {2147483647},
         int64[1] axis = {1}> {
          head = Slice (x, zero, two, axis)
          tail = Slice (x, two, end, axis)
          rolled = Concat <axis = 1> (tail, head)
          y = Add (rolled, x)
        }"""
    )
    with collecting_guards() as guards:
        from_onnx(made)
    assert not guards
    check(made, *({"x": floats(2, h, 4)} for h in (0, 1, 2, 3, 7)))


LOOP = """Loop (m, t, x) <body = b (int64 i, bool c, float[p, 4] s)
  => (bool o, float[q, 4] g, float[4] u) {
    o = Identity (c) g = Concat <axis = 0> (s, x) u = ReduceSum <keepdims = 0> (x, z)
    dead = Add (s, around)
  }>"""


def test_a_split_on_the_host_of_no_rows_has_no_parts() -> None:
    made = parsed(
        f"""(float[n, 4] x) => (int64 y) <int64 m = {{0}}, int64 k = {{1}}, int64[1] z = {{0}}> {{
          t = Constant <value = bool {{1}}> ()
          around = Neg (x)
          a, d = {LOOP}
          q = SplitToSequence <axis = 0> (a, k)
          y = SequenceLength (q)
        }}"""
    )
    check_built(made, *({"x": floats(n, 4)} for n in (0, 1, 3)))
