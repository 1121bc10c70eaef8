# SPDX-License-Identifier: Apache-2.0
"""Quantised operators on the real library, under emulation, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.dtype import DType
from intarsia.errors import UnsupportedError
from intarsia.host.host import Host
from intarsia.ir.expr import Call, Constant, Expr, constant
from intarsia_arm_acl.codegen import write_region
from intarsia_arm_acl.plugin import partition

from .regions import Bench, apply, function_of, integers, number, region_of, var, verdicts

TYPES = [DType.UINT8, DType.INT8]


def zero(dtype: DType, value: int = 0) -> Constant:
    return constant(np.array(value, dtype.value))


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


def test_integers_with_two_meanings_are_refused() -> None:
    x = var("x", 4, dtype=DType.INT8)
    bodies = [apply("qnn.dequantize", x, number(by), zero(DType.INT8)) for by in (0.5, 0.25)]
    regions = [region_of(function_of(*each)) for each in (bodies, bodies[:1])]
    with pytest.raises(UnsupportedError, match="reads the same integers as"):
        write_region(regions[0])
    assert partition(regions, Host().target("acl").accelerators[0]) == (regions[1],)


def test_refuses_what_the_library_has_no_words_for() -> None:
    x = var("x", 4, 4, dtype=DType.UINT8)
    weight = (constant(integers(4, 4, dtype=DType.UINT8)), number(0.1), zero(DType.UINT8))
    data, result = (x, number(0.1), zero(DType.UINT8)), (number(0.1), zero(DType.UINT8))
    refused: list[tuple[Expr, str]] = [
        (apply("qnn.matmul", *data, *weight, *result), "weights that are not int8"),
        (apply("qnn.dequantize", x, scales(4), zero(DType.UINT8)), "argument 1 of qnn.dequantize"),
    ]
    for body, words in refused:
        (verdict,) = verdicts(body).values()
        assert words in verdict.detail
