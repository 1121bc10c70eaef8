# SPDX-License-Identifier: Apache-2.0
"""Weights that were left to be computed, for a program that runs in this process."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from intarsia_ir.writing.deferred import DeferredArray, Weights
from intarsia_runtime.threads import available_threads

_LEAST_SHARED = 4 << 20  # bytes that take some milliseconds


def compute_all(weights: Weights) -> None:
    """Compute weights that are deferred.

    Large ones keep all processors busy: NumPy lets other threads run while it copies.

    Raises:
        MemoryError: There is not enough for their content.
    """
    arrays = [array for array in weights.contents.values() if isinstance(array, DeferredArray)]
    waiting: SimpleQueue[DeferredArray] = SimpleQueue()
    for array in sorted(arrays, key=_bytes, reverse=True):
        waiting.put(array)
    failed: list[BaseException] = []

    def work() -> None:
        with suppress(Empty):
            while not failed:
                array = waiting.get_nowait()
                try:
                    array.array()
                except BaseException as error:
                    failed.append(error)

    shared = sum(map(_bytes, arrays)) >= _LEAST_SHARED
    count = min(available_threads(), len(arrays)) - 1 if shared else 0
    others = [threading.Thread(target=work) for _ in range(count)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]


def _bytes(array: DeferredArray) -> int:
    return array.nbytes
