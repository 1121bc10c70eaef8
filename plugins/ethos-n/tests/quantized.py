# SPDX-License-Identifier: Apache-2.0
"""Quantized expressions, regions of them, and what the operators' own definitions give."""

from __future__ import annotations

import numpy as np

from intarsia_ethos_n.support import support_table
from intarsia_ethos_n.target import EthosNOptions
from intarsia_ir.graph.expr import Call, Constant, Expr, constant
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support
from intarsia_testkit.expressions import apply, function_of, whole_region
from intarsia_testkit.quantized_expressions import scale, zero

KEPT = ((1, 1), (1, 1))
WINDOW = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def conv(x: Expr, weight: Constant, *, dtype: str = "int8", **attrs: object) -> Call:
    """Return a convolution with strides, padding and dilation of 1, 0 and 1 where not given.

    ``w_scale``, ``to`` (the result's scale), ``zeros`` and ``bias`` are for its operands.
    """
    w_scale, to = attrs.pop("w_scale", scale(0.01)), attrs.pop("to", 0.9)
    zeros, bias = attrs.pop("zeros", (3, 7)), attrs.pop("bias", True)
    w_zero = zero(attrs.pop("w_zero", 0), weight.data.dtype.name)
    biases = constant(np.arange(weight.data.shape[0], dtype=np.int32) * 100 - 300)
    result = (scale(to), zero(zeros[1], dtype))
    operands = (x, scale(0.05), zero(zeros[0], dtype), weight, w_scale, w_zero, *result)
    return apply("qnn.conv", *operands, *([biases] if bias else []), **(WINDOW | attrs))


def conv_transpose(x: Expr, weight: Constant, **attrs: object) -> Call:
    """Return a transposed convolution with strides of 2 where not given; ``to`` is its scale."""
    w_scale, to = attrs.pop("w_scale", scale(0.01)), attrs.pop("to", 0.9)
    operands = (x, scale(0.05), zero(3), weight, w_scale, zero(0), scale(to), zero(7))
    biases = constant(np.arange(weight.data.shape[1], dtype=np.int32) * 100 - 300)
    return apply("qnn.conv_transpose", *operands, biases, **(WINDOW | {"strides": (2, 2)} | attrs))


def product(x: Expr, weight: Constant, **attrs: object) -> Call:
    """Return a product of rows with constant weights."""
    count = weight.data.shape[0 if attrs.get("transpose_b") else 1]
    w_scale = attrs.pop("w_scale", scale(0.02))
    operands = (x, scale(0.3), zero(1), weight, w_scale, zero(0), scale(0.7), zero(2))
    return apply("qnn.matmul", *operands, constant(np.arange(count, dtype=np.int32)), **attrs)


def binary(name: str, a: Expr, b: Expr) -> Call:
    """Return a sum or product of two tensors."""
    pairs = (a, scale(0.1), zero(4), b, scale(0.03), zero(-7))
    return apply(name, *pairs, scale(0.12), zero(9))


def averaged(x: Expr, kernel: int, *, to: float = 0.1, **attrs: object) -> Call:
    """Return a mean of windows."""
    parameters = (scale(0.1), zero(4), scale(to), zero(4))
    window = WINDOW | {"kernel": (kernel, kernel)} | attrs
    return apply("qnn.avg_pool", x, *parameters, **window)


def mean(x: Expr, *axes: int, to: float = 0.1, keepdims: bool = True) -> Call:
    """Return a mean over axes."""
    parameters = (scale(0.1), zero(4), scale(to), zero(4))
    return apply("qnn.mean", x, *parameters, axes=axes, keepdims=keepdims)


def pooled(x: Expr, kernel: int, stride: int, **attrs: object) -> Call:
    """Return the largest of windows."""
    window = WINDOW | {"kernel": (kernel, kernel), "strides": (stride, stride)} | attrs
    return apply("nn.max_pool", x, **window)


def verdict(body: Call, **options: object) -> Support:
    """Return what the plugin says of the last operator."""
    table = support_table(EthosNOptions(**options))
    return annotate(function_of(body), [("ethos-n", table)]).verdicts[body][0]


def region_of(body: Expr) -> Region:
    """Return the whole function as a region; every call must be taken."""
    return whole_region(function_of(body), "ethos-n", support_table(EthosNOptions()))
