# SPDX-License-Identifier: Apache-2.0
"""The properties of a device and of its language that schedules for a grid need."""

from __future__ import annotations

from msgspec import Struct


class AsyncCopies(Struct, frozen=True):
    """Copies from the device's memory to that of a block, which run beside what the thread does.

    Attributes:
        copy_16: The backend's ``f(to, from, inside)``: 16 bytes, 0 if ``inside`` is 0; both
            addresses are multiples of 16.
        copy_4: The same for 4 bytes.
        commit: ``f()``: what the thread started since the last call is a group.
        wait: ``f(n)``: wait until all but the last ``n`` groups of the thread have arrived.
    """

    copy_16: str
    copy_4: str
    commit: str
    wait: str


class GridTraits(Struct, frozen=True):
    """A device that runs a grid of blocks of threads.

    Attributes:
        kind: Name of the backend, whose functions the loops call.
        max_threads: Most threads of a block.
        warp: Threads that start together: blocks are multiples of it. A power of two.
        load_16: The backend's ``f(to, from)`` that copies 16 bytes of the device's memory to
            memory of the thread in one instruction; both addresses are multiples of 16.
        store_16: The same from memory of the thread to the device's.
        shuffle_down: The backend's ``f(value, n)``: the value of the thread ``n`` further on in
            the warp. Empty if threads exchange values in the shared memory of a block alone.
        copies: Its asynchronous copies, if it has any.
        declared_bytes: Memory of a block that a kernel may declare. One that has more takes all of
            it from a pool, whose size its launch names; 0 if there is no such pool.
    """

    kind: str
    max_threads: int
    warp: int
    load_16: str
    store_16: str
    shuffle_down: str = ""
    copies: AsyncCopies | None = None
    declared_bytes: int = 0
