# SPDX-License-Identifier: Apache-2.0
"""The best of many elements, by a threshold or, where there is none, by a heap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.ops.selection import TopK
from intarsia_ir.ops.threshold import shortest
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.dtype import DType


def best(x: np.ndarray, count: int, *, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    attrs = TopK.Attrs(count=count, axis=1, largest=largest)
    kernel = TopK.loops(attrs, TensorType(x.shape, DType(x.dtype.name)))
    verify_func(kernel)
    values = np.zeros((len(x), count), x.dtype)
    places = np.zeros((len(x), count), np.int64)
    run(kernel, x, values, places)
    return values, places


def drawn(size: int, seed: int, kind: str) -> np.ndarray:
    """Numbers that differ, that are often equal, or some of which are special."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, size)).astype(np.float32)
    if kind == "equal":
        return np.round(x * 4)
    if kind == "special":
        x[0, rng.integers(0, size, 5)] = [np.nan, np.inf, -np.inf, np.nan, 0.0]
    return x


@settings(deadline=None, max_examples=12)
@given(
    size=st.integers(256, 400),
    count=st.integers(32, 64),
    seed=st.integers(0, 99),
    largest=st.booleans(),
    kind=st.sampled_from(["different", "equal", "special"]),
)
def test_the_best_of_many(size: int, count: int, seed: int, largest: bool, kind: str) -> None:
    x = drawn(size, seed, kind)
    least = shortest(DType.FLOAT32, count)
    assert least is not None
    assert least <= size
    values, places = best(x, count, largest=largest)
    wanted = TopK.reference(TopK.Attrs(count=count, axis=1, largest=largest), x)
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(places, wanted[1])


def test_equal_elements_that_all_pass_keep_their_order() -> None:
    x = np.zeros((2, 256), np.float32)
    x[:, 7:39] = np.repeat([3, 1, 2, 1], 8)
    values, places = best(x, 32, largest=True)
    assert values[0].tolist() == [3] * 8 + [2] * 8 + [1] * 16
    assert places[1].tolist() == [*range(7, 15), *range(23, 31), *range(15, 23), *range(31, 39)]


@pytest.mark.parametrize(
    ("dtype", "count", "wanted"),
    [
        (DType.FLOAT32, 300, 1200),
        (DType.FLOAT64, 32, 256),
        (DType.FLOAT16, 300, None),
        (DType.INT32, 300, None),
        (DType.FLOAT32, 5, None),
        (DType.FLOAT32, 1000, None),
        (DType.FLOAT32, variable("K"), None),
    ],
)
def test_where_a_threshold_pays(dtype: DType, count: Size, wanted: int | None) -> None:
    assert shortest(dtype, count) == wanted
