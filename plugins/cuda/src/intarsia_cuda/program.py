# SPDX-License-Identifier: Apache-2.0
"""What a device does in one run: copies, launches and copies back. Imports no compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct, to_builtins

from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    plan_stamp,
    stamp_of,
)
from intarsia_runtime.artifact.plan_walk import step_arguments
from intarsia_runtime.artifact.unit_json import Index, Size, read_unit_json
from intarsia_runtime.errors import ArtifactError

FILE = "program.json"
SCHEMA = 1
STAMP = "intarsia_program_stamp"
_MAX_THREADS = 1024  # of a block


class Spot(Struct, frozen=True):
    """A piece of device memory.

    Attributes:
        place: ``input``, ``output``, ``constant`` or ``workspace``.
        index: Its number, or its offset in the workspace in bytes.
    """

    place: str
    index: Size


class StreamOperation(Struct, frozen=True):
    """One thing that the stream of the device does.

    Attributes:
        what: ``in`` copies an input to the device, ``out`` an output back, ``copy`` within the
            device, ``launch`` starts a kernel, ``region`` calls an accelerator on the host.
        spots: The input or output; destination and source; or the kernel's arguments.
        kernel: Name of the kernel.
        bytes: How many to copy within the device.
        step: Number of the step in the call plan.
    """

    what: str
    spots: tuple[Spot, ...]
    kernel: str = ""
    bytes: Size = 0
    step: Index = 0


class Start(Struct, frozen=True):
    """How a kernel is started.

    Attributes:
        dims: Blocks in x, y and z, then threads of a block.
        waits: Whether its threads wait for each other.
    """

    dims: tuple[Index, ...]
    waits: bool


class DeviceProgram(Struct, frozen=True):
    """One run of a model on a device.

    Attributes:
        arch: Architecture of the code.
        emulated: Whether the code is for this machine's CPU instead.
        kernels: By name.
        functions: Kernel of the plan to its launches: name, and which of its arguments it takes.
        reads: Kernel of the plan to how many of its arguments it only reads: the first ones.
        operations: In order.
    """

    arch: str
    emulated: bool
    kernels: Mapping[str, Start]
    functions: Mapping[str, tuple[tuple[str, tuple[Index, ...]], ...]]
    reads: Mapping[str, Index]
    operations: tuple[StreamOperation, ...]

    def to_json(self) -> str:
        """Return the program as text."""
        return json.dumps({"schema": SCHEMA, **to_builtins(self)}, indent=1, sort_keys=True) + "\n"


class _VersionedProgram(Struct, frozen=True):
    """What every version of the file has."""

    schema: int


def program_from_json(data: bytes) -> DeviceProgram:
    """Inverse of :meth:`DeviceProgram.to_json`.

    Raises:
        ArtifactError: The text is damaged or of another schema.
    """
    if read_unit_json(data, _VersionedProgram, file=FILE).schema != SCHEMA:
        raise ArtifactError(
            f"{FILE} has another schema than {SCHEMA}", hint="compile the model again"
        )
    return read_unit_json(data, DeviceProgram, file=FILE)


def check_program(program: DeviceProgram, plan: CallPlan) -> None:
    """Check that a program does what the plan says, on memory that the plan has.

    Raises:
        ValueError: It does something else.
        LookupError: It starts a kernel that it does not describe.
    """
    for step in plan.steps:
        if isinstance(step, KernelStep):
            for kernel, numbers in program.functions[step.function]:
                _check_launch(program, kernel, numbers, len(step.args))
            if program.reads[step.function] > len(step.args):
                raise ValueError(f"{step.function} reads more than its arguments")
    if program.operations != plan_operations(plan, program.functions):
        raise ValueError("its operations are not those of the call plan")


def _check_launch(program: DeviceProgram, kernel: str, numbers: Sequence[int], count: int) -> None:
    dims = program.kernels[kernel].dims
    if len(dims) != 6 or min(dims) < 1 or dims[3] * dims[4] * dims[5] > _MAX_THREADS:
        raise ValueError(f"{kernel} cannot be started with {dims}")
    if not all(number < count for number in numbers):
        raise ValueError(f"{kernel} takes arguments {list(numbers)} of {count}")


def program_stamp(text: bytes, plan: CallPlan) -> int:
    """Return what binds kernels to the program that starts them, and to the plan's sizes."""
    return stamp_of([text.decode(errors="replace"), plan_stamp(plan)])


def plan_operations(
    plan: CallPlan, launches: Mapping[str, Sequence[tuple[str, tuple[int, ...]]]]
) -> tuple[StreamOperation, ...]:
    """Place the copies: an input goes to the device before its first reader, an output comes back
    behind its last writer.

    Args:
        plan: The call plan.
        launches: As :attr:`DeviceProgram.functions`.
    """
    inside: list[StreamOperation] = []
    for number, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            inside += [
                StreamOperation(
                    "launch", tuple(_spot(step.args[n]) for n in taken), name, step=number
                )
                for name, taken in launches[step.function]
            ]
        elif isinstance(step, CopyStep):
            spots = (_spot(step.destination), _spot(step.source))
            inside.append(StreamOperation("copy", spots, bytes=step.source.bytes, step=number))
        else:
            spots = tuple(_spot(argument) for argument in step_arguments(step))
            inside.append(StreamOperation("region", spots, step=number))
    first: dict[int, list[Spot]] = {}
    last: dict[int, list[Spot]] = {}
    touched: dict[Spot, tuple[int, int]] = {}
    for number, operation in enumerate(inside):
        for spot in operation.spots:
            touched[spot] = (touched.get(spot, (number, 0))[0], number)
    for spot, (begin, end) in touched.items():
        if spot.place == ArgumentSource.INPUT.value:
            first.setdefault(begin, []).append(spot)
        elif spot.place == ArgumentSource.OUTPUT.value:
            last.setdefault(end, []).append(spot)
    operations: list[StreamOperation] = []
    for number, operation in enumerate(inside):
        operations += [StreamOperation("in", (spot,)) for spot in first.get(number, ())]
        operations.append(operation)
        operations += [StreamOperation("out", (spot,)) for spot in last.get(number, ())]
    return tuple(operations)


def _spot(argument: Argument) -> Spot:
    return Spot(argument.place.value, argument.index)


def constants_used(plan: CallPlan) -> tuple[int, ...]:
    """Return the numbers of the constants that the plan reads, ascending."""
    used = {
        argument.index
        for step in plan.steps
        for argument in step_arguments(step)
        if argument.place is ArgumentSource.CONSTANT
    }
    return tuple(sorted(used))
