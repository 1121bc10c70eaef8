# SPDX-License-Identifier: Apache-2.0
"""The memory plan of open sizes: slots, each as large as the temporaries that use it.

The compiler decides which temporaries share a slot, and which slots lie behind which, from live
ranges and typical sizes. The run computes sizes and offsets of the slots from the sizes of its
inputs. A slot begins at the largest end of those it lies behind: the order of a static plan, with
expressions for numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Function, tensor_type
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
from intarsia_runtime.size import Dim

from .open_layout import best_layout
from .plan_memory import LiveRange


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
    layout = best_layout(live_ranges, sizes, function.params)
    return OpenPlan(replace(sizes, slots=layout.slots, behind=layout.behind), layout.numbers)


def _sources(function: Function) -> dict[str, SizeSource]:
    """Return the first input that has each size variable as a size of its own."""
    found: dict[str, SizeSource] = {}
    for number, param in enumerate(function.params):
        for axis, size in enumerate(tensor_type(param).shape):
            if isinstance(size, Dim) and size.is_variable:
                found.setdefault(size.name, SizeSource(size.name, number, axis))
    return found
