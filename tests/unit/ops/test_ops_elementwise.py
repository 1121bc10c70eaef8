# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators against NumPy, the standard library and ONNX's reference."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.ops import OPERATORS, arrays
from intarsia_runtime.dtype import DType

RNG = np.random.default_rng(7)
FLOATS = ("float32", "float64", "float16", "bfloat16")
NAN, INF = float("nan"), float("inf")


def values(low: float, high: float, dtype: str) -> np.ndarray:
    return RNG.uniform(low, high, (3, 4)).astype(arrays.numpy_dtype(DType(dtype)))


UNARY = [
    ("exp", math.exp, -3, 3),
    ("log", math.log, 0.1, 9),
    ("expm1", math.expm1, -3, 3),
    ("log1p", math.log1p, -0.9, 9),
    ("sqrt", math.sqrt, 0, 9),
    ("sin", math.sin, -4, 4),
    ("cos", math.cos, -4, 4),
    ("tan", math.tan, -1, 1),
    ("sinh", math.sinh, -2, 2),
    ("cosh", math.cosh, -2, 2),
    ("asin", math.asin, -1, 1),
    ("acos", math.acos, -1, 1),
    ("atan", math.atan, -4, 4),
    ("asinh", math.asinh, -4, 4),
    ("acosh", math.acosh, 1.1, 4),
    ("atanh", math.atanh, -0.9, 0.9),
    ("tanh", math.tanh, -3, 3),
    ("erf", math.erf, -3, 3),
    ("floor", math.floor, -3, 3),
    ("ceil", math.ceil, -3, 3),
    ("round", round, -3, 3),
    ("abs", abs, -3, 3),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "function", "low", "high"), UNARY, ids=[c[0] for c in UNARY])
def test_function_of_one_float(check_operator, name, function, low, high, dtype):
    x = values(low, high, dtype)
    wanted = np.array([function(float(v)) for v in x.ravel()]).reshape(x.shape).astype(x.dtype)
    check_operator(wanted, name, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "op_type"),
    [("sigmoid", "Sigmoid"), ("reciprocal", "Reciprocal"), ("negative", "Neg"), ("sign", "Sign")],
)
def test_simple_onnx_unary(check_operator, onnx_node, name, op_type, dtype):
    x = values(-3, 3, dtype)
    check_operator(onnx_node(op_type, x.astype(np.float64)).astype(x.dtype), name, x)


def test_rsqrt(check_operator):
    x = values(0.1, 9, "float32")
    check_operator(1 / np.sqrt(x), "rsqrt", x)


def test_special_values_of_floats(check_operator):
    x = np.array([NAN, INF, -INF, -0.0, 0.0], np.float32)
    check_operator(np.array([NAN, 1, -1, 0, 0], np.float32), "sign", x)
    check_operator(np.array([True, False, False, False, False]), "isnan", x)
    check_operator(np.array([False, True, True, False, False]), "isinf", x)
    check_operator(np.array([NAN, 1, 0, 0.5, 0.5], np.float32), "sigmoid", x)
    check_operator(np.array([NAN, INF, 0, 0, 0], np.float32), "nn.relu", x)
    check_operator(np.array([NAN, 1, -1, 0, 0], np.float32), "erf", x)
    check_operator(np.array([NAN, 2, -1, 0, 0], np.float32), "clip", x, min=-1.0, max=2.0)
    negated = OPERATORS["negative"].reference(None, x)
    assert np.signbit(negated).tolist()[3:] == [False, True]


def test_round_goes_to_even(check_operator):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    check_operator(np.array([0, 2, 2, 0, -2], np.float32), "round", x)


