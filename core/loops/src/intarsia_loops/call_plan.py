# SPDX-License-Identifier: Apache-2.0
"""The call plan: kernels and regions in order, each with its offsets in the workspace."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from intarsia_ir.graph.expr import Function, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.writing.deferred import Weights
from intarsia_runtime.artifact.plan import (
    ALIGNMENT,
    Argument,
    ArgumentSource,
    CallPlan,
    KernelStep,
    RegionStep,
    Step,
    TensorSpec,
    all_steps,
)
from intarsia_runtime.artifact.plan_sizes import verify_stages
from intarsia_runtime.artifact.plan_walk import map_step
from intarsia_runtime.errors import ArtifactError, UnsupportedError

from .control_planner import ControlPlanner, computed_sizes
from .open_plan import open_sizes
from .plan_memory import plan_memory
from .step_planner import Callees, FusedFunction, Spot
from .typical import extents
from .values import NodeResult

MOST_TENSORS = 65_536
"""Most tensors of a kernel or a model: each takes the 8 bytes of its address."""

MOST_REGION_TENSORS = 8_192
"""Most tensors of a region: each takes 64 bytes, since it is described."""


def plan_calls(
    fused: FusedFunction, callees: Callees, *, alignment: int = ALIGNMENT
) -> tuple[CallPlan, Weights]:
    """Return the plan of a function and the constants that its steps read.

    A result of the model is written where the caller wants it, unless its size is computed after
    what it is a view of; later steps read it there.

    Args:
        fused: The function.
        callees: What it calls and carries out.
        alignment: Of offsets in the workspace, in bytes.

    Raises:
        VerifyError: A region that is called is not there.
    """
    computed = computed_sizes((fused, *callees.functions.values()))
    planner = ControlPlanner(callees, computed=computed)
    function, outputs = fused.function, fused.fusion.outputs
    for number, param in enumerate(function.params):
        planner.spots[NodeResult(param)] = Spot(ArgumentSource.INPUT, number)
    wanted = [(value, Spot(ArgumentSource.OUTPUT, number)) for number, value in enumerate(outputs)]
    steps = planner.plan(fused, wanted)
    _check_calls(steps, len(function.params) + len(outputs))
    opened = open_sizes(function, planner.live_ranges, steps, planner.stages)
    if opened is None:
        offsets, total = plan_memory(planner.live_ranges, alignment)
    else:
        offsets, total = opened.slot_numbers, 0

    def resolved(argument: Argument) -> Argument:
        if argument.place is not ArgumentSource.WORKSPACE:
            return argument
        return replace(argument, index=offsets[argument.index])

    plan = CallPlan(
        inputs=tuple(_spec(p.name, tensor_type(p)) for p in function.params),
        outputs=tuple(
            _spec(name, value.type) for name, value in zip(_names(function), outputs, strict=True)
        ),
        constants=tuple(planner.constants),
        regions=tuple(planner.called),
        workspace_bytes=total,
        steps=tuple(map_step(step, resolved, lambda size: size) for step in steps),
        open=None if opened is None else opened.sizes,
    )
    if planner.stages:
        _check_stages(plan)
    return plan, Weights(planner.constants)


def _check_stages(plan: CallPlan) -> None:
    """Check that no step uses a size ahead of the step that computes it.

    Raises:
        UnsupportedError: One does: the size of what a branch gives, or an iteration of a loop.
    """
    try:
        verify_stages(plan)
    except ArtifactError as error:
        raise UnsupportedError(f"the plan cannot be made: {error.message}") from error


def _check_calls(steps: Sequence[Step], tensors: int) -> None:
    """Check that the addresses that calls pass take at most 512 KiB of the stack.

    Raises:
        UnsupportedError: The model, or a step, has more tensors.
    """
    for step in all_steps(steps):
        if isinstance(step, KernelStep):
            check_kernel(step.label, len(step.args))
        if isinstance(step, RegionStep) and len(step.args) > MOST_REGION_TENSORS:
            _refuse(f"the region {step.label}", len(step.args), MOST_REGION_TENSORS)
    if tensors > MOST_TENSORS:
        _refuse("the model", tensors, MOST_TENSORS)


def check_kernel(label: str, tensors: int) -> None:
    """Check that a kernel has no more tensors than a call can pass.

    Raises:
        UnsupportedError: It has.
    """
    if tensors > MOST_TENSORS:
        _refuse(f"a kernel of {label}", tensors, MOST_TENSORS)


def _refuse(what: str, tensors: int, most: int) -> None:
    raise UnsupportedError(
        f"{what[:200]} has {tensors} inputs and outputs, and may have {most}: "
        "a call of it would need too much stack",
        hint="join tensors, or cut the model into several",
    )


def _names(function: Function) -> tuple[str, ...]:
    if function.output_names:
        return function.output_names
    return tuple(f"output_{number}" for number in range(len(function.outputs)))


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, extents(kind), kind.dtype)
