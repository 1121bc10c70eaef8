# SPDX-License-Identifier: Apache-2.0
"""Quantized operators as Q and DQ layers: engines for SM80, and numbers within one quantum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Constant, Expr, Var, constant
from intarsia_runtime.dtype import DType
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.target import TensorrtOptions
from intarsia_testkit.expressions import apply, expected, var

from .readback import evaluate
from .regions import network_of, verdicts

ONE = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def scale(*values: float) -> Constant:
    array = np.array(values, np.float32)
    return constant(array.reshape(()) if len(values) == 1 else array)


def zero(value: int = 0, dtype: type = np.int8) -> Constant:
    return constant(np.array(value, dtype))


def stored(*shape: int, seed: int = 0) -> Constant:
    rng = np.random.default_rng([seed, *shape])
    return constant(rng.integers(-127, 128, shape).astype(np.int8))


def eight(name: str, *shape: int) -> Var:
    return var(name, *shape, dtype=DType.INT8)


def conv(x: Expr, weights: Constant, *, by: Constant | None = None, bias: bool = True) -> Call:
    channels = weights.data.shape[0]
    groups = x.type.static_shape[1] // weights.data.shape[1]
    extra = [constant(np.arange(channels, dtype=np.int32) * 40)] if bias else []
    operands = (scale(0.05), zero(), weights, by or scale(0.01), zero(), scale(0.2), zero())
    spatial = weights.data.ndim - 2
    attrs = {key: value[:1] * spatial for key, value in ONE.items()}
    return apply("qnn.conv", x, *operands, *extra, groups=groups, **attrs)


def plain_conv() -> Expr:
    return conv(eight("x", 2, 3, 7, 6), stored(4, 3, 3, 3))


def per_channel_conv() -> Expr:
    by = scale(0.01, 0.02, 0.005, 0.03)
    return conv(eight("x", 1, 3, 7, 6), stored(4, 3, 3, 3), by=by)


def depthwise_conv() -> Expr:
    return conv(eight("x", 1, 4, 7, 6), stored(4, 1, 3, 3), bias=False)


def row_conv() -> Expr:
    return conv(eight("x", 1, 3, 9), stored(4, 3, 3))


def matmul(*, by: Constant | None = None, **attrs: bool) -> Call:
    b = stored(5, 16) if attrs.get("transpose_b") else stored(16, 5)
    operands = (scale(0.05), zero(), b, by or scale(0.01), zero(), scale(0.3), zero())
    bias = constant(np.arange(5, dtype=np.int32) * 30)
    return apply("qnn.matmul", eight("x", 2, 3, 16), *operands, bias, **attrs)


def per_column_matmul() -> Expr:
    return matmul(by=scale(0.01, 0.02, 0.03, 0.01, 0.02), transpose_b=True)


def product_of_two() -> Expr:
    operands = (scale(0.05), zero(), eight("b", 2, 4, 5), scale(0.01), zero(), scale(0.3), zero())
    return apply("qnn.matmul", eight("a", 2, 3, 4), *operands)


def binary(name: str) -> Callable[[], Expr]:
    def make() -> Expr:
        a, b = eight("a", 2, 3, 4), eight("b", 3, 1)
        parameters = (scale(0.1), zero(), b, scale(0.03), zero(), scale(0.11), zero())
        return apply(name, a, *parameters)

    return make


def mean() -> Expr:
    parameters = (scale(0.1), zero(), scale(0.02), zero())
    return apply("qnn.mean", eight("x", 1, 5, 6, 6), *parameters, axes=(2, 3), keepdims=True)


def avg_pool() -> Expr:
    parameters = (scale(0.1), zero(), scale(0.08), zero())
    attrs = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    return apply("qnn.avg_pool", eight("x", 1, 3, 6, 6), *parameters, **attrs)


def quantize() -> Expr:
    return apply("qnn.quantize", var("x", 3, 4), scale(0.07), zero())


def dequantize() -> Expr:
    return apply("qnn.dequantize", eight("x", 3, 4), scale(0.07), zero())


def requantize() -> Expr:
    return apply("qnn.requantize", eight("x", 3, 4), scale(0.07), zero(), scale(0.1), zero())


def chain() -> Expr:
    """A small network between a quantize and a dequantize, with a move between its layers.

    TensorRT rounds ties differently; one level of the average is less than one of the result.
    """
    x = apply("qnn.quantize", var("x", 1, 3, 8, 8), scale(0.05), zero())
    first = conv(x, stored(8, 3, 3, 3))
    second = conv(first, stored(8, 8, 3, 3, seed=2))
    added = apply(
        "qnn.add", first, scale(0.2), zero(), second, scale(0.2), zero(), scale(0.4), zero()
    )
    average = apply(
        "qnn.mean", added, scale(0.4), zero(), scale(0.1), zero(), axes=(2, 3), keepdims=False
    )
    flat = apply("reshape", average, shape=(1, 8))
    operands = (scale(0.1), zero(), stored(8, 4), scale(0.003), zero(), scale(0.05), zero())
    return apply("qnn.dequantize", apply("qnn.matmul", flat, *operands), scale(0.05), zero())


def product_by_column() -> Call:
    operands = (scale(0.05), zero(), eight("b", 4, 2), scale(0.01, 0.02), zero())
    return apply("qnn.matmul", eight("a", 3, 4), *operands, scale(0.3), zero())


def point(value: int) -> Constant:
    return zero(value, np.uint8)


def unsigned(name: str, *shape: int) -> Var:
    return var(name, *shape, dtype=DType.UINT8)


def asymmetric_conv() -> Expr:
    """Padding stands for the real 0, which is not the stored 0; weights have a zero point too."""
    weights = constant(np.arange(108, dtype=np.uint8).reshape(4, 3, 3, 3))
    operands = (scale(0.05), point(131), weights, scale(0.01), point(50), scale(0.4), point(120))
    return apply("qnn.conv", unsigned("x", 1, 3, 7, 6), *operands, **ONE)


def signed_conv() -> Expr:
    operands = (scale(0.05), zero(-7), stored(4, 3, 3, 3), scale(0.01), zero(), scale(0.2))
    return apply("qnn.conv", eight("x", 1, 3, 7, 6), *operands, zero(9), **ONE)


def asymmetric_sum() -> Expr:
    pairs = (unsigned("a", 2, 3), scale(0.1), point(7), unsigned("b", 2, 3), scale(0.03))
    return apply("qnn.add", *pairs, point(100), scale(0.11), point(60))


def conv_transpose() -> Expr:
    operands = (scale(0.05), point(131), stored(3, 4, 3, 3), scale(0.01, 0.02, 0.005, 0.03))
    bias = constant(np.arange(4, dtype=np.int32) * 40)
    window = {"strides": (2, 2), "padding": ((1, 1), (1, 0)), "dilation": (1, 1)}
    x, result = unsigned("x", 1, 3, 5, 6), (zero(), scale(0.2), point(128))
    return apply("qnn.conv_transpose", x, *operands, *result, bias, **window)


def softmax() -> Expr:
    parameters = (scale(0.1), point(7), scale(1 / 256), point(0))
    return apply("qnn.softmax", unsigned("x", 2, 3, 10), *parameters, axis=2)


def layer_norm() -> Expr:
    affine = [constant(np.linspace(0.5, 2, 10).astype(np.float32)) for _ in range(2)]
    parameters = (scale(0.03), zero(7), scale(0.04), zero(-3))
    x = eight("x", 2, 3, 10)
    return apply("qnn.layer_norm", x, *parameters, *affine, axis=2, epsilon=1e-5)


def moved() -> Expr:
    """Bytes through a pooling, a view, a join with a constant, and to real numbers."""
    window = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    pooled = apply("nn.max_pool", unsigned("x", 1, 3, 6, 6), **window)
    both = apply("concatenate", pooled, unsigned("y", 1, 2, 3, 3), axis=1)
    return apply("qnn.dequantize", apply("reshape", both, shape=(5, 9)), scale(0.05), point(100))


def added_constant() -> Expr:
    levels = constant(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40)
    pairs = (unsigned("a", 2, 3), scale(0.1), point(7), levels, scale(0.03), point(100))
    return apply("qnn.add", *pairs, scale(0.11), point(60))


def cast_levels() -> Expr:
    x = apply("reshape", unsigned("x", 2, 3), shape=(6,))
    return apply("multiply", apply("cast", x, dtype=DType.FLOAT32), constant(np.float32(0.1)))


def limited_conv() -> Expr:
    """The vendor's own recipe: a symmetric convolution with ReLU, quantized behind it."""
    return apply("clip", plain_conv(), min=0.0)


