# SPDX-License-Identifier: Apache-2.0
"""Quantised operators as Q and DQ layers: engines for SM80, and numbers within one quantum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr, Var, constant
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.target import TensorrtOptions

from .readback import evaluate
from .regions import apply, expected, network_of, var, verdicts

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
    """A small network between a quantise and a dequantise, with a move between its layers."""
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
    operands = (scale(0.1), zero(), stored(8, 4), scale(0.01), zero(), scale(0.05), zero())
    return apply("qnn.dequantize", apply("qnn.matmul", flat, *operands), scale(0.05), zero())


CASES: tuple[Callable[[], Expr], ...] = (
    *(plain_conv, per_channel_conv, depthwise_conv, row_conv),
    *(matmul, per_column_matmul, product_of_two),
    *(binary("qnn.add"), binary("qnn.subtract"), binary("qnn.multiply")),
    *(mean, avg_pool, quantize, dequantize, requantize, chain),
)


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
@pytest.mark.parametrize("half", [False, True])
def test_builds_and_computes(case: Callable[[], Expr], half: bool) -> None:
    draft, function = network_of(case(), half=half)
    assert build_plan(draft, TensorrtOptions(fp16=half))
    rng = np.random.default_rng(3)
    arrays = [
        rng.integers(-128, 128, param.type.static_shape).astype(np.int8)
        if param.type.dtype is DType.INT8
        else rng.uniform(-8, 8, param.type.static_shape).astype(np.float32)
        for param in function.params
    ]
    (found,), (wanted,) = evaluate(draft.trt, draft.network, arrays), expected(function, arrays)
    assert found.dtype == wanted.dtype
    quantum = 0.05 if found.dtype == np.float32 else 1
    assert np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64))) <= quantum + 1e-6
    assert np.ptp(wanted.astype(np.float64)) > 3 * quantum  # else the bound says nothing


REFUSED: tuple[tuple[Expr, str], ...] = (
    (
        apply("qnn.quantize", var("x", 3), scale(0.1), zero(3)),
        "a zero point of 3, only 0 is taken",
    ),
    (
        apply("qnn.quantize", var("x", 3), scale(0.1), zero(3, np.uint8)),
        "uint8 is not among float32, int8",
    ),
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
