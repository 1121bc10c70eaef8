# SPDX-License-Identifier: Apache-2.0
"""The executor for debugging: walks the plan from Python, one call a step, and times each."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from ..abi import ArgumentBlock, DLTensor, SafeCall, data_address, numpy_dtype
from ..artifact.plan import (
    Argument,
    CallPlan,
    CopyStep,
    KernelStep,
    Place,
    RegionStep,
    Step,
    TensorSpec,
)
from ..artifact.plan_json import step_arguments
from ..errors import UsageError
from ..program import Program
from .planned import PlanExecutor
from .signature import Inputs

SeeRegion: TypeAlias = Callable[[str, Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""Called with the name of a region, its inputs and its outputs."""


class ProfileRow(Struct, frozen=True):
    """Time of one step.

    Attributes:
        label: Operators of a kernel, or accelerator and region.
        nodes: Names of the model's nodes in it.
        milliseconds: Median over the repeats.
        share: Part of the whole run, 0 to 1.
    """

    label: str
    nodes: tuple[str, ...]
    milliseconds: float
    share: float


class GraphExecutor(PlanExecutor):
    """Runs a loaded artifact step by step. Slower than the ``aot`` executor, with the same results.

    Args:
        program: The loaded artifact, owned by the executor from now on.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._steps = tuple(prepare_step(program, step) for step in program.passport.plan.steps)

    def profile(self, inputs: Inputs, repeat: int = 1) -> tuple[ProfileRow, ...]:
        """Time each step.

        Args:
            inputs: As for :meth:`run`.
            repeat: Runs to take the median of; one more goes before them to warm up.

        Raises:
            UsageError: ``repeat`` is less than 1.

        Returns:
            One row for each step, in the order they run.
        """
        check_repeat(repeat)
        arrays = self._inputs.check_inputs(inputs)
        results = self._outputs.allocate()
        return profile_steps(self._steps, lambda: self._execute(arrays, results), repeat)

    def walk_regions(self, inputs: Inputs, see: SeeRegion) -> dict[str, np.ndarray]:
        """Run, and show what every region took and gave before the next step runs.

        Args:
            inputs: As for :meth:`run`.
            see: Called with the name of a region, its inputs and its outputs; they are views that
                later steps overwrite.

        Returns:
            The outputs.
        """
        arrays = self._inputs.check_inputs(inputs)
        results = self._outputs.allocate()
        plan = self._program.passport.plan
        walk_steps(self._program, plan, self._steps, arrays, results, see)
        return dict(zip(self._outputs.names, results, strict=True))

    def _execute(
        self,
        arrays: list[np.ndarray],
        results: list[np.ndarray],
    ) -> list[float]:
        """Carry out the plan; return the seconds that each step took."""
        return execute_steps(self._program, self._steps, arrays, results)


def check_repeat(repeat: int) -> None:
    """Refuse to take the median of no runs.

    Raises:
        UsageError: ``repeat`` is less than 1.
    """
    if repeat < 1:
        raise UsageError(f"cannot take the median of {repeat} runs", hint="--repeat 1 or more")


def profile_steps(
    steps: Sequence[PreparedStep], execute: Callable[[], list[float]], repeat: int
) -> tuple[ProfileRow, ...]:
    """Return the median time of each step; ``execute`` carries all out and returns seconds."""
    execute()
    rounds = [execute() for _ in range(repeat)]
    times = [float(middle) for middle in np.median(rounds, axis=0)]
    whole = sum(times) or 1.0
    return tuple(
        ProfileRow(step.label, step.nodes, seconds * 1e3, seconds / whole)
        for step, seconds in zip(steps, times, strict=True)
    )


def execute_steps(
    program: Program,
    steps: Sequence[PreparedStep],
    arrays: list[np.ndarray],
    results: list[np.ndarray],
    after: Callable[[int], None] | None = None,
) -> list[float]:
    """Carry out prepared steps; return the seconds that each took."""
    times: list[float] = []
    with program.lock:
        program.check_open()
        for number, step in enumerate(steps):
            step.bind(arrays, results)
            start = time.perf_counter()
            failed = step.call(program)
            times.append(time.perf_counter() - start)
            if failed:
                program.raise_failure(step.label or "a step")
            if after is not None:
                after(number)
    return times


def walk_steps(
    program: Program,
    plan: CallPlan,
    steps: Sequence[PreparedStep],
    arrays: list[np.ndarray],
    results: list[np.ndarray],
    see: SeeRegion,
) -> None:
    """Carry out prepared steps, and show what every region took and gave before the next one runs.

    Args:
        program: The loaded artifact.
        plan: The plan of the steps, whose sizes are numbers.
        steps: Its steps.
        arrays: Inputs.
        results: Where the outputs are written.
        see: Called with the name of a region, its inputs and its outputs; they are views that
            later steps overwrite.
    """

    def after(number: int) -> None:
        step = plan.steps[number]
        if isinstance(step, RegionStep):
            views = [_view(program, argument, arrays, results) for argument in step.args]
            taken = len(program.passport.unit(plan.regions[step.region]).inputs)
            see(plan.regions[step.region], views[:taken], views[taken:])

    execute_steps(program, steps, arrays, results, after)


def _view(
    program: Program, argument: Argument, inputs: list[np.ndarray], outputs: list[np.ndarray]
) -> np.ndarray:
    """Return the memory of an argument as the callee sees it."""
    match argument.place:
        case Place.INPUT:
            memory = inputs[argument.index]
        case Place.OUTPUT:
            memory = outputs[argument.index]
        case Place.CONSTANT:
            memory = program.constants[argument.index]
        case Place.WORKSPACE:
            memory = program.workspace[argument.index :]
    flat = memory.reshape(-1).view(np.uint8)[: argument.bytes]
    return flat.view(numpy_dtype(argument.dtype)).reshape(argument.shape)


class PreparedStep(Struct, frozen=True, eq=False):
    """A step with all addresses filled in but those of the caller's arrays."""

    label: str
    nodes: tuple[str, ...]
    function: int
    handle: int
    block: ArgumentBlock
    from_caller: tuple[tuple[DLTensor, Place, int], ...]
    copy_bytes: int = -1

    def bind(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        """Fill in the addresses of the caller's arrays."""
        for tensor, place, index in self.from_caller:
            array = inputs[index] if place is Place.INPUT else outputs[index]
            tensor.data = data_address(array)

    def call(self, program: Program) -> int:
        """Run the step; not 0 if it failed."""
        if self.copy_bytes >= 0:
            source, destination = self.block.tensors
            ctypes.memmove(destination.data, source.data, self.copy_bytes)
            return 0
        block = self.block
        call = SafeCall(self.function)
        return program.invoke(call, self.handle, block.address, block.count, block.result_address)


def prepare_step(
    program: Program, step: Step, values: Mapping[str, int] = MappingProxyType({})
) -> PreparedStep:
    """Fill in what is known of a step before it runs.

    Args:
        program: The loaded artifact.
        step: Of a plan whose sizes are numbers.
        values: Of the size variables, if the program is one of open sizes.
    """
    arguments = step_arguments(step)
    specs = tuple([TensorSpec("", a.shape, a.dtype) for a in arguments])
    sizes = () if isinstance(step, CopyStep) else step.sizes
    block = ArgumentBlock(specs, trailing=[values[name] for name in sizes])
    caller: list[tuple[DLTensor, Place, int]] = []
    for tensor, argument in zip(block.tensors, arguments, strict=True):
        address = _known_address(program, argument)
        if address is None:
            caller.append((tensor, argument.place, argument.index))
        else:
            tensor.data = address
    match step:
        case KernelStep(function, _, label, nodes):
            address = program.kernel(function, specs)
            return PreparedStep(label or function, nodes, address, 0, block, tuple(caller))
        case RegionStep(number, _, label, nodes):
            region = program.regions[number]
            name = label or program.passport.plan.regions[number]
            return PreparedStep(name, nodes, region.function, region.handle, block, tuple(caller))
        case CopyStep(source):
            return PreparedStep("copy", (), 0, 0, block, tuple(caller), source.bytes)


def _known_address(program: Program, argument: Argument) -> int | None:
    match argument.place:
        case Place.CONSTANT:
            return program.constants[argument.index].ctypes.data
        case Place.WORKSPACE:
            return program.workspace.ctypes.data + argument.index
        case Place.INPUT | Place.OUTPUT:
            return None
