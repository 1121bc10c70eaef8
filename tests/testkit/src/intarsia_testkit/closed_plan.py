# SPDX-License-Identifier: Apache-2.0
"""A plan of open sizes for one choice of sizes, as a plan of numbers that a test can carry out."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from intarsia_runtime.artifact.close_plan import closed
from intarsia_runtime.artifact.plan import Argument, ArgumentSource, CallPlan
from intarsia_runtime.artifact.plan_sizes import slot_offsets
from intarsia_runtime.artifact.plan_walk import map_step
from intarsia_runtime.size import Size, value_of


def close_plan(plan: CallPlan, values: Mapping[str, int]) -> CallPlan:
    """Return the static plan for values of the size variables, none of which steps compute.

    Slots lie as ``intarsia_plan_sizes`` lays them out.
    """
    sizes = plan.open
    if sizes is None:
        return plan
    starts, total = slot_offsets(sizes, values)

    def place(argument: Argument) -> Argument:
        argument = closed(argument, values)
        if argument.place is not ArgumentSource.WORKSPACE:
            return argument
        return replace(argument, index=starts[argument.index])

    def number(size: Size) -> int:
        return value_of(size, values)

    return replace(
        plan,
        inputs=tuple([closed(spec, values) for spec in plan.inputs]),
        outputs=tuple([closed(spec, values) for spec in plan.outputs]),
        workspace_bytes=total,
        steps=tuple([map_step(step, place, number) for step in plan.steps]),
        open=None,
    )
