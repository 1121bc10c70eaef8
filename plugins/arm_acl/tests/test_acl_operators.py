# SPDX-License-Identifier: Apache-2.0
"""Every operator on the real library, under emulation, against its NumPy definition.

Several operators are the outputs of one region, because compiling a unit takes seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import constant
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, number, var, weight

from .regions import Bench

BROADCASTS = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((2, 8, 5, 6), (8, 1, 1)),
    ((2, 8, 5, 6), (1,)),
    ((4,), (3, 4)),
]
SHAPES = [(5,), (2, 3), (1, 7, 5, 3), (2, 3, 4, 5, 6)]


def test_activations(bench: Bench) -> None:
    names = ("nn.relu", "tanh", "sigmoid", "abs", "nn.hard_swish", "exp", "negative", "round")
    bodies = []
    for shape in SHAPES:
        x = var("x", *shape)
        bodies += [apply(name, x) for name in names]
        bodies.append(apply("nn.leaky_relu", x, alpha=0.3))
        bodies.append(apply("nn.elu", x, alpha=0.3))
        bodies.append(apply("nn.hard_sigmoid", x, alpha=0.2, beta=0.5))
        bodies.append(apply("clip", x, min=-0.5, max=0.7))
    bench.check(*bodies)


def test_extremes(bench: Bench) -> None:
    data = [-200, -88, -2.5, -0.5, -0.0, 1e-30, 0.5, 1.5, 50, 89, 200, 1e10, 3e38, np.inf]
    values = np.array([*data, -np.inf], np.float32)
    x = constant(values)
    names = ("nn.relu", "tanh", "sigmoid", "abs", "nn.hard_swish", "exp", "negative", "round")
    # Added to at run time, so that nothing is folded.
    moved = apply("multiply", x, apply("exp", apply("multiply", var("one", 1), number(0))))
    bench.check(*(apply(name, moved) for name in names), apply("sqrt", apply("abs", moved)))


def test_binary(bench: Bench) -> None:
    names = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    bodies = []
    for left, right in BROADCASTS:
        x, y = var("x", *left), var("y", *right)
        bodies += [apply(name, x, y) for name in names]
        bodies.append(apply("add", x, number(0.7)))
        bodies.append(apply("multiply", x, weight(*right)))
    x = var("x", 2, 8, 5, 6)
    bodies += [apply("nn.prelu", x, weight(*shape)) for shape in ((8, 1, 1), (1,))]
    bench.check(*bodies, positive=True)


def test_activations_behind_two_operands(bench: Bench) -> None:
    """Residual blocks: the library's sums, differences and products end in no activation."""
    x, y = var("x", 1, 8, 5, 6), var("y", 1, 8, 5, 6)
    pairs = [apply(name, x, y) for name in ("add", "subtract", "multiply", "divide")]
    bodies = [apply("nn.relu", pair) for pair in pairs]
    bodies += [apply("clip", pair, min=0.0, max=0.6) for pair in pairs]
    bench.check(*bodies, positive=True)


