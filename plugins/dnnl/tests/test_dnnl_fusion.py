# SPDX-License-Identifier: Apache-2.0
"""What becomes one primitive, and that it computes the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intarsia_dnnl.program import PrimitiveProgram
from intarsia_ir.graph.expr import Call, Expr, make_tuple
from intarsia_testkit.expressions import apply, fresh, number, var, weight

from .regions import Made, check
from .test_dnnl_operators import convolution


def spelled(program: PrimitiveProgram) -> list[str]:
    """Return each node that is no view as ``kind+post-op+...``."""
    views = ("reshape", "transpose", "slice")
    return [
        "+".join([node.kind, *(op.algorithm or op.kind for op in node.post)])
        for node in program.nodes
        if node.kind not in views
    ]


def conv(x: Expr, *, outputs: int = 8, kernel: int = 3, bias: bool = True) -> Call:
    shape = x.type.static_shape
    weights = weight(outputs, shape[1], kernel, kernel)
    pad = (kernel // 2, kernel // 2)
    attrs = {"strides": (1, 1), "padding": (pad, pad), "dilation": (1, 1)}
    return apply("nn.conv", x, weights, *([weight(outputs)] if bias else []), **attrs)


def dense(x: Expr, outputs: int, seed: int = 1) -> Call:
    return apply("matmul", x, weight(x.type.static_shape[-1], outputs, seed=seed))


@pytest.mark.parametrize("pool", [False, True])
def test_a_chain_of_functions_joins_the_convolution(pool: bool) -> None:
    x: Expr = conv(var("x", 1, 8, 6, 6))
    if pool:
        attrs = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
        x = apply("nn.max_pool", x, dilation=(1, 1), **attrs)
    x = apply("multiply", apply("tanh", x), number(2.0))
    made = check(apply("nn.relu", x), tolerance=2e-4)
    chain = "tanh+linear+relu"
    assert spelled(made.program) == (["conv", f"pool+{chain}"] if pool else [f"conv+{chain}"])


def test_a_residual_is_added_in_place_when_nothing_reads_it_afterwards() -> None:
    x = apply("nn.relu", conv(var("x", 1, 8, 6, 6)))
    y = apply("nn.relu", apply("add", conv(conv(x)), x))
    y = apply("nn.relu", apply("add", conv(conv(y)), y))
    made = check(apply("nn.relu", conv(y)), tolerance=1e-3)
    block = ["conv", "conv+sum+relu"]
    assert spelled(made.program) == ["conv+relu", *block, *block, "conv+relu"]


def test_a_residual_that_is_read_later_is_not_overwritten() -> None:
    x = apply("nn.relu", conv(var("x", 1, 8, 6, 6)))
    y = apply("add", conv(x), x)
    made = check(make_tuple([y, x]), tolerance=2e-4)
    assert spelled(made.program) == ["conv+relu", "conv+add"]
    z = apply("add", apply("tanh", conv(conv(y, kernel=1))), x)
    made = check(apply("nn.relu", conv(z)), tolerance=5e-4)
    assert not any("sum" in node for node in spelled(made.program)[:2])


def test_a_residual_from_outside_is_not_overwritten() -> None:
    x = var("x", 1, 8, 6, 6)
    made = check(apply("add", conv(x), x), tolerance=2e-4)
    assert spelled(made.program) == ["conv+add"]
    data = fresh(1, 8, 6, 6)
    before = data.copy()
    made.outputs([data])
    np.testing.assert_array_equal(data, before)


def test_a_convolution_does_not_overwrite_what_it_reads() -> None:
    x = apply("nn.relu", conv(var("x", 1, 8, 6, 6)))
    y = apply("add", conv(x, kernel=1), x)
    made = check(apply("nn.relu", conv(y)), tolerance=5e-4)
    assert spelled(made.program) == ["conv+relu", "conv+add", "conv+relu"]


def test_views_of_the_residual_keep_it_alive() -> None:
    x = apply("nn.relu", dense(var("x", 4, 8), 8))
    view = apply("reshape", x, shape=(8, 4))
    y = apply("add", dense(x, 8, seed=3), x)
    made = check(make_tuple([y, apply("nn.relu", view)]), tolerance=2e-4)
    assert not any("sum" in node for node in spelled(made.program))


@pytest.mark.parametrize("shape", [(8,), (1, 8), (1, 1, 8)], ids=str)
def test_a_constant_row_becomes_the_bias(shape: tuple[int, ...]) -> None:
    x = var("x", 2, 3, 5)
    made = check(apply("add", weight(*shape), dense(x, 8)), tolerance=2e-4)
    assert spelled(made.program) == ["matmul"]
    assert len(next(n for n in made.program.nodes if n.kind == "matmul").args) == 3


def test_a_constant_for_each_channel_becomes_the_bias() -> None:
    made = check(apply("add", conv(var("x", 1, 8, 6, 6), bias=False), weight(8, 1, 1)))
    assert spelled(made.program) == ["conv"]


def test_a_batch_of_rows_times_one_matrix_is_one_product() -> None:
    x = var("x", 2, 3, 5)
    y = apply("nn.relu", apply("add", dense(x, 8), var("y", 2, 3, 8)))
    y = apply("multiply", y, var("z", 2, 3, 1))
    made = check(y, tolerance=2e-4)
    (product,) = (node for node in made.program.nodes if node.kind == "matmul")
    assert made.program.shapes[product.result] == (6, 8)


def test_a_result_with_two_readers_is_not_fused_away() -> None:
    x = conv(var("x", 1, 8, 6, 6))
    made = check(make_tuple([apply("tanh", x), apply("nn.relu", x)]), tolerance=2e-4)
    assert spelled(made.program) == ["conv", "eltwise", "eltwise"]
    check(apply("add", x, x), tolerance=2e-4)


def gelu(x: Expr, form: int, *, by: str) -> Call:
    scale = number(math.sqrt(2) if by == "divide" else math.sqrt(0.5))
    inner = apply("add", apply("erf", apply(by, x, scale)), number(1.0))
    half = number(0.5)
    match form:
        case 0:
            return apply("multiply", apply("multiply", x, inner), half)
        case 1:
            return apply("multiply", half, apply("multiply", inner, x))
        case 2:
            return apply("multiply", x, apply("multiply", half, inner))
        case 3:
            return apply("multiply", apply("multiply", x, half), inner)
        case _:
            return apply("divide", apply("multiply", x, inner), number(2.0))


@pytest.mark.parametrize("form", range(5))
@pytest.mark.parametrize("by", ["divide", "multiply"])
def test_gelu_spelled_out(form: int, by: str) -> None:
    made = check(gelu(dense(var("x", 3, 5), 8), form, by=by), tolerance=2e-4)
    assert spelled(made.program) == ["matmul+gelu_erf"]


@pytest.mark.parametrize("cube", ["power", "multiply"])
def test_tanh_gelu_spelled_out(cube: str) -> None:
    x = dense(var("x", 3, 5), 8)
    if cube == "power":
        third = apply("power", x, number(3.0))
    else:
        third = apply("multiply", apply("multiply", x, x), x)
    inner = apply("add", x, apply("multiply", third, number(0.044715)))
    inner = apply("tanh", apply("multiply", inner, number(math.sqrt(2 / math.pi))))
    factor = apply("add", inner, number(1.0))
    made = check(apply("multiply", apply("multiply", x, number(0.5)), factor), tolerance=2e-4)
    assert spelled(made.program) == ["matmul+gelu_tanh"]


@pytest.mark.parametrize("form", range(5))
def test_hard_swish_spelled_out(form: int) -> None:
    x = conv(var("x", 1, 8, 4, 4))
    clipped = apply("clip", apply("add", x, number(3.0)), min=0.0, max=6.0)
    bodies = [
        apply("divide", apply("multiply", x, clipped), number(6.0)),
        apply("multiply", x, apply("divide", clipped, number(6.0))),
        apply("multiply", apply("multiply", x, clipped), number(1 / 6)),
        apply("multiply", apply("multiply", clipped, number(1 / 6)), x),
        apply("multiply", x, apply("nn.hard_sigmoid", x, alpha=1 / 6, beta=0.5)),
    ]
    made = check(bodies[form], tolerance=2e-4)
    assert spelled(made.program) == ["conv+hardswish"]


def test_silu_and_mish_spelled_out() -> None:
    x = conv(var("x", 1, 8, 4, 4))
    made = check(apply("multiply", apply("sigmoid", x), x), tolerance=2e-4)
    assert spelled(made.program) == ["conv+swish"]
    made = check(apply("multiply", x, apply("tanh", apply("nn.softplus", x))), tolerance=2e-4)
    assert spelled(made.program) == ["conv+mish"]


def attention(x: Expr, mask: Expr, heads: int) -> Call:
    batch, rows, width = x.type.static_shape
    size = width // heads
    parts = []
    for seed in range(3):
        part = apply("add", dense(x, width, seed=seed), weight(width, seed=seed))
        parts.append(apply("reshape", part, shape=(batch, rows, heads, size)))
    query = apply("transpose", parts[0], axes=(0, 2, 1, 3))
    key = apply("transpose", parts[1], axes=(0, 2, 3, 1))
    value = apply("transpose", parts[2], axes=(0, 2, 1, 3))
    scores = apply("divide", apply("matmul", query, key), number(math.sqrt(size)))
    weights = apply("nn.softmax", apply("add", scores, mask), axis=3)
    mixed = apply("transpose", apply("matmul", weights, value), axes=(0, 2, 1, 3))
    return apply("reshape", mixed, shape=(batch, rows, width))


def test_attention_copies_nothing() -> None:
    x = var("x", 2, 16, 64)
    y = dense(attention(x, var("mask", 2, 1, 1, 16), 4), 64, seed=7)
    y = apply("add", apply("add", y, weight(64)), x)
    y = apply("nn.layer_norm", y, weight(64), weight(64, seed=2), axis=2, epsilon=1e-6)
    made = check(y, tolerance=2e-4)
    assert "matmul+linear+add" in spelled(made.program)
    assert not any(node == "transpose" for node in executed(made))
    assert len(executed(made)) == len(spelled(made.program))


def executed(made: Made) -> tuple[str, ...]:
    return made.region.implementations


def test_a_network_keeps_the_library_layouts_between_primitives() -> None:
    x = apply("nn.relu", convolution((1, 3, 16, 16), 16, 3, {}))
    x = apply("nn.relu", conv(x, outputs=16))
    x = apply("mean", conv(x, outputs=32, kernel=1), axes=(2, 3))
    made = check(dense(x, 10), tolerance=5e-4)
    # At most the image is reordered.
    assert len(executed(made)) <= len(spelled(made.program)) + 1


@pytest.mark.parametrize("data", [(1, 4, 9, 1), (1, 4, 1, 9)], ids=str)
def test_a_convolution_along_one_axis_is_one_dimensional(data: tuple[int, ...]) -> None:
    kernel = tuple(3 if size > 1 else 1 for size in data[2:])
    pads = tuple((size // 2, size // 2) for size in kernel)
    weights = weight(8, 4, *kernel)
    attrs = {"strides": (1, 1), "padding": pads, "dilation": (1, 1)}
    x = apply("nn.conv", var("x", *data), weights, weight(8), **attrs)
    x = apply("nn.relu", apply("add", x, var("y", 1, 8, *data[2:])))
    made = check(x, tolerance=2e-4)
    assert spelled(made.program) == ["conv+add+relu"]
    (node,) = (node for node in made.program.nodes if node.kind == "conv")
    assert made.program.shapes[node.result] == (1, 8, 9)


def test_a_pointwise_convolution_of_one_pixel_keeps_one_axis() -> None:
    made = check(conv(var("x", 1, 4, 1, 1), kernel=1), tolerance=2e-4)
    (node,) = (node for node in made.program.nodes if node.kind == "conv")
    assert made.program.shapes[node.result] == (1, 8, 1)


@pytest.mark.parametrize("shape", [(5, 15, 1, 1), (3, 16, 1)], ids=str)
def test_a_number_for_each_channel_after_a_binary_of_one_pixel(shape: tuple[int, ...]) -> None:
    """The library's fused kernel mistakes the channel there."""
    x = apply("add", var("x", *shape), var("y", *shape))
    check(apply("multiply", x, weight(shape[1], *(1,) * (len(shape) - 2))))


