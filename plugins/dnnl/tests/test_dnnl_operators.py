# SPDX-License-Identifier: Apache-2.0
"""Every operator on the real library against its NumPy definition."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from intarsia_ir.graph.expr import make_tuple
from intarsia_testkit.expressions import apply, number, var, weight

from .regions import check

SHAPES = [(5,), (2, 3), (1, 7, 5, 3), (2, 3, 4, 5, 6, 2)]
POSITIVE = {"sqrt", "rsqrt", "reciprocal"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "name",
    [
        *("nn.relu", "tanh", "sigmoid", "sqrt", "rsqrt", "reciprocal", "abs"),
        *("negative", "round", "nn.hard_swish", "nn.softplus", "nn.silu", "nn.mish", "nn.gelu"),
    ],
)
def test_unary(name: str, shape: tuple[int, ...]) -> None:
    check(apply(name, var("x", *shape)), positive=name in POSITIVE)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("nn.gelu", {"approximate": True}),
        ("nn.leaky_relu", {"alpha": 0.3}),
        ("nn.elu", {"alpha": 0.3}),
        ("nn.hard_sigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("clip", {"min": -0.5, "max": 0.7}),
        ("clip", {"min": -0.5, "max": inf}),
        ("clip", {"min": -inf, "max": 0.5}),
    ],
)
def test_unary_with_parameters(name: str, attrs: dict[str, object]) -> None:
    check(apply(name, var("x", 2, 3, 7), **attrs))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((2, 8, 5, 6), (8, 1, 1)),
        ((2, 12, 8, 8), (2, 1, 1, 8)),
        ((2, 8, 5, 6), (1, 8, 5, 6)),
        ((2, 8, 5, 6), (1,)),
        ((2, 3, 4, 5, 6), (3, 1, 1, 1)),
        ((2, 3, 4, 5, 6, 7), (7,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_binary_broadcasts_its_second_operand(
    name: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    check(apply(name, var("x", *left), var("y", *right)), positive=True)
    check(apply(name, var("x", *left), weight(*right, positive=True)))


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_commutative_operators_broadcast_either(name: str) -> None:
    check(apply(name, var("x", 4), var("y", 3, 4)))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_scalar_constants_become_parameters(name: str) -> None:
    x = var("x", 3, 4)
    made = check(apply(name, x, number(1.7)), positive=True)
    assert [node.kind for node in made.program.nodes] == ["eltwise"]
    made = check(apply(name, number(1.7), x), positive=True)
    assert [node.kind for node in made.program.nodes] == ["eltwise"]


@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 2.5])
def test_power_of_a_constant(exponent: float) -> None:
    check(apply("power", var("x", 3, 4), number(exponent)), positive=True)


@pytest.mark.parametrize(
    ("data", "outputs", "kernel", "attrs"),
    [
        ((1, 3, 9, 9), 5, 3, {}),
        ((2, 8, 9, 9), 6, 1, {}),
        ((1, 16, 9, 9), 16, 3, {"groups": 16}),
        ((1, 16, 9, 9), 32, 3, {"groups": 16}),
        ((1, 12, 9, 9), 6, 3, {"groups": 3}),
        ((2, 4, 20), 6, 3, {}),
        ((1, 4, 20), 4, 5, {"groups": 4, "padding": ((4, 0),)}),
        ((1, 4, 6, 7, 8), 6, 3, {}),
        ((1, 4, 9, 9), 6, 3, {"strides": (2, 2), "padding": ((0, 1), (1, 0))}),
        ((1, 4, 13, 13), 6, 3, {"dilation": (2, 2)}),
        ((1, 4, 9, 9), 6, 3, {"bias": False}),
    ],
    ids=str,
)
def test_convolution(
    data: tuple[int, ...], outputs: int, kernel: int, attrs: dict[str, object]
) -> None:
    check(convolution(data, outputs, kernel, attrs), tolerance=2e-4)


@pytest.mark.parametrize(
    ("data", "outputs", "kernel", "attrs"),
    [
        ((1, 3, 9, 9), 5, 3, {}),
        ((1, 8, 9, 9), 6, 2, {"strides": (2, 2), "padding": ((0, 0), (0, 0))}),
        ((1, 16, 5, 5), 16, 4, {"groups": 16, "strides": (2, 2)}),
        ((1, 12, 5, 5), 6, 3, {"groups": 3}),
        ((2, 4, 10), 6, 3, {"strides": (2,)}),
        ((1, 4, 5, 5), 6, 3, {"strides": (2, 2), "output_padding": (1, 1)}),
        ((1, 4, 5, 5), 6, 3, {"dilation": (2, 2)}),
        ((1, 4, 3, 4, 5), 6, 3, {"bias": False}),
        ((1, 256, 16, 16), 64, 4, {"strides": (2, 2), "padding": ((1, 1), (1, 1))}),
        ((1, 512, 8, 8), 32, 4, {"strides": (2, 2), "padding": ((1, 1), (1, 1)), "bias": False}),
    ],
    ids=str,
)
def test_transposed_convolution(
    data: tuple[int, ...], outputs: int, kernel: int, attrs: dict[str, object]
) -> None:
    body = convolution(data, outputs, kernel, attrs, name="nn.conv_transpose")
    check(body, tolerance=2e-4)
    check(apply("nn.relu", body), tolerance=2e-4)


def convolution(data, outputs, kernel, attrs, name="nn.conv"):  # type: ignore[no-untyped-def]
    """Return a convolution of ``data`` with random weights; the defaults keep sizes at stride 1."""
    rank, attrs = len(data) - 2, dict(attrs)
    groups, channels = attrs.get("groups", 1), data[1]
    sides = (outputs, channels // groups) if name == "nn.conv" else (channels, outputs // groups)
    bias = [weight(outputs)] if attrs.pop("bias", True) else []
    defaults = {
        "strides": (1,) * rank,
        "padding": ((kernel // 2, kernel // 2),) * rank,
        "dilation": (1,) * rank,
    }
    kernels = weight(*sides, *(kernel,) * rank)
    return apply(name, var("x", *data), kernels, *bias, **{**defaults, **attrs})


@pytest.mark.parametrize(
    ("left", "right", "attrs"),
    [
        ((4, 5), (5, 6), {}),
        ((2, 4, 5), (5, 6), {}),
        ((1, 4, 5), (1, 5, 6), {}),
        ((2, 4, 5), (2, 5, 6), {}),
        ((2, 3, 4, 5), (3, 5, 6), {}),
        ((1, 3, 4, 5), (2, 1, 5, 6), {}),
        ((5, 4), (5, 6), {"transpose_a": True}),
        ((4, 5), (6, 5), {"transpose_b": True}),
        ((2, 5, 4), (2, 6, 5), {"transpose_a": True, "transpose_b": True}),
        ((5, 6), (3, 6, 7), {}),
        ((1, 5), (5, 1), {}),
        ((128, 1, 64), (128, 64, 1), {}),
    ],
    ids=str,
)
def test_matrix_product(
    left: tuple[int, ...], right: tuple[int, ...], attrs: dict[str, object]
) -> None:
    check(apply("matmul", var("a", *left), var("b", *right), **attrs), tolerance=2e-4)
    check(apply("matmul", var("a", *left), weight(*right), **attrs), tolerance=2e-4)
    check(apply("matmul", weight(*left), var("b", *right), **attrs), tolerance=2e-4)


@pytest.mark.parametrize(
    ("data", "kernel", "stride", "pad", "more"),
    [
        ((1, 4, 8, 8), 2, 2, 0, {}),
        ((1, 4, 9, 9), 2, 2, 0, {"ceil_mode": True}),
        ((1, 4, 9, 9), 2, 2, 0, {}),
        ((1, 4, 9, 9), 3, 2, 1, {}),
        ((1, 4, 12), 3, 2, 1, {}),
        ((1, 4, 6, 6, 6), 2, 2, 0, {}),
        ((1, 3, 7, 7), 3, 3, 1, {"ceil_mode": True}),
    ],
    ids=str,
)
def test_pooling(
    data: tuple[int, ...], kernel: int, stride: int, pad: int, more: dict[str, object]
) -> None:
    rank = len(data) - 2
    attrs = {
        "kernel": (kernel,) * rank,
        "strides": (stride,) * rank,
        "padding": ((pad, pad),) * rank,
        "dilation": (1,) * rank,
        **more,
    }
    check(apply("nn.max_pool", var("x", *data), **attrs))
    check(apply("nn.avg_pool", var("x", *data), **attrs))
    if not more:
        check(apply("nn.avg_pool", var("x", *data), count_include_pad=True, **attrs))


@pytest.mark.parametrize("name", ["sum", "mean", "prod"])
@pytest.mark.parametrize(
    ("data", "axes"),
    [
        ((2, 5), (1,)),
        ((2, 5, 4), (1, 2)),
        ((2, 8, 5, 6), (2, 3)),
        ((2, 8, 5, 6), (1, 2, 3)),
        ((2, 3, 4, 5), (1,)),
        ((2, 3, 4, 5), (0, 2)),
    ],
    ids=str,
)
def test_reduction(name: str, data: tuple[int, ...], axes: tuple[int, ...]) -> None:
    check(apply(name, var("x", *data), axes=axes, keepdims=True))
    check(apply(name, var("x", *data), axes=axes, keepdims=False))


def test_maximum_of_an_image() -> None:
    check(apply("max", var("x", 2, 8, 5, 6), axes=(2, 3), keepdims=True))
    check(apply("max", var("x", 2, 8, 5, 3, 2), axes=(2, 3, 4), keepdims=False))


@pytest.mark.parametrize("data", [(7,), (4, 5), (2, 3, 4), (1, 8, 5, 5)], ids=str)
def test_along_an_axis(data: tuple[int, ...]) -> None:
    for axis in range(len(data)):
        if data[axis] > 1:
            check(apply("nn.softmax", var("x", *data), axis=axis))
        scale, bias = weight(*data[axis:]), weight(*data[axis:], seed=2)
        check(apply("nn.layer_norm", var("x", *data), scale, bias, axis=axis, epsilon=1e-3))


@pytest.mark.parametrize("data", [(4, 6), (2, 6, 4), (1, 6, 5, 5), (1, 6, 2, 3, 4)], ids=str)
def test_batch_norm(data: tuple[int, ...]) -> None:
    numbers = (weight(6), weight(6, seed=2), weight(6, seed=3), weight(6, positive=True))
    check(apply("nn.batch_norm", var("x", *data), *numbers, epsilon=1e-3))


@pytest.mark.parametrize(
    ("data", "slope"),
    [
        ((2, 6, 5, 5), (6, 1, 1)),
        ((2, 6), (6,)),
        ((2, 6, 4), (1,)),
        ((2, 6, 4), (2, 6, 4)),
    ],
    ids=str,
)
def test_prelu(data: tuple[int, ...], slope: tuple[int, ...]) -> None:
    check(apply("nn.prelu", var("x", *data), weight(*slope)))


@pytest.mark.parametrize("channels", [6, 8, 64])
def test_local_response_norm(channels: int) -> None:
    check(apply("nn.lrn", var("x", 1, channels, 5, 5), size=5, alpha=0.01, beta=0.75, bias=1.5))


def test_views_and_concatenation() -> None:
    x = var("x", 2, 3, 4, 5)
    check(apply("transpose", x, axes=(2, 0, 3, 1)))
    check(apply("reshape", x, shape=(6, 20)))
    check(apply("reshape", apply("transpose", x, axes=(0, 2, 1, 3)), shape=(8, 15)))
    part = apply("strided_slice", x, begin=(0, 1, 0, 1), end=(2, 3, 4, 5), strides=(1, 1, 1, 1))
    check(part)
    check(apply("nn.relu", part))
    check(apply("concatenate", part, part, weight(2, 1, 4, 4), axis=1))


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_planes_are_joined_one_after_the_other(axis: int) -> None:
    shape = [1, 4, 5, 3]
    shape.insert(axis, 1)
    x = apply("nn.relu", var("x", *shape))
    joined = apply("concatenate", x, weight(*shape), apply("negative", x), axis=axis)
    check(joined)
    others = [place for place in range(5) if place != axis]
    made = check(apply("transpose", joined, axes=(axis, *others)))
    assert not any("reorder" in name for name in made.region.implementations)


@pytest.mark.parametrize(
    ("data", "sizes", "mode", "coordinates", "nearest"),
    [
        ((1, 3, 4, 4), (8, 8), "nearest", "asymmetric", "floor"),
        ((1, 3, 4, 4), (8, 12), "nearest", "half_pixel", "round_prefer_floor"),
        ((1, 3, 4, 4), (7, 6), "linear", "half_pixel", "floor"),
        ((1, 3, 8, 8), (4, 4), "linear", "half_pixel", "floor"),
        ((1, 3, 5), (10,), "linear", "half_pixel", "floor"),
        ((1, 3, 3, 4, 5), (6, 8, 10), "linear", "half_pixel", "floor"),
    ],
    ids=str,
)
def test_resize(
    data: tuple[int, ...], sizes: tuple[int, ...], mode: str, coordinates: str, nearest: str
) -> None:
    scales = (1.0, 1.0, *(to / of for to, of in zip(sizes, data[2:], strict=True)))
    attrs = {"mode": mode, "coordinate_mode": coordinates, "nearest_mode": nearest}
    check(apply("nn.resize", var("x", *data), sizes=(*data[:2], *sizes), scales=scales, **attrs))


def test_outputs_may_be_inputs_constants_views_or_the_same() -> None:
    x = var("x", 2, 3)
    y = apply("nn.relu", x)
    check(make_tuple([y, y, x, apply("reshape", y, shape=(3, 2)), weight(2, 2)]))


@pytest.mark.parametrize("isa", ["SSE41", "AVX2"])
def test_older_processors(isa: str) -> None:
    """The library chooses other kernels and blocked layouts there; answers must not change."""
    file = Path(__file__)
    chosen = ["test_convolution", "test_matrix_product", "test_along_an_axis", "test_reduction"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(
        [*command, "-k", " or ".join(chosen)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
