# SPDX-License-Identifier: Apache-2.0
"""Small quantized graphs, one for each thing that the plugin lowers in a way of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia_ir.graph.expr import Expr, constant
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply
from intarsia_testkit.quantized_expressions import numbers, scale, var, weights, zero

from .quantized import conv

U8 = DType.UINT8
SAME = ((1, 1), (1, 1))


def plain_conv() -> Expr:
    return conv(var("x", 1, 3, 9, 9), weights(8, 3, 3, 3), padding=SAME)


def strided_conv() -> Expr:
    return conv(var("x", 1, 3, 10, 9), weights(4, 3, 3, 3), strides=(2, 2), padding=SAME)


def cut_conv() -> Expr:
    return conv(var("x", 1, 3, 10, 11), weights(4, 3, 1, 1), strides=(2, 3))


def dilated_conv() -> Expr:
    return conv(var("x", 1, 2, 12, 12), weights(4, 2, 3, 3), dilation=(2, 2))


def per_channel_conv() -> Expr:
    return conv(var("x", 1, 3, 6, 6), weights(3, 3, 3, 3), w_scale=scale(0.01, 0.02, 0.003))


def unsigned_conv() -> Expr:
    x = var("x", 1, 3, 6, 6, dtype=U8)
    return conv(x, weights(4, 3, 3, 3), zeros=(120, 7), dtype="uint8", padding=SAME)


def unsigned_weights() -> Expr:
    return conv(var("x", 1, 3, 6, 6), weights(4, 3, 3, 3, dtype="uint8"), w_zero=131)


def without_bias() -> Expr:
    return conv(var("x", 1, 3, 6, 6), weights(4, 3, 3, 3), bias=False)


def depthwise() -> Expr:
    return conv(var("x", 1, 6, 8, 8), weights(6, 1, 3, 3), groups=6, padding=SAME)


def multiplied_depthwise() -> Expr:
    return conv(var("x", 1, 3, 8, 8), weights(6, 1, 3, 3), groups=3)


def chain() -> Expr:
    first = conv(var("x", 1, 3, 12, 12), weights(8, 3, 3, 3), strides=(2, 2), padding=SAME)
    limited = apply("clip", first, min=-5.0, max=60.0)
    second = conv(limited, weights(8, 1, 3, 3, seed=2), groups=8, padding=SAME, zeros=(-5, 1))
    third = conv(second, weights(8, 8, 1, 1, seed=3), zeros=(1, -5))
    summed = apply(
        "qnn.add", limited, scale(0.9), zero(-5), third, scale(0.9), zero(-5), scale(1.5), zero(2)
    )
    mean = apply(
        "qnn.mean", summed, scale(1.5), zero(2), scale(0.3), zero(-9), axes=(2, 3), keepdims=False
    )
    return product(mean, 8, 10, zeros=(-9, 4))


def product(x: Expr, depth: int, columns: int, zeros: tuple[int, int] = (1, 2)) -> Expr:
    bias = constant(np.arange(columns, dtype=np.int32) * 50)
    operands = (scale(0.3), zero(zeros[0]), weights(depth, columns), scale(0.02), zero(0))
    return apply("qnn.matmul", x, *operands, scale(0.7), zero(zeros[1]), bias)


def rows_product() -> Expr:
    return product(var("x", 2, 5, 16), 16, 7)


def flattened() -> Expr:
    images = conv(var("x", 1, 3, 4, 4), weights(4, 3, 1, 1))
    return product(apply("reshape", images, shape=(1, 64)), 64, 3)


def pooled() -> Expr:
    attrs = {"strides": (2, 2), "padding": ((0, 1), (0, 1)), "dilation": (1, 1)}
    return apply("nn.max_pool", var("x", 1, 4, 9, 8), kernel=(3, 3), **attrs)


def averaged() -> Expr:
    window = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    parameters = (scale(0.1), zero(4), scale(0.08), zero(-3))
    return apply("qnn.avg_pool", var("x", 1, 4, 8, 8), *parameters, **window)


def padded_average() -> Expr:
    window = {"kernel": (3, 3), "strides": (1, 1), "padding": SAME, "dilation": (1, 1)}
    parameters = (scale(0.1), zero(4), scale(0.1), zero(4))
    return apply("qnn.avg_pool", var("x", 1, 4, 8, 8), *parameters, **window)


def kept_mean() -> Expr:
    parameters = (scale(0.1), zero(4), scale(0.02), zero(0))
    return apply("qnn.mean", var("x", 1, 5, 7, 7), *parameters, axes=(2, 3), keepdims=True)


def binary(name: str) -> Callable[[], Expr]:
    def make() -> Expr:
        a, b = var("a", 1, 4, 5, 6), var("b", 1, 4, 1, 1)
        left, right = (scale(0.1), zero(4)), (scale(0.03), zero(-7))
        return apply(name, a, *left, b, *right, scale(0.12), zero(9))

    return make


def constant_sum() -> Expr:
    a, b = var("a", 1, 4, 5, 6), constant(numbers(1, 4, 1, 6))
    return apply("qnn.add", a, scale(0.1), zero(4), b, scale(0.2), zero(0), scale(0.3), zero(9))


def requantized() -> Expr:
    x = var("x", 1, 4, 5, 6, dtype=U8)
    return apply("qnn.requantize", x, scale(0.1), zero(120, "uint8"), scale(0.07), zero(-3))


def looked_up() -> Expr:
    table = constant(np.sort(numbers(256, dtype="uint8")))
    return apply("qnn.lookup", var("x", 1, 4, 5, 6), table)


def joined() -> Expr:
    x = conv(var("x", 1, 3, 4, 4), weights(4, 3, 1, 1))
    whole = apply("concatenate", x, var("y", 1, 2, 4, 4), axis=1)
    return apply("strided_slice", whole, begin=(0, 1, 0, 1), end=(1, 5, 4, 3), strides=(1,) * 4)


def turned() -> Expr:
    x = conv(var("x", 1, 3, 4, 5), weights(4, 3, 1, 1))
    return apply("transpose", x, axes=(0, 2, 3, 1))


def two_dimensional_sum() -> Expr:
    a, b = var("a", 3, 16), var("b", 3, 16)
    return apply("qnn.add", a, scale(0.1), zero(4), b, scale(0.2), zero(0), scale(0.3), zero(9))


CASES = (
    plain_conv,
    strided_conv,
    cut_conv,
    dilated_conv,
    per_channel_conv,
    unsigned_conv,
    unsigned_weights,
    without_bias,
    depthwise,
    multiplied_depthwise,
    chain,
    rows_product,
    flattened,
    pooled,
    averaged,
    padded_average,
    kept_mean,
    binary("qnn.add"),
    binary("qnn.subtract"),
    binary("qnn.multiply"),
    constant_sum,
    requantized,
    looked_up,
    joined,
    turned,
    two_dimensional_sum,
)