def limited_levels() -> Expr:
    """Limits that a zero point moves, of integers that a layer of this network made."""
    return apply("clip", asymmetric_conv(), min=9.0, max=200.0)


def limited_input() -> Expr:
    """Limits of integers that come from outside, so that nobody says what they stand for."""
    return apply("clip", eight("x", 2, 3, 7, 6), min=-20.0, max=90.0)


def limited_bytes() -> Expr:
    return apply("clip", var("x", 2, 3, 7, 6, dtype=DType.UINT8), min=20.0, max=200.0)


CASES: tuple[Callable[[], Expr], ...] = (
    *(plain_conv, per_channel_conv, depthwise_conv, row_conv),
    *(matmul, per_column_matmul, product_of_two),
    *(binary("qnn.add"), binary("qnn.subtract"), binary("qnn.multiply")),
    *(mean, avg_pool, quantize, dequantize, requantize, chain),
    *(asymmetric_conv, signed_conv, asymmetric_sum, added_constant, conv_transpose, softmax),
    *(layer_norm, moved, cast_levels),
    *(limited_conv, limited_levels, limited_input, limited_bytes),
)


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
@pytest.mark.parametrize("half", [False, True])
def test_builds_and_computes(case: Callable[[], Expr], half: bool) -> None:
    draft, function = network_of(case(), half=half)
    assert build_plan(draft, TensorrtOptions(fp16=half))
    rng = np.random.default_rng(3)
    arrays = [
        rng.integers(0, 256, param.type.static_shape).astype(param.type.dtype.value)
        if param.type.dtype in (DType.INT8, DType.UINT8)
        else rng.uniform(-8, 8, param.type.static_shape).astype(np.float32)
        for param in function.params
    ]
    (found,), (wanted,) = evaluate(draft.trt, draft.network, arrays), expected(function, arrays)
    assert found.dtype == wanted.dtype
    quantum = 0.05 if found.dtype == np.float32 else 1
    assert np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64))) <= quantum + 1e-6
    assert np.ptp(wanted.astype(np.float64)) > 3 * quantum  # else the bound says nothing


