# SPDX-License-Identifier: Apache-2.0
"""Sizes that divide: ONNX rounds towards 0, where a dividend is negative too."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import intarsia

HEADER = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[M] y)\n'


def check(body: str, sizes: tuple[int, ...]) -> None:
    model = parser.parse_model(HEADER + body)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for size in sizes:
            x = np.arange(size, dtype=np.float32)
            (wanted,) = session.run(None, {"x": x})
            (found,) = executable.run({"x": x}).values()
            assert found.shape == wanted.shape, size
            np.testing.assert_array_equal(found, wanted)


QUOTIENTS = {
    "frames": ("n, 400", "160", "3"),  # (N - 400) / 160 + 3
    "rounded up": ("0, n", "8", "64"),  # -N / 8 + 64
    "negative divisor": ("n, 400", "-160", "5"),
    "divisor of the run": ("n, 400", "n", "400"),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_of_sizes_round_towards_0(name: str) -> None:
    (left, right), by, plus = QUOTIENTS[name][0].split(", "), *QUOTIENTS[name][1:]
    numbers = "\n".join(
        f"c{i} = Constant<value = int64[1] {{{value}}}>()"
        for i, value in enumerate((left, right, by, plus))
        if value != "n"
    )
    terms = ["n" if v == "n" else f"c{i}" for i, v in enumerate((left, right, by, plus))]
    body = f"""{{
        n = Shape(x)
        {numbers}
        a = Sub({terms[0]}, {terms[1]})
        b = Div(a, {terms[2]})
        c = Add(b, {terms[3]})
        y = ConstantOfShape<value = float[1] {{2.5}}>(c)
    }}"""
    check(body, (1, 79, 80, 239, 240, 241, 397, 399, 400, 401, 500))


def test_a_quotient_is_plain_where_a_window_says_that_the_dividend_is_natural() -> None:
    body = """{
        n = Shape(x)
        one = Constant<value = int64[1] {1}>()
        head = Constant<value = int64[3] {1, 1, -1}>()
        row = Reshape(x, head)
        low = MaxPool<kernel_shape = [40], strides = [16]>(row)
        length = Constant<value = int64[1] {40}>()
        step = Constant<value = int64[1] {16}>()
        a = Sub(n, length)
        b = Div(a, step)
        c = Add(b, one)
        y = Reshape(low, c)
    }"""
    check(body, (40, 41, 55, 56, 333))
    artifact = intarsia.build(parser.parse_model(HEADER + body).SerializeToString(), "llvm")
    sizes = artifact.passport.plan.open
    assert sizes is not None
    assert not any("max(" in str(guard.left) for guard in sizes.guards)


def test_a_divisor_that_may_have_either_sign_divides_when_the_model_runs() -> None:
    body = """{
        n = Shape(x)
        c100 = Constant<value = int64[1] {100}>()
        c1000 = Constant<value = int64[1] {1000}>()
        by = Sub(n, c100)
        a = Div(c1000, by)
        b = Add(a, c1000)
        y = ConstantOfShape<value = float[1] {2.5}>(b)
    }"""
    check(body, (1, 97, 99, 101, 103, 700))


def test_quotients_in_a_branch_do_not_believe_its_windows() -> None:
    body = """{
        n = Shape(x)
        length = Constant<value = int64[1] {40}>()
        step = Constant<value = int64[1] {16}>()
        few = Constant<value = int64[1] {9}>()
        a = Sub(n, length)
        b = Div(a, step)
        c = Add(b, few)
        zero = Constant<value = float {0.0}>()
        total = ReduceSum<keepdims = 0>(x)
        yes = Less(zero, total)
        y = If(yes)<then_branch = t () => (float[P] p) {
            head = Constant<value = int64[3] {1, 1, -1}>()
            row = Reshape(x, head)
            low = MaxPool<kernel_shape = [40], strides = [16]>(row)
            flat = Constant<value = int64[1] {-1}>()
            big = ConstantOfShape<value = float[1] {2.5}>(c)
            line = Reshape(low, flat)
            p = Concat<axis = 0>(big, line)
        }, else_branch = e () => (float[Q] q) {
            q = ConstantOfShape<value = float[1] {1.5}>(c)
        }>
    }"""
    check(body, (1, 40, 60))
