# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution in machine code, with all that may lie behind the last whole tile."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.walk import calls
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

SAME = ((1, 1), (1, 1))


def function(batch, channels, outputs, size, padding):
    x = var("x", batch, channels, *size)
    attrs = {"strides": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
    made = apply("nn.conv", x, weight(outputs, channels, 3, 3), weight(outputs, seed=3), **attrs)
    return function_of(apply("nn.relu", apply("add", made, made)))


@pytest.mark.parametrize(
    ("batch", "channels", "outputs", "size", "padding"),
    [
        (1, 32, 32, (12, 12), SAME),
        (1, 64, 48, (13, 11), SAME),
        (2, 40, 36, (15, 14), ((0, 0), (0, 0))),
        (1, 33, 50, (12, 17), ((1, 2), (0, 1))),
        (1, 32, 33, (20, 9), ((2, 0), (2, 2))),
        (1, 256, 32, (40, 41), SAME),
        (1, 64, 90, (60, 30), SAME),
    ],
    ids=[
        "whole",
        "odd",
        "no padding",
        "uneven padding",
        "wide padding",
        "bands",
        "bands of blocks",
    ],
)
def test_it_computes_the_convolution(runner, batch, channels, outputs, size, padding) -> None:
    plain = function(batch, channels, outputs, size, padding)
    x = fresh(batch, channels, *size)
    (got,), changed, _ = runner(plain, x)
    assert "cpu.winograd" in [node.name for node in calls(changed)]
    (want,) = expected(plain, [x])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * float(np.abs(want).max()))


def test_an_option_leaves_plain_sums(runner) -> None:
    plain = function(1, 32, 32, (12, 12), SAME)
    x = fresh(1, 32, 12, 12)
    (got,), changed, _ = runner(plain, x, winograd=False)
    assert "cpu.conv" in [node.name for node in calls(changed)]
    np.testing.assert_allclose(got, expected(plain, [x])[0], rtol=1e-4, atol=1e-4)