def test_erf_is_accurate():
    x = np.linspace(-7, 7, 5001)
    wanted = np.array([math.erf(v) for v in x])
    assert np.abs(arrays.erf(x) - wanted).max() < 1e-15


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_unary_of_integers(check_operator, dtype):
    x = np.array([0, 1, 5, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    with np.errstate(all="ignore"):
        check_operator(np.abs(x), "abs", x)
        check_operator(np.negative(x), "negative", x)
        check_operator(np.sign(x), "sign", x)
        check_operator(np.maximum(x, 0).astype(dtype), "nn.relu", x)


def test_logical_not(check_operator):
    check_operator(np.array([False, True]), "logical_not", np.array([True, False]))


BINARY = [
    ("add", np.add),
    ("subtract", np.subtract),
    ("multiply", np.multiply),
    ("maximum", np.maximum),
    ("minimum", np.minimum),
]
COMPARISONS = [
    ("equal", np.equal),
    ("not_equal", np.not_equal),
    ("less", np.less),
    ("less_equal", np.less_equal),
    ("greater", np.greater),
    ("greater_equal", np.greater_equal),
]
SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((4, 1, 3), (2, 1))]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64"])
@pytest.mark.parametrize(("name", "function"), BINARY + COMPARISONS)
def test_function_of_two(check_operator, name, function, left, right, dtype):
    a = RNG.integers(0, 100, left).astype(dtype)
    b = RNG.integers(0, 100, right).astype(dtype)
    check_operator(np.asarray(function(a, b)), name, a, b)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_propagate_nan(check_operator, name):
    a, b = np.array([NAN, 1, NAN], np.float32), np.array([1, NAN, NAN], np.float32)
    check_operator(np.array([NAN, NAN, NAN], np.float32), name, a, b)


def test_bfloat16_binary(check_operator):
    a, b = np.array([1.5, 2, -3], ml_dtypes.bfloat16), np.array([0.5, 3, 3], ml_dtypes.bfloat16)
    check_operator(np.array([2, 5, 0], ml_dtypes.bfloat16), "add", a, b)
    check_operator(np.array([False, True, True]), "less", a, b)


def test_integers_wrap(check_operator):
    a, b = np.array([127, -128], np.int8), np.array([1, 1], np.int8)
    check_operator(np.array([-128, -127], np.int8), "add", a, b)
    check_operator(np.array([126, 127], np.int8), "subtract", a, b)


def test_division(check_operator):
    a = np.array([7, -7, 7, -7, 5, -128, 0], np.int8)
    b = np.array([2, 2, -2, -2, 0, -1, 3], np.int8)
    check_operator(np.array([3, -3, -3, 3, 0, -128, 0], np.int8), "divide", a, b)
    check_operator(np.array([1, 1, -1, -1, 0, 0, 0], np.int8), "floor_mod", a, b)
    check_operator(np.array([1, -1, 1, -1, 0, 0, 0], np.int8), "trunc_mod", a, b)
    u = np.array([255, 7, 3], np.uint8)
    check_operator(np.array([127, 0, 1], np.uint8), "divide", u, np.array([2, 0, 3], np.uint8))
    x = np.array([1, -1, 0, 6], np.float32)
    y = np.array([0, 0, 0, 4], np.float32)
    check_operator(np.array([INF, -INF, NAN, 1.5], np.float32), "divide", x, y)


def test_float_modulo(check_operator):
    a = np.array([5.5, -5.5, 5.5, -5.5, 6.0, -6.0], np.float32)
    b = np.array([2, 2, -2, -2, 2, 2], np.float32)
    check_operator(np.mod(a, b), "floor_mod", a, b)
    check_operator(np.fmod(a, b), "trunc_mod", a, b)


def test_power(check_operator):
    a, b = values(0.1, 3, "float32"), values(-2, 2, "float32")
    check_operator(np.power(a, b), "power", a, b)
    i, j = np.array([2, -3, 2, 0, 1], np.int32), np.array([10, 3, -1, 0, -5], np.int32)
    check_operator(np.array([1024, -27, 0, 1, 1], np.int32), "power", i, j)


def test_logic_and_bits(check_operator):
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    i, j = np.array([12, -1], np.int16), np.array([10, 255], np.int16)
    for name, truth, bits in (
        ("and", np.logical_and, np.bitwise_and),
        ("or", np.logical_or, np.bitwise_or),
        ("xor", np.logical_xor, np.bitwise_xor),
    ):
        check_operator(truth(p, q), f"logical_{name}", p, q)
        check_operator(bits(i, j), f"bitwise_{name}", i, j)


def test_equality_of_bools(check_operator):
    p, q = np.array([True, False]), np.array([True, True])
    check_operator(np.array([True, False]), "equal", p, q)
    check_operator(np.array([False, True]), "not_equal", p, q)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_where(check_operator, dtype):
    condition = np.array([[True], [False]])
    a, b = np.ones((2, 3), dtype), np.zeros((3,), dtype)
    check_operator(np.where(condition, a, b), "where", condition, a, b)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_cast_keeps_small_numbers(check_operator, dtype):
    x = np.array([0, 1, 3], np.float32)
    wanted = x != 0 if dtype is DType.BOOL else x.astype(arrays.numpy_dtype(dtype))
    check_operator(wanted, "cast", x, dtype=dtype)
    back = wanted.astype(np.float32)
    check_operator(back, "cast", wanted, dtype=DType.FLOAT32)


def test_cast_saturates_and_wraps(check_operator):
    x = np.array([300.7, -300.7, NAN, 2.9, -2.9, INF, -INF], np.float32)
    wanted = np.array([127, -128, 0, 2, -2, 127, -128], np.int8)
    check_operator(wanted, "cast", x, dtype=DType.INT8)
    wanted = np.array([255, 0, 0, 2, 0, 255, 0], np.uint8)
    check_operator(wanted, "cast", x, dtype=DType.UINT8)
    top = np.iinfo(np.int64)
    wanted = np.array([300, -300, 0, 2, -2, top.max, top.min], np.int64)
    check_operator(wanted, "cast", x, dtype=DType.INT64)
    check_operator(np.array([True] * 7), "cast", x, dtype=DType.BOOL)
    check_operator(np.array([44, -1], np.int8), "cast", np.array([300, -1]), dtype=DType.INT8)


def test_clip(check_operator):
    x = np.array([-5, -1, 0, 3, 9], np.float32)
    check_operator(np.array([-1, -1, 0, 2, 2], np.float32), "clip", x, min=-1.0, max=2.0)
    check_operator(np.array([0, 0, 0, 3, 9], np.float32), "clip", x, min=0.0)
    check_operator(x, "clip", x)
    check_operator(np.full(5, 1, np.float32), "clip", x, min=2.0, max=1.0)
    check_operator(np.full(5, -INF, np.float32), "clip", x, max=-INF)
    i = x.astype(np.int8)
    check_operator(np.array([0, 0, 0, 2, 2], np.int8), "clip", i, min=-0.5, max=2.5)
    check_operator(i, "clip", i, min=-1e9, max=1e9)
    check_operator(np.full(5, 127, np.int8), "clip", i, min=1e9)
    check_operator(np.full(5, -128, np.int8), "clip", i, max=-INF)
    check_operator(np.full(5, 127, np.int8), "clip", i, min=INF)
    half = x.astype(np.float16)
    check_operator(np.array([-1, -1, 0, 2, 2], np.float16), "clip", half, min=-1.0, max=2.0)


ACTIVATIONS = [
    ("nn.relu", "Relu", {}, {}),
    ("nn.leaky_relu", "LeakyRelu", {}, {}),
    ("nn.leaky_relu", "LeakyRelu", {"alpha": 0.3}, {"alpha": 0.3}),
    ("nn.elu", "Elu", {"alpha": 1.5}, {"alpha": 1.5}),
    ("nn.selu", "Selu", {}, {}),
    ("nn.celu", "Celu", {"alpha": 2.0}, {"alpha": 2.0}),
    ("nn.hard_sigmoid", "HardSigmoid", {}, {}),
    ("nn.hard_sigmoid", "HardSigmoid", {"alpha": 0.5, "beta": 0.6}, {"alpha": 0.5, "beta": 0.6}),
    ("nn.hard_swish", "HardSwish", {}, {}),
    ("nn.softplus", "Softplus", {}, {}),
    ("nn.softsign", "Softsign", {}, {}),
    ("nn.gelu", "Gelu", {}, {}),
    ("nn.gelu", "Gelu", {"approximate": True}, {"approximate": "tanh"}),
    ("nn.mish", "Mish", {}, {}),
    ("nn.thresholded_relu", "ThresholdedRelu", {"alpha": 0.7}, {"alpha": 0.7}),
    ("nn.shrink", "Shrink", {}, {}),
    ("nn.shrink", "Shrink", {"threshold": 0.7, "bias": 0.7}, {"lambd": 0.7, "bias": 0.7}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("name", "op_type", "attrs", "onnx_attrs"), ACTIVATIONS)
def test_activation(check_operator, onnx_node, name, op_type, attrs, onnx_attrs, dtype):
    x = values(-5, 5, dtype)
    wanted = onnx_node(op_type, x.astype(np.float32), **onnx_attrs)
    if dtype == "float64":  # the oracle computes some of these in float32
        x = x.astype(np.float32)
    check_operator(wanted.astype(x.dtype), name, x, **attrs)


def test_silu(check_operator):
    x = values(-5, 5, "float32")
    check_operator(x / (1 + np.exp(-x)), "nn.silu", x)


def test_no_overflow_far_out(check_operator):
    x = np.array([-1000.0, 1000.0], np.float32)
    check_operator(np.array([0, 1000], np.float32), "nn.softplus", x)
    check_operator(np.array([0, 1000], np.float32), "nn.mish", x)
    check_operator(np.array([-1, 1000], np.float32), "nn.elu", x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_prelu(check_operator, onnx_node, dtype):
    x = RNG.integers(-5, 5, (2, 3, 2)).astype(dtype)
    slope = np.array([[2], [3], [4]], dtype)
    check_operator(onnx_node("PRelu", x, slope).astype(dtype), "nn.prelu", x, slope)
