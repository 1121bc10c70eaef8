# SPDX-License-Identifier: Apache-2.0
"""The call plan: which kernel or region runs when, on which part of the workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.graph.expr import Constant, Function, Var, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.artifact.deferred import Content, Weights
from intarsia_runtime.artifact.plan import (
    ALIGNMENT,
    Argument,
    CallPlan,
    CopyStep,
    KernelStep,
    Place,
    RegionStep,
    Step,
    TensorSpec,
)
from intarsia_runtime.errors import UnsupportedError, VerifyError

from .fuse import Fusion, KernelCall, RegionCall
from .open_plan import open_sizes
from .plan_memory import LiveRange, plan_memory
from .typical import extents
from .values import Value

if TYPE_CHECKING:
    from intarsia_ir.tir.func import PrimFunc

    from .targets import OutlinedRegion


MOST_TENSORS = 65_536
"""Most tensors of a kernel or a model: each takes the 8 bytes of its address."""

MOST_REGION_TENSORS = 8_192
"""Most tensors of a region: each takes 64 bytes, since it is described."""


class _Planner(Struct):
    """Places of values while the plan is written.

    Offsets of temporaries are numbers of lifetimes until :meth:`resolve` replaces them.
    """

    views: Mapping[Value, Value]
    places: dict[Value, tuple[Place, int]] = field(default_factory=dict[Value, tuple[Place, int]])
    lifetimes: list[LiveRange] = field(default_factory=list[LiveRange])
    constants: dict[str, Content] = field(default_factory=dict[str, Content])
    constant_numbers: dict[int, int] = field(default_factory=dict[int, int])

    def root(self, value: Value) -> Value:
        """Return the value whose memory ``value`` is."""
        while value in self.views:
            value = self.views[value]
        return value

    def read(self, value: Value, shape: tuple[int, ...], step: int) -> Argument:
        """Return where a step finds a value."""
        root = self.root(value)
        if isinstance(root.node, Constant) and root not in self.places:
            self.places[root] = (Place.CONSTANT, self._constant(root.node))
        if root not in self.places:
            raise VerifyError("a value is read before a step makes it", where=str(root.node.span))
        place, index = self.places[root]
        if place is Place.WORKSPACE:
            life = self.lifetimes[index]
            self.lifetimes[index] = replace(life, last=max(life.last, step))
        return Argument(place, index, shape, root.type.dtype)

    def make(self, value: Value, shape: tuple[int, ...], step: int) -> Argument:
        """Return where a step puts a value: an output of the model, or a new temporary."""
        if value not in self.places:
            self.places[value] = (Place.WORKSPACE, self.temporary(_bytes(value.type), step))
        place, index = self.places[value]
        return Argument(place, index, shape, value.type.dtype)

    def temporary(self, size: int, step: int) -> int:
        """Return the number of a new temporary."""
        self.lifetimes.append(LiveRange(size, step, step))
        return len(self.lifetimes) - 1

    def _constant(self, node: Constant) -> int:
        key = id(node.content)
        if key not in self.constant_numbers:
            name = _unique(node.name or f"constant_{len(self.constants)}", self.constants)
            self.constants[name] = node.content
            self.constant_numbers[key] = len(self.constants) - 1
        return self.constant_numbers[key]


def _unique(name: str, taken: Mapping[str, object]) -> str:
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def plan_calls(
    function: Function,
    fusion: Fusion,
    kernels: Mapping[KernelCall, PrimFunc],
    regions: Sequence[OutlinedRegion],
    *,
    alignment: int = ALIGNMENT,
) -> tuple[CallPlan, Weights]:
    """Return the plan of a function and the constants that its steps read.

    A result of the model is written where the caller wants it; later steps read it there.

    Args:
        function: What was fused.
        fusion: Its kernels and region calls in order.
        kernels: Kernel of each call.
        regions: Outlined functions.
        alignment: Of offsets in the workspace, in bytes.

    Raises:
        VerifyError: A region that is called is not among ``regions``.
    """
    planner = _Planner(fusion.views)
    for number, param in enumerate(function.params):
        planner.places[Value(param)] = (Place.INPUT, number)
    for number, output in enumerate(fusion.outputs):
        root = planner.root(output)
        if root not in planner.places and not isinstance(root.node, Constant | Var):
            planner.places[root] = (Place.OUTPUT, number)
    constant_names = {region.name: region for region in regions}
    called: dict[str, int] = {}
    steps: list[Step] = []
    for item in fusion.items:
        if isinstance(item, KernelCall):
            steps.append(_kernel_step(planner, item, kernels[item], len(steps)))
        elif item.name not in constant_names:
            raise VerifyError(f"no region '{item.name}'")
        else:
            number = called.setdefault(item.name, len(called))
            steps.append(_region_step(planner, item, constant_names[item.name], number, len(steps)))
    steps += _copies(planner, fusion.outputs, len(steps))
    _check_calls(steps, len(function.params) + len(fusion.outputs))
    opened = open_sizes(function, planner.lifetimes, steps)
    if opened is None:
        offsets, total = plan_memory(planner.lifetimes, alignment)
    else:
        offsets, total = opened.slot_numbers, 0
    plan = CallPlan(
        inputs=tuple(_spec(p.name, tensor_type(p)) for p in function.params),
        outputs=tuple(
            _spec(name, value.type)
            for name, value in zip(_names(function), fusion.outputs, strict=True)
        ),
        constants=tuple(planner.constants),
        regions=tuple(called),
        workspace_bytes=total,
        steps=tuple(_resolved(step, offsets) for step in steps),
        open=None if opened is None else opened.sizes,
    )
    return plan, Weights(planner.constants)


def _check_calls(steps: Sequence[Step], tensors: int) -> None:
    """Check that the addresses that calls pass take at most 512 KiB of the stack.

    Raises:
        UnsupportedError: The model, or a step, has more tensors.
    """
    for step in steps:
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


def _kernel_step(planner: _Planner, item: KernelCall, kernel: PrimFunc, step: int) -> KernelStep:
    args = [
        planner.read(value, buffer.shape, step)
        for value, buffer in zip(item.args, kernel.input_params, strict=True)
    ]
    args += [
        planner.make(value, buffer.shape, step)
        for value, buffer in zip(item.outputs, kernel.output_params, strict=True)
    ]
    args += [
        Argument(Place.WORKSPACE, planner.temporary(b.bytes, step), b.shape, b.dtype)
        for b in kernel.scratch_params
    ]
    sizes = tuple(size.name for size in kernel.sizes)
    return KernelStep(kernel.name, tuple(args), item.group.label, item.group.nodes, sizes)


def _region_step(
    planner: _Planner, item: RegionCall, region: OutlinedRegion, number: int, step: int
) -> RegionStep:
    args = [planner.read(value, extents(value.type), step) for value in item.args]
    args += [planner.make(value, extents(value.type), step) for value in item.outputs]
    label = f"{region.kind}:{region.name}"
    return RegionStep(number, tuple(args), label, region.nodes, region.sizes)


def _bytes(kind: TensorType) -> int:
    return prod(extents(kind)) * kind.dtype.bytes


def _copies(planner: _Planner, outputs: Sequence[Value], step: int) -> list[Step]:
    """Fill the outputs that no step writes: inputs, constants, views and duplicates."""
    copies: list[Step] = []
    for number, value in enumerate(outputs):
        shape = extents(value.type)
        source = planner.read(value, shape, step + len(copies))
        if (source.place, source.index) != (Place.OUTPUT, number):
            copies.append(CopyStep(source, Argument(Place.OUTPUT, number, shape, value.type.dtype)))
    return copies


def _resolved(step: Step, offsets: Sequence[int]) -> Step:
    """Replace numbers of temporaries by their offsets."""

    def place(argument: Argument) -> Argument:
        if argument.place is not Place.WORKSPACE:
            return argument
        return replace(argument, index=offsets[argument.index])

    if isinstance(step, CopyStep):
        return CopyStep(place(step.source), place(step.destination))
    return replace(step, args=tuple(place(argument) for argument in step.args))
