# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that read many elements for one: reductions, products, windows, statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from intarsia_runtime.dtype import DType

from .case import Case, random_array
from .elementwise_cases import accepts, edge_values

FLOATS = ("float32", "float64", "float16", "bfloat16")
MANY = (*FLOATS, "int8", "uint8", "int32", "int64")
FULLY = ("float32", "float16", "int32", "bool")  # the other types go the same ways
REDUCTIONS = ("sum", "mean", "prod", "max", "min", "all", "any")
# data, weight, strides, padding, dilation, groups
CONVOLUTIONS = (
    ((2, 3, 17), (4, 3, 2), (1,), ((0, 0),), (1,), 1),
    ((1, 1, 33), (16, 1, 5), (2,), ((2, 1),), (2,), 1),
    ((1, 3, 17, 19), (16, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 3, 17, 33), (17, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    ((2, 3, 5, 6), (4, 3, 3, 3), (2, 1), ((1, 0), (1, 2)), (1, 1), 1),
    ((1, 16, 9, 9), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 17, 9, 9), (33, 17, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 32, 7, 7), (16, 32, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 33, 7, 7), (5, 33, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 16, 9, 9), (16, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 16),
    ((1, 17, 9, 9), (17, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 17),
    ((1, 4, 6, 6), (8, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (2, 1), 4),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 2), ((0, 1), (1, 1)), (1, 2), 2),
    ((2, 32, 5, 5), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 1), (1, 2, 1), ((1, 0), (0, 0), (0, 1)), (1, 1, 1), 1),
    ((0, 4, 3, 3), (5, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 8, 1, 1), (16, 8, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 1, 1, 40), (1, 1, 1, 33), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
)
# data, weight, strides, padding, dilation, groups, output_padding
TRANSPOSED = (
    ((2, 3, 4), (3, 2, 3), (2,), ((0, 0),), (1,), 1, ()),
    ((1, 3, 3, 4), (3, 2, 3, 3), (2, 1), ((1, 0), (1, 1)), (1, 1), 1, (1, 0)),
    ((1, 16, 5, 5), (16, 16, 4, 4), (2, 2), ((1, 1), (1, 1)), (1, 1), 1, ()),
    ((1, 4, 3, 3), (4, 2, 2, 3), (1, 3), ((0, 0), (0, 1)), (2, 1), 2, (0, 2)),
    ((1, 4, 3, 3), (4, 1, 2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), 4, ()),
    ((1, 2, 2, 2, 2), (2, 3, 2, 1, 2), (1, 2, 1), ((0, 0),) * 3, (1, 1, 1), 1, ()),
    ((1, 1, 3), (1, 1, 2), (2,), ((-1, -2),), (1,), 1, ()),
)
PRODUCTS = (
    ((17, 33), (33, 5), False, False),
    ((1, 64), (64, 33), False, False),
    ((64, 64), (64, 64), False, False),
    ((33, 17), (33, 19), True, False),
    ((17, 33), (19, 33), False, True),
    ((3, 2), (4, 3), True, True),
    ((5, 7, 9), (5, 9, 17), False, False),
    ((5, 2, 3), (3, 4), False, False),
    ((2, 1, 7, 3), (4, 5, 3), False, True),
    ((3, 4), (2, 4, 5), False, False),
    ((2, 12, 5, 16), (2, 12, 16, 5), False, False),
    ((2, 0), (0, 3), False, False),
    ((0, 2), (2, 3), False, False),
    ((1, 1), (1, 1), False, False),
    ((33, 1), (1, 17), False, False),
    ((17, 33), (33, 1), False, False),
)
# shape, kernel, strides, padding, dilation, ceil_mode
POOLS = (
    ((1, 2, 17), (3,), (2,), ((1, 1),), (1,), False),
    ((2, 2, 5, 6), (2, 3), (2, 1), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 16, 9, 9), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), False),
    ((1, 17, 8, 8), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 2, 5, 6), (3, 3), (2, 2), ((1, 0), (1, 1)), (1, 1), False),
    ((1, 1, 7, 7), (2, 2), (2, 3), ((0, 0), (0, 0)), (1, 1), True),
    ((1, 1, 6, 6), (3, 3), (2, 2), ((1, 1), (0, 0)), (1, 1), True),
    ((1, 1, 4), (1,), (3,), ((0, 0),), (1,), True),
    ((1, 1, 7, 7), (2, 3), (1, 2), ((1, 1), (1, 2)), (2, 1), False),
    ((1, 1, 4, 4, 4), (2, 2, 2), (2, 1, 2), ((0, 0),) * 3, (1, 1, 1), False),
)
MASKED = np.array([[-np.inf] * 5, [-np.inf, 1, -np.inf, 0, -2], [0, 1, 2, 3, -np.inf]], np.float32)


