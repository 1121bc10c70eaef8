# SPDX-License-Identifier: Apache-2.0
"""Places intermediate tensors in one block of memory; what is not alive at once shares it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

ALIGNMENT = 64
CHUNK = 32 << 20
"""Bytes of a piece of the pool; large, so that it gets huge pages and few page faults."""


class Lifetime(Struct, frozen=True):
    """When a buffer holds something.

    Attributes:
        bytes: Its size.
        first: Number of the step that writes it first.
        last: Number of the last step that touches it.
    """

    bytes: int
    first: int
    last: int


class ArenaPlan(Struct, frozen=True):
    """Offsets of the buffers, all multiples of 64, and the size of the whole."""

    offsets: Mapping[int, int]
    bytes: int


def plan_arena(lifetimes: Mapping[int, Lifetime]) -> ArenaPlan:
    """Give every buffer an offset such that no two alive at once overlap; largest first."""
    allocated: list[tuple[int, int, Lifetime]] = []
    offsets: dict[int, int] = {}
    total = 0
    for buffer in sorted(lifetimes, key=lambda b: (-lifetimes[b].bytes, b)):
        life = lifetimes[buffer]
        size = max(ALIGNMENT, -(-life.bytes // ALIGNMENT) * ALIGNMENT)
        rivals = [
            (begin, end)
            for begin, end, other in allocated
            if other.first <= life.last and life.first <= other.last
        ]
        offset = _first_gap(sorted(rivals), size)
        offsets[buffer] = offset
        allocated.append((offset, offset + size, life))
        total = max(total, offset + size)
    return ArenaPlan(offsets, total)


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def aligned_bytes(size: int) -> np.ndarray:
    """Allocate at least one byte, aligned to 64."""
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + max(1, size)]


class Workspace:
    """Memory of intermediate tensors that the primitives of several sizes use in turn.

    Its users move when it grows.
    """

    def __init__(self) -> None:
        self._block = aligned_bytes(0)
        self._users: list[weakref.ref[Movable]] = []

    def reserve(self, size: int) -> int:
        """Return the address of at least ``size`` bytes; what they hold is lost."""
        if size > self._block.nbytes:
            self._block = aligned_bytes(size)
            self._users = [user for user in self._users if user() is not None]
            for reference in self._users:
                user = reference()
                if user is not None:
                    user.move(self._block.ctypes.data)
        return self._block.ctypes.data

    def add(self, user: Movable) -> None:
        """Remember who is to move; not kept alive."""
        self._users.append(weakref.ref(user))


class Movable(Protocol):
    """A user of a workspace."""

    def move(self, base: int, /) -> None:
        """Go on at another address."""
        ...


class Pool:
    """Memory for weights that the library reordered, taken in large pieces.

    Attributes:
        blocks: What must live as long as the weights are used.
    """

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []
        self._next = 0
        self._end = 0

    def allocate(self, size: int) -> int:
        """Return the address of ``size`` bytes, aligned to 64."""
        if size > self._end - self._next:
            block = aligned_bytes(max(size, CHUNK))
            self.blocks.append(block)
            if size > CHUNK // 2:
                return block.ctypes.data
            self._next = block.ctypes.data
            self._end = self._next + block.nbytes
        address = self._next
        self._next += -(-size // ALIGNMENT) * ALIGNMENT
        return address

    def view(self, address: int, size: int) -> np.ndarray:
        """Return the bytes at an address that :meth:`allocate` gave; they keep their block."""
        starts = ((address - block.ctypes.data, block) for block in self.blocks)
        start, block = next(pair for pair in starts if 0 <= pair[0] < pair[1].nbytes)
        return block[start : start + size]
