# SPDX-License-Identifier: Apache-2.0
"""Weights that were left to be computed: the same by one thread and by several."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from intarsia.driver import compute_weights
from intarsia.driver.compute_weights import compute_all
from intarsia_ir.writing.deferred import DeferredArray, Weights


def numbers(value: int, found: list[threading.Thread]) -> DeferredArray:
    """Three elements of one value."""

    def fill(array: np.ndarray) -> None:
        found.append(threading.current_thread())
        array[...] = value

    return DeferredArray((3,), np.dtype(np.int64), fill)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_are_computed_once(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(compute_weights, "available_threads", lambda: threads)
    monkeypatch.setattr(compute_weights, "_LEAST_SHARED", 0)
    calls: list[threading.Thread] = []
    weights = Weights({str(n): numbers(n, calls) for n in range(9)} | {"plain": np.arange(3)})
    compute_all(weights)
    assert len(calls) == 9
    assert [weights[str(n)].tolist() for n in range(9)] == [[n] * 3 for n in range(9)]
    assert weights["plain"].tolist() == [0, 1, 2]
    assert len(calls) == 9


def test_few_bytes_are_computed_by_the_thread_that_asks() -> None:
    calls: list[threading.Thread] = []
    compute_all(Weights({str(n): numbers(n, calls) for n in range(4)}))
    assert calls == [threading.main_thread()] * 4


@pytest.mark.parametrize("threads", [1, 3])
def test_one_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(compute_weights, "available_threads", lambda: threads)
    monkeypatch.setattr(compute_weights, "_LEAST_SHARED", 0)

    def refuse(_: np.ndarray) -> None:
        raise MemoryError("no room")

    arrays = {str(n): DeferredArray((3,), np.dtype(np.float32), refuse) for n in range(9)}
    with pytest.raises(MemoryError, match="no room"):
        compute_all(Weights(arrays))
