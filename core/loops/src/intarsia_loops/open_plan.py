# SPDX-License-Identifier: Apache-2.0
"""The memory plan of open sizes: slots, each as large as the largest temporary that uses it.

Which temporaries share a slot is decided once, from live ranges and typical sizes; how large slots
are, and where they begin, the run computes from the sizes of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Function, tensor_type
from intarsia_runtime.artifact.plan import CopyStep, OpenSizes, SizeSource, Step
from intarsia_runtime.artifact.plan_json import step_arguments
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim, Size, maximum

from .plan_memory import LiveRange
from .typical import typical


class OpenPlan(Struct, frozen=True):
    """The sizes of an open plan, and the slot of each temporary."""

    sizes: OpenSizes
    slot_numbers: tuple[int, ...]


def open_sizes(
    function: Function, live_ranges: Sequence[LiveRange], steps: Sequence[Step]
) -> OpenPlan | None:
    """Return what a plan says of sizes that only the run knows; ``None`` if all are numbers.

    Raises:
        UnsupportedError: A size variable is no size of an input.
    """
    shapes = [tensor_type(node).shape for node in (*function.params, *function.outputs)]
    shapes += [argument.shape for step in steps for argument in step_arguments(step)]
    names = {
        name
        for shape in shapes
        for size in shape
        if isinstance(size, Dim)
        for name in size.variables()
    }
    for step in steps:
        names.update(() if isinstance(step, CopyStep) else step.sizes)
    if not names:
        return None
    sources = _sources(function)
    for name in sorted(names - sources.keys()):
        raise UnsupportedError(
            f"the size '{name}' is that of no input",
            hint="give every input a shape, e.g. --shape input:1,3,224,224",
        )
    slots, numbers = _slots(live_ranges)
    return OpenPlan(OpenSizes(tuple(sources.values()), (), slots), numbers)


def _sources(function: Function) -> dict[str, SizeSource]:
    """Return the first input that has each size variable as a size of its own."""
    found: dict[str, SizeSource] = {}
    for number, param in enumerate(function.params):
        for axis, size in enumerate(tensor_type(param).shape):
            if isinstance(size, Dim) and size.is_variable:
                found.setdefault(size.name, SizeSource(size.name, number, axis))
    return found


def _slots(live_ranges: Sequence[LiveRange]) -> tuple[tuple[Size, ...], tuple[int, ...]]:
    """Give each temporary a slot, the largest first, where nobody else lives meanwhile.

    Of the free slots it takes the one whose size is closest to its own.
    """
    order = sorted(range(len(live_ranges)), key=lambda n: (-typical(live_ranges[n].bytes), n))
    sizes: list[Size] = []
    users: list[list[LiveRange]] = []
    numbers = [0] * len(live_ranges)
    for number in order:
        life = live_ranges[number]
        free = [
            slot
            for slot, others in enumerate(users)
            if not any(life.overlaps(other) for other in others)
        ]
        wanted = typical(life.bytes)
        slot = min(free, key=lambda n: typical(sizes[n]) - wanted, default=len(sizes))
        if slot == len(sizes):
            sizes.append(life.bytes)
            users.append([])
        else:
            sizes[slot] = maximum(sizes[slot], life.bytes)
        users[slot].append(life)
        numbers[number] = slot
    return tuple(sizes), tuple(numbers)
