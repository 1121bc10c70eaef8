# SPDX-License-Identifier: Apache-2.0
"""Small quantized graphs, one for each thing that the plugin describes in a way of its own."""

from __future__ import annotations

import numpy as np

from intarsia_ethos_n.curves import function
from intarsia_ir.graph.expr import Call, Expr, constant, get_item
from intarsia_testkit.expressions import apply
from intarsia_testkit.quantized_expressions import numbers, scale, var, weights, zero

from .quantized import KEPT, averaged, binary, conv, conv_transpose, mean, pooled, product


def plain_conv() -> Expr:
    return conv(var("x", 1, 3, 9, 9), weights(8, 3, 3, 3), padding=KEPT)


def strided_conv() -> Expr:
    return conv(var("x", 1, 3, 10, 9), weights(4, 3, 3, 3), strides=(2, 2), padding=KEPT)


def per_channel_conv() -> Expr:
    return conv(var("x", 1, 3, 6, 6), weights(3, 3, 3, 3), w_scale=scale(0.01, 0.02, 0.003))


def unsigned_conv() -> Expr:
    x = var("x", 1, 3, 6, 6, dtype="uint8")
    return conv(x, weights(4, 3, 3, 3), zeros=(120, 7), dtype="uint8", padding=KEPT)


def unsigned_weights() -> Expr:
    return conv(var("x", 1, 3, 6, 6), weights(4, 3, 3, 3, dtype="uint8"), w_zero=131, bias=False)


def depthwise() -> Expr:
    by = scale(*np.linspace(0.01, 0.02, 6).tolist())
    return conv(var("x", 1, 6, 8, 8), weights(6, 1, 3, 3), groups=6, padding=KEPT, w_scale=by)


def chain() -> Expr:
    first = conv(var("x", 1, 3, 13, 13), weights(8, 3, 3, 3), strides=(2, 2), padding=KEPT)
    limited = apply("clip", first, min=-5.0, max=60.0)
    second = conv(limited, weights(8, 1, 3, 3, seed=2), groups=8, padding=KEPT, zeros=(7, 1))
    operands = (limited, scale(0.9), zero(7), second, scale(0.9), zero(1))
    summed = apply("qnn.add", *operands, scale(1.5), zero(2))
    parameters = (scale(1.5), zero(2), scale(0.3), zero(1))
    average = apply("qnn.mean", summed, *parameters, axes=(2, 3), keepdims=False)
    return product(average, weights(8, 10))


def read_otherwise() -> Expr:
    first = conv(var("x", 1, 3, 6, 6), weights(4, 3, 1, 1), zeros=(3, 9))
    return conv(first, weights(4, 4, 1, 1), zeros=(1, 2))


def plain_product() -> Expr:
    return product(var("x", 1, 64), weights(64, 10))


def turned_product() -> Expr:
    return product(var("x", 1, 64), weights(10, 64), transpose_b=True)


def scaled_product() -> Expr:
    return product(var("x", 1, 64), weights(64, 3), w_scale=scale(0.02, 0.01, 0.03))


def rows_product() -> Expr:
    return product(var("x", 5, 64), weights(64, 10))


def widened() -> Expr:
    x, by = var("x", 1, 3, 5, 6), scale(0.01, 0.02, 0.03, 0.004)
    return conv_transpose(x, weights(3, 4, 3, 3), padding=((1, 0), (0, 1)), w_scale=by)


def widened_far() -> Expr:
    kept = {"padding": ((4, 3), (4, 3))}
    return conv_transpose(var("x", 1, 3, 5, 6), weights(3, 4, 9, 9), **kept)


def turned() -> Expr:
    x = conv(var("x", 1, 3, 4, 5), weights(16, 3, 1, 1))
    return conv(apply("transpose", x, axes=(0, 2, 3, 1)), weights(2, 4, 1, 1))


def parts() -> Expr:
    """The parts of a convolution's result, joined the other way round; and of an input."""
    x = conv(var("x", 1, 3, 4, 4), weights(32, 3, 1, 1), zeros=(3, 3), to=0.05)
    split = apply("split", x, sections=(16, 16), axis=1)
    swapped = apply("concatenate", get_item(split, 1), get_item(split, 0), axis=1)
    given = apply("split", var("y", 1, 32, 4, 6), sections=(4, 2), axis=3)
    first = conv(get_item(given, 0), weights(32, 32, 1, 1), to=0.05, zeros=(3, 3))
    return apply("concatenate", swapped, first, axis=1)