def test_a_number_for_each_channel_in_an_unusual_layout() -> None:
    x = apply("transpose", apply("tanh", var("x", 2, 4, 6, 5)), axes=(1, 2, 3, 0))
    x = apply("add", x, apply("nn.relu", x))
    check(apply("subtract", x, weight(6, 1, 1)))


def test_a_part_of_a_residual_is_copied_before_it_is_added_to() -> None:
    x = apply("nn.relu", dense(var("x", 4, 8), 6))
    last = apply("strided_slice", x, begin=(2, 0), end=(4, 6), strides=(1, 1))
    y = apply("nn.relu", apply("add", dense(var("z", 2, 8), 6), last))
    made = check(dense(y, 4), tolerance=2e-4)
    assert "matmul+sum+relu" in spelled(made.program)


def test_copies_of_a_residual_in_other_layouts_are_forgotten() -> None:
    x = apply("nn.relu", conv(var("x", 1, 8, 6, 6)))
    row = apply("nn.softmax", apply("reshape", x, shape=(8, 36)), axis=1)
    z = apply("nn.relu", apply("add", conv(conv(var("y", 1, 8, 6, 6))), x))
    again = apply("nn.softmax", apply("reshape", z, shape=(8, 36)), axis=1)
    check(apply("add", dense(row, 4), dense(again, 4)), tolerance=1e-3)


def test_two_slices_of_one_buffer_are_reordered_each() -> None:
    x = apply("transpose", dense(var("x", 3, 8), 6), axes=(1, 0))
    upper = apply("strided_slice", x, begin=(0, 0), end=(3, 3), strides=(1, 1))
    lower = apply("strided_slice", x, begin=(3, 0), end=(6, 3), strides=(1, 1))
    check(apply("subtract", apply("nn.relu", upper), apply("tanh", lower)), tolerance=2e-4)


def test_one_operand_concatenated_and_a_whole_slice_are_views() -> None:
    x = dense(var("x", 4, 8), 6)
    x = apply("concatenate", x, axis=0)
    x = apply("strided_slice", x, begin=(0, 0), end=(4, 6), strides=(1, 1))
    x = apply("transpose", x, axes=(0, 1))
    made = check(apply("nn.relu", x), tolerance=2e-4)
    assert spelled(made.program) == ["matmul+relu"]
