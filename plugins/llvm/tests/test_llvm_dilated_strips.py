# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose strips are one row of results, with rows of the input apart."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_testkit.expressions import apply, expected, function_of, var


@pytest.mark.parametrize("cpu", ["native", "haswell"])
@pytest.mark.parametrize(
    ("size", "stride", "dilation", "padding"),
    [(33, 1, 12, (12, 12)), (33, 1, 18, (18, 18)), (40, 2, 9, (9, 5)), (39, 1, 16, (0, 0)),
     (21, 1, 25, (30, 26))],
)  # fmt: skip
def test_dilated_windows(runner, size, stride, dilation, padding, cpu):
    x, weight = var("x", 1, 96, size, size), var("weight", 32, 96, 3, 3)
    attrs = {"strides": (stride,) * 2, "padding": (padding,) * 2, "dilation": (dilation,) * 2}
    function = function_of(apply("nn.conv", x, weight, groups=1, **attrs))
    drawn = np.random.default_rng(dilation)
    shapes = ((1, 96, size, size), (32, 96, 3, 3))
    values = [drawn.standard_normal(shape).astype(np.float32) for shape in shapes]
    (got,), _, _ = runner(function, *values, mcpu=cpu)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("cpu", ["native", "haswell"])
@pytest.mark.parametrize(
    ("size", "stride", "dilation", "groups"),
    [((9, 40), (1, 1), (1, 19), 1), ((40, 33), (1, 1), (17, 12), 1),
     ((30, 31), (2, 3), (11, 13), 1), ((7, 50), (1, 2), (6, 24), 3)],
)  # fmt: skip
def test_taps_that_only_meet_padding_are_left_out(runner, size, stride, dilation, groups, cpu):
    x, weight = var("x", 2, 12, *size), var("weight", 30, 12 // groups, 3, 3)
    attrs = {"strides": stride, "padding": tuple((d, d) for d in dilation), "dilation": dilation}
    function = function_of(apply("nn.conv", x, weight, groups=groups, **attrs))
    drawn = np.random.default_rng(dilation[0])
    shapes = ((2, 12, *size), (30, 12 // groups, 3, 3))
    values = [drawn.standard_normal(shape).astype(np.float32) for shape in shapes]
    (got,), _, lowered = runner(function, *values, mcpu=cpu)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
    assert "low1" in "".join(map(str, lowered.module.functions))
