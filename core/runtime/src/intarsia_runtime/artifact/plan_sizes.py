# SPDX-License-Identifier: Apache-2.0
"""Checks of the sizes of a plan that was read: each has a source, and is known when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..dtype import DType
from ..errors import ArtifactError
from ..size import Dim, Size
from .plan import CallPlan, KernelStep, OpenSizes, Place, SizesStep, Step, step_arguments


def verify_sizes(plan: CallPlan) -> None:
    """Check that every size variable of a plan has one source.

    Raises:
        ArtifactError: One has none, or several, or its source is not there.
    """
    known: set[str] = set()
    for source in plan.open.variables if plan.open is not None else ():
        inputs = plan.inputs[source.input : source.input + 1]
        if not inputs or source.axis >= len(inputs[0].shape):
            raise ArtifactError(f"size '{source.name}' of the plan is that of no input")
        known.add(source.name)
    for name in plan.open.names[len(plan.open.variables) :] if plan.open is not None else ():
        if name in known:
            raise ArtifactError(f"the plan reads size '{name}' twice")
        known.add(name)
    for name in sorted(_used_sizes(plan) - known):
        raise ArtifactError(f"nothing says what size '{name}' of the plan is")


def _used_sizes(plan: CallPlan) -> set[str]:
    shapes = [spec.shape for spec in (*plan.inputs, *plan.outputs)]
    names: set[str] = set()
    for step in plan.steps:
        shapes += [argument.shape for argument in step_arguments(step)]
        names.update(step.sizes if isinstance(step, KernelStep) else ())
    if plan.open is not None:
        shapes.append(cast("tuple[int, ...]", plan.open.slots))
        shapes += [cast("tuple[int, ...]", (g.left, g.right)) for g in plan.open.guards]
    for shape in shapes:
        for size in shape:
            names |= size.variables() if isinstance(size, Dim) else frozenset[str]()
    return names


def verify_stages(plan: CallPlan) -> None:
    """Check that the stages of a plan come one after the other, and no step is ahead of its stage.

    Raises:
        ArtifactError: A step uses a size, or memory, before the step that makes it known.
    """
    sizes = plan.open or OpenSizes((), (), ())
    if sizes.stage(*(size for spec in plan.inputs for size in spec.shape)):
        raise ArtifactError("an input of the plan has a size that a step computes")
    reached = 0
    for number, step in enumerate(plan.steps):
        if _stage_of(plan, sizes, step) > reached:
            raise ArtifactError(f"step {number} of the plan uses a size before a step computes it")
        if isinstance(step, SizesStep):
            _verify_step(step, number, sizes, reached + 1)
            reached = step.stage
    if reached < len(sizes.stages):
        raise ArtifactError(f"no step of the plan computes the sizes of stage {reached + 1}")


def _verify_step(step: SizesStep, number: int, sizes: OpenSizes, stage: int) -> None:
    """Check that a step is the one of a stage; errors as above."""
    names = tuple(size.name for size in step.sizes)
    if step.stage != stage or stage > len(sizes.stages) or names != sizes.stages[stage - 1]:
        raise ArtifactError(
            f"step {number} of the plan computes other sizes than those of stage {stage}"
        )
    for size in step.sizes:
        if size.argument.dtype is not DType.INT64 or any(s != 1 for s in size.argument.shape):
            raise ArtifactError(f"size '{size.name}' of the plan is no element of int64")


def _stage_of(plan: CallPlan, sizes: OpenSizes, step: Step) -> int:
    """Return the stage from which on all that a step uses is known."""
    used: list[Size] = []
    for argument in step_arguments(step):
        used += argument.shape
        if argument.place is Place.WORKSPACE and plan.open is not None:
            used.append(sizes.slots[argument.index])
        if argument.place is Place.OUTPUT:
            used += plan.outputs[argument.index].shape
    stage = sizes.stage(*used)
    names: Sequence[str] = step.sizes if isinstance(step, KernelStep) else ()
    return max(
        [stage, *(n for n, made in enumerate(sizes.stages, 1) if not set(made).isdisjoint(names))]
    )
