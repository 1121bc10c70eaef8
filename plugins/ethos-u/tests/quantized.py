# SPDX-License-Identifier: Apache-2.0
"""Quantized expressions, regions of them, and what the operators' own definitions give."""

from __future__ import annotations

import numpy as np

from intarsia_ethos_u.codegen import emit
from intarsia_ethos_u.support import TABLE
from intarsia_ethos_u.tosa.execute import execute
from intarsia_ir.graph.expr import Call, Constant, Expr, constant
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support
from intarsia_testkit.expressions import apply, expected, function_of, whole_region
from intarsia_testkit.quantized_expressions import inputs_for, scale, zero


def conv(
    x: Expr,
    weight: Constant,
    *,
    zeros: tuple[int, int] = (3, -5),
    scales: tuple[float, float] = (0.05, 0.9),
    w_scale: Constant | None = None,
    bias: bool = True,
    w_zero: int = 0,
    dtype: str = "int8",
    **attrs: object,
) -> Call:
    """Return a convolution with strides, padding and dilation of 1, 0 and 1 where not given."""
    window = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    channels = weight.data.shape[0]
    biases = np.arange(channels, dtype=np.int32) * 100 - 300
    operands = [
        x,
        scale(scales[0]),
        zero(zeros[0], dtype),
        weight,
        scale(0.01) if w_scale is None else w_scale,
        zero(w_zero, weight.data.dtype.name),
        scale(scales[1]),
        zero(zeros[1], dtype),
        *([constant(biases)] if bias else []),
    ]
    return apply("qnn.conv", *operands, **(window | attrs))


def verdict(body: Call) -> Support:
    """Return what the plugin says of the last operator."""
    return annotate(function_of(body), [("ethos-u", TABLE.support())]).verdicts[body][0]


def region_of(body: Expr) -> Region:
    """Return the whole function as a region; every call must be taken."""
    return whole_region(function_of(body), "ethos-u", TABLE.support())


def differences(body: Expr) -> np.ndarray:
    """Return how far the program's results are from the operators' definitions, in quanta."""
    region = region_of(body)
    program, constants = emit(region)
    arrays = inputs_for(region.function)
    found = execute(program, constants, arrays)
    right = expected(region.function, arrays)
    for mine, theirs in zip(found, right, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
    pairs = zip(found, right, strict=True)
    return np.concatenate([(a.astype(int) - b.astype(int)).reshape(-1) for a, b in pairs])
