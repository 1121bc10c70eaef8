# SPDX-License-Identifier: Apache-2.0
"""Holds a plan that was read against itself: every reference is within bounds."""

from __future__ import annotations

from math import prod

from ..dtype import DType
from ..errors import ArtifactError
from ..size import Size
from .plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    IfStep,
    LoopStep,
    OpenSizes,
    RegionStep,
    Step,
    blocks_of,
)
from .plan_sizes import verify_sizes, verify_stages
from .plan_walk import step_arguments

Rows = tuple["Size | None", ...]
"""How many iterations each loop around a step makes at most, from the outermost."""


def verify_plan(plan: CallPlan) -> None:
    """Check that every size variable has a source, and that steps touch what is there.

    Raises:
        ArtifactError: Something is not there.
    """
    verify_sizes(plan)
    for number, step in enumerate(plan.steps):
        _verify_step(plan, step, number, ())
    verify_stages(plan)


def _verify_step(plan: CallPlan, step: Step, number: int, rows: Rows) -> None:
    """Check a step and those inside it; messages have the number of the outermost."""
    if isinstance(step, RegionStep) and step.region >= len(plan.regions):
        raise ArtifactError(
            f"step {number} of the plan calls region {step.region}, which does not exist"
        )
    _verify_scalars(step, number)
    for argument in step_arguments(step):
        if not _in_bounds(plan, argument, rows):
            raise ArtifactError(
                f"step {number} of the plan reads or writes outside of its {argument.place.value}"
            )
    inner = (*rows, step.most) if isinstance(step, LoopStep) else rows
    for block in blocks_of(step):
        for inside in block.steps:
            _verify_step(plan, inside, number, inner)


def _verify_scalars(step: Step, number: int) -> None:
    """Check that what steers a step is one number of the right type."""
    wanted: list[tuple[Argument | None, DType]] = []
    if isinstance(step, IfStep):
        wanted = [(step.condition, DType.BOOL)]
    if isinstance(step, LoopStep):
        wanted = [
            (step.condition, DType.BOOL),
            (step.trip, DType.INT64),
            (step.iteration, DType.INT64),
        ]
    for argument, dtype in wanted:
        if argument is not None and (argument.dtype is not dtype or prod(argument.shape) != 1):
            raise ArtifactError(
                f"the control operand of step {number} of the plan is not one {dtype}"
            )


def _in_bounds(plan: CallPlan, argument: Argument, rows: Rows) -> bool:
    most: Size | None = 1
    if argument.loop is not None:
        most = rows[argument.loop] if argument.loop < len(rows) else None
    if most is None:
        return False
    if plan.open is not None:
        return _has_place(plan, plan.open, argument)
    size = argument.bytes * most
    match argument.place:
        case ArgumentSource.INPUT | ArgumentSource.OUTPUT:
            specs = plan.inputs if argument.place is ArgumentSource.INPUT else plan.outputs
            return argument.index < len(specs) and size <= specs[argument.index].bytes
        case ArgumentSource.CONSTANT:
            return argument.index < len(plan.constants) and argument.loop is None
        case ArgumentSource.WORKSPACE:
            return argument.index + size <= plan.workspace_bytes


def _has_place(plan: CallPlan, sizes: OpenSizes, argument: Argument) -> bool:
    """Whether there is what an argument of an open plan refers to."""
    counts = {
        ArgumentSource.INPUT: len(plan.inputs),
        ArgumentSource.OUTPUT: len(plan.outputs),
        ArgumentSource.CONSTANT: len(plan.constants),
        ArgumentSource.WORKSPACE: len(sizes.slots),
    }
    is_row = argument.loop is not None
    return argument.index < counts[argument.place] and not (
        is_row and argument.place is ArgumentSource.CONSTANT
    )
