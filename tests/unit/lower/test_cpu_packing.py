# SPDX-License-Identifier: Apache-2.0
"""Weights are packed the same by one thread and by several."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from intarsia.lower.cpu import packing
from intarsia.lower.cpu.packing import (
    Filling,
    conv_filling,
    dense_filling,
    depthwise_filling,
    fill_all,
    pack_conv,
    pack_dense,
    pack_depthwise,
    pack_winograd,
    unpack_conv,
    unpack_dense,
    unpack_depthwise,
    unpack_winograd,
    winograd_filling,
)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_are_filled(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(packing, "available_threads", lambda: threads)
    monkeypatch.setattr(packing, "_LEAST_SHARED", 0)
    taps, plane, matrix = weights(20, 5, 3, 3), weights(6, 1, 3, 2), weights(7, 21)
    grouped = [conv_filling(taps, groups, 8) for groups in (1, 2, 4)]
    others = [
        winograd_filling(taps, 8),
        depthwise_filling(plane),
        dense_filling(matrix, 8),
        dense_filling(matrix.T, 8),
    ]
    for filling in (*grouped, *others):
        filling.array[...] = np.nan
    fill_all([*grouped, *others])
    for filling, groups in zip(grouped, (1, 2, 4), strict=True):
        np.testing.assert_array_equal(filling.array, pack_conv(taps, groups, 8))
        np.testing.assert_array_equal(unpack_conv(filling.array, 20, (3, 3), groups), taps)
    np.testing.assert_array_equal(others[0].array, pack_winograd(taps, 8))
    np.testing.assert_allclose(unpack_winograd(others[0].array, 20), taps, atol=1e-6)
    np.testing.assert_array_equal(others[1].array, pack_depthwise(plane))
    np.testing.assert_array_equal(unpack_depthwise(others[1].array), plane)
    np.testing.assert_array_equal(others[2].array, pack_dense(matrix, 8))
    np.testing.assert_array_equal(unpack_dense(others[2].array, 21), matrix)
    np.testing.assert_array_equal(unpack_dense(others[3].array, 7), matrix.T)
    assert not np.isnan(others[3].array).any()


def test_few_bytes_are_filled_by_the_thread_that_asks() -> None:
    found: list[threading.Thread] = []

    def fill() -> None:
        found.append(threading.current_thread())

    fill_all([Filling(np.empty(3), fill) for _ in range(4)])
    assert found == [threading.main_thread()] * 4


@pytest.mark.parametrize("threads", [1, 3])
def test_a_filling_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(packing, "available_threads", lambda: threads)
    monkeypatch.setattr(packing, "_LEAST_SHARED", 0)

    def refuse() -> None:
        raise MemoryError("no room")

    fills: list[Callable[[], None]] = [refuse] * 9
    with pytest.raises(MemoryError, match="no room"):
        fill_all([Filling(np.empty(3), fill) for fill in fills])
