# SPDX-License-Identifier: Apache-2.0
"""Static memory plan: every temporary of a run gets an offset in one workspace, by live ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from msgspec import Struct

from intarsia_ir.budget import budget
from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.errors import VerifyError

MAX_OVERLAPS = 1 << 20
"""Pairs of temporaries alive together up to which several orders are tried: a second or two."""


class LiveRange(Struct, frozen=True):
    """A temporary: its size, and the first and last step that touch it."""

    bytes: int
    first: int
    last: int

    def overlaps(self, other: LiveRange) -> bool:
        """Whether both are alive during some step."""
        return self.first <= other.last and other.first <= self.last


def plan_memory(
    live_ranges: Sequence[LiveRange], alignment: int = ALIGNMENT
) -> tuple[tuple[int, ...], int]:
    """Assign offsets, one temporary after the other, each at the lowest place free while it lives.

    The order decides. Several are tried, the best is kept, and none is tried once the workspace is
    as small as the temporaries that live at one time allow. The last attempt fills exactly that
    from both ends in turn, which is best for a chain. All of that asks which temporaries are alive
    together; where those are more than :data:`MAX_OVERLAPS`, one sweep over the steps has to do.

    Returns:
        The offset of each temporary, a multiple of the alignment, and the size of the workspace.
    """
    sizes = [_aligned(life.bytes, alignment) for life in live_ranges]
    if overlap_count(live_ranges) > MAX_OVERLAPS:
        return _place_by_step(live_ranges, sizes)
    least = max(loads(live_ranges, sizes), default=0)
    best: tuple[list[int], int] | None = None
    for found in attempts(live_ranges, sizes, overlapping(live_ranges)):
        if best is None or found[1] < best[1]:
            best = found
        if best[1] == least:
            break
    assert best is not None  # there is always an order
    return tuple(best[0]), best[1]


def attempts(
    live_ranges: Sequence[LiveRange], sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], int]]:
    """Yield plans, those first that come out best most often: offsets and the workspace's size.

    Args:
        live_ranges: Of the temporaries.
        sizes: Their bytes, multiples of the alignment.
        neighbours: For each, those that may not lie where it lies.
    """
    alive = loads(live_ranges, sizes)
    for order in _orders(live_ranges, sizes, alive):
        yield _place(order, sizes, neighbours)
    by_first_step = sorted(range(len(sizes)), key=lambda n: (live_ranges[n].first, n))
    room = max(alive, default=0)
    found = _place_from_both_ends(by_first_step, sizes, neighbours, room)
    if found is not None:
        yield found


def _place(
    order: Sequence[int], sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """Place the temporaries in an order; returns the offsets and the size of the workspace."""
    offsets = [-1] * len(sizes)
    total = 0
    for number in order:
        offsets[number] = _lowest(_taken(neighbours[number], offsets, sizes), sizes[number])
        total = max(total, offsets[number] + sizes[number])
    return offsets, total


def _place_from_both_ends(
    order: Sequence[int], sizes: Sequence[int], neighbours: Sequence[Sequence[int]], room: int
) -> tuple[list[int], int] | None:
    """Place every other temporary as high as ``room`` allows; ``None`` if one finds no place."""
    offsets = [-1] * len(sizes)
    for position, number in enumerate(order):
        taken = _taken(neighbours[number], offsets, sizes)
        if position % 2:
            mirrored = [(room - end, room - start) for start, end in reversed(taken)]
            place = room - sizes[number] - _lowest(mirrored, sizes[number])
        else:
            place = _lowest(taken, sizes[number])
        if place < 0 or place + sizes[number] > room:
            return None
        offsets[number] = place
    return offsets, room


def _place_by_step(
    live_ranges: Sequence[LiveRange], sizes: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """Place the temporaries as the steps go on, each in the first gap that holds it."""
    offsets, total, limits = [0] * len(sizes), 0, budget()
    starts, ends = [0], [sum(sizes)]  # of the gaps, by their addresses
    alive: list[tuple[int, int]] = []
    for number in sorted(range(len(sizes)), key=lambda n: (live_ranges[n].first, -sizes[n], n)):
        limits.check()
        while alive and alive[0][0] < live_ranges[number].first:
            _, dead = heappop(alive)
            _free(starts, ends, offsets[dead], offsets[dead] + sizes[dead])
        gap = next(n for n, start in enumerate(starts) if ends[n] - start >= sizes[number])
        offsets[number] = starts[gap]
        starts[gap] += sizes[number]
        total = max(total, starts[gap])
        if starts[gap] == ends[gap]:
            del starts[gap], ends[gap]
        heappush(alive, (live_ranges[number].last, number))
    return tuple(offsets), total


def _free(starts: list[int], ends: list[int], start: int, end: int) -> None:
    """Add a gap, joined to those beside it."""
    gap = bisect_left(starts, start)
    if gap < len(starts) and starts[gap] == end:
        end = ends[gap]
        del starts[gap], ends[gap]
    if gap and ends[gap - 1] == start:
        ends[gap - 1] = end
        return
    starts.insert(gap, start)
    ends.insert(gap, end)


def overlap_count(live_ranges: Sequence[LiveRange]) -> int:
    """Return how many pairs of temporaries are alive together."""
    lasts = sorted(life.last for life in live_ranges)
    firsts = sorted(life.first for life in live_ranges)
    begun_before = sum(range(len(firsts)))
    ended_before = sum(bisect_left(lasts, first) for first in firsts)
    return begun_before - ended_before


def _taken(
    others: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Return where the others that have a place lie, by their starts."""
    return sorted((offsets[n], offsets[n] + sizes[n]) for n in others if offsets[n] >= 0)


