# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions that stand alone become products of matrices."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, Function, Var, tensor_type
from intarsia_ir.graph.types import variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_loops.cpu.packed_operands import Bf16x2
from intarsia_loops.cpu.pointwise_conv import pointwise_conv_to_matmul
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, numbers
from intarsia_testkit.expressions import apply, expected, fresh, function_of, number, var, weight

NONE = ((0, 0), (0, 0))


class Registers(Struct, frozen=True):
    """How large a matrix unit's registers are."""

    rows: int = 16
    words: int = 16
    lanes: int = 16
    sums: DType = DType.FLOAT32


def conv(data: Expr, *operands: Expr, size: int = 1, outputs: int = 6, **attrs: object) -> Expr:
    inner = numbers(tensor_type(data).shape[1:2])[0]
    given = {"strides": (1, 1), "padding": NONE, "dilation": (1, 1), "groups": 1} | attrs
    matrix = weight(outputs, inner // int(given["groups"]), size, size)
    return apply("nn.conv", data, matrix, *operands, **given)


def relu(data: Expr) -> Expr:
    return apply("nn.relu", data)


def flat(function: Function) -> list[str]:
    return [node.name for node in calls(pointwise_conv_to_matmul(function))]


def same(function: Function) -> None:
    arrays = [fresh(*tensor_type(p).static_shape, seed=n) for n, p in enumerate(function.params)]
    changed = pointwise_conv_to_matmul(function)
    bf16x2 = zip(expected(changed, arrays), expected(function, arrays), strict=True)
    for got, want in bf16x2:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


X = var("x", 2, 4, 4, 8)


def test_one_alone_is_a_product_and_what_follows_is_computed_before_it_is_reshaped() -> None:
    function = function_of(relu(conv(X, weight(6))))
    assert flat(function) == ["reshape", "matmul", "add", "nn.relu", "reshape"]
    same(function)


def test_a_line_has_them_too() -> None:
    line = var("x", 2, 4, 9)
    body = apply(
        "nn.conv", line, weight(6, 4, 1), strides=(1,), padding=((0, 0),), dilation=(1,), groups=1
    )
    assert flat(function_of(body)) == ["reshape", "matmul", "reshape"]
    same(function_of(body))


def test_weights_may_be_known_at_run_time_only() -> None:
    attrs = {"strides": (1, 1), "padding": NONE, "dilation": (1, 1), "groups": 1}
    body = apply("nn.conv", X, Var("w", weight(6, 4, 1, 1).type), weight(6), **attrs)
    assert flat(function_of(body)) == ["reshape", "reshape", "matmul", "add", "reshape"]
    same(function_of(body))


def test_two_in_a_row_with_a_sum_and_a_number_between() -> None:
    first = conv(X)
    body = conv(apply("multiply", apply("add", first, relu(first)), number(0.5)))
    assert flat(function_of(body)).count("matmul") == 2
    assert flat(function_of(body)).count("reshape") == 2
    same(function_of(body))


def test_operands_that_are_stretched_stay_images() -> None:
    body = apply("add", conv(X), weight(1, 6, 1, 1))
    assert flat(function_of(body)) == ["reshape", "matmul", "reshape", "add"]
    same(function_of(body))


def test_images_of_an_open_batch() -> None:
    batch = variable("batch")
    function = function_of(relu(conv(var("x", batch, 4, 4, 16), weight(6))))
    assert flat(function) == ["reshape", "matmul", "add", "nn.relu", "reshape"]
    for count in (1, 3):
        x = {"x": fresh(count, 4, 4, 16)}
        (got,) = evaluate(pointwise_conv_to_matmul(function), x)
        (want,) = evaluate(function, x)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_images_of_open_height_and_width() -> None:
    batch, height, width = (variable(name) for name in ("batch", "height", "width"))
    function = function_of(relu(conv(var("x", batch, 4, height, width), weight(6))))
    assert flat(function) == ["reshape", "matmul", "add", "nn.relu", "reshape"]
    for size in ((1, 1, 1), (2, 5, 3), (1, 9, 11)):
        x = {"x": fresh(size[0], 4, *size[1:])}
        (got,) = evaluate(pointwise_conv_to_matmul(function), x)
        (want,) = evaluate(function, x)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        var("x", variable("batch"), 4, 5, 5),
        var("x", 1, 50000, variable("height"), 32),
    ],
    ids=["few positions", "more weights than a cache holds"],
)
def test_others_of_open_sizes_are_left(data: Expr) -> None:
    function = function_of(conv(data))
    assert pointwise_conv_to_matmul(function) is function


@pytest.mark.parametrize("height", [32, variable("height")], ids=str)
@pytest.mark.parametrize(
    ("inner", "outputs", "is_product"),
    [(64, 64, False), (63, 256, True), (96, 24, True), (128, 64, False), (160, 40, False)],
)
def test_deep_ones_stay_for_a_matrix_unit(
    inner: int, outputs: int, is_product: bool, height: Size
) -> None:
    """Where products are many beside the elements that are transposed."""
    function = function_of(conv(var("x", 1, inner, height, 32), outputs=outputs))
    bf16x2 = Bf16x2(lambda first: first, Registers())
    assert (pointwise_conv_to_matmul(function, bf16x2) is not function) == is_product
    assert pointwise_conv_to_matmul(function) is not function


def test_several_results() -> None:
    function = function_of(conv(X), relu(X))
    assert "matmul" in flat(function)
    same(function)


@pytest.mark.parametrize(
    "body",
    [
        conv(conv(X, size=3, padding=((1, 1), (1, 1)))),
        conv(relu(conv(X)), size=3),
        apply("nn.max_pool", conv(X), kernel=(2, 2), strides=(2, 2), padding=NONE, dilation=(1, 1)),
        conv(X, strides=(2, 2)),
        conv(X, padding=((1, 0), (0, 0))),
        conv(X, groups=2),
        conv(X, size=3),
        conv(var("x", 1, 4, 7, 7)),
    ],
    ids=["behind", "before", "pool", "stride", "padding", "groups", "window", "49 columns"],
)  # fmt: skip
def test_others_are_left(body: Expr) -> None:
    function = function_of(body)
    assert pointwise_conv_to_matmul(function) is function
