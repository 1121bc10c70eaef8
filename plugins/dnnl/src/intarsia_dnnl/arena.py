# SPDX-License-Identifier: Apache-2.0
"""Places intermediate tensors in one block of memory, sharing what is not alive at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a buffer holds something.

    Attributes:
        bytes: Its size.
        first: Number of the step that writes it first.
        last: Number of the last step that touches it.
    """

    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Offsets of the buffers, all multiples of 64, and the size of the whole."""

    offsets: Mapping[int, int]
    bytes: int


def plan_arena(lifetimes: Mapping[int, Lifetime]) -> ArenaPlan:
    """Give every buffer an offset such that no two alive at once overlap; the largest are placed first."""
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[int, int] = {}
    total = 0
    for buffer in sorted(lifetimes, key=lambda b: (-lifetimes[b].bytes, b)):
        life = lifetimes[buffer]
        size = max(ALIGNMENT, -(-life.bytes // ALIGNMENT) * ALIGNMENT)
        rivals = [
            (begin, end)
            for begin, end, other in placed
            if other.first <= life.last and life.first <= other.last
        ]
        offset = _first_gap(sorted(rivals), size)
        offsets[buffer] = offset
        placed.append((offset, offset + size, life))
        total = max(total, offset + size)
    return ArenaPlan(offsets, total)


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset
