# SPDX-License-Identifier: Apache-2.0
"""Products whose results do not stay in a cache: in long pieces, and many columns side by side."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

POINT = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize(("size", "outputs"), [((61, 53), 96), ((57, 40), 128)])
@pytest.mark.parametrize("later", [False, True], ids=["planes", "channels last"])
def test_convolutions_of_points(runner, size, outputs, later) -> None:
    x = var("x", 1, 12, *size)
    before = apply("nn.conv", x, weight(12, 12, 3, 3), **(POINT | {"padding": ((1, 1), (1, 1))}))
    body = apply("nn.conv", before if later else x, weight(outputs, 12, 1, 1), **POINT)
    plain = function_of(apply("nn.relu", apply("add", body, weight(outputs, 1, 1, seed=3))))
    given = fresh(1, 12, *size)
    (got,), _, _ = runner(plain, given)
    np.testing.assert_allclose(got, expected(plain, [given])[0], rtol=1e-5, atol=1e-4)


def test_products_of_two_matrices_of_run_time(runner) -> None:
    a, b = var("a", 2, 40, 24), var("b", 2, 24, 3104)
    plain = function_of(apply("matmul", a, b))
    left, right = fresh(2, 40, 24), fresh(2, 24, 3104)
    (got,), _, _ = runner(plain, left, right)
    np.testing.assert_allclose(got, left @ right, rtol=1e-5, atol=1e-5)
