# SPDX-License-Identifier: Apache-2.0
"""The memory of a plan of open sizes: its frame, and a workspace for each stage.

Workspaces grow, and keep their size for smaller values. That of stage 0 grows before a run, the
others while it goes on: compiled code asks for them (see :mod:`intarsia_runtime.artifact.plan`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from .abi import GrowCall, SizesCall, array_dtype, data_address
from .artifact.plan import NO_ROOM, CallPlan, SizeGuard, frame_entries
from .artifact.plan_sizes import slot_offsets
from .artifact.plan_walk import guards_of_steps
from .errors import IntarsiaError, ModelError, ResourceError
from .memory import allocate, check_memory
from .size import Dim, Size, SizeOp, value_of
from .size_range import SizeRange

Shape: TypeAlias = "tuple[int, ...]"


class OpenMemory:
    """Frame, workspaces and outputs of one program.

    Args:
        plan: Of open sizes.
        find: Returns the address of a function of the code; ``None`` if a device runs the plan.

    Attributes:
        frame: The numbers that code and runtime share.
        workspaces: Memory of each stage.
        outputs: By number, the outputs whose sizes steps of the last run have computed.
    """

    def __init__(self, plan: CallPlan, find: Callable[[str], int] | None) -> None:
        sizes = plan.open
        assert sizes is not None  # who makes one has such a plan
        self._plan, self._sizes = plan, sizes
        self._range = SizeRange(plan)
        self.frame = (ctypes.c_int64 * frame_entries(plan))()
        self._frame_address = ctypes.addressof(self.frame)
        self._rooms = len(sizes.names)  # where the bytes of workspaces are
        self._stages = len(sizes.stages)
        first = len(sizes.names) + 1 + self._stages + len(sizes.slots)
        ranks = [len(spec.shape) for spec in plan.outputs]
        self._starts = list(accumulate(ranks, initial=first))  # where shapes of outputs are
        self.workspaces = [np.empty(0, np.uint8) for _ in range(self._stages + 1)]
        self.outputs: dict[int, np.ndarray] = {}
        self._failure: BaseException | None = None
        names = ["", *(f"_{stage}" for stage in range(1, self._stages + 1))]
        self._is_native = find is not None
        self._functions: list[Callable[[int], int]] = [self._laid_out]
        if find is not None:
            self._functions = [SizesCall(find(f"intarsia_plan_sizes{name}")) for name in names]
        self._grow = GrowCall(self._grown)
        self._context: ctypes.Array[ctypes.c_void_p] | None = None

    def attach(self, context: ctypes.Array[ctypes.c_void_p]) -> None:
        """Keep the context that compiled code gets up to date from now on."""
        self._context = context

    def pointers(self) -> list[int]:
        """Return the entries of the context from the frame on, before anything is laid out."""
        found = [self._frame_address]
        if self._stages:
            grow = ctypes.cast(self._grow, ctypes.c_void_p).value or 0
            found += [grow, 0, *(0 for _ in range(2 * self._stages + len(self._plan.outputs)))]
        return found

    def set_inputs(self, values: Sequence[int]) -> None:
        """Lay out stage 0 for values of the size variables of inputs.

        Raises:
            ModelError: A guard of the plan does not hold.
            ResourceError: No memory for the workspace, or no number for its size.
        """
        self._range.check(values)
        self.frame[: len(values)] = values
        failed = self._functions[0](self._frame_address)
        if failed:
            raise self._guard_failed(failed)
        if self._is_native:  # a device has memory of its own
            self._reserve(0)

    def set_stage(self, stage: int, values: Sequence[int]) -> None:
        """Lay out a stage as compiled code does, for a run step by step.

        Raises:
            ModelError: A guard of the plan does not hold, or a value is no size.
            ResourceError: No memory for what depends on these sizes.
        """
        first = self._sizes.names.index(self._sizes.stages[stage - 1][0])
        self.frame[first : first + len(values)] = values
        if self._functions[stage](self._frame_address):
            self.raise_failure()
        self._reserve(stage)

    def _laid_out(self, _frame: int) -> int:
        """Compute what stands behind the variables, where no code does."""
        values = self.values()
        for number, guard in enumerate(self._sizes.guards, start=1):
            if not holds(guard, values):
                return number
        starts, total = slot_offsets(self._sizes, values)
        shapes = [value_of(size, values) for spec in self._plan.outputs for size in spec.shape]
        self.frame[len(values) :] = [total, *starts, *shapes]
        return 0

    def values(self) -> dict[str, int]:
        """Return the values of all size variables; of stages that are not laid out, old ones."""
        return dict(zip(self._sizes.names, self.frame, strict=False))

    def extents(self, output: int) -> ctypes.Array[ctypes.c_int64]:
        """Return the part of the frame that has the shape of an output."""
        extents = ctypes.c_int64 * len(self._plan.outputs[output].shape)
        return extents.from_buffer(self.frame, self._starts[output] * ctypes.sizeof(ctypes.c_int64))

    def shape(self, output: int) -> Shape:
        """Return the shape of an output whose stage is laid out.

        Raises:
            ModelError: A size is negative.
        """
        start, end = self._starts[output : output + 2]
        shape = tuple(self.frame[start:end])
        if shape and min(shape) < 0:
            name = self._plan.outputs[output].name
            raise ModelError(
                f"output '{name}' would have the shape {shape}", hint="pass larger inputs"
            )
        return shape

    def slot(self, number: int) -> np.ndarray:
        """Return the memory from the beginning of a slot on."""
        stage = self._sizes.stage(self._sizes.slots[number])
        self._reserve(stage)
        offset = self.frame[self._rooms + 1 + self._stages + number]
        return self.workspaces[stage][offset:]

    def begin(self) -> None:
        """Prepare for a run."""
        if self._stages:
            self._failure = None
            self.outputs = {}
            self.frame[-1] = 0

    def raise_failure(self, returned: int = 0) -> None:
        """Raise what stopped a run at a stage or a guard, if it was that.

        Args:
            returned: What ``main`` returned.

        Raises:
            ModelError: A guard of the plan does not hold, or a value is no size.
            ResourceError: No memory for what depends on the sizes of a stage.
        """
        check_guard_of_step(self._plan, returned, self.values())
        if not self._stages:
            return
        failure, self._failure = self._failure, None
        if isinstance(failure, IntarsiaError | KeyboardInterrupt | MemoryError):
            raise failure
        status: int = self.frame[-1]
        if status == NO_ROOM:
            raise ResourceError(
                "a tensor whose size the model computes would be larger than any memory",
                hint="use a smaller batch or input",
            )
        if status > 0:
            raise self._guard_failed(status)
        if status < 0:
            number = -1 - status
            value = self.frame[number]
            kind = ModelError if value < 0 else ResourceError
            name = self._sizes.names[number]
            raise kind(f"the model computes {value} for the size '{name}'")

    def _guard_failed(self, number: int) -> ModelError:
        return guard_error(self._sizes.guards[number - 1], self.values())

    def _reserve(self, stage: int) -> None:
        """Let the workspace of a stage have as many bytes as the frame says."""
        needed = self.frame[self._rooms + stage]
        room = self.workspaces[stage].nbytes
        if needed > room:
            if stage and room:  # what grows from iteration to iteration gets more at once
                needed += needed >> 1
            self.workspaces[stage] = np.empty(0, np.uint8)  # freed before there is another
            self._place(stage)  # nobody may use it if there is no memory
            self.workspaces[stage] = allocate(needed)
            self._place(stage)

    def _place(self, stage: int) -> None:
        """Tell compiled code where the workspace of a stage is."""
        if self._context is None:
            return
        memory = self.workspaces[stage]
        if stage == 0:
            self._context[0] = memory.ctypes.data
            return
        after_frame = len(self._context) - 2 * self._stages - len(self._plan.outputs)
        entry = after_frame + 2 * (stage - 1)
        self._context[entry] = memory.ctypes.data
        self._context[entry + 1] = memory.nbytes

    def _grown(self, _state: int | None, number: int, size: int) -> int:
        """Give compiled code the workspace of a stage, or a new output; 0 if there is no memory."""
        try:
            if number <= self._stages:
                self._reserve(number)
                return self.workspaces[number].ctypes.data
            return self._new_output(number - self._stages - 1, size)
        except BaseException as error:  # crosses native frames: kept, and raised behind them
            self._failure = error
            return 0

    def _new_output(self, number: int, size: int) -> int:
        check_memory(size)
        spec = self._plan.outputs[number]
        try:
            made = np.empty(self.shape(number), array_dtype(spec))
        except (MemoryError, ValueError):
            raise ResourceError(f"no memory for output '{spec.name}' of {size} bytes") from None
        self.outputs[number] = made
        return data_address(made) or data_address(_NOWHERE)

    def new_outputs(self, stage: int) -> dict[int, np.ndarray]:
        """Make the outputs of a stage that is laid out, for a run step by step."""
        self.outputs = {}
        for number, spec in enumerate(self._plan.outputs):
            if self._sizes.stage(*spec.shape) == stage:
                self._new_output(number, 0)
        return self.outputs


def holds(guard: SizeGuard, values: Mapping[str, int]) -> bool:
    """Whether both sizes of a guard are equal."""
    return value_of(guard.left, values) == value_of(guard.right, values)


def check_guard(guard: SizeGuard, values: Mapping[str, int]) -> None:
    """Refuse sizes that do not go together.

    Raises:
        ModelError: The sizes of the guard are not equal.
    """
    if not holds(guard, values):
        raise guard_error(guard, values)


def check_guard_of_step(plan: CallPlan, number: int, values: Mapping[str, int]) -> None:
    """Check one of the guards among the steps of a plan; nothing happens if there is none.

    Args:
        plan: The plan.
        number: Of the guard, from 1: what ``main`` returns if it does not hold.
        values: Values of the size variables.

    Raises:
        ModelError: It does not hold.
    """
    guards = guards_of_steps(plan) if number > 0 else []
    if 0 < number <= len(guards):
        check_guard(guards[number - 1], values)


def guard_error(guard: SizeGuard, values: Mapping[str, int]) -> ModelError:
    """Return the error for a guard that does not hold."""
    left, right = guard.left, guard.right
    if isinstance(left, int) and isinstance(right, int):  # about values, which are not kept
        return ModelError(guard.why)
    match left:
        case Dim(terms=((((SizeOp(op="min", a=a, b=b),), 1)),)) if right in (a, b):
            most = b if right == a else a  # the minimum of both is the first where it is no more
            facts = f"{_equation(right, values)}, more than {_equation(most, values)}"
        case _:
            link = f" and {right} is" if isinstance(right, Dim) else ", not"
            facts = f"{left} is {value_of(left, values)}{link} {value_of(right, values)}"
    return ModelError(f"{guard.why}: {facts}", hint="pass inputs of sizes that fit the model")


def _equation(size: Size, values: Mapping[str, int]) -> str:
    return str(size) if isinstance(size, int) else f"{size} = {value_of(size, values)}"


_NOWHERE: np.ndarray = np.empty(64, np.uint8)
"""Where an output without elements is."""
