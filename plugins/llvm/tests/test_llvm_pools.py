# SPDX-License-Identifier: Apache-2.0
"""Pools in the model's layout, whose strides of two read halves of pairs of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_testkit.expressions import apply, expected, function_of, var

WINDOWS = {
    "3x3 by 2": {"kernel": (3, 3), "strides": (2, 2), "padding": ((1, 1),) * 2},
    "2x2 by 2": {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0),) * 2},
    "5x4 by 1": {"kernel": (5, 4), "strides": (1, 1), "padding": ((2, 2), (1, 2))},
    "3x2 by 3": {"kernel": (3, 2), "strides": (1, 3), "padding": ((0, 1), (1, 0))},
}


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("max_pool", "float32"),
        ("max_pool", "int8"),
        ("max_pool", "float64"),
        ("avg_pool", "float32"),
    ],
)
def test_pools_of_planes(runner, name, dtype, window, options):
    for columns in (5, 38, 71):
        x = var("x", 2, 3, 10, columns, dtype=dtype)
        function = function_of(apply(f"nn.{name}", x, **WINDOWS[window], dilation=(1, 1)))
        drawn = np.random.default_rng(columns).integers(-99, 99, (2, 3, 10, columns))
        values = drawn.astype(dtype)
        (got,), changed, _ = runner(function, values, **options)
        assert changed.body.name == f"cpu.plane_{name}"
        (want,) = expected(function, [values])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
