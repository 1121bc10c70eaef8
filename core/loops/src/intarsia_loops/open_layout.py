# SPDX-License-Identifier: Apache-2.0
"""The layout of a workspace of open sizes: an order of its slots that is good for many sizes.

A static plan is computed for samples of the sizes, in several ways, and its order is kept: of two
temporaries that are alive together, the one that lies lower ends where the other begins, or before.
So the workspace is as small as the static plan for that sample, and the plan that is smallest on
all samples is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise

from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.typical import typical_values
from intarsia_runtime.artifact.plan import ALIGNMENT, THREADS, OpenSizes
from intarsia_runtime.size import Size

from .plan_memory import (
    MAX_OVERLAPS,
    LiveRange,
    attempts,
    loads,
    overlap_count,
    overlapping,
    plan_memory,
)
from .sampled_sizes import SampledSizes

_EIGHTHS = ((8, 8), (64, 64), (1, 1), (512, 512), (4, 4), (1, 64), (64, 1))
"""The samples: by how many eighths of its typical value every other size variable is taken.

Layers without padding leave nothing of 64 samples of sound, attention is small for 64 words, and
the layers of a decoder grow with its words or with those before them.
"""

_LAID_OUT = 3
"""Samples that static plans are made for: the first ones."""

_PAIRS = 1 << 18
"""Pairs of temporaries alive together, times attempts: more attempts than one are not made."""


class SlotLayout(Struct, frozen=True):
    """The slots of a plan, which of them end before each begins, and the slot of each temporary."""

    slots: tuple[Size, ...]
    behind: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]


class _Temporaries(Struct):
    """The temporaries of a plan.

    Attributes:
        live_ranges: Sizes and steps.
        stages: From which on the size is known.
        kinds: A number for each, the same for equal sizes.
        sizes: Bytes in each sample, with those that fill the last line.
        neighbours: Those of the same stage alive together with each; none if they are too many.
    """

    live_ranges: Sequence[LiveRange]
    stages: list[int]
    kinds: list[int]
    sizes: list[tuple[int, ...]]
    neighbours: list[list[int]]

    def sample(self, number: int) -> list[int]:
        """Return the sizes in a sample."""
        return [row[number] for row in self.sizes]

    def alive(self, number: int) -> list[LiveRange]:
        """Return the live ranges in a sample."""
        rows = zip(self.live_ranges, self.sample(number), strict=True)
        return [LiveRange(size, life.first, life.last) for life, size in rows]

    def least(self) -> list[int]:
        """Return for each sample how many bytes are alive at one time: no plan takes less."""
        found = [0] * len(_EIGHTHS)
        for stage in set(self.stages):
            own = [n for n, one in enumerate(self.stages) if one == stage]
            for sample in range(len(found)):
                ranges = [self.live_ranges[n] for n in own]
                found[sample] += max(loads(ranges, [self.sizes[n][sample] for n in own]))
        return found


def best_layout(
    live_ranges: Sequence[LiveRange], known: OpenSizes, params: Sequence[Expr]
) -> SlotLayout:
    """Return the layout that takes the least memory, of those for several sizes.

    Args:
        live_ranges: Of the temporaries; their sizes are expressions.
        known: The size variables.
        params: Of the function, which say what variables are.
    """
    found = _temporaries(live_ranges, known, params)
    least = found.least()
    best: SlotLayout | None = None
    best_excess = 0.0
    for offsets in _placed(found):
        layout = _layout(found, offsets)
        taken = _bytes(found, layout)
        excess = sum(size / max(1, one) for size, one in zip(taken, least, strict=True))
        if best is None or excess < best_excess:
            best, best_excess = layout, excess
        if taken == least:
            break
    assert best is not None  # there is always a plan
    return best


def _temporaries(
    live_ranges: Sequence[LiveRange], known: OpenSizes, params: Sequence[Expr]
) -> _Temporaries:
    sampled = SampledSizes(_sample_values(known, params), len(_EIGHTHS))
    numbers: dict[Size, int] = {}
    kinds = [numbers.setdefault(life.bytes, len(numbers)) for life in live_ranges]
    rows = [tuple(map(_in_lines, sampled.values(size))) for size in numbers]
    kind_stages = [known.stage(size) for size in numbers]
    stages = [kind_stages[kind] for kind in kinds]
    neighbours: list[list[int]] = []
    if overlap_count(live_ranges) <= MAX_OVERLAPS:
        neighbours = overlapping(live_ranges)
        if known.stages:
            pairs = enumerate(neighbours)
            neighbours = [[n for n in row if stages[n] == stages[own]] for own, row in pairs]
    return _Temporaries(live_ranges, stages, kinds, [rows[kind] for kind in kinds], neighbours)


def _sample_values(known: OpenSizes, params: Sequence[Expr]) -> Mapping[str, Sequence[int]]:
    base = typical_values(params)
    names = [name for name in known.names if name != THREADS]
    found = {
        name: [max(1, base[name] * pair[number % 2] // 8) for pair in _EIGHTHS]
        for number, name in enumerate(names)
    }
    return {**found, THREADS: [1] * len(_EIGHTHS)}


def _in_lines(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _placed(found: _Temporaries) -> Iterator[Sequence[int]]:
    """Yield offsets of the temporaries in static plans, those first that come out best."""
    if not found.neighbours:
        for sample in range(_LAID_OUT):
            yield plan_memory(found.alive(sample))[0]
        return
    rows = [
        attempts(found.alive(sample), found.sample(sample), found.neighbours)
        for sample in range(_LAID_OUT)
    ]
    pairs = sum(map(len, found.neighbours))
    most = 1 + _PAIRS // max(1, pairs)
    for offsets, _ in islice(chain.from_iterable(zip(*rows, strict=False)), most):
        yield offsets


def _layout(found: _Temporaries, offsets: Sequence[int]) -> SlotLayout:
    """Return the layout with the order of offsets.

    Temporaries of one size and one offset share a slot. Those in one slot have sizes of one stage:
    memory of a stage is there when its sizes are known.
    """
    keys = list(zip(found.stages, offsets, found.kinds, strict=True))
    order = {key: number for number, key in enumerate(sorted(set(keys)))}
    numbers = tuple(order[key] for key in keys)
    slots: list[Size] = [0] * len(order)
    for number, life in zip(numbers, found.live_ranges, strict=True):
        slots[number] = life.bytes
    if not found.neighbours:
        rows = _one_after_another([stage for stage, *_ in order])
        return SlotLayout(tuple(slots), rows, numbers)
    lower: list[set[int]] = [set() for _ in order]
    for own, others in zip(numbers, found.neighbours, strict=True):
        lower[own].update(numbers[n] for n in others if numbers[n] < own)
    return SlotLayout(tuple(slots), _not_implied(lower), numbers)


def _one_after_another(stages: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return that each slot lies behind the one before it, if that is of its stage."""
    pairs = enumerate(pairwise([-1, *stages]))
    return tuple((n - 1,) if stage == before else () for n, (before, stage) in pairs)


