# SPDX-License-Identifier: Apache-2.0
"""Quantized operators: compute rules give the references' bits, references what ONNX says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.qnn import table_inputs
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

RNG = np.random.default_rng(5)
BYTES = [np.int8, np.uint8]


def draw(dtype: type, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def f32(*values: float) -> np.ndarray:
    return np.asarray(values if len(values) > 1 else values[0], np.float32)


def real(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return (x.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)


def within_one(found: np.ndarray, wanted: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> None:
    """Whether integers stand for real numbers as well as they can, give or take a rounding."""
    limits = np.iinfo(found.dtype)
    exact = np.clip(wanted / scale + zero, limits.min, limits.max)
    assert np.abs(found.astype(np.float64) - exact).max(initial=0) <= 0.501


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_quantize_rounds_to_even_and_saturates(check_operator, dtype):
    limits = np.iinfo(dtype)
    x = np.asarray([0.5, 1.5, 2.5, 3.0, 1e12, -1e12, np.nan, np.inf], np.float32)
    wanted = np.asarray([0, 2, 2, 3, limits.max, limits.min, 0, limits.max], dtype)
    check_operator(wanted, "qnn.quantize", x, f32(1.0), np.asarray(0, dtype))


def test_quantize_divides_by_the_scale_and_adds_the_zero_point(check_operator):
    x = np.asarray([[0.25, -1.0], [0.25, -1.0]], np.float32)
    scale, zero = f32(0.5, 0.25).reshape(2, 1), np.asarray([[10], [20]], np.uint8)
    wanted = np.asarray([[10, 8], [21, 16]], np.uint8)
    check_operator(wanted, "qnn.quantize", x, scale, zero)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_dequantize_along_an_axis(check_operator, dtype):
    x = np.asarray([[1, 2], [3, -4]], np.int8)
    scale = np.asarray([0.5, 2.0], dtype)
    wanted = np.asarray([[0.0, 2.0], [1.0, -10.0]], dtype)
    check_operator(wanted, "qnn.dequantize", x, scale, np.asarray([1, 1], np.int8))


def test_dequantize_of_a_wide_bias_is_rounded_once(check_operator):
    x = np.asarray([2**24 + 1], np.int32)
    wanted = np.asarray([np.float32(2**24 + 1) * np.float32(0.5)])
    check_operator(wanted, "qnn.dequantize", x, f32(0.5), np.int32(0))


@pytest.mark.parametrize("source", BYTES)
@pytest.mark.parametrize("target", [np.int8, np.uint8, np.int16])
def test_requantize_is_dequantize_and_quantize(run_operator, source, target):
    x = table_inputs(DType(np.dtype(source).name)).reshape(4, 64)
    old = (f32(0.037), np.asarray(3, source))
    new = (f32(0.051), np.asarray(7, target))
    (found,) = run_operator("qnn.requantize", x, *old, *new)
    (between,) = run_operator("qnn.dequantize", x, *old)
    (wanted,) = run_operator("qnn.quantize", between, *new)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", BYTES)
def test_a_lookup_reads_the_table_from_the_smallest_number_on(check_operator, dtype):
    x, table = draw(dtype, 3, 5), draw(np.int8, 256)
    wanted = table[x.astype(int) - np.iinfo(dtype).min]
    check_operator(wanted, "qnn.lookup", x, table)


CONVOLUTIONS = [
    ((1, 3, 7), (4, 3, 3), ((1, 0),), (2,), (1,), 1),
    ((2, 4, 5, 6), (6, 4, 3, 3), ((1, 1), (0, 2)), (1, 2), (1, 1), 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), ((1, 1), (1, 1)), (1, 1), (2, 1), 4),
    ((1, 4, 5, 5), (6, 2, 1, 1), ((0, 0), (0, 0)), (2, 2), (1, 1), 2),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 1), ((1, 0), (0, 0), (0, 1)), (1, 2, 1), (1, 1, 1), 1),
]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("data", "weight"), [(a, b) for a in BYTES for b in BYTES])
@pytest.mark.parametrize(("x", "w", "padding", "strides", "dilation", "groups"), CONVOLUTIONS)
def test_conv(run_operator, x, w, padding, strides, dilation, groups, data, weight, per_channel):
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    count = w[0]
    scale = RNG.uniform(0.01, 0.02, count).astype(np.float32) if per_channel else f32(0.013)
    zero = draw(weight, count) // 8 if per_channel else np.asarray(5, weight)
    first = [draw(data, *x), f32(0.021), np.asarray(17, data)]
    second = [draw(weight, *w), scale, zero]
    result = [f32(0.3), np.asarray(3, np.uint8)]
    bias = RNG.integers(-3000, 3000, count).astype(np.int32)
    (found,) = run_operator("qnn.conv", *first, *second, *result, bias, **attrs)
    (total,) = run_operator("qnn.conv_integer", first[0], first[2], second[0], zero, **attrs)
    along = (-1, *[1] * (len(x) - 2))
    units = 0.021 * np.broadcast_to(scale, (count,)).astype(np.float64).reshape(along)
    within_one(found, (total + bias.reshape(along)) * units, *result)
    shape = (count, *[1] * (len(w) - 1))
    wide = second[0].astype(float) - np.broadcast_to(zero.astype(float), (count,)).reshape(shape)
    (plain,) = run_operator("nn.conv", first[0].astype(float) - 17, wide, **attrs)
    np.testing.assert_array_equal(total, plain)


MATMULS = [
    ((3, 8), (8, 5), {}),
    ((2, 3, 8), (8, 5), {}),
    ((2, 3, 8), (5, 8), {"transpose_b": True}),
    ((2, 8, 3), (2, 8, 5), {"transpose_a": True}),
]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("left", "right"), [(a, b) for a in BYTES for b in BYTES])
@pytest.mark.parametrize(("a", "b", "attrs"), MATMULS)
def test_matmul(run_operator, a, b, attrs, left, right, per_channel):
    scale = RNG.uniform(0.01, 0.02, 5).astype(np.float32) if per_channel else f32(0.013)
    zero = draw(right, 5) // 8 if per_channel else np.asarray(5, right)
    x, w = draw(left, *a), draw(right, *b)
    bias = RNG.integers(-3000, 3000, 5).astype(np.int32)
    result = [f32(0.2), np.asarray(-3, np.int8)]
    x_zero = np.asarray(17, left)
    (found,) = run_operator(
        "qnn.matmul", x, f32(0.021), x_zero, w, scale, zero, *result, bias, **attrs
    )
    (total,) = run_operator("qnn.matmul_integer", x, x_zero, w, zero, **attrs)
    within_one(found, (total + bias) * (0.021 * scale.astype(np.float64)), *result)
    wide = w.astype(float) - (zero[:, None] if attrs.get("transpose_b") and zero.ndim else zero)
    (plain,) = run_operator("matmul", x.astype(float) - 17, wide, **attrs)
    np.testing.assert_array_equal(total, plain)


@pytest.mark.parametrize(
    ("name", "function"),
    [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply)],
)
def test_binary(run_operator, name, function):
    first = [draw(np.uint8, 2, 3, 4), f32(0.02), np.asarray(100, np.uint8)]
    second = [draw(np.int8, 3, 1), f32(0.03), np.asarray(-5, np.int8)]
    result = [f32(0.04), np.asarray(11, np.uint8)]
    (found,) = run_operator(f"qnn.{name}", *first, *second, *result)
    within_one(found, function(real(*first), real(*second)), *result)


@pytest.mark.parametrize("keepdims", [False, True])
def test_mean(run_operator, keepdims):
    first = [draw(np.uint8, 2, 3, 7, 7), f32(0.02), np.asarray(100, np.uint8)]
    result = [f32(0.004), np.asarray(11, np.int8)]
    (found,) = run_operator("qnn.mean", *first, *result, axes=(2, 3), keepdims=keepdims)
    within_one(found, real(*first).mean(axis=(2, 3), keepdims=keepdims), *result)


@pytest.mark.parametrize("include", [False, True])
def test_avg_pool(run_operator, include):
    attrs = {
        "kernel": (3, 2),
        "strides": (2, 1),
        "padding": ((1, 1), (0, 1)),
        "dilation": (1, 1),
        "count_include_pad": include,
    }
    first = [draw(np.int8, 1, 2, 6, 5), f32(0.02), np.asarray(9, np.int8)]
    result = [f32(0.011), np.asarray(-4, np.int8)]
    (found,) = run_operator("qnn.avg_pool", *first, *result, **attrs)
    (mean,) = run_operator("nn.avg_pool", real(*first).astype(np.float32), **attrs)
    within_one(found, mean, *result)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(2.0**-20, 2.0**10, width=32),
    st.integers(-128, 127),
    st.sampled_from([np.int8, np.uint8, np.int16]),
)
def test_quantizing_what_was_dequantized_gives_it_back(scale, zero, dtype):
    limits = np.iinfo(dtype)
    x = np.arange(limits.min, limits.max + 1).astype(dtype)
    parameters = (np.float32(scale), np.asarray(zero % 128, dtype))
    quantize, dequantize = OPERATORS["qnn.quantize"], OPERATORS["qnn.dequantize"]
    found = quantize.reference(None, dequantize.reference(None, x, *parameters), *parameters)
    np.testing.assert_array_equal(found, x)


TRANSPOSED = [
    ((1, 3, 7), (3, 4, 3), ((1, 0),), (2,), (1,), 1),
    ((2, 4, 5, 6), (4, 3, 3, 3), ((1, 1), (0, 2)), (1, 2), (1, 1), 2),
    ((1, 2, 3, 4), (2, 5, 2, 2), ((0, 0), (0, 0)), (3, 3), (2, 1), 1),
]


@pytest.mark.parametrize(("data", "weight"), [(a, b) for a in BYTES for b in BYTES])
@pytest.mark.parametrize(("x", "w", "padding", "strides", "dilation", "groups"), TRANSPOSED)
def test_conv_transpose(run_operator, x, w, padding, strides, dilation, groups, data, weight):
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    count = w[1] * groups
    scale = RNG.uniform(0.01, 0.02, count).astype(np.float32) if groups == 1 else f32(0.013)
    zero = draw(weight, count) // 8 if groups == 1 else np.asarray(5, weight)
    first = [draw(data, *x), f32(0.021), np.asarray(17, data)]
    second = [draw(weight, *w), scale, zero]
    result = [f32(0.3), np.asarray(3, np.uint8)]
    bias = RNG.integers(-3000, 3000, count).astype(np.int32)
    (found,) = run_operator("qnn.conv_transpose", *first, *second, *result, bias, **attrs)
    shape = (1, -1, *[1] * (len(w) - 2))
    wide = second[0].astype(float) - (zero.astype(float).reshape(shape) if groups == 1 else 5)
    (plain,) = run_operator("nn.conv_transpose", first[0].astype(float) - 17, wide, **attrs)
    along = (-1, *[1] * (len(x) - 2))
    units = 0.021 * np.broadcast_to(scale, (count,)).astype(np.float64).reshape(along)
    within_one(found, (plain + bias.reshape(along)) * units, *result)


@pytest.mark.parametrize("dtype", BYTES)
def test_softmax_and_layer_norm(run_operator, dtype):
    first = [draw(dtype, 2, 3, 8), f32(0.03), np.asarray(17, dtype)]
    values = real(*first).astype(np.float32)
    small = [f32(1 / 256), np.asarray(-128, np.int8)]
    (found,) = run_operator("qnn.softmax", *first, *small, axis=2)
    (wanted,) = run_operator("nn.softmax", values, axis=2)
    within_one(found, wanted, *small)
    affine = [RNG.normal(1, 0.1, 8).astype(np.float32) for _ in range(2)]
    result = [f32(0.03), np.asarray(5, np.int8)]
    (found,) = run_operator("qnn.layer_norm", *first, *result, *affine, axis=2)
    (wanted,) = run_operator("nn.layer_norm", values, *affine, axis=2)
    within_one(found, wanted, *result)


def kind(dtype: DType, *shape: int) -> TensorType:
    return TensorType(shape, dtype)


S, Z = kind(DType.FLOAT32), kind(DType.UINT8)
X, W = kind(DType.UINT8, 1, 2, 4, 4), kind(DType.UINT8, 3, 2, 1, 1)
U = kind(DType.UINT8, 2, 3, 1, 1)
A, B = kind(DType.UINT8, 2, 4), kind(DType.UINT8, 4, 3)
CONV = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}

REFUSALS = [
    ("qnn.quantize", {}, (X, S, Z), "needs floating-point elements"),
    ("qnn.dequantize", {}, (X, Z, Z), "needs floating-point scales"),
    ("qnn.dequantize", {}, (X, S, kind(DType.INT8)), "differ"),
    ("qnn.dequantize", {}, (X, kind(DType.FLOAT32, 3), Z), "does not broadcast"),
    ("qnn.lookup", {}, (X, kind(DType.INT8, 255)), "a table of 256"),
    ("qnn.lookup", {}, (kind(DType.INT16, 3), kind(DType.INT8, 256)), "a table of 256"),
    ("qnn.conv", CONV, (X, S, Z, W, S, Z, S), "takes 8 to 9 operands"),
    ("qnn.conv", CONV, (X, S, kind(DType.UINT8, 1), W, S, Z, S, Z), "must be a scalar"),
    ("qnn.conv", CONV, (X, S, Z, W, kind(DType.FLOAT32, 2), Z, S, Z), "weight scale"),
    ("qnn.conv", CONV, (X, S, Z, W, S, kind(DType.UINT8, 2), S, Z), "weight zero point"),
    ("qnn.conv", CONV, (X, S, Z, W, S, Z, kind(DType.FLOAT32, 3), Z), "must be scalars"),
    ("qnn.conv", CONV, (X, S, Z, W, S, Z, S, Z, kind(DType.INT32, 2)), "bias"),
    ("qnn.conv", CONV, (X, S, Z, W, S, Z, S, Z, kind(DType.FLOAT32, 3)), "int32"),
    ("qnn.conv_transpose", CONV, (X, S, Z, U, kind(DType.FLOAT32, 2), Z, S, Z), "weight scale"),
    ("qnn.conv_transpose", CONV, (X, S, Z, U, S, kind(DType.UINT8, 2), S, Z), "zero point"),
    (
        "qnn.conv_transpose",
        CONV | {"groups": 2},
        (X, S, Z, U, kind(DType.FLOAT32, 6), Z, S, Z),
        "in 2 groups the weight has one scale",
    ),
    ("qnn.softmax", {"axis": 1}, (X, S, Z, kind(DType.FLOAT32, 1), Z), "must be scalars"),
    ("qnn.softmax", {"axis": 7}, (X, S, Z, S, Z), "axis 7"),
    ("qnn.layer_norm", {"axis": 3}, (X, S, Z, S, Z), "takes 6 to 7 operands"),
    ("qnn.layer_norm", {"axis": 3}, (X, S, Z, S, Z, kind(DType.FLOAT32, 3)), "scale"),
    ("qnn.matmul", {}, (A, S, Z, B, S, kind(DType.UINT8, 2), S, Z), "zero point of b"),
    ("qnn.matmul_integer", {}, (A, Z, kind(DType.INT16, 4, 3), Z), "8-bit integer"),
    ("qnn.add", {}, (X, S, Z, X, S, Z, kind(DType.FLOAT32, 1), Z), "must be scalars"),
    ("qnn.mean", {"axes": (9,)}, (X, S, Z, S, Z), "axis 9"),
]


@pytest.mark.parametrize(("name", "attrs", "types", "words"), REFUSALS)
def test_type_rules_refuse(name, attrs, types, words):
    op = OPERATORS[name]
    with pytest.raises(TypeRuleError) as caught:
        op.type_rule(op.Attrs(**attrs), *types)
    assert words in str(caught.value)


def test_a_mean_needs_static_sizes():
    op = OPERATORS["qnn.mean"]
    x = TensorType((1, variable("N")), DType.UINT8)
    with pytest.raises(TypeRuleError, match="must be static along"):
        op.type_rule(op.Attrs(axes=(1,)), x, S, Z, S, Z)
