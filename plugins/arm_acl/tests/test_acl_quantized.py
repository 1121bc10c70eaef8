# SPDX-License-Identifier: Apache-2.0
"""Quantized operators on the real library, under emulation, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.host.host import Host
from intarsia_arm_acl.codegen import write_region
from intarsia_arm_acl.plugin import partition
from intarsia_ir.graph.expr import Call, Constant, Expr, constant
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_testkit.expressions import apply, function_of, number, var

from .regions import Bench, integers, region_of, verdicts

TYPES = [DType.UINT8, DType.INT8]


def zero(dtype: DType, value: int = 0) -> Constant:
    return constant(np.array(value, dtype.value))


ONE = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def point(dtype: DType) -> Constant:
    """Return a zero point off the middle of its type."""
    return zero(dtype, 120 if dtype is DType.UINT8 else -7)


def scales(count: int) -> Constant:
    return constant(np.linspace(0.002, 0.006, count).astype(np.float32))


def conv(dtype: DType, data: tuple[int, ...], outputs: int, **attrs: Any) -> Call:
    numbers = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), **attrs}
    weight = integers(outputs, data[1] // attrs.get("groups", 1), 3, 3)
    bias = constant(np.arange(outputs, dtype=np.int32) * 100)
    return apply(
        "qnn.conv",
        *(var("x", *data, dtype=dtype), number(0.02), point(dtype)),
        *(constant(weight), scales(outputs), constant(np.zeros(outputs, np.int8))),
        *(number(0.03), point(dtype), bias),
        **numbers,
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_convolutions(bench: Bench, dtype: DType) -> None:
    bench.check(
        conv(dtype, (1, 3, 9, 9), 5),
        conv(dtype, (2, 4, 9, 9), 6, strides=(2, 2)),
        conv(dtype, (1, 8, 9, 9), 8, groups=8),
        conv(dtype, (1, 4, 9, 9), 8, groups=4, strides=(2, 2)),
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_others(bench: Bench, dtype: DType) -> None:
    x, y = var("x", 2, 3, 8, 6, dtype=dtype), var("y", 2, 3, 8, 6, dtype=dtype)
    first, second, result = number(0.02), number(0.015), (number(0.04), point(dtype))
    pool = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    rows = var("r", 5, 7, dtype=dtype)
    matrix = (constant(integers(7, 4)), scales(4), zero(DType.INT8))
    moved = apply("transpose", apply("nn.max_pool", x, **pool), axes=(0, 2, 3, 1))
    bench.check(
        apply("qnn.add", x, first, point(dtype), y, second, zero(dtype), *result),
        apply("qnn.subtract", x, first, point(dtype), y, second, zero(dtype), *result),
        apply("qnn.multiply", x, first, point(dtype), y, second, zero(dtype), *result),
        apply("qnn.dequantize", x, first, point(dtype)),
        apply("qnn.quantize", var("f", 3, 7), number(0.02), point(dtype)),
        apply("qnn.avg_pool", x, first, point(dtype), *result, **pool),
        apply("qnn.dequantize", apply("reshape", moved, shape=(6, 12)), first, point(dtype)),
        apply("concatenate", x, x, axis=1),
        apply("qnn.matmul", rows, number(0.02), point(dtype), *matrix, number(0.05), point(dtype)),
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rescaling_means_and_limits(bench: Bench, dtype: DType) -> None:
    x = var("x", 2, 3, 8, 6, dtype=dtype)
    data, result = (number(0.02), point(dtype)), (number(0.03), zero(dtype, 5))
    other = DType.INT8 if dtype is DType.UINT8 else DType.UINT8
    nearest = {"mode": "nearest", "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    bench.check(
        apply("qnn.requantize", x, *data, *result),
        apply("qnn.requantize", x, *data, number(0.02), point(other)),
        *(
            apply("qnn.mean", x, *data, number(0.004), zero(dtype, 5), axes=axes, keepdims=keep)
            for axes, keep in (((2, 3), True), ((1,), False), ((0, 1, 2, 3), False))
        ),
        apply("clip", x, min=20.0, max=90.0),
        apply("clip", x, min=-300.0, max=90.0),
        apply("max", x, axes=(2, 3)),
        apply("nn.pad", x, widths=((0, 0), (1, 0), (2, 1), (0, 3)), value=7.0),
        apply("nn.resize", x, sizes=(2, 3, 16, 12), **nearest),
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_transposed_convolution_and_softmax(bench: Bench, dtype: DType) -> None:
    x, data = var("x", 2, 3, 8, 6, dtype=dtype), (number(0.02), point(dtype))
    weight = (constant(integers(3, 4, 3, 3, dtype=dtype)), number(0.004), point(dtype))
    bias = constant(np.arange(4, dtype=np.int32) * 100)
    attrs = {"strides": (2, 2), "padding": ((1, 1), (1, 0)), "dilation": (1, 1)}
    least = zero(dtype, np.iinfo(dtype.value).min)
    bench.check(
        apply("qnn.conv_transpose", x, *data, *weight, number(0.06), point(dtype), bias, **attrs),
        apply("qnn.conv_transpose", x, *data, *weight, number(0.06), point(dtype), **attrs),
        apply("qnn.softmax", x, *data, number(1 / 256), least, axis=3),
    )


def test_halves_are_moved(bench: Bench) -> None:
    x = var("x", 2, 3, 5, 4, dtype=DType.FLOAT16)
    bench.check(
        apply("transpose", x, axes=(0, 2, 3, 1)),
        apply("concatenate", x, x, axis=1),
        apply("reshape", x, shape=(6, 20)),
        apply("strided_slice", x, begin=(1, 0, 2, 1), end=(2, 3, 5, 3), strides=(1,) * 4),
        apply("nn.pad", x, widths=((0, 0), (1, 0), (2, 1), (0, 3)), value=0.3),
    )


def test_integers_with_two_meanings_are_refused() -> None:
    x = var("x", 4, dtype=DType.INT8)
    bodies = [apply("qnn.dequantize", x, number(by), zero(DType.INT8)) for by in (0.5, 0.25)]
    regions = [region_of(function_of(*each)) for each in (bodies, bodies[:1])]
    with pytest.raises(UnsupportedError, match="reads the same integers as"):
        write_region(regions[0])
    answer = partition(regions, Host().target("acl").accelerators[0])
    assert [region for region in answer if not region.why] == [regions[1]]
    assert "two scales or zero points" in answer[0].why


def test_refuses_what_the_library_has_no_words_for() -> None:
    x = var("x", 4, 4, dtype=DType.UINT8)
    weight = (constant(integers(4, 4, dtype=DType.UINT8)), number(0.1), zero(DType.UINT8))
    data, result = (x, number(0.1), zero(DType.UINT8)), (number(0.1), zero(DType.UINT8))
    x, halves = var("x", 4, 4, dtype=DType.UINT8), var("h", 4, dtype=DType.FLOAT16)
    table = constant(integers(256, dtype=DType.UINT8))
    real = (number(0.1), zero(DType.UINT8))
    wide = var("w", 1, 1, 1, 2, 3, dtype=DType.UINT8)
    back = (var("c", 1, 4, 4, 4, dtype=DType.UINT8), *real)
    kernel = constant(integers(4, 4, 1, 1))
    signed = (number(0.1), zero(DType.INT8))
    unknown = var("v", 4, 4, 1, 1, dtype=DType.UINT8)
    big = var("b", 4, dtype=DType.INT32)
    refused: list[tuple[Expr, str]] = [
        (apply("qnn.lookup", x, table), "none takes a table"),
        (apply("add", halves, halves), "only where it was built for Armv8.2"),
        (apply("qnn.mean", x, *real, *real, axes=()), "nothing is reduced"),
        (apply("qnn.mean", wide, *real, *real, axes=(1,)), "rank 5 is more than 4"),
        (apply("qnn.mean", x, *real, number(1), zero(DType.INT8), axes=(1,)), "different types"),
        (
            apply("qnn.requantize", big, number(1), zero(DType.INT32), *real),
            "has no 8-bit elements",
        ),
        (apply("qnn.softmax", x, *real, *real, axis=1), "the library's are (0.00390625, 0.0)"),
        (
            apply("qnn.softmax", x, *real, number(1 / 256), zero(DType.INT8), axis=1),
            "different types",
        ),
        (
            apply("qnn.softmax", wide, *real, number(1 / 256), zero(DType.UINT8), axis=4),
            "rank above 4",
        ),
        (apply("qnn.conv_transpose", *back, kernel, *signed, *result, **ONE), "int8, uint8"),
        (
            apply("qnn.conv_transpose", *back, unknown, *real, *result, **ONE),
            "argument 3 of qnn.conv_transpose must be known",
        ),
        (
            apply("qnn.conv_transpose", *back, kernel, scales(4), signed[1], *result, **ONE),
            "argument 4 of qnn.conv_transpose is no scalar",
        ),
        (apply("clip", x, min=0.5, max=9.0), "limits 0.5 and 9.0 of integers"),
        (apply("nn.pad", x, widths=((0, 1), (0, 0)), value=0.5), "value 0.5 is not one of uint8"),
        (apply("qnn.matmul", *data, *weight, *result), "weights that are not int8"),
        (apply("qnn.dequantize", x, scales(4), zero(DType.UINT8)), "argument 1 of qnn.dequantize"),
    ]
    for body, words in refused:
        (verdict,) = verdicts(body).values()
        assert words in verdict.detail
