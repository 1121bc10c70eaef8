# SPDX-License-Identifier: Apache-2.0
"""Memory of large results is used again, as soon as nobody holds what was computed there."""

from __future__ import annotations

import threading

import numpy as np

from intarsia_runtime.abi import array_dtype
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.memory import ResultMemory

F32 = array_dtype(TensorSpec("y", (1,), DType.FLOAT32))
LARGE = (3, 1024, 4096)  # 48 MiB
SMALL = (1024, 1024)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_small_results_are_new_arrays() -> None:
    memory = ResultMemory()
    assert memory.if_large([("y", SMALL, F32)]) is None
    assert memory.empty(SMALL, F32).flags.owndata
    assert not memory.blocks


def test_a_result_that_nobody_holds_gives_its_memory_to_the_next() -> None:
    memory = ResultMemory()
    assert memory.if_large([("x", SMALL, F32), ("y", LARGE, F32)]) is memory
    first = memory.empty(LARGE, F32)
    assert first.shape == LARGE
    assert first.dtype == np.float32
    place = address(first)
    assert address(memory.empty(LARGE, F32)) != place  # the first one is held
    del first
    assert address(memory.empty((1, *LARGE), F32)) == place


def test_a_view_holds_the_memory_of_its_result() -> None:
    memory = ResultMemory()
    corner = memory.empty(LARGE, F32)[0, :2, :2]
    corner[...] = 7
    memory.empty(LARGE, F32)[...] = 1
    memory.empty(LARGE, F32)[...] = 2
    assert (corner == 7).all()


def test_a_loop_that_holds_the_last_result_needs_two_blocks() -> None:
    memory = ResultMemory()
    places: set[int] = set()
    result = memory.empty(LARGE, F32)
    for _ in range(6):
        result = memory.empty(LARGE, F32)
        places.add(address(result))
    assert len(places) == len(memory.blocks) == 2


def test_results_of_many_sizes_and_huge_ones_are_not_kept() -> None:
    memory = ResultMemory()
    for rows in range(3, 12):
        memory.empty((rows, *LARGE[1:]), F32)
    assert len(memory.blocks) == 4
    assert memory.empty((1 << 28,), F32).flags.owndata  # 1 GiB


def test_threads_never_share_a_result() -> None:
    memory, wrong = ResultMemory(), []

    def run(mark: int) -> None:
        for _ in range(200):
            result = memory.empty(LARGE, F32)
            result[0, 0, :8] = mark
            if not (result[0, 0, :8] == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=run, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