def convolution(
    data: tuple[int, ...], outputs: int, kernel: int, attrs: dict[str, Any], *, bias: bool = True
) -> Any:
    rank = len(data) - 2
    groups = attrs.get("groups", 1)
    numbers = {"strides": (1,) * rank, "padding": ((1, 1),) * rank, "dilation": (1,) * rank}
    weights = [weight(outputs, data[1] // groups, *(kernel,) * rank)]
    if bias:
        weights.append(weight(outputs))
    return apply("nn.conv", var("x", *data), *weights, **(numbers | attrs))


def test_convolutions(bench: Bench) -> None:
    bench.check(
        convolution((1, 3, 9, 9), 5, 3, {}),
        convolution((2, 8, 9, 9), 6, 1, {}),
        convolution((1, 3, 9, 9), 6, 3, {}, bias=False),
        convolution((1, 16, 9, 9), 16, 3, {"groups": 16}),
        convolution((1, 4, 9, 9), 8, 5, {"groups": 4, "strides": (2, 2)}),
        convolution(
            (1, 4, 9, 9), 4, 3, {"groups": 4, "dilation": (2, 2), "padding": ((2, 2), (2, 2))}
        ),
        convolution((2, 4, 20), 6, 3, {}),
        convolution((1, 4, 9, 9), 6, 3, {"strides": (2, 2), "padding": ((0, 1), (1, 0))}),
        convolution((1, 4, 13, 13), 6, 3, {"dilation": (2, 2)}),
        tolerance=2e-4,
    )


def transposed(
    data: tuple[int, ...], outputs: int, kernel: int, strides: tuple[int, ...], *pads: int
) -> Any:
    rank = len(strides)
    padding = tuple((pads[2 * d], pads[2 * d + 1]) for d in range(rank))
    attrs = {"strides": strides, "padding": padding, "dilation": (1,) * rank}
    weights = (weight(data[1], outputs, *(kernel,) * rank), weight(outputs))
    return apply("nn.conv_transpose", var("x", *data), *weights, **attrs)


def test_transposed_convolutions(bench: Bench) -> None:
    bench.check(
        transposed((1, 3, 9, 9), 5, 3, (1, 1), *(1, 1, 1, 1)),
        transposed((2, 4, 5, 6), 3, 2, (2, 2), *(0, 0, 0, 0)),
        transposed((1, 4, 5, 6), 3, 4, (2, 3), *(1, 1, 1, 1)),
        transposed((1, 4, 5, 6), 3, 4, (2, 2), *(1, 0, 2, 1)),
        transposed((1, 4, 9), 3, 1, (2,), *(0, 0)),
        tolerance=2e-4,
    )


def test_pooling(bench: Bench) -> None:
    x = var("x", 2, 3, 11, 9)
    cases = [
        {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))},
        {"kernel": (3, 3), "strides": (2, 2), "padding": ((1, 1), (1, 1))},
        {"kernel": (3, 2), "strides": (1, 2), "padding": ((1, 0), (0, 1))},
        {"kernel": (4, 4), "strides": (3, 3), "padding": ((1, 1), (0, 1)), "ceil_mode": True},
        {"kernel": (11, 9), "strides": (1, 1), "padding": ((0, 0), (0, 0))},
    ]
    bodies = []
    for case in cases:
        attrs = {**case, "dilation": (1, 1)}
        bodies.append(apply("nn.max_pool", x, **attrs))
        bodies.append(apply("nn.avg_pool", x, **attrs))
        if not case.get("ceil_mode"):
            bodies.append(apply("nn.avg_pool", x, **attrs, count_include_pad=True))
    bench.check(*bodies)


def test_l2_pooling(bench: Bench) -> None:
    x = var("x", 1, 3, 8, 8)
    attrs = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    squares = (apply("multiply", x, x), apply("power", x, number(2)))
    bench.check(*(apply("sqrt", apply("nn.avg_pool", square, **attrs)) for square in squares))


def test_reductions(bench: Bench) -> None:
    x, y, z = var("x", 2, 3, 5, 4), var("y", 7), var("z", 3, 7)
    axes = [(0,), (1,), (2,), (3,), (2, 3), (1, 3), (0, 1, 2, 3)]
    bodies = []
    for name in ("sum", "mean", "prod"):
        bodies += [apply(name, x, axes=each, keepdims=True) for each in axes]
        bodies.append(apply(name, x, axes=(1, 2)))
        bodies += [apply(name, other, axes=(0,)) for other in (y, z)]
    bodies.append(apply("max", x, axes=(2, 3), keepdims=True))
    bodies.append(apply("power", x, number(2)))
    bench.check(*bodies, tolerance=1e-4)


