# SPDX-License-Identifier: Apache-2.0
"""A plan of open sizes for one choice of sizes: what walks plans step by step needs numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TypeVar

from msgspec.structs import replace

from ..size import Size, value_of
from .plan import ALIGNMENT, Argument, ArgumentSource, CallPlan, Step, TensorSpec
from .plan_walk import map_step

Sized = TypeVar("Sized", Argument, TensorSpec)


def close_plan(plan: CallPlan, values: Mapping[str, int]) -> CallPlan:
    """Return the static plan for values of the size variables, none of which steps compute.

    Slots lie one behind the other, as ``intarsia_plan_sizes`` lays them out.
    """
    sizes = plan.open
    if sizes is None:
        return plan
    padded = [-(-value_of(size, values) // ALIGNMENT) * ALIGNMENT for size in sizes.slots]
    starts = [0, *accumulate(padded)]

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
        workspace_bytes=starts[-1],
        steps=tuple([map_step(step, place, number) for step in plan.steps]),
        open=None,
    )


def close_step(step: Step, values: Mapping[str, int]) -> Step:
    """Return a step for values of the size variables; arguments keep their slots."""
    return map_step(step, lambda one: closed(one, values), lambda size: value_of(size, values))


def closed(tensor: Sized, values: Mapping[str, int]) -> Sized:
    """Return a tensor for values of the size variables."""
    return replace(tensor, shape=tuple([value_of(size, values) for size in tensor.shape]))
