# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions and products in float32: the same integers, at the border too."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Expr, Function, Var, constant
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_loops.cpu.integer_products import integer_products_in_float32
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .conftest import apply

AVX2 = CpuTiling(8, 6)
N, H = variable("N"), variable("H")


def data(*shape: Size) -> Var:
    return Var("x", TensorType(shape, DType.UINT8))


def conv(x: Expr, weight: np.ndarray, *, groups: int = 1, zero: np.ndarray | None = None) -> Call:
    point = np.zeros((), weight.dtype) if zero is None else zero
    pad = tuple((size // 2, size // 2) for size in weight.shape[2:])
    ones = (1,) * len(pad)
    return apply(
        "qnn.conv_integer", x, constant(np.array(7, np.uint8)), constant(weight), constant(point),
        strides=ones, padding=pad, dilation=ones, groups=groups,
    )  # fmt: skip


def product(x: Expr, weight: np.ndarray, zero: np.ndarray, *, transposed: bool = False) -> Call:
    parts = (constant(np.array(250, np.uint8)), constant(weight), constant(zero))
    return apply("qnn.matmul_integer", x, *parts, transpose_a=False, transpose_b=transposed)


def names(function: Function) -> list[str]:
    return [call.name for call in calls(function)]


def check(body: Call, x: Var, shape: tuple[int, ...], products: int) -> None:
    """Compare the integers, also of data of 0 and 255 alone, and count products of floats."""
    function = Function((x,), body)
    changed = integer_products_in_float32(function, AVX2)
    assert names(changed).count("nn.conv") + names(changed).count("matmul") == products
    assert not any("integer" in name for name in names(changed))
    rng = np.random.default_rng(1)
    for given in (rng.integers(0, 256, shape), np.full(shape, 255), np.zeros(shape)):
        array = given.astype(np.uint8)
        (wanted,), (found,) = evaluate(function, {"x": array}), evaluate(changed, {"x": array})
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype == np.int32


@pytest.mark.parametrize("channels", [3, 64])
def test_convolutions(channels: int) -> None:
    rng = np.random.default_rng(2)
    weight = rng.integers(-40, 40, (5, channels, 3, 3)).astype(np.int8)
    x = data(N, channels, H, 6)
    check(conv(x, weight), x, (2, channels, 5, 6), 1)
    zero = rng.integers(-9, 9, 5).astype(np.int8)
    check(conv(x, weight, zero=zero), x, (2, channels, 5, 6), 1)


def test_groups_and_lengths() -> None:
    weight = np.random.default_rng(3).integers(-128, 128, (8, 1, 5)).astype(np.int8)
    x = data(N, 8, H)
    check(conv(x, weight, groups=8), x, (1, 8, 9), 1)


@pytest.mark.parametrize(("channels", "parts"), [(518, 1), (519, 2), (1100, 3)])
def test_channels_are_cut_where_a_sum_could_be_inexact(channels: int, parts: int) -> None:
    weight = np.full((2, channels, 1, 1), -127, np.int8)  # 255 * 127 * 518 < 2^24
    weight[1] = 127
    x = data(N, channels, H, 2)
    check(conv(x, weight), x, (1, channels, 3, 2), parts)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("depth", "parts"), [(40, 1), (600, 2)])
def test_products(depth: int, parts: int, transposed: bool) -> None:
    weight = np.full((depth, 6), -128, np.int8)
    weight[:, ::2] = 127
    zero = np.arange(6).astype(np.int8) - 3
    given = np.ascontiguousarray(weight.T) if transposed else weight
    x = data(N, 3, depth)
    check(product(x, given, zero, transposed=transposed), x, (2, 3, depth), parts)


def test_what_stays() -> None:
    weight = np.ones((4, 3, 1, 1), np.int8)
    static, opened = data(1, 3, 4, 4), data(1, 3, H, 4)
    multiplies = CpuTiling(8, 6, int8x4=SimpleNamespace(columns=16))  # type: ignore[arg-type]
    long, plain = data(1, 9000, H, 1), Var("x", TensorType((3,), DType.FLOAT32))
    for body, x, tiling in (
        (conv(static, weight), static, multiplies),
        (conv(opened, weight), opened, CpuTiling(4, 6)),
        (conv(long, np.full((2, 9000, 1, 1), 127, np.int8)), long, AVX2),
        (apply("nn.relu", plain), plain, AVX2),
        (conv(opened, weight), opened, CpuTiling(8, 6, bf16x2=SimpleNamespace())),  # type: ignore[arg-type]
    ):
        function = Function((x,), body)
        assert integer_products_in_float32(function, tiling) is function
    grouped = data(1, 1200, H, 1)
    wide = conv(grouped, np.full((2, 600, 1, 1), 127, np.int8), groups=2)
    assert "qnn.conv_integer" in names(
        integer_products_in_float32(Function((grouped,), wide), AVX2)
    )
    function = Function((opened,), conv(opened, weight))
    assert integer_products_in_float32(function, multiplies) is function
    pairs = data(1, 8, H, 4)
    wide = np.full((4, 4, 1, 1), 127, np.int8)
    nine_bits = conv(pairs, wide, groups=2, zero=np.array(-100, np.int8))
    function = Function((pairs,), nine_bits)
    assert "nn.conv" in names(integer_products_in_float32(function, multiplies))
    point = Var("z", TensorType((), DType.INT8))
    parts = (constant(np.array(0, np.uint8)), constant(np.ones((4, 2), np.int8)), point)
    unknown = apply("qnn.matmul_integer", rows := data(N, 4), *parts)
    function = Function((rows, point), unknown)
    assert integer_products_in_float32(function, AVX2) is function
