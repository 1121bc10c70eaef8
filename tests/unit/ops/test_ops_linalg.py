# SPDX-License-Identifier: Apache-2.0
"""Factorizations of matrices against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(41)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 2), (4, 1, 1), (2, 3, 5, 5), (3, 0, 0), (0, 2, 2)])
def test_determinants_and_inverses(check_operator, shape, dtype) -> None:
    x = RNG.uniform(-1, 1, shape).astype(dtype)
    check_operator(np.asarray(np.linalg.det(x)), "determinant", x)
    x = x + 3 * np.eye(shape[-1], dtype=dtype)
    check_operator(np.linalg.inv(x), "inverse", x)


def test_rows_change_places_where_the_diagonal_is_zero(check_operator) -> None:
    x = np.float32([[[0, 2], [4, 0]], [[0, 1], [0, 3]]])
    check_operator(np.float32([-8, 0]), "determinant", x)
    check_operator(np.float32([[0, 0.25], [0.5, 0]]), "inverse", x[0])