def addition() -> Expr:
    return binary("qnn.add", var("a", 1, 4, 5, 6), var("b", 1, 4, 5, 6))


def constant_addition() -> Expr:
    return binary("qnn.add", var("a", 1, 4, 5, 6), constant(numbers(1, 4, 5, 6)))


def multiplication() -> Expr:
    return binary("qnn.multiply", var("a", 1, 64), var("b", 1, 64))


def requantized() -> Expr:
    x = var("x", 1, 4, 5, 6, dtype="uint8")
    return apply("qnn.requantize", x, scale(0.1), zero(120, "uint8"), scale(0.07), zero(-3))


def plain_mean() -> Expr:
    return mean(var("x", 1, 5, 8, 8), 2, 3)


def rescaled_mean() -> Expr:
    return mean(var("x", 1, 5, 7, 7), 2, 3, to=0.03)


def halved() -> Expr:
    return pooled(var("x", 1, 4, 9, 9), 3, 2)


def kept_pool() -> Expr:
    return pooled(var("x", 1, 4, 8, 8), 3, 1, padding=KEPT)


def kept_average() -> Expr:
    return averaged(var("x", 1, 4, 8, 8), 3, padding=KEPT)


def rescaled_average() -> Expr:
    return averaged(var("x", 1, 4, 8, 8), 2, strides=(2, 2), to=0.08)


def looked_up(kind: str, dtype: str = "int8") -> Expr:
    """A curve as quantized models have it: a convolution, then a table of 256 results."""
    low = 0 if dtype == "uint8" else -128
    x = conv(var("x", 1, 3, 6, 6, dtype=dtype), weights(4, 3, 1, 1), dtype=dtype, to=0.05)
    real = (np.arange(low, low + 256) - 7) * np.float32(0.05)
    values = function(kind, real, 0.2)
    steps = {"sigmoid": (1 / 256, low), "tanh": (1 / 128, low + 128)}
    by, zero_ = steps.get(kind, (0.03, low + 100))
    table = np.clip(np.rint(values / by) + zero_, low, low + 255).astype(dtype)
    return apply("qnn.lookup", x, constant(table))


def sigmoid() -> Expr:
    return looked_up("sigmoid")


def unsigned_sigmoid() -> Expr:
    return looked_up("sigmoid", "uint8")


def tanh() -> Expr:
    return looked_up("tanh")


def unsigned_tanh() -> Expr:
    return looked_up("tanh", "uint8")


def leaky_relu() -> Expr:
    return looked_up("leaky-relu")


def leaky_relu_of_an_input() -> Expr:
    after = looked_up("leaky-relu", "uint8")
    assert isinstance(after, Call)
    x = var("x", 1, 4, 6, 6, dtype="uint8")
    return conv(apply("qnn.lookup", x, after.args[1]), weights(4, 4, 1, 1), dtype="uint8")


def spread() -> Expr:
    x = conv(var("x", 1, 3, 4, 4), weights(16, 3, 1, 1))
    return apply("nn.depth_to_space", x, block=2)


def doubled() -> Expr:
    x = conv(var("x", 1, 3, 4, 5), weights(16, 3, 1, 1))
    nearest = {"coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    return apply("nn.resize", x, sizes=(1, 16, 8, 10), mode="nearest", **nearest)


def joined() -> Expr:
    x = conv(var("x", 1, 3, 4, 4), weights(4, 3, 1, 1))
    return apply("concatenate", x, var("y", 1, 2, 4, 4), axis=1)


CASES = (
    plain_conv,
    strided_conv,
    per_channel_conv,
    unsigned_conv,
    unsigned_weights,
    depthwise,
    chain,
    read_otherwise,
    plain_product,
    turned_product,
    scaled_product,
    rows_product,
    widened,
    widened_far,
    turned,
    parts,
    addition,
    constant_addition,
    multiplication,
    requantized,
    plain_mean,
    rescaled_mean,
    halved,
    kept_pool,
    kept_average,
    rescaled_average,
    joined,
    sigmoid,
    unsigned_sigmoid,
    tanh,
    unsigned_tanh,
    leaky_relu,
    leaky_relu_of_an_input,
    spread,
    doubled,
)
