# SPDX-License-Identifier: Apache-2.0
"""Softmax along rows of any length, by vectors of every width."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import constant
from intarsia_testkit.expressions import apply, expected, function_of, var


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rows(runner, name, dtype, options):
    for shape in ((100, 10), (37, 31), (3, 64), (2, 5, 129), (1, 5000), (2, 3)):
        x = var("x", *shape, dtype=dtype)
        function = function_of(apply(name, x, axis=len(shape) - 1))
        values = (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)
        values.reshape(-1)[7 % values.size] = np.inf if dtype == "float64" else -np.inf
        (got,), _, _ = runner(function, values, **options)
        (want,) = expected(function, [values])
        close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 2e-6, "atol": 5e-7}
        np.testing.assert_allclose(got, want, **close)


@pytest.mark.parametrize("size", [16, 40, 64, 129])
def test_a_table_behind_a_softmax(runner, size):
    """Places in a table are computed: loads of such have no vectors."""
    x = var("x", 6, size)
    scale, zero = constant(np.float32(1 / 255)), constant(np.array(3, np.uint8))
    levels = apply("qnn.quantize", apply("nn.softmax", x, axis=1), scale, zero)
    table = constant(np.arange(256, dtype=np.uint8)[::-1].copy())
    function = function_of(apply("qnn.lookup", levels, table))
    values = (np.random.default_rng(0).standard_normal((6, size)) * 3).astype(np.float32)
    (got,), _, _ = runner(function, values)
    (want,) = expected(function, [values])
    assert np.unique(want).size > 4
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
