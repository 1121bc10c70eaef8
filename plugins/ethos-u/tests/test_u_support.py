# SPDX-License-Identifier: Apache-2.0
"""What the plugin refuses, and why, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_ethos_u.codegen import emit
from intarsia_ethos_u.support import TABLE
from intarsia_ir.graph.expr import Call, Expr, Function, Var, constant
from intarsia_ir.graph.types import TensorType
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError
from intarsia_testkit.expressions import apply
from intarsia_testkit.quantized_expressions import scale, var, weights, zero

from .cases import SAME
from .quantized import conv, verdict

ONE = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def image(*shape: int) -> Var:
    return var("x", *(shape or (1, 4, 8, 8)))


def averaged(x: Expr, kernel: int, *, to: float = 0.1, **attrs: object) -> Call:
    parameters = (scale(0.1), zero(0), scale(to), zero(0))
    return apply("qnn.avg_pool", x, *parameters, **(ONE | {"kernel": (kernel, kernel)} | attrs))


def mean(x: Expr, *axes: int, to: float = 0.1) -> Call:
    return apply("qnn.mean", x, scale(0.1), zero(0), scale(to), zero(0), axes=axes, keepdims=True)


def product(a: Expr, b: Expr, **attrs: object) -> Call:
    operands = (a, scale(0.1), zero(0), b, scale(0.1), zero(0), scale(0.1), zero(0))
    return apply("qnn.matmul", *operands, **attrs)


def added(a: Expr, b: Expr, to: float = 0.1) -> Call:
    return apply("qnn.add", a, scale(0.1), zero(0), b, scale(0.1), zero(0), scale(to), zero(0))


def per_channel_zeros() -> Call:
    x = image()
    channels = constant(np.array([0, 1, 2], np.int8))
    parameters = (weights(3, 4, 1, 1), scale(1, 1, 1), channels, scale(1.0), zero(0))
    return apply("qnn.conv", x, scale(0.1), zero(0), *parameters, **ONE)


def heavy_weights() -> Call:
    weight = constant(np.full((1, 1100, 8, 8), 127, np.int8))
    return conv(var("x", 1, 1100, 8, 8), weight, bias=False)


def variable_weights() -> Call:
    return product(var("a", 2, 3), var("b", 3, 4))


def symbolic() -> Call:
    return apply("clip", Var("x", TensorType(("n", 4), DType.INT8)), min=0.0)


REFUSED: tuple[tuple[Callable[[], Call], Code, str], ...] = (
    (lambda: conv(image(), weights(4, 2, 1, 1), groups=2), Code.UNSUPPORTED_ATTRIBUTE, "groups=2"),
    (
        lambda: conv(image(1, 1, 70, 4), weights(1, 1, 65, 1)),
        Code.UNSUPPORTED_SHAPE,
        "at most 64 rows",
    ),
    (
        lambda: conv(image(), weights(4, 4, 1, 1), strides=(4, 1)),
        Code.UNSUPPORTED_ATTRIBUTE,
        "1 to 3",
    ),
    (
        lambda: conv(image(1, 1, 90, 3), weights(1, 1, 3, 1), dilation=(40, 1)),
        Code.UNSUPPORTED_ATTRIBUTE,
        "dilation",
    ),
    (per_channel_zeros, Code.UNSUPPORTED_ATTRIBUTE, "not one a channel"),
    (heavy_weights, Code.UNSUPPORTED_SHAPE, "sum to"),
    (
        lambda: conv(image(), weights(4, 4, 1, 1), scales=(1e12, 1e-3)),
        Code.UNSUPPORTED_ATTRIBUTE,
        "below 2**29",
    ),
    (
        lambda: conv(
            image(1, 4, 8), weights(4, 4, 1), strides=(1,), padding=((0, 0),), dilation=(1,)
        ),
        Code.UNSUPPORTED_SHAPE,
        "only images",
    ),
    (variable_weights, Code.UNSUPPORTED_ATTRIBUTE, "argument 3 of qnn.matmul"),
    (
        lambda: product(var("a", 3, 2), weights(3, 4), transpose_a=True),
        Code.UNSUPPORTED_ATTRIBUTE,
        "transposed first",
    ),
    (lambda: product(var("a", 5, 2, 3), weights(5, 3, 4)), Code.UNSUPPORTED_SHAPE, "rank 3"),
    (symbolic, Code.UNSUPPORTED_SHAPE, "the open size n, and needs a number"),
    (
        lambda: apply("clip", Var("x", TensorType((4,), DType.INT32)), min=0.0),
        Code.UNSUPPORTED_DTYPE,
        "int8 and uint8",
    ),
    (lambda: apply("clip", var("x", 1, 1, 1, 1, 1), min=0.0), Code.UNSUPPORTED_SHAPE, "rank 5"),
    (lambda: apply("clip", var("x", 65537), min=0.0), Code.UNSUPPORTED_SHAPE, "1 to 65536"),
    (lambda: apply("clip", image(), min=3.0, max=1.0), Code.UNSUPPORTED_ATTRIBUTE, "cross"),
    (lambda: averaged(image(2, 4, 8, 8), 2), Code.UNSUPPORTED_SHAPE, "batch 2"),
    (lambda: averaged(image(1, 1, 66, 66), 65), Code.UNSUPPORTED_SHAPE, "64 rows"),
    (
        lambda: averaged(image(1, 1, 20, 20), 9, padding=((4, 4), (4, 4))),
        Code.UNSUPPORTED_SHAPE,
        "at most 8 a side",
    ),
    (
        lambda: averaged(image(), 3, to=0.2, padding=SAME),
        Code.UNSUPPORTED_ATTRIBUTE,
        "keeps its scale",
    ),
    (lambda: averaged(image(), 2, ceil_mode=True), Code.UNSUPPORTED_ATTRIBUTE, "ceil_mode"),
    (lambda: averaged(image(), 2, dilation=(2, 2)), Code.UNSUPPORTED_ATTRIBUTE, "dilation"),
    (lambda: averaged(image(), 2, strides=(4, 4)), Code.UNSUPPORTED_ATTRIBUTE, "strides"),
    (
        lambda: apply("nn.max_pool", image(1, 1, 300, 2), **ONE, kernel=(257, 1)),
        Code.UNSUPPORTED_SHAPE,
        "256 rows",
    ),
    (lambda: mean(image(), 1), Code.UNSUPPORTED_ATTRIBUTE, "over height and width"),
    (lambda: mean(image(2, 4, 8, 8), 2, 3), Code.UNSUPPORTED_SHAPE, "batch 2"),
    (lambda: mean(image(1, 4, 65, 8), 2, 3), Code.UNSUPPORTED_SHAPE, "64 rows"),
    (lambda: added(var("a", 4), var("b", 2, 4)), Code.UNSUPPORTED_SHAPE, "same rank"),
    (lambda: added(image(), var("b", 1, 4, 1, 1), 1e-17), Code.UNSUPPORTED_ATTRIBUTE, "2**29"),
    (
        lambda: apply(
            "qnn.requantize", var("x", 2, 3), scale(1, 2, 3), zero(0), scale(1.0), zero(0)
        ),
        Code.UNSUPPORTED_ATTRIBUTE,
        "along an axis",
    ),
    (
        lambda: apply("qnn.lookup", image(), constant(np.zeros(256, np.int16))),
        Code.UNSUPPORTED_DTYPE,
        "int16",
    ),
    (
        lambda: apply(
            "strided_slice", image(), begin=(0,) * 4, end=(1, 4, 8, 8), strides=(1, 2, 1, 1)
        ),
        Code.UNSUPPORTED_ATTRIBUTE,
        "only 1 is taken",
    ),
)


@pytest.mark.parametrize(("make", "code", "words"), REFUSED)
def test_a_refusal_has_a_code_and_words(make: Callable[[], Call], code: Code, words: str) -> None:
    said = verdict(make())
    assert said.code is code
    assert words in said.detail


def test_a_region_of_something_else_is_the_hosts_mistake() -> None:
    x = Var("x", TensorType((2,), DType.FLOAT32))
    region = Region("r", "ethos-u", Function((x,), apply("nn.relu", x)), {}, ())
    with pytest.raises(PluginError, match=r"has a nn\.relu"):
        emit(region)


def test_the_readme_shows_the_table() -> None:
    readme = Path(__file__).parents[1] / "README.md"
    assert TABLE.markdown() in readme.read_text()
