# SPDX-License-Identifier: Apache-2.0
"""Walks a plan from Python, one native call a step: what debugging and profiles need."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from ..abi import ArgumentBlock, DLTensor, SafeCall, data_address, numpy_dtype
from ..artifact.close_plan import close_step, closed
from ..artifact.plan import (
    Argument,
    ArgumentSource,
    Block,
    CallPlan,
    CopyStep,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    RegionStep,
    SizesStep,
    Step,
    TensorSpec,
    all_steps,
)
from ..artifact.plan_walk import step_arguments
from ..open_memory import OpenMemory, check_guard
from ..program import LoadedProgram
from ..size import value_of

SeeRegion: TypeAlias = Callable[[str, Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""Called with the name of a region, its inputs and its outputs."""

NO_SIZES: Mapping[str, int] = MappingProxyType({})


class Measured(Struct, frozen=True):
    """What a walk measured, one entry for each step of the plan at any depth.

    Attributes:
        seconds: Time of all its calls; of an ``if`` or loop without what is inside.
        counts: How often it ran; of a loop, how many iterations it made.
    """

    seconds: tuple[float, ...]
    counts: tuple[int, ...]


class _Call(Struct, frozen=True, eq=False):
    """A call with all addresses filled in but those of the caller's arrays and of rows."""

    number: int
    name: str
    function: int
    handle: int
    block: ArgumentBlock
    bound: tuple[tuple[DLTensor, Argument], ...]
    region: RegionStep | None = None
    copy_bytes: int = -1

    def run(self, program: LoadedProgram) -> int:
        """Run the step; not 0 if it failed."""
        if self.copy_bytes >= 0:
            source, destination = self.block.tensors
            ctypes.memmove(destination.data, source.data, self.copy_bytes)
            return 0
        block, call = self.block, SafeCall(self.function)
        return program.invoke(call, self.handle, block.address, block.count, block.result_address)


class _Guard(Struct, frozen=True, eq=False):
    number: int
    step: GuardStep


class _If(Struct, frozen=True, eq=False):
    number: int
    step: IfStep
    then: tuple[_Prepared, ...]
    orelse: tuple[_Prepared, ...]


class _Loop(Struct, frozen=True, eq=False):
    number: int
    step: LoopStep
    body: tuple[_Prepared, ...]


class _Late(Struct, frozen=True, eq=False):
    """A step of open sizes: it is made ready when it runs."""

    number: int
    step: KernelStep | RegionStep | CopyStep


class _Sizes(Struct, frozen=True, eq=False):
    number: int
    step: SizesStep


_Prepared: TypeAlias = _Call | _Guard | _If | _Loop | _Late | _Sizes


