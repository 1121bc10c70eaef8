# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of planes, whose steps of two read halves of pairs of vectors."""

from __future__ import annotations

import numpy as np
import pytest

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