def _not_implied(lower: Sequence[set[int]]) -> tuple[tuple[int, ...], ...]:
    """Return for each slot which others must end before it, without those implied."""
    rows: list[tuple[int, ...]] = []
    below: list[int] = []  # of each slot those that end before it begins, as bits
    for own in lower:
        implied = 0
        for n in own:
            implied |= below[n]
        rows.append(tuple(sorted(n for n in own if not implied >> n & 1)))
        below.append(implied | sum(1 << n for n in own))
    return tuple(rows)


def _bytes(found: _Temporaries, layout: SlotLayout) -> list[int]:
    """Return how many bytes a layout takes in each sample."""
    sizes: list[tuple[int, ...]] = [()] * len(layout.slots)
    stages = [0] * len(layout.slots)
    for number, size, stage in zip(layout.numbers, found.sizes, found.stages, strict=True):
        sizes[number], stages[number] = size, stage
    ends: list[Sequence[int]] = []
    for size, behind in zip(sizes, layout.behind, strict=True):
        if behind:
            starts = map(max, zip(*(ends[n] for n in behind), strict=True))
            size = [start + own for start, own in zip(starts, size, strict=True)]
        ends.append(size)
    total = [0] * len(_EIGHTHS)
    for stage in set(stages):
        own = [end for end, one in zip(ends, stages, strict=True) if one == stage]
        total = [sum(pair) for pair in zip(total, map(max, zip(*own, strict=True)), strict=True)]
    return total