def window_cases() -> Iterator[Case]:
    """Convolutions with and without a bias."""
    rng = np.random.default_rng(9)
    for row, with_bias in product(CONVOLUTIONS, (False, True)):
        data, weight, strides, padding, dilation, groups = row
        attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        every = MANY if with_bias and weight[0] < 9 else ("float32", "float64")
        for dtype in every:
            operands = [random_array(rng, s, dtype, -2, 2) for s in (data, weight, weight[:1])]
            case = Case("nn.conv", tuple(operands[: 2 + with_bias]), attrs)
            yield case
            yield replace(case, weights=(1, 2))
    for row, with_bias in product(TRANSPOSED, (False, True)):
        data, weight, strides, padding, dilation, groups, more = row
        attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        shapes = (data, weight, (weight[1] * groups,))
        for dtype in MANY if with_bias else ("float32",):
            operands = [random_array(rng, s, dtype, -2, 2) for s in shapes]
            padded = {**attrs, "output_padding": more}
            case = Case("nn.conv_transpose", tuple(operands[: 2 + with_bias]), padded)
            yield case
            yield replace(case, weights=(1, 2))


def product_cases() -> Iterator[Case]:
    """Matrix products."""
    rng = np.random.default_rng(10)
    for (a, b, transpose_a, transpose_b), dtype in product(PRODUCTS, MANY):
        operands = (random_array(rng, a, dtype, -2, 2), random_array(rng, b, dtype, -2, 2))
        attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        yield Case("matmul", operands, attrs)
        if dtype in ("float32", "float16", "int8"):
            yield Case("matmul", operands, attrs, weights=(1,))
            yield Case("matmul", operands, attrs, weights=(0,))


def pool_cases() -> Iterator[Case]:
    """Pools and local response normalization."""
    rng = np.random.default_rng(11)
    for shape, kernel, strides, padding, dilation, ceil_mode in POOLS:
        attrs = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
        for dtype in MANY:
            x = random_array(rng, shape, dtype)
            yield Case("nn.max_pool", (x,), {**attrs, "ceil_mode": ceil_mode})
            for count in (False, True) if dtype in FLOATS else ():
                counted = {**attrs, "ceil_mode": ceil_mode, "count_include_pad": count}
                yield Case("nn.avg_pool", (x,), counted)
    holes = random_array(rng, (1, 2, 8, 8), "float32")
    holes[0, 0, 3, 3], holes[0, 1, 0, 0] = np.nan, -np.inf
    square = {"kernel": (2, 2), "strides": (2, 2), "dilation": (1, 1)}
    yield Case("nn.max_pool", (holes,), {**square, "padding": ((1, 1), (1, 1))})
    lowest = np.full((1, 2, 4, 4), -np.inf, np.float32)
    yield Case("nn.max_pool", (lowest,), {**square, "padding": ((0, 0), (0, 0))})
    for size, dtype in product((1, 2, 3, 5), FLOATS):
        x = random_array(rng, (2, 7, 3, 5), dtype)
        attrs = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 1.5}
        yield Case("nn.lrn", (x,), attrs)


def reduction_cases() -> Iterator[Case]:
    """Reductions over every set of dimensions, of numbers, of nothing, and of NaN."""
    rng = np.random.default_rng(12)
    for name, kind in product(REDUCTIONS, DType):
        dtype = kind.value
        shape, low = (3, 5, 17), 0.8 if name == "prod" else -4.0
        high = 1.2 if name == "prod" else 4.0
        if not accepts(name, random_array(rng, shape, dtype), axes=(0,)):
            continue
        for axes, keepdims in product(((), (0,), (1,), (2,), (0, 2), (0, 1, 2)), (False, True)):
            if keepdims and axes not in ((1,), (0, 1, 2)):
                continue
            if dtype not in FULLY and axes not in ((0,), (2,), (0, 1, 2)):
                continue
            x = random_array(rng, shape, dtype, low, high)
            yield Case(name, (x,), {"axes": axes, "keepdims": keepdims})
        for empty, axes in (((2, 0), (1,)), ((0, 3), (1,)), ((0, 3), (0,))):
            yield Case(name, (random_array(rng, empty, dtype),), {"axes": axes})
        yield Case(name, (edge_values(dtype),), {"axes": (0,)})
        if dtype == "float32" and name != "prod":
            yield Case(name, (MASKED,), {"axes": (1,)})
        yield Case(name, (random_array(rng, (1000,), dtype, low, high),), {"axes": (0,)})
        yield Case(name, (random_array(rng, (), dtype),), {"axes": ()})