REFUSED: tuple[tuple[Expr, str], ...] = (
    (product_by_column(), "no constant matrix"),
    (
        apply("qnn.quantize", var("x", 3), scale(0.1, 0.2, 0.3), zero()),
        "argument 1 of qnn.quantize is not one scale",
    ),
    (apply("qnn.quantize", var("x", 3), scale(-0.1), zero()), "a scale that is not positive"),
    (
        apply("qnn.dequantize", eight("x", 3), var("s"), zero()),
        "argument 1 of qnn.dequantize must be known at compile time",
    ),
    (
        apply(
            "qnn.mean", eight("x", 3), scale(1), zero(), scale(1), zero(), axes=(), keepdims=False
        ),
        "no axes",
    ),
    (conv(eight("x", 1, 3, 5, 5), stored(4, 3, 3, 3), by=scale(-1.0)), "not positive"),
)


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_refuses_with_a_reason(body: Expr, words: str) -> None:
    (said,) = verdicts(body).values()
    assert not said
    assert words in said.detail


def test_a_limit_is_the_activation_of_the_convolution() -> None:
    """No integers are made between the two, so that the library can fuse them."""
    draft, _ = network_of(limited_conv())
    build_plan(draft, TensorrtOptions())
    layers = [draft.network.get_layer(number) for number in range(draft.network.num_layers)]
    (activation,) = (layer for layer in layers if layer.type.name == "ACTIVATION")
    names = [activation.get_input(0).name]
    (convolution,) = (layer for layer in layers if layer.type.name == "CONVOLUTION")
    assert names == [convolution.get_output(0).name]
