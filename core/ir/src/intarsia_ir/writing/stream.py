# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way into a file: computed and hashed by one thread, written by another."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from intarsia_runtime.artifact.digest import MemberDigest
from intarsia_runtime.artifact.tensors import array_bytes

from .deferred import DeferredArray, Piece, memory_for

if TYPE_CHECKING:
    import numpy as np

THREADED_BYTES = 1 << 20
"""Bytes from which on a thread is profitable."""

_BUFFERS = 2  # one array is computed while another one is written


def hashed(pieces: Sequence[Piece], digest: MemberDigest) -> Generator[memoryview]:
    """Yield the bytes of pieces, each good until the next one is asked for.

    Args:
        pieces: Bytes, and arrays that are computed when it is their turn.
        digest: Is that of all pieces when the generator ends.

    Raises:
        MemoryError: There is no room for an array.
    """
    if sum(piece.nbytes for piece in pieces) >= THREADED_BYTES:
        yield from _hashed_in_thread(pieces, digest)
        return
    for piece in pieces:
        data = _bytes(piece, None)
        digest.update(data)
        yield data


class _Ready(NamedTuple):
    """Bytes to be written, and the memory they are in if that is used again."""

    data: memoryview
    memory: np.ndarray | None


def _hashed_in_thread(pieces: Sequence[Piece], digest: MemberDigest) -> Generator[memoryview]:
    ready: SimpleQueue[_Ready | BaseException | None] = SimpleQueue()
    free: SimpleQueue[np.ndarray | None] = SimpleQueue()
    stopped = threading.Event()
    largest = max((p.nbytes for p in pieces if isinstance(p, DeferredArray)), default=0)
    for _ in range(_BUFFERS if largest else 0):
        free.put(memory_for(largest))

    def work() -> None:
        try:
            for piece in pieces:
                memory = free.get() if isinstance(piece, DeferredArray) else None
                if stopped.is_set():
                    return
                data = _bytes(piece, memory)
                ready.put(_Ready(data, memory))
                digest.update(data)
            ready.put(None)
        except BaseException as error:  # e.g. no memory; whoever wants the bytes is to hear of it
            ready.put(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item.data
            if item.memory is not None:
                free.put(item.memory)
    finally:
        stopped.set()
        free.put(None)
        thread.join()


def _bytes(piece: Piece, memory: np.ndarray | None) -> memoryview:
    if not isinstance(piece, DeferredArray):
        return piece
    return array_bytes(piece.array() if memory is None else piece.into(memory))