def place_cases() -> Iterator[Case]:
    """``argmax``, ``argmin`` with ties and NaN, ``cumsum`` and ``cumprod``."""
    rng = np.random.default_rng(13)
    for name, dtype, last in product(("argmax", "argmin"), MANY, (False, True)):
        for shape, axis in (((3, 17), 0), ((3, 17), 1), ((2, 33, 3), 1), ((1,), 0)):
            x = random_array(rng, shape, dtype, -2, 2).round().astype(dtype)
            yield Case(name, (x,), {"axis": axis, "last": last, "keepdims": last})
        yield Case(name, (edge_values(dtype)[:-1],), {"axis": 0, "last": last})
    for name in ("argmax", "argmin"):
        yield Case(name, (np.full((2, 3), np.inf, np.float32),), {"axis": 1})
        yield Case(name, (np.full((2, 3), -np.inf, np.float32),), {"axis": 1})
    for dtype, exclusive, reverse in product(MANY, (False, True), (False, True)):
        for shape, axis in (((3, 17), 0), ((3, 17), 1), ((2, 5, 3), 1)):
            attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            yield Case("cumsum", (random_array(rng, shape, dtype),), attrs)
            yield Case("cumprod", (random_array(rng, shape, dtype, 1, 2),), attrs)


def statistics_cases() -> Iterator[Case]:
    """Softmax and the normalizations."""
    rng = np.random.default_rng(14)
    for dtype in FLOATS:
        for name, shape in product(
            ("nn.softmax", "nn.log_softmax"), ((3, 17), (2, 3, 33), (1, 1), (4, 1000))
        ):
            for axis in range(len(shape)):
                yield Case(name, (random_array(rng, shape, dtype, -9, 9),), {"axis": axis})
        for shape, axis in (((2, 17), 1), ((2, 3, 33), 2), ((2, 3, 5), 1), ((1, 768), 1)):
            operands = [random_array(rng, s, dtype) for s in (shape, shape[axis:], shape[axis:])]
            attrs = {"axis": axis, "epsilon": 0.01}
            yield Case("nn.layer_norm", tuple(operands), attrs)
            yield Case("nn.layer_norm", tuple(operands[:2]), attrs)
            yield Case("nn.rms_norm", tuple(operands[:2]), attrs)
            yield Case("nn.layer_norm", tuple(operands), attrs, weights=(1, 2))
        for shape in ((2, 4, 17), (1, 4, 3, 5)):
            operands = tuple(random_array(rng, s, dtype) for s in (shape, (4,), (4,)))
            yield Case("nn.instance_norm", operands, {"epsilon": 0.01})
            for groups in (1, 2, 4):
                yield Case("nn.group_norm", operands, {"groups": groups, "epsilon": 0.01})
        for p, axis in product((1, 2), (0, 1)):
            x = random_array(rng, (5, 17), dtype)
            x[1] = 0
            yield Case("nn.l2_normalize", (x,), {"axis": axis, "p": p})
    for name in ("nn.softmax", "nn.log_softmax"):
        yield Case(name, (MASKED,), {"axis": 1})
    far = np.array([[1000, 1000, -1000], [-np.inf, 0, 1], [3e38, -3e38, 0]], np.float32)
    yield Case("nn.softmax", (far,), {"axis": 1})
    yield Case("nn.log_softmax", (far[:1],), {"axis": 1})
    offset = (50 + rng.standard_normal((3, 64))).astype(np.float32)  # mean >> deviation
    ones = np.ones(64, np.float32)
    yield Case("nn.layer_norm", (offset, ones, ones), {"axis": 1})