def test_matrix_products(bench: Bench) -> None:
    x, y = var("x", 5, 7), var("y", 2, 3, 5, 7)
    bench.check(
        apply("matmul", x, weight(7, 4)),
        apply("matmul", x, weight(4, 7), transpose_b=True),
        apply("add", apply("matmul", y, weight(7, 4)), weight(4)),
        apply("nn.relu", apply("add", apply("matmul", x, weight(7, 4)), weight(1, 4))),
        apply("matmul", x, var("z", 7, 6)),
        apply("matmul", x, var("w", 6, 7), transpose_b=True),
        apply("matmul", var("v", 7, 5), var("u", 7, 6), transpose_a=True),
        apply("matmul", y, var("t", 7, 6)),
        apply("matmul", y, var("r", 2, 3, 7, 6)),
        apply("matmul", y, var("q", 2, 3, 6, 7), transpose_b=True),
        apply("matmul", var("s", 1, 7), weight(7, 3)),
        tolerance=1e-4,
    )


def test_softmax(bench: Bench) -> None:
    x, y, z = var("x", 2, 3, 5, 4), var("y", 3, 9), var("z", 6)
    bench.check(
        *(apply(name, x, axis=3) for name in ("nn.softmax", "nn.log_softmax")),
        *(apply(name, y, axis=1) for name in ("nn.softmax", "nn.log_softmax")),
        *(apply(name, z, axis=0) for name in ("nn.softmax", "nn.log_softmax")),
    )


def test_normalizations(bench: Bench) -> None:
    x = var("x", 2, 6, 5, 4)
    numbers = [weight(6, seed=n) for n in range(3)]
    bench.check(
        apply("nn.batch_norm", x, *numbers, weight(6, positive=True), epsilon=1e-3),
        apply("nn.relu", apply("nn.batch_norm", x, *numbers, weight(6, positive=True))),
        apply("nn.lrn", x, size=3, alpha=0.1, beta=0.75, bias=2.0),
        apply("nn.layer_norm", x, weight(4), weight(4), axis=3),
        apply("nn.layer_norm", x, weight(5, 4), axis=2),
        tolerance=1e-4,
    )


def test_shapes(bench: Bench) -> None:
    x = var("x", 2, 3, 5, 4)
    y = var("y", 2, 3, 5, 4)
    orders = [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0), (0, 1, 3, 2), (0, 2, 1, 3)]
    bench.check(
        *(apply("transpose", x, axes=order) for order in orders),
        *(apply("concatenate", x, y, x, axis=axis) for axis in range(4)),
        apply("reshape", x, shape=(6, 20)),
        apply("reshape", x, shape=(2, 3, 5, 4)),
        apply("transpose", var("z", 3, 7), axes=(1, 0)),
        apply("strided_slice", x, begin=(1, 0, 2, 1), end=(2, 3, 5, 3), strides=(1,) * 4),
        apply("nn.pad", x, widths=((0, 0), (1, 0), (2, 1), (0, 3)), value=0.5),
    )


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8, DType.UINT8, DType.FLOAT16])
def test_channels_become_squares_of_pixels(bench: Bench, dtype: DType) -> None:
    x, y = var("x", 2, 12, 3, 5, dtype=dtype), var("y", 2, 3, 6, 4, dtype=dtype)
    bench.check(
        apply("nn.depth_to_space", x, block=2),
        apply("nn.space_to_depth", y, block=2),
        apply("nn.depth_to_space", var("z", 1, 9, 4, 2, dtype=dtype), block=3),
    )


def test_resize(bench: Bench) -> None:
    x = var("x", 2, 3, 5, 4)
    sizes = ((2, 3, 10, 8), (2, 3, 15, 4))
    nearest = {"mode": "nearest", "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    bench.check(
        *(apply("nn.resize", x, sizes=size, **nearest) for size in sizes),
        *(apply("nn.resize", x, sizes=s, mode="linear") for s in (*sizes, (2, 3, 7, 9))),
    )
