# SPDX-License-Identifier: Apache-2.0
"""Calls of the operators on quantized tensors: signed and unsigned, per tensor and per channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.ops.narrow_formats import EXPONENTS, INTEGERS
from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.dtype import DType

from .case import Case

BYTES = ("int8", "uint8")
# data, weight, strides, padding, dilation, groups
CONVOLUTIONS = (
    ((1, 3, 9, 11), (16, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 16, 6, 6), (33, 16, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 20, 7, 5), (20, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 20),
    ((1, 8, 6, 6), (16, 4, 3, 3), (1, 1), ((0, 1), (1, 1)), (1, 2), 2),
    ((1, 6, 6, 6), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    ((1, 5, 17), (7, 5, 3), (2,), ((2, 1),), (1,), 1),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 1), (1, 2, 1), ((1, 0), (0, 0), (0, 1)), (1, 1, 1), 1),
)
# a, b, transpose_a, transpose_b
PRODUCTS = (
    ((5, 40), (40, 17), False, False),
    ((2, 3, 33), (16, 33), False, True),
    ((3, 8, 6), (3, 8, 5), True, False),
)
# data, weight, strides, padding, groups
TRANSPOSED = (
    ((1, 3, 6, 5), (3, 4, 3, 3), (2, 2), ((1, 0), (1, 1)), 1),
    ((1, 4, 5, 5), (4, 2, 2, 2), (1, 2), ((0, 0), (0, 0)), 2),
    ((1, 5, 9), (5, 3, 3), (3,), ((1, 1),), 1),
)


def _bytes(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _scale(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def _scales(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.001, 0.004, count).astype(np.float32)


def scale_cases() -> Iterator[Case]:
    """Quantization, dequantization, and from one scale to another; and tables."""
    x = np.random.default_rng(3).normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
    # What NaN becomes is not defined: vendors clamp it, or take it as zero.
    x.reshape(-1)[:2] = (np.inf, -np.inf)
    wide = (1, 3, 1, 1)
    for dtype in (*BYTES, "int16", "uint16"):
        zero = np.asarray(9, dtype)
        yield Case("qnn.quantize", (x, _scale(0.023), zero), weights=(1, 2))
        yield Case("qnn.quantize", (x, _scale(0.023), zero))
        along = (_scales(3, 1).reshape(wide), np.arange(3).astype(dtype).reshape(wide))
        yield Case("qnn.quantize", (x, *along), weights=(1, 2))
        stored = _bytes(dtype, (2, 3, 4, 5), 4)
        yield Case("qnn.dequantize", (stored, _scale(0.023), zero), weights=(1, 2))
        yield Case("qnn.dequantize", (stored, *along), weights=(1, 2))
        for target in BYTES:
            new = (_scale(0.031), np.asarray(3, target))
            operands = (stored, _scale(0.023), zero, *new)
            yield Case("qnn.requantize", operands, weights=(1, 2, 3, 4))
    bias = np.asarray([2**24 + 1, -7, 0], np.int32)
    yield Case("qnn.dequantize", (bias, _scale(0.5), np.asarray(0, np.int32)), weights=(1, 2))
    for dtype, made in product(BYTES, ("int8", "float32")):
        table = np.arange(256).astype(made)
        for shape in ((2, 3, 4, 5), (300,)):
            yield Case("qnn.lookup", (_bytes(dtype, shape, 5), table), weights=(1,))


def narrow_cases() -> Iterator[Case]:
    """Numbers of eight bits and fewer, as bytes and from them."""
    shapes = ((260,), (13, 20), (2, 10, 13), (2, 2, 5, 13))
    kinds = ("float32", "float16", "float64", "bfloat16", "int32")
    for number, (name, kind) in enumerate(product(sorted(NARROW), kinds)):
        shape = shapes[number % len(shapes)]
        is_integer = name in INTEGERS
        if kind == "int32" and not is_integer:
            continue
        x = np.random.default_rng(number).normal(0, 3 if is_integer else 90, shape)
        if not is_integer:
            x.reshape(-1)[:3] = (0.0, -np.inf, np.inf)
        x = (np.abs(x) if name == EXPONENTS else x).astype(numpy_dtype(DType(kind)))
        yield Case("narrow.encode", (x,), {"format": name})
        codes = np.arange(260).astype(np.uint8).reshape(shape)
        if is_integer:
            codes &= np.uint8((1 << INTEGERS[name]) - 1)
        dtype = DType("int8" if kind == "int32" else kind)
        yield Case("narrow.decode", (codes,), {"format": name, "dtype": dtype})


def linear_cases() -> Iterator[Case]:
    """Convolutions and products, with weights known and not."""
    for (x, w, strides, padding, dilation, groups), data, weight in product(
        CONVOLUTIONS, BYTES, BYTES
    ):
        attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        yield from _linear("conv", (data, x), (weight, w), w[0], attrs)
    for (a, b, flip_a, flip_b), data, weight in product(PRODUCTS, BYTES, BYTES):
        attrs = {"transpose_a": flip_a, "transpose_b": flip_b}
        yield from _linear("matmul", (data, a), (weight, b), b[-2 if flip_b else -1], attrs)


def _linear(
    name: str,
    data: tuple[str, tuple[int, ...]],
    weight: tuple[str, tuple[int, ...]],
    count: int,
    attrs: Mapping[str, object],
) -> Iterator[Case]:
    x, w = _bytes(*data, 6), _bytes(*weight, 7)
    x_zero, w_zero = np.asarray(5, x.dtype), np.asarray(w.dtype == np.uint8) * np.asarray(127)
    zeros = np.broadcast_to(w_zero, (count,)).astype(w.dtype)
    result = (_scale(0.11), np.asarray(30, x.dtype))
    bias = np.random.default_rng(8).integers(-5000, 5000, count).astype(np.int32)
    plain = (x, _scale(0.02), x_zero, w, _scale(0.003), w_zero.astype(w.dtype))
    vectors = (x, _scale(0.02), x_zero, w, _scales(count, 9), zeros)
    known = tuple(range(1, 9))
    yield Case(f"qnn.{name}", (*plain, *result, bias), attrs, weights=known)
    yield Case(f"qnn.{name}", (*vectors, *result), attrs, weights=known[:-1])
    yield Case(f"qnn.{name}", (*vectors, *result, bias), attrs)
    yield Case(f"qnn.{name}_integer", (x, x_zero, w, zeros), attrs, weights=(1, 2, 3))
    yield Case(f"qnn.{name}_integer", (x, x_zero, w, w_zero.astype(w.dtype)), attrs)


def transposed_cases() -> Iterator[Case]:
    """Transposed convolutions, with weights known and not."""
    result = (_scale(0.11), np.asarray(30, np.uint8))
    for (x, w, strides, padding, groups), data, weight in product(TRANSPOSED, BYTES, BYTES):
        ones = (1,) * len(strides)
        attrs = {"strides": strides, "padding": padding, "dilation": ones, "groups": groups}
        count = w[1] * groups
        bias = np.random.default_rng(8).integers(-5000, 5000, count).astype(np.int32)
        first = (_bytes(data, x, 6), _scale(0.02), np.asarray(5, data))
        zero = np.asarray(0, weight)
        plain = (*first, _bytes(weight, w, 7), _scale(0.003), zero, *result, bias)
        yield Case("qnn.conv_transpose", plain, attrs, weights=tuple(range(1, 9)))
        if groups == 1:
            vectors = (*first, _bytes(weight, w, 7), _scales(count, 9), zero, *result)
            yield Case("qnn.conv_transpose", vectors, attrs)


def normalization_cases() -> Iterator[Case]:
    """Softmax and layer normalization."""
    for dtype, axis in product(BYTES, (1, 2)):
        first = (_bytes(dtype, (2, 3, 8), 13), _scale(0.03), np.asarray(9, dtype))
        small = (_scale(1 / 256), np.asarray(0 if dtype == "uint8" else -128, dtype))
        known = (1, 2, 3, 4)
        yield Case("qnn.softmax", (*first, *small), {"axis": axis}, weights=known)
        shape = (2, 3, 8)[axis:]
        affine = tuple(
            np.random.default_rng(n).normal(1, 0.1, shape).astype(np.float32) for n in (1, 2)
        )
        result = (_scale(0.03), np.asarray(5, dtype))
        for rest in (affine, affine[:1]):
            operands = (*first, *result, *rest)
            yield Case("qnn.layer_norm", operands, {"axis": axis}, weights=(*known, 5))


def element_cases() -> Iterator[Case]:
    """Sums, differences, products and means."""
    shapes = (((2, 3, 4, 5), (2, 3, 4, 5)), ((2, 3, 4), (3, 1)), ((7,), ()))
    result = (_scale(0.0613), np.asarray(30, np.uint8))
    for (one, two), dtype in product(shapes, BYTES):
        first = (_bytes(dtype, one, 10), _scale(0.0201), np.asarray(9, dtype))
        second = (_bytes("int8", two, 11), _scale(0.0307), np.asarray(-4, np.int8))
        for name in ("add", "subtract", "multiply"):
            operands = (*first, *second, *result)
            yield Case(f"qnn.{name}", operands, weights=(1, 2, 4, 5, 6, 7))
    window = {"kernel": (3, 2), "strides": (2, 1), "dilation": (1, 1)}
    for dtype in BYTES:
        first = (_bytes(dtype, (2, 6, 7, 5), 12), _scale(0.0613), np.asarray(9, dtype))
        for axes, keepdims in product(((2, 3), (1,)), (False, True)):
            attrs: dict[str, object] = {"axes": axes, "keepdims": keepdims}
            yield Case("qnn.mean", (*first, *result), attrs, weights=(1, 2, 3, 4))
        for counted in (False, True):
            attrs = {**window, "padding": ((1, 1), (0, 1)), "count_include_pad": counted}
            yield Case("qnn.avg_pool", (*first, *result), attrs, weights=(1, 2, 3, 4))
