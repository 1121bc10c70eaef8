# SPDX-License-Identifier: Apache-2.0
"""Checks of the sizes of a plan that was read: each has a source, and is known when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ..dtype import DType
from ..errors import ArtifactError
from ..size import Dim, Size, value_of
from .plan import (
    ALIGNMENT,
    THREADS,
    ArgumentSource,
    CallPlan,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    OpenSizes,
    RegionStep,
    SizesStep,
    Step,
    all_steps,
    blocks_of,
)
from .plan_walk import step_arguments


def verify_sizes(plan: CallPlan) -> None:
    """Check that every size variable of a plan has one source.

    Raises:
        ArtifactError: One has none, or several, or its source is not there; or slots have no order.
    """
    known: set[str] = set()
    for source in plan.open.variables if plan.open is not None else ():
        inputs = plan.inputs[source.input : source.input + 1]
        is_axis = len(inputs) > 0 and source.axis < len(inputs[0].shape)
        if source.name != THREADS and not is_axis:
            raise ArtifactError(f"size '{source.name}' of the plan is that of no input")
        known.add(source.name)
    rows = plan.open.behind if plan.open is not None else ()
    is_ordered = all(0 <= other < slot for slot, row in enumerate(rows) for other in row)
    if plan.open is not None and (len(rows) not in (0, len(plan.open.slots)) or not is_ordered):
        raise ArtifactError("a slot of the plan lies behind one that is not before it")
    for name in plan.open.names[len(plan.open.variables) :] if plan.open is not None else ():
        if name in known:
            raise ArtifactError(f"the plan reads size '{name}' twice")
        known.add(name)
    for name in sorted(_used_sizes(plan) - known):
        raise ArtifactError(f"nothing says what size '{name}' of the plan is")


def _used_sizes(plan: CallPlan) -> set[str]:
    shapes = [spec.shape for spec in (*plan.inputs, *plan.outputs)]
    names: set[str] = set()
    for step in all_steps(plan.steps):
        shapes += [argument.shape for argument in step_arguments(step)]
        names.update(step.sizes if isinstance(step, KernelStep | RegionStep) else ())
        if isinstance(step, GuardStep):
            shapes.append(cast("tuple[int, ...]", (step.guard.left, step.guard.right)))
        if isinstance(step, LoopStep) and step.most is not None:
            shapes.append(cast("tuple[int, ...]", (step.most,)))
    if plan.open is not None:
        shapes.append(cast("tuple[int, ...]", plan.open.slots))
        shapes += [cast("tuple[int, ...]", (g.left, g.right)) for g in plan.open.guards]
    for shape in shapes:
        for size in shape:
            names |= size.variables() if isinstance(size, Dim) else frozenset[str]()
    return names


def verify_stages(plan: CallPlan) -> None:
    """Check that each stage of a plan has a step, and that no step is ahead of its stage.

    Raises:
        ArtifactError: A step uses a size, or memory, before the step that makes it known.
    """
    sizes = plan.open or OpenSizes((), (), ())
    if sizes.stage(*(size for spec in plan.inputs for size in spec.shape)):
        raise ArtifactError("an input of the plan has a size that a step computes")
    made = {step.stage for step in all_steps(plan.steps) if isinstance(step, SizesStep)}
    if made != set(range(1, len(sizes.stages) + 1)):
        numbers = sorted(made)
        raise ArtifactError(f"the plan has steps for the stages {numbers} of {len(sizes.stages)}")
    _verify_block(plan, sizes, plan.steps, frozenset())


def _verify_block(
    plan: CallPlan, sizes: OpenSizes, steps: Sequence[Step], known: frozenset[int]
) -> frozenset[int]:
    """Check steps before which stages ``known`` have their sizes; return those behind them.

    Behind an ``if``, the sizes of a stage are known that both branches read. Where a stage is read
    again, memory of other stages that was laid out for its old sizes is not known any more.
    """
    for step in steps:
        if not _stages_of(plan, sizes, step) <= known:
            raise ArtifactError("a step of the plan uses a size before a step computes it")
        if isinstance(step, SizesStep):
            _verify_step(step, sizes)
            known = (known - _outdated(plan, sizes, step.stage)) | {step.stage}
        inner = [_verify_block(plan, sizes, block.steps, known) for block in blocks_of(step)]
        if isinstance(step, IfStep):
            known = inner[0] & inner[1]
        if isinstance(step, LoopStep) and not known <= inner[0]:  # the next turn knows less
            known = known & inner[0]
            _verify_block(plan, sizes, step.body.steps, known)
    return known


def _outdated(plan: CallPlan, sizes: OpenSizes, stage: int) -> set[int]:
    """Return the stages some of whose memory is as large as sizes of an earlier stage say."""
    names = set(sizes.stages[stage - 1])
    laid_out = [(size,) for size in sizes.slots] + [spec.shape for spec in plan.outputs]
    found: set[int] = set()
    for shape in laid_out:
        used = {name for size in shape if isinstance(size, Dim) for name in size.variables()}
        if not used.isdisjoint(names):
            found.add(sizes.stage(*shape))
    return found


def _verify_step(step: SizesStep, sizes: OpenSizes) -> None:
    """Check that a step reads the sizes of its stage; errors as above."""
    if tuple(size.name for size in step.sizes) != sizes.stages[step.stage - 1]:
        raise ArtifactError(f"a step of the plan computes other sizes than those of {step.stage}")
    for size in step.sizes:
        if size.argument.dtype is not DType.INT64 or any(s != 1 for s in size.argument.shape):
            raise ArtifactError(f"size '{size.name}' of the plan is no element of int64")


def _stages_of(plan: CallPlan, sizes: OpenSizes, step: Step) -> set[int]:
    """Return the stages whose sizes a step uses."""
    if not sizes.stages:
        return set()
    used: list[Size] = []
    for argument in step_arguments(step):
        used += argument.shape
        if argument.place is ArgumentSource.WORKSPACE:
            used.append(sizes.slots[argument.index])
        if argument.place is ArgumentSource.OUTPUT:
            used += plan.outputs[argument.index].shape
    if isinstance(step, GuardStep):
        used += (step.guard.left, step.guard.right)
    if isinstance(step, LoopStep) and step.most is not None:
        used.append(step.most)
    names = {name for size in used if isinstance(size, Dim) for name in size.variables()}
    names.update(step.sizes if isinstance(step, KernelStep | RegionStep) else ())
    numbered = enumerate(sizes.stages, start=1)
    return {number for number, stage in numbered if not names.isdisjoint(stage)}


def slots_behind(sizes: OpenSizes) -> tuple[tuple[int, ...], ...]:
    """Return for each slot of a plan those that end before it begins."""
    if sizes.behind:
        return sizes.behind
    before: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for number, size in enumerate(sizes.slots):
        stage = sizes.stage(size)
        rows.append((before[stage],) if stage in before else ())
        before[stage] = number
    return tuple(rows)


def slot_offsets(
    sizes: OpenSizes, values: Mapping[str, int], alignment: int = ALIGNMENT
) -> tuple[list[int], int]:
    """Return the offset of each slot for values of the size variables, and the end of the last.

    Native code of a plan computes the same; this is for plans that a device runs.
    """
    starts: list[int] = []
    ends: list[int] = []
    for slot, behind in zip(sizes.slots, slots_behind(sizes), strict=True):
        starts.append(max([ends[n] for n in behind], default=0))
        ends.append(starts[-1] + -(-value_of(slot, values) // alignment) * alignment)
    return starts, max(ends, default=0)
