# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of planes, whose steps of two read halves of pairs of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.walk import calls
from intarsia_testkit.expressions import apply, expected, function_of, var

WINDOWS = {
    "3x3": ((3, 3), {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1)}),
    "7x7": ((7, 7), {"strides": (1, 1), "padding": ((3, 3),) * 2, "dilation": (1, 1)}),
    "5x5 by 2": ((5, 5), {"strides": (2, 2), "padding": ((2, 2),) * 2, "dilation": (1, 1)}),
    "3x4 by 2": ((3, 4), {"strides": (1, 2), "padding": ((0, 1), (2, 0)), "dilation": (2, 3)}),
}


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("window", WINDOWS)
def test_depthwise_convolutions_of_planes(runner, window, options):
    kernel, attrs = WINDOWS[window]
    for columns in (28, 38, 71):
        x, weight = var("x", 2, 3, 20, columns), var("weight", 3, 1, *kernel)
        function = function_of(apply("nn.conv", x, weight, groups=3, **attrs))
        drawn = np.random.default_rng(columns)
        values = [
            drawn.standard_normal(shape).astype(np.float32)
            for shape in ((2, 3, 20, columns), (3, 1, *kernel))
        ]
        (got,), changed, _ = runner(function, *values, **options)
        assert changed.body.name == "cpu.plane_depthwise"
        (want,) = expected(function, values)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("columns", [4, 8, 16])
def test_one_tap_for_each_of_few_columns(runner, columns, options):
    """LLVM aborted on the shuffles of rows of half a vector."""
    x, weight = var("x", 2, 4, 1, columns), var("weight", 4, 1, 1, 1)
    attrs = {"strides": (1, 1), "padding": ((0, 0),) * 2, "dilation": (1, 1)}
    function = function_of(apply("nn.conv", x, weight, groups=4, **attrs))
    drawn = np.random.default_rng(columns)
    values = [
        drawn.standard_normal(s).astype(np.float32) for s in ((2, 4, 1, columns), (4, 1, 1, 1))
    ]
    (got,), _, _ = runner(function, *values, **options)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("columns", [4, 5, 7, 11])
@pytest.mark.parametrize("stride", [1, 2])
def test_planes_narrower_than_a_vector(runner, stride, columns, options):
    size = stride * columns
    attrs = {"strides": (stride,) * 2, "padding": ((1, 1),) * 2, "dilation": (1, 1)}
    x, weight = var("x", 1, 5, size, size), var("weight", 5, 1, 3, 3)
    function = function_of(apply("nn.conv", x, weight, groups=5, **attrs))
    drawn = np.random.default_rng(columns)
    values = [
        drawn.standard_normal(s).astype(np.float32) for s in ((1, 5, size, size), (5, 1, 3, 3))
    ]
    (got,), _, _ = runner(function, *values, **options)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize(
    ("length", "taps", "dilation", "name"),
    [(160, 3, 1, "plane_depthwise"), (163, 3, 64, "plane_depthwise"), (40, 9, 2, "plane_depthwise"),
     (160, 31, 1, "depthwise"), (9000, 3, 1, "depthwise")],
)  # fmt: skip
def test_depthwise_convolutions_of_lines(runner, length, taps, dilation, name, options):
    pad = taps // 2 * dilation
    x, weight = var("x", 2, 3, length), var("weight", 3, 1, taps)
    attrs = {"strides": (1,), "padding": ((pad, pad),), "dilation": (dilation,), "groups": 3}
    function = function_of(apply("nn.conv", x, weight, **attrs))
    drawn = np.random.default_rng(length)
    values = [drawn.standard_normal(s).astype(np.float32) for s in ((2, 3, length), (3, 1, taps))]
    (got,), changed, _ = runner(function, *values, **options)
    assert f"cpu.{name}" in [node.name for node in calls(changed)]
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
