# SPDX-License-Identifier: Apache-2.0
"""Weights of bytes split in narrow pairs and corrections."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.cpu.corrections import narrowed, pack_corrected, unpack_corrected
from intarsia_loops.cpu.int8x4 import has_narrow_pairs


def drawn(kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    rng = np.random.default_rng(len(kind))
    if kind == "any":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if kind == "extremes":
        return rng.choice([-128, -127, 0, 127], shape).astype(np.int8)
    return np.clip(np.rint(28 * rng.standard_normal(shape)), -128, 127).astype(np.int8)


@pytest.mark.parametrize("kind", ["any", "extremes", "normal"])
def test_narrow_weights_and_the_rest_are_the_weights(kind: str) -> None:
    weight = drawn(kind, (3, 64, 16))
    small, rest = narrowed(weight)
    np.testing.assert_array_equal(small.astype(int) + rest, weight)
    assert has_narrow_pairs(small, 1)
    assert has_narrow_pairs(rest, 1)


def test_few_corrections_are_undone() -> None:
    weight = drawn("normal", (5, 256, 16))
    packed, count = pack_corrected(weight) or pytest.fail("too many corrections")
    assert 0 < count <= 0.3 * 64
    assert packed.shape == (5, 64 + count + -(-count // 16), 16)
    np.testing.assert_array_equal(unpack_corrected(packed, 64, count), weight)


def test_weights_that_need_many_corrections_get_none() -> None:
    assert pack_corrected(drawn("any", (2, 64, 16))) is None


def test_weights_that_need_none_have_no_places() -> None:
    weight = np.full((2, 64, 16), 64, np.int8)
    packed, count = pack_corrected(weight) or pytest.fail("too many corrections")
    assert (count, packed.shape) == (0, (2, 16, 16))
