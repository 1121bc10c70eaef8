# SPDX-License-Identifier: Apache-2.0
"""What the plugin refuses, and why, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_ethos_n.codegen import emit
from intarsia_ethos_n.describe import array_of
from intarsia_ethos_n.support import TABLE, support_table
from intarsia_ethos_n.target import EthosNOptions
from intarsia_ir.graph.expr import Call, Expr, Function, Var, constant, get_item
from intarsia_ir.graph.types import TensorType
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError
from intarsia_testkit.expressions import apply, function_of
from intarsia_testkit.quantized_expressions import scale, var, weights, zero

from .quantized import (
    KEPT,
    WINDOW,
    averaged,
    binary,
    conv,
    conv_transpose,
    mean,
    pooled,
    product,
    verdict,
)


def image(*shape: int) -> Expr:
    return var("x", *(shape or (1, 4, 8, 8)))


def kernel(side: int, **attrs: object) -> Call:
    return conv(image(1, 4, 16, 16), weights(4, 4, side, side), **attrs)


def channel_zeros() -> Call:
    zeros = constant(np.array([0, 1, 2], np.int8))
    operands = (image(), scale(0.1), zero(0), weights(3, 4, 1, 1), scale(1, 2, 3), zeros)
    return apply("qnn.conv", *operands, scale(1.0), zero(0), **WINDOW)


def product_zeros() -> Call:
    zeros = constant(np.array([0, 1, 2], np.int8))
    operands = (var("a", 1, 4), scale(0.1), zero(0), weights(4, 3), scale(1.0), zeros)
    return apply("qnn.matmul", *operands, scale(1.0), zero(0))


def widened(side: int, **attrs: object) -> Call:
    return conv_transpose(image(), weights(4, 3, side, side), **attrs)


def requantized(by: float) -> Call:
    return apply("qnn.requantize", image(), scale(by), zero(0), scale(1e-3), zero(0))


def requantized_channels() -> Call:
    by = scale(1, 2, 3)
    return apply("qnn.requantize", var("x", 2, 3), by, zero(0), scale(1.0), zero(0))


def clipped(dtype: DType, *shape: object) -> Call:
    return apply("clip", Var("x", TensorType(shape, dtype)), min=0.0)


def looked_up_as(dtype: str) -> Call:
    table = np.random.default_rng(3).integers(-128, 128, 256).astype(dtype)
    return apply("qnn.lookup", image(), constant(table))


def joined(*shape: int) -> Call:
    return apply("concatenate", var("a", *shape), var("b", *shape), axis=0)


Case = tuple[Callable[..., Call], tuple[object, ...], dict[str, object], str]
REFUSED: tuple[Case, ...] = (
    (kernel, (4,), {}, "kernel 4x4"),
    (kernel, (9,), {"strides": (2, 2)}, "at most 7 a side"),
    (kernel, (3,), {"strides": (3, 3)}, "equal, 1 or 2"),
    (kernel, (3,), {"dilation": (2, 2)}, "dilation (2, 2)"),
    (kernel, (3,), {"padding": ((8, 8), (0, 0))}, "at most 7"),
    (kernel, (1,), {"to": 1e-9}, "below 65536"),
    (conv, (image(), weights(4, 2, 1, 1)), {"groups": 2}, "groups=2"),
    (conv, (image(2, 4, 8, 8), weights(4, 4, 1, 1)), {}, "batch 2"),
    (conv, (image(), weights(8, 1, 3, 3)), {"groups": 4}, "only 1 is taken"),
    (
        conv,
        (image(), weights(4, 1, 1, 1)),
        {"groups": 4, "strides": (2, 2)},
        "stride of 2 with a 1x1",
    ),
    (conv, (image(), var("w", 4, 4, 1, 1)), {}, "argument 3"),
    (channel_zeros, (), {}, "not one a channel"),
    (product_zeros, (), {}, "not one a channel"),
    (product, (var("a", 4, 1), weights(4, 3)), {"transpose_a": True}, "two-dimensional"),
    (widened, (2,), {"strides": (3, 3)}, "only (2, 2)"),
    (widened, (4,), {}, "kernel 4x4"),
    (widened, (9,), {}, "at most 7 a side"),
    (widened, (2,), {"padding": ((2, 0), (0, 0))}, "smaller than the kernel"),
    (widened, (2,), {"padding": ((0, 0), (2, 0))}, "smaller than the kernel"),
    (widened, (2,), {"output_padding": (1, 1)}, "output padding"),
    (widened, (9,), {"padding": ((8, 8), (8, 7))}, "what keeps the size"),
    (widened, (3,), {"to": 1e-9}, "below 65536"),
    (apply, ("transpose", image()), {"axes": (1, 0, 2, 3)}, "the batch stays"),
    (apply, ("transpose", image(1, 64, 256, 256)), {"axes": (0, 1, 3, 2)}, "transposing needs"),
    (apply, ("transpose", var("x", 3, 4)), {"axes": (1, 0)}, "the batch"),
    (apply, ("nn.space_to_depth", image()), {"block": 2}, "has no code"),
    (apply, ("nn.space_to_depth", image(1, 255, 2, 4096)), {"block": 2}, "row of squares"),
    (binary, ("qnn.add", image(), var("b", 1, 4, 1, 1)), {}, "nothing is broadcast"),
    (binary, ("qnn.multiply", image(), var("b", 8)), {}, "same rank"),
    (requantized, (1.0,), {}, "1/128"),
    (requantized_channels, (), {}, "along an axis"),
    (averaged, (image(), 5), {}, "average over 5x5"),
    (averaged, (image(), 3), {"padding": KEPT, "to": 0.2}, "keeps its scale"),
    (averaged, (image(), 2), {"ceil_mode": True}, "ceil_mode"),
    (averaged, (image(), 2), {"dilation": (2, 2)}, "dilation"),
    (mean, (image(), 1), {}, "over height and width"),
    (mean, (image(1, 4, 6, 6), 2, 3), {}, "7x7 and 8x8"),
    (mean, (image(), 2, 3), {"to": 0.2}, "kernel 8x8"),
    (pooled, (image(1, 4, 9, 8), 3, 2), {}, "sizes must be odd"),
    (pooled, (image(), 2, 3), {}, "strides (3, 3)"),
    (pooled, (image(1, 4, 12, 12), 10, 1), {}, "window 10x10"),
    (apply, ("reshape", image()), {"shape": (1, 256)}, "channels last"),
    (apply, ("reshape", image()), {"shape": (1, 4, 64)}, "one, two or four"),
    (joined, (1, 4, 8, 8), {}, "along the batch"),
    (looked_up_as, ("uint8",), {}, "a table of uint8"),
    (looked_up_as, ("int8",), {}, "none of the device's"),
    (apply, ("nn.depth_to_space", image()), {"block": 2, "mode": "CRD"}, "mode CRD"),
    (apply, ("nn.resize", image()), {"sizes": (1, 4, 24, 24)}, "nearest, twice"),
    (
        apply,
        ("nn.resize", image()),
        {"sizes": (1, 4, 16, 16), "coordinate_mode": "asymmetric", "nearest_mode": "ceil"},
        "asymmetric ceil",
    ),
    (clipped, (DType.INT8, "n", 4), {}, "the open size n, and needs a number"),
    (clipped, (DType.INT32, 4), {}, "int8 and uint8"),
)


@pytest.mark.parametrize(("make", "args", "attrs", "words"), REFUSED)
def test_a_refusal_has_words(
    make: Callable[..., Call], args: tuple[object, ...], attrs: dict[str, object], words: str
) -> None:
    if make is conv and args[1].__class__ is Var:
        scales = (scale(0.1), zero(0), args[1], scale(1.0), zero(0), scale(1.0), zero(0))
        said = verdict(apply("qnn.conv", args[0], *scales, **WINDOW))
    else:
        said = verdict(make(*args, **dict(attrs)))
    assert said.code is not Code.OK
    assert words in said.detail


def test_a_batch_is_not_split() -> None:
    split = apply("split", image(), sections=(1,), axis=0)
    table = support_table(EthosNOptions())
    said = annotate(function_of(get_item(split, 0)), [("ethos-n", table)]).verdicts[split][0]
    assert said.detail == "split: a batch is not split"


def test_the_memory_of_the_variant_counts() -> None:
    deep = conv(image(1, 9000, 2, 2), weights(1, 9000, 1, 1))
    assert verdict(deep, variant="n78-4tops-4ple")
    said = verdict(deep, variant="n78-1tops-4ple")
    assert "the memory has 458752" in said.detail


def test_a_region_of_something_else_is_the_hosts_mistake() -> None:
    x = Var("x", TensorType((2,), DType.FLOAT32))
    region = Region("r", "ethos-n", Function((x,), apply("nn.relu", x)), {}, ())
    with pytest.raises(PluginError, match=r"has a nn\.relu"):
        emit(region)


def test_only_constants_have_content() -> None:
    with pytest.raises(PluginError, match="not known at compile time"):
        array_of(var("x", 1))


def test_the_readme_shows_the_table() -> None:
    readme = Path(__file__).parents[1] / "README.md"
    assert TABLE.markdown() in readme.read_text()
