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
SMALL = (64, 1000)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def memory_for(*shapes: tuple[int, ...]) -> ResultMemory:
    memory = ResultMemory()
    assert memory.fitted([("y", shape, F32) for shape in shapes]) is memory
    return memory


def test_small_results_are_new_arrays() -> None:
    assert ResultMemory().fitted([("y", SMALL, F32)]) is None
    memory = memory_for(SMALL, LARGE)
    assert memory.empty(SMALL, F32).flags.owndata


def test_a_result_that_nobody_holds_gives_its_memory_to_the_next() -> None:
    memory = memory_for(LARGE)
    first = memory.empty(LARGE, F32)
    assert first.shape == LARGE
    assert first.dtype == np.float32
    place = address(first)
    assert address(memory.empty(LARGE, F32)) != place  # the first one is held
    del first
    assert address(memory.empty((1, *LARGE), F32)) == place


def test_a_view_holds_the_memory_of_its_result() -> None:
    memory = memory_for(LARGE)
    corner = memory.empty(LARGE, F32)[0, :2, :2]
    corner[...] = 7
    memory.empty(LARGE, F32)[...] = 1
    memory.empty(LARGE, F32)[...] = 2
    assert (corner == 7).all()


def test_a_loop_that_holds_the_last_results_needs_two_blocks_for_each() -> None:
    memory = memory_for(LARGE, LARGE)
    places: set[int] = set()
    results = [memory.empty(LARGE, F32) for _ in range(2)]
    for _ in range(6):
        results = [memory.empty(LARGE, F32) for _ in range(2)]
        places.update(map(address, results))
    (blocks,) = memory.blocks.values()
    assert len(places) == len(blocks) == 4


def test_a_cache_that_grows_by_a_row_stays_where_it_is() -> None:
    memory = ResultMemory()
    places: set[int] = set()
    for rows in range(900, 950):
        assert memory.fitted([("cache", (1, 8, rows, 64), F32)]) is memory
        places.add(address(memory.empty((1, 8, rows, 64), F32)))
    assert len(places) == 1
    assert memory.fitted([("cache", (1, 8, 2000, 64), F32)]) is memory
    assert not any(memory.blocks.values())  # those of other sizes are not kept


def test_huge_results_are_not_kept() -> None:
    assert ResultMemory().fitted([("y", (1 << 28,), F32)]) is None  # 1 GiB


def test_threads_never_share_a_result() -> None:
    memory, wrong = memory_for(LARGE), []

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
