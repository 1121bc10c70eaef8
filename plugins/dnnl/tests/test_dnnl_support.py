# SPDX-License-Identifier: Apache-2.0
"""What the plugin refuses, in which words; and that its answers are those of the library."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intarsia_dnnl.names import BINARY
from intarsia_dnnl.operators.elementwise import fast_broadcast
from intarsia_dnnl.sdk import Dnnl
from intarsia_dnnl.support import TABLE
from intarsia_ir.graph.expr import Expr, Var, constant
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.regions.support import Code
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, number, var, weight

from .regions import verdicts
from .test_dnnl_operators import convolution

IMAGE = (1, 4, 9, 9)
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
RESIZE = {
    "sizes": (1, 4, 18, 18),
    "scales": (1.0, 1.0, 2.0, 2.0),
    "mode": "nearest",
    "coordinate_mode": "asymmetric",
    "nearest_mode": "floor",
}


def wide(*shape: int, dtype: DType = DType.FLOAT64) -> Var:
    return Var("x", TensorType(shape, dtype))


REFUSED = [
    (apply("nn.relu", wide(3)), Code.UNSUPPORTED_DTYPE, "only float32 is taken, not float64"),
    (
        apply(
            "nn.max_pool",
            Var("x", TensorType((1, 4, variable("h"), 8), DType.FLOAT32)),
            kernel=(2, 2),
            strides=(2, 2),
            padding=((0, 0), (0, 0)),
            dilation=(1, 1),
            ceil_mode=True,
        ),
        Code.UNSUPPORTED_SHAPE,
        "what it asks for depends on the open size",
    ),
    (apply("nn.relu", var("x", 0, 3)), Code.UNSUPPORTED_SHAPE, "has no elements"),
    (apply("nn.relu", var("x")), Code.UNSUPPORTED_SHAPE, "scalars computed at run time"),
    (apply("nn.relu", var("x", *(2,) * 7)), Code.UNSUPPORTED_SHAPE, "rank 7 is more than 6"),
    (apply("max", var("x", 3, 4), axes=(1,)), Code.UNSUPPORTED_OP, "maximum of minus infinities"),
    (apply("min", var("x", 3, 4), axes=(1,)), Code.UNSUPPORTED_OP, "no row for 'min'"),
    (apply("sin", var("x", 3)), Code.UNSUPPORTED_OP, "no row for 'sin'"),
    (apply("erf", var("x", 3)), Code.UNSUPPORTED_OP, "taken only as part of row 'gelu_erf"),
    (
        apply(
            "nn.conv",
            *(var("x", *IMAGE), var("w", 4, 4, 3, 3)),
            strides=(1, 1),
            padding=((0, 0), (0, 0)),
            dilation=(1, 1),
        ),
        Code.UNSUPPORTED_ATTRIBUTE,
        "argument 1 of nn.conv must be known at compile time",
    ),
    (
        convolution((1, 2, 4, 4, 4, 4), 2, 1, {}, name="nn.conv_transpose"),
        Code.UNSUPPORTED_SHAPE,
        "4-dimensional convolution (1 to 3 are)",
    ),
    (
        convolution((1, 2, 4, 4, 4, 4), 2, 1, {}),
        Code.UNSUPPORTED_SHAPE,
        "4-dimensional convolution",
    ),
    (
        convolution(
            (1, 2, 5, 5),
            *(2, 3, {"strides": (2, 2), "padding": ((0, 0), (0, 0)), "output_padding": (1, 1)}),
            name="nn.conv_transpose",
        ),
        Code.UNSUPPORTED_ATTRIBUTE,
        "output_padding beyond what the padding cuts off",
    ),
    (
        apply(
            *("nn.max_pool", var("x", 1, 2, 4, 4, 4, 4)),
            **{key: value * 2 for key, value in POOL.items()},
        ),
        Code.UNSUPPORTED_SHAPE,
        "4-dimensional pooling",
    ),
    (apply("reshape", var("x", 1), shape=()), Code.UNSUPPORTED_SHAPE, "scalars computed"),
    (
        apply("nn.layer_norm", var("x", 2, 3), weight(1), weight(3), axis=1),
        Code.UNSUPPORTED_SHAPE,
        "scale or bias of shape [1] is broadcast",
    ),
    (
        apply(
            "nn.batch_norm",
            *(var("x", 2, 3, 1, 1, 1, 1), *(weight(3, seed=i, positive=True) for i in range(4))),
        ),
        Code.UNSUPPORTED_SHAPE,
        "rank 6 (2 to 5 are)",
    ),
    (
        apply("nn.max_pool", var("x", *IMAGE), **{**POOL, "dilation": (2, 2)}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "no fast kernel for dilation (2, 2)",
    ),
    (
        apply("nn.max_pool", var("x", *IMAGE), **{**POOL, "padding": ((1, 2), (0, 0))}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "reaches as far as the kernel",
    ),
    (
        apply("nn.avg_pool", var("x", *IMAGE), ceil_mode=True, count_include_pad=True, **POOL),
        Code.UNSUPPORTED_ATTRIBUTE,
        "windows that ceil_mode adds",
    ),
    (
        apply("subtract", var("x", 4), var("y", 3, 4)),
        Code.UNSUPPORTED_SHAPE,
        "oneDNN broadcasts only the second operand of subtract",
    ),
    (
        apply("add", var("x", 2, 3, 4, 5), var("y", 4, 1)),
        Code.UNSUPPORTED_SHAPE,
        "no fast kernel broadcasts [1, 1, 4, 1] to [2, 3, 4, 5]",
    ),
    (
        apply("power", var("x", 3), var("y", 3)),
        Code.UNSUPPORTED_OP,
        "power is taken with a constant scalar only",
    ),
    (apply("add", weight(1), weight(1)), Code.TOO_SMALL, "both operands are constant scalars"),
    (
        apply("nn.prelu", var("x", 2, 6, 4), weight(4)),
        Code.UNSUPPORTED_SHAPE,
        "a slope [4] for [2, 6, 4]",
    ),
    (apply("nn.prelu", var("x", 6), weight(6)), Code.UNSUPPORTED_SHAPE, "rank 1 (2 to 5 are)"),
    (apply("clip", var("x", 3), min=1.0, max=0.0), Code.UNSUPPORTED_ATTRIBUTE, "an empty range"),
    (
        apply("sum", var("x", *(2,) * 6), axes=(1,), keepdims=True),
        Code.UNSUPPORTED_SHAPE,
        "rank 6 is more than 5",
    ),
    (
        apply("sum", var("x", 2, 1), axes=(1,), keepdims=True),
        Code.UNSUPPORTED_SHAPE,
        "hold one element",
    ),
    (apply("sum", var("x", 2), axes=(), keepdims=True), Code.UNSUPPORTED_ATTRIBUTE, "nothing"),
    (apply("sum", var("x", 2), axes=(0,)), Code.UNSUPPORTED_SHAPE, "scalars computed"),
    (
        apply("nn.lrn", var("x", 1, 4, 4), size=3, alpha=0.1, beta=0.7, bias=1.0),
        Code.UNSUPPORTED_SHAPE,
        "rank 3 (4 is)",
    ),
    (
        apply("nn.lrn", var("x", 1, 4, 4, 4), size=4, alpha=0.1, beta=0.7, bias=1.0),
        Code.UNSUPPORTED_ATTRIBUTE,
        "an even window of 4 channels",
    ),
    (
        apply("strided_slice", var("x", 6), begin=(0,), end=(6,), strides=(2,)),
        Code.UNSUPPORTED_ATTRIBUTE,
        "only 1 is taken",
    ),
    (
        apply("nn.resize", var("x", *IMAGE), **{**RESIZE, "mode": "cubic"}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "mode cubic",
    ),
    (
        apply("nn.resize", var("x", *IMAGE), **{**RESIZE, "nearest_mode": "ceil"}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "nearest with asymmetric, ceil",
    ),
    (
        apply("nn.resize", var("x", *IMAGE), **{**RESIZE, "mode": "linear"}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "linear with asymmetric",
    ),
    (
        apply("nn.resize", var("x", *IMAGE), **{**RESIZE, "sizes": (1, 8, 18, 18)}),
        Code.UNSUPPORTED_SHAPE,
        "only spatial axes are resized",
    ),
    (
        apply("nn.resize", var("x", *IMAGE), **{**RESIZE, "scales": (1.0, 1.0, 2.05, 2.0)}),
        Code.UNSUPPORTED_ATTRIBUTE,
        "do not give whole sizes",
    ),
]


@pytest.mark.parametrize(("body", "code", "words"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refusals_say_why(body: Expr, code: Code, words: str) -> None:
    (said,) = verdicts(body).values()
    assert said.code is code
    assert words in said.detail


def test_a_gelu_with_another_constant_is_not_taken_as_one() -> None:
    x = var("x", 2, 8)
    inner = apply("add", apply("erf", apply("divide", x, number(1.5))), number(1.0))
    body = apply("multiply", apply("multiply", x, inner), number(0.5))
    said = verdicts(body)
    assert not said["erf"]
    assert said["divide"]


def test_a_composite_refuses_constants_in_words() -> None:
    x = var("x", 2, 8)
    row = next(row for row in TABLE.rows if row.name == "hard_swish_0")
    clipped = apply("clip", apply("add", x, number(2.0)), min=0.0, max=6.0)
    body = apply("divide", apply("multiply", x, clipped), number(6.0))
    match = match_pattern(row.pattern, body, count_uses((body,)))
    assert match is not None
    assert (
        TABLE.check(row, match).detail == "the constant 2.0 is not the 3 that hardswish has there"
    )
    wide_three = constant(np.full((2, 8), 3, np.float32))
    clipped = apply("clip", apply("add", x, wide_three), min=0.0, max=6.0)
    body = apply("divide", apply("multiply", x, clipped), number(6.0))
    match = match_pattern(row.pattern, body, count_uses((body,)))
    assert match is not None
    assert TABLE.check(row, match).code is Code.UNSUPPORTED_ATTRIBUTE


def test_rows_have_unique_names() -> None:
    names = [row.name for row in TABLE.rows]
    assert len(set(names)) == len(names)


RESULTS = [
    *((3,), (3, 5), (1, 5), (5, 1), (2, 3, 5), (1, 3, 5), (2, 3, 5, 7), (1, 1, 5, 7)),
    *((2, 3, 5, 1), (2, 1, 5, 7), (1, 3, 1, 7), (2, 3, 4, 5, 7), (2, 3, 4, 5, 6, 7)),
]


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_broadcasts_are_those_of_the_library(result: tuple[int, ...]) -> None:
    dnnl = Dnnl()
    attribute = dnnl.make("primitive_attr_create")
    for keep in itertools.product((False, True), repeat=len(result)):
        shape = tuple(size if kept else 1 for size, kept in zip(result, keep, strict=True))
        made = dnnl.try_make(
            "binary_primitive_desc_create",
            *(dnnl.engine, BINARY["add"], dnnl.plain(result), dnnl.plain(shape)),
            *(dnnl.any_layout(result), attribute),
        )
        fast = made is not None and not dnnl.implementation(made).startswith("ref")
        assert fast_broadcast(shape, result) == fast, shape
    dnnl.close()
