# SPDX-License-Identifier: Apache-2.0
"""Give every temporary of a run a fixed place in one workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..artifact.plan import ALIGNMENT
from ..errors import VerifyError


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A temporary: its size, and the first and last step that touch it."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive during some step."""
        return self.first <= other.last and other.first <= self.last


def plan_memory(
    lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT
) -> tuple[tuple[int, ...], int]:
    """Assign offsets, large temporaries first, each at the lowest place free while it lives.

    Returns:
        The offset of each temporary, a multiple of the alignment, and the size of the workspace.
    """
    neighbours = _neighbours(lifetimes)
    offsets = [-1] * len(lifetimes)
    total = 0
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].bytes, n)):
        taken = sorted(
            (offsets[other], offsets[other] + _aligned(lifetimes[other].bytes, alignment))
            for other in neighbours[number]
            if offsets[other] >= 0
        )
        size = _aligned(lifetimes[number].bytes, alignment)
        place = 0
        for start, end in taken:
            if place + size <= start:
                break
            place = max(place, end)
        offsets[number] = place
        total = max(total, place + size)
    return tuple(offsets), total


def _aligned(size: int, alignment: int) -> int:
    return -(-max(size, 1) // alignment) * alignment


def _neighbours(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    """Return for each temporary those alive together with it, by a sweep over the steps."""
    found: list[list[int]] = [[] for _ in lifetimes]
    alive: list[int] = []
    for number in sorted(range(len(lifetimes)), key=lambda n: lifetimes[n].first):
        alive = [other for other in alive if lifetimes[other].last >= lifetimes[number].first]
        for other in alive:
            found[other].append(number)
            found[number].append(other)
        alive.append(number)
    return found


def verify_memory(
    lifetimes: Sequence[Lifetime],
    offsets: Sequence[int],
    workspace_bytes: int,
    alignment: int = ALIGNMENT,
) -> None:
    """Check that nothing lies outside the workspace and that no two live temporaries overlap.

    Raises:
        VerifyError: An offset breaks one of these rules.
    """
    spans = list(zip(lifetimes, offsets, strict=True))
    for number, (life, offset) in enumerate(spans):
        if offset < 0 or offset % alignment or offset + life.bytes > workspace_bytes:
            raise VerifyError(f"temporary {number} at offset {offset} is misplaced")
        for other, (their, at) in enumerate(spans[:number]):
            apart = offset + life.bytes <= at or at + their.bytes <= offset
            if not apart and life.meets(their):
                raise VerifyError(f"temporaries {other} and {number} overlap")
