# SPDX-License-Identifier: Apache-2.0
"""The memory plan of open sizes: slots, each as large as the temporaries that use it.

The compiler decides which temporaries share a slot, and which slots lie behind which, from live
ranges and typical sizes. The run computes sizes and offsets of the slots from the sizes of its
inputs. A slot begins at the largest end of those it lies behind: the order of a static plan, with
expressions for numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr, Function, tensor_type
from intarsia_ir.graph.typical import typical_values
from intarsia_runtime.artifact.plan import (
    THREADS,
    KernelStep,
    LoopStep,
    OpenSizes,
    RegionStep,
    SizeSource,
    Step,
    all_steps,
)
from intarsia_runtime.artifact.plan_walk import all_arguments
from intarsia_runtime.errors import UnsupportedError, VerifyError
from intarsia_runtime.size import Dim, Size

from .plan_memory import MAX_OVERLAPS, LiveRange, overlap_count, overlapping, plan_memory
from .typical import typical


class OpenPlan(Struct, frozen=True):
    """The sizes of an open plan, and the slot of each temporary."""

    sizes: OpenSizes
    slot_numbers: tuple[int, ...]


def open_sizes(
    function: Function,
    live_ranges: Sequence[LiveRange],
    steps: Sequence[Step],
    stages: Sequence[tuple[str, ...]] = (),
) -> OpenPlan | None:
    """Return what a plan says of sizes that only the run knows; ``None`` if all are numbers.

    Args:
        function: What is planned.
        live_ranges: Of the temporaries.
        steps: The plan's.
        stages: Names of the size variables that each stage reads.

    Raises:
        UnsupportedError: A size variable is no size of an input, and no step computes it.
        VerifyError: Two things have one name.
    """
    shapes = [tensor_type(node).shape for node in (*function.params, *function.outputs)]
    shapes += [argument.shape for argument in all_arguments(steps)]
    shapes += [
        (step.most,) for step in all_steps(steps) if isinstance(step, LoopStep) and step.most
    ]
    names = {
        name
        for shape in shapes
        for size in shape
        if isinstance(size, Dim)
        for name in size.variables()
    }
    for step in all_steps(steps):
        names.update(step.sizes if isinstance(step, KernelStep | RegionStep) else ())
    if not names and not stages:
        return None
    sources = _sources(function)
    if THREADS in names:
        sources[THREADS] = SizeSource(THREADS, 0, 0)
    computed = list(chain.from_iterable(stages))
    if len({*computed, *sources}) < len(computed) + len(sources):
        raise VerifyError(f"a size is defined twice: {', '.join((*sources, *computed))}")
    for name in sorted(names - {*sources, *computed}):
        raise UnsupportedError(
            f"the size '{name}' is that of no input",
            hint="give every input a shape, e.g. --shape input:1,3,224,224",
        )
    sizes = OpenSizes(tuple(sources.values()), (), (), tuple(stages))
    layout = _best_layout(live_ranges, sizes, function.params)
    return OpenPlan(replace(sizes, slots=layout.slots, behind=layout.behind), layout.numbers)


def _sources(function: Function) -> dict[str, SizeSource]:
    """Return the first input that has each size variable as a size of its own."""
    found: dict[str, SizeSource] = {}
    for number, param in enumerate(function.params):
        for axis, size in enumerate(tensor_type(param).shape):
            if isinstance(size, Dim) and size.is_variable:
                found.setdefault(size.name, SizeSource(size.name, number, axis))
    return found


_SCALES = (1, 8, 64)
"""How many times typical sizes plans are laid out for, to choose the best one for all of them."""


class _SlotLayout(Struct, frozen=True):
    """The slots of a plan, which of them end before each begins, and the slot of each temporary."""

    slots: tuple[Size, ...]
    behind: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]

    def bytes(self, values: Mapping[str, int]) -> int:
        """Return how many bytes it takes for values of the size variables."""
        ends: list[int] = []
        for size, behind in zip(self.slots, self.behind, strict=True):
            ends.append(max([ends[n] for n in behind], default=0) + typical(size, values))
        return max(ends, default=0)


def _best_layout(
    live_ranges: Sequence[LiveRange], known: OpenSizes, params: Sequence[Expr]
) -> _SlotLayout:
    """Return the layout that takes the least memory, of those for sizes typical and larger.

    Layers without padding leave nothing of 64 samples, and attention is small for 64 words.
    """
    samples = [typical_values(params, scale) for scale in _SCALES]
    layouts: list[_SlotLayout] = []
    for values in samples:
        layout = _laid_out(live_ranges, known, values)
        if layout not in layouts:
            layouts.append(layout)
    taken = [[layout.bytes(values) for values in samples] for layout in layouts]
    least = [max(1, min(column)) for column in zip(*taken, strict=True)]

    def excess(number: int) -> float:
        return sum(size / best for size, best in zip(taken[number], least, strict=True))

    return layouts[min(range(len(layouts)), key=excess)]


def _laid_out(
    live_ranges: Sequence[LiveRange], known: OpenSizes, values: Mapping[str, int]
) -> _SlotLayout:
    """Lay the temporaries out as for some sizes, and keep their order for all others.

    Of two temporaries that are alive together, the one that lies lower for these sizes ends where
    the other begins, or before. So the workspace is as small as that of a plan for these sizes, and
    about as small for sizes that grow alike. Temporaries of one size and one offset share a slot.
    Those in one slot have sizes of one stage: memory of a stage is there when its sizes are known.
    """
    stages = [known.stage(life.bytes) for life in live_ranges]
    offsets = [0] * len(live_ranges)
    for stage in set(stages):
        own = [number for number, one in enumerate(stages) if one == stage]
        sized = [replace(live_ranges[n], bytes=typical(live_ranges[n].bytes, values)) for n in own]
        for number, offset in zip(own, plan_memory(sized)[0], strict=True):
            offsets[number] = offset
    keys = [
        (stage, offset, str(life.bytes))
        for stage, offset, life in zip(stages, offsets, live_ranges, strict=True)
    ]
    order = {key: number for number, key in enumerate(sorted(set(keys)))}
    numbers = tuple(order[key] for key in keys)
    sizes: list[Size] = [0] * len(order)
    for number, life in zip(numbers, live_ranges, strict=True):
        sizes[number] = life.bytes
    return _SlotLayout(tuple(sizes), _behind(live_ranges, numbers, list(order)), numbers)


def _behind(
    live_ranges: Sequence[LiveRange],
    numbers: Sequence[int],
    keys: Sequence[tuple[int, int, str]],
) -> tuple[tuple[int, ...], ...]:
    """Return for each slot those that must end before it begins, without those implied.

    Args:
        live_ranges: Of the temporaries.
        numbers: The slot of each.
        keys: Stage and typical offset of each slot, in this order.
    """
    if overlap_count(live_ranges) > MAX_OVERLAPS:  # one behind the other
        pairs = zip(keys, [(-1, 0, ""), *keys[:-1]], strict=True)
        same = [one[0] == before[0] for one, before in pairs]
        return tuple((number - 1,) if alike else () for number, alike in enumerate(same))
    lower: list[set[int]] = [set() for _ in keys]
    for number, others in enumerate(overlapping(live_ranges)):
        slot = numbers[number]
        lower[slot].update(numbers[n] for n in others if numbers[n] < slot)
    rows: list[tuple[int, ...]] = []
    below: list[int] = []  # of each slot those that end before it begins, as bits
    for slot, found in enumerate(lower):
        own = {n for n in found if keys[n][0] == keys[slot][0]}
        implied = 0
        for n in own:
            implied |= below[n]
        rows.append(tuple(sorted(n for n in own if not implied >> n & 1)))
        below.append(implied | sum(1 << n for n in own))
    return tuple(rows)