def _lowest(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the lowest place for ``size`` bytes beside what is taken."""
    place = 0
    for start, end in taken:
        if place + size <= start:
            break
        place = max(place, end)
    return place


def loads(live_ranges: Sequence[LiveRange], sizes: Sequence[int]) -> list[int]:
    """Return for each step how many bytes live during it."""
    changes = [0] * (max((life.last for life in live_ranges), default=-1) + 2)
    for life, size in zip(live_ranges, sizes, strict=True):
        changes[life.first] += size
        changes[life.last + 1] -= size
    return list(accumulate(changes))[:-1]


def _orders(
    live_ranges: Sequence[LiveRange], sizes: Sequence[int], alive: Sequence[int]
) -> Iterator[list[int]]:
    """Yield orders to place temporaries in, those first that come out best most often."""
    numbers = range(len(live_ranges))
    heaviest = [max(alive[life.first : life.last + 1]) for life in live_ranges]
    peak = max(range(len(alive)), key=alive.__getitem__, default=0)
    away = [max(life.first - peak, peak - life.last, 0) for life in live_ranges]
    yield sorted(numbers, key=lambda n: (-sizes[n], n))
    yield sorted(numbers, key=lambda n: (-heaviest[n], -sizes[n], n))
    yield sorted(numbers, key=lambda n: (away[n], -sizes[n], n))
    yield sorted(numbers, key=lambda n: (away[n], sizes[n], n))
    yield sorted(numbers, key=lambda n: (live_ranges[n].first, -sizes[n], n))
    yield sorted(numbers, key=lambda n: (-live_ranges[n].last, -sizes[n], n))


def _aligned(size: int, alignment: int) -> int:
    return -(-max(size, 1) // alignment) * alignment


def overlapping(live_ranges: Sequence[LiveRange]) -> list[list[int]]:
    """Return for each temporary those alive together with it, by a sweep over the steps."""
    found: list[list[int]] = [[] for _ in live_ranges]
    alive: list[int] = []
    for number in sorted(range(len(live_ranges)), key=lambda n: live_ranges[n].first):
        alive = [other for other in alive if live_ranges[other].last >= live_ranges[number].first]
        for other in alive:
            found[other].append(number)
            found[number].append(other)
        alive.append(number)
    return found


def verify_memory(
    live_ranges: Sequence[LiveRange],
    offsets: Sequence[int],
    workspace_bytes: int,
    alignment: int = ALIGNMENT,
) -> None:
    """Check that nothing lies outside the workspace and that no two live temporaries overlap.

    Raises:
        VerifyError: An offset breaks one of these rules.
    """
    spans = list(zip(live_ranges, offsets, strict=True))
    for number, (life, offset) in enumerate(spans):
        if offset < 0 or offset % alignment or offset + life.bytes > workspace_bytes:
            raise VerifyError(f"temporary {number} at offset {offset} is misplaced")
        for other, (their, at) in enumerate(spans[:number]):
            apart = offset + life.bytes <= at or at + their.bytes <= offset
            if not apart and life.overlaps(their):
                raise VerifyError(f"temporaries {other} and {number} overlap")