class PlanWalk:
    """A plan made ready to be walked. The caller holds the program's lock while it is.

    Attributes:
        plan: The plan.
        rows: Its steps, those inside a step behind it.

    Args:
        program: The loaded artifact.
        plan: Its plan.
        memory: Of a plan of open sizes, laid out for the inputs that :meth:`run` gets.
    """

    def __init__(
        self, program: LoadedProgram, plan: CallPlan, memory: OpenMemory | None = None
    ) -> None:
        self.rows = tuple(all_steps(plan.steps))
        self._program = program
        self.plan = plan
        self._memory_of_sizes = memory
        self._values = NO_SIZES if memory is None else memory.values()
        self._count = 0
        self._steps = self._prepared(Block(plan.steps))
        self._iterations: list[int] = []
        self._inputs: list[np.ndarray] = []
        self._outputs: list[np.ndarray] = []

    def run(
        self, inputs: list[np.ndarray], outputs: list[np.ndarray], see: SeeRegion | None = None
    ) -> Measured:
        """Carry out the plan.

        Args:
            inputs: Arrays of the model's inputs.
            outputs: Where the outputs are written.
            see: Called with the name of a region, its inputs and its outputs, when it has run;
                they are views that later steps overwrite.

        Raises:
            PluginError: A region failed.
            ModelError: A guard does not hold.
        """
        self._program.check_open()
        self._inputs, self._outputs, self._iterations = inputs, outputs, []
        seconds, counts = [0.0] * len(self.rows), [0] * len(self.rows)
        self._carry_out(self._steps, seconds, counts, see)
        return Measured(tuple(seconds), tuple(counts))

    def _carry_out(
        self,
        steps: Sequence[_Prepared],
        seconds: list[float],
        counts: list[int],
        see: SeeRegion | None,
    ) -> None:
        for step in steps:
            number = step.number
            if isinstance(step, _Guard):
                counts[number] += 1
                check_guard(step.step.guard, self._values)
            elif isinstance(step, _If):
                counts[number] += 1
                branch = step.then if self._number(step.step.condition) else step.orelse
                self._carry_out(branch, seconds, counts, see)
            elif isinstance(step, _Loop):
                limit = self._limit(step.step)
                self._iterations.append(0)
                while self._goes_on(step.step, limit):
                    counts[number] += 1
                    self._carry_out(step.body, seconds, counts, see)
                    self._iterations[-1] += 1
                self._iterations.pop()
            elif isinstance(step, _Sizes):
                counts[number] += 1
                self._read_sizes(step.step)
            else:
                counts[number] += 1
                call = step if isinstance(step, _Call) else self._closed(step)
                seconds[number] += self._called(call)
                if see is not None and call.region is not None:
                    self._show(call.region, see)

    def _closed(self, late: _Late) -> _Call:
        """Return a step of open sizes made ready for the sizes that are known by now."""
        step = close_step(late.step, self._values)
        assert isinstance(step, KernelStep | RegionStep | CopyStep)  # as before
        return self._prepare_call(step, late.number)

    def _read_sizes(self, step: SizesStep) -> None:
        memory = self._memory_of_sizes
        assert memory is not None  # only plans of open sizes have such a step
        memory.set_stage(step.stage, [self._number(size.argument) for size in step.sizes])
        self._values = memory.values()
        if step.is_final:
            for number, made in memory.new_outputs(step.stage).items():
                self._outputs[number] = made

    def _called(self, step: _Call) -> float:
        """Carry out a call; return the seconds that it took."""
        for tensor, argument in step.bound:
            tensor.data = self._address(argument)
        start = time.perf_counter()
        failed = step.run(self._program)
        taken = time.perf_counter() - start
        if failed:
            self._program.raise_failure(step.name or "a step")
        return taken

    def _limit(self, step: LoopStep) -> int | None:
        given = [] if step.most is None else [value_of(step.most, self._values)]
        given += [] if step.trip is None else [self._number(step.trip)]
        return min(given, default=None)

    def _goes_on(self, step: LoopStep, limit: int | None) -> bool:
        """Whether another iteration begins; its number is written where the body reads it."""
        iteration = self._iterations[-1]
        if limit is not None and iteration >= limit:
            return False
        if step.condition is not None and not self._number(step.condition):
            return False
        if step.iteration is not None:
            self._view(step.iteration)[...] = iteration
        return True

    def _number(self, argument: Argument) -> int:
        return int(self._view(argument).reshape(()))

    def _show(self, step: RegionStep, see: SeeRegion) -> None:
        name = self.plan.regions[step.region]
        views = [self._view(argument) for argument in step.args]
        taken = len(self._program.passport.unit(name).inputs)
        see(name, views[:taken], views[taken:])

    def _memory(self, argument: Argument) -> np.ndarray:
        match argument.place:
            case ArgumentSource.INPUT:
                return self._inputs[argument.index]
            case ArgumentSource.OUTPUT:
                return self._outputs[argument.index]
            case ArgumentSource.CONSTANT:
                return self._program.constants[argument.index]
            case ArgumentSource.WORKSPACE if self._memory_of_sizes is not None:
                return self._memory_of_sizes.slot(argument.index)
            case ArgumentSource.WORKSPACE:
                return self._program.workspace[argument.index :]

    def _row(self, argument: Argument) -> int:
        """Return how many bytes behind its place an argument begins."""
        argument = closed(argument, self._values)
        return 0 if argument.loop is None else self._iterations[argument.loop] * argument.bytes

    def _address(self, argument: Argument) -> int:
        return data_address(self._memory(argument)) + self._row(argument)

    def _view(self, argument: Argument) -> np.ndarray:
        """Return the memory of an argument as the callee sees it."""
        argument = closed(argument, self._values)
        start = self._row(argument)
        flat = self._memory(argument).reshape(-1).view(np.uint8)[start : start + argument.bytes]
        return flat.view(numpy_dtype(argument.dtype)).reshape(argument.shape)

    def _prepared(self, block: Block) -> tuple[_Prepared, ...]:
        return tuple([self._prepare(step) for step in block.steps])

    def _prepare(self, step: Step) -> _Prepared:
        number = self._count
        self._count += 1
        match step:
            case GuardStep():
                return _Guard(number, step)
            case IfStep(then=then, orelse=orelse):
                return _If(number, step, self._prepared(then), self._prepared(orelse))
            case LoopStep(body=body):
                return _Loop(number, step, self._prepared(body))
            case SizesStep():
                return _Sizes(number, step)
            case _ if self._memory_of_sizes is not None:
                return _Late(number, step)
            case _:
                return self._prepare_call(step, number)

    def _prepare_call(self, step: KernelStep | RegionStep | CopyStep, number: int) -> _Call:
        """Fill in what is known of a step before it runs."""
        program, arguments = self._program, step_arguments(step)
        specs = tuple([TensorSpec("", a.shape, a.dtype) for a in arguments])
        names = () if isinstance(step, CopyStep) else step.sizes
        sizes = [self._values[name] for name in names]
        block = ArgumentBlock(specs, trailing=sizes)
        bound: list[tuple[DLTensor, Argument]] = []
        for tensor, argument in zip(block.tensors, arguments, strict=True):
            if argument.loop is not None or argument.place in (
                ArgumentSource.INPUT,
                ArgumentSource.OUTPUT,
            ):
                bound.append((tensor, argument))
            else:
                tensor.data = data_address(self._memory(argument))
        name = step_name(step, self.plan)
        match step:
            case KernelStep(function):
                address = program.kernel(function, specs, sizes)
                return _Call(number, name, address, 0, block, tuple(bound))
            case RegionStep(called):
                region = program.regions[called]
                at = (region.function, region.handle)
                return _Call(number, name, *at, block, tuple(bound), step)
            case CopyStep(source):
                return _Call(number, name, 0, 0, block, tuple(bound), None, source.bytes)


def step_name(step: Step, plan: CallPlan) -> str:
    """Return what a profile calls a step."""
    match step:
        case KernelStep(function, _, label):
            return label or function
        case RegionStep(number, _, label):
            return label or plan.regions[number]
        case CopyStep():
            return "copy"
        case GuardStep():
            return "guard"
        case SizesStep():
            return "sizes"
        case IfStep(label=label):
            return label or "if"
        case LoopStep(label=label):
            return label or "loop"
