# SPDX-License-Identifier: Apache-2.0
"""What a device does in one run: copies, launches and copies back. Imports no compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod

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
from intarsia_runtime.artifact.size_json import size_from_json
from intarsia_runtime.artifact.unit_json import Index, Size, read_unit_json
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size import Dim
from intarsia_runtime.size import Size as SizeExpression

FILE = "program.json"
SCHEMA = 2
STAMP = "intarsia_program_stamp"
_MAX_THREADS = 1024  # of a block


class DeviceSpot(Struct, frozen=True):
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
    spots: tuple[DeviceSpot, ...]
    kernel: str = ""
    bytes: Size = 0
    step: Index = 0


class Start(Struct, frozen=True, omit_defaults=True):
    """How a kernel is started.

    Attributes:
        dims: Blocks in x, y and z, then threads of a block; of open sizes, texts of expressions.
        waits: Whether its threads wait for each other.
        sizes: Size variables that it takes behind its buffers.
        pooled_bytes: Shared memory of a block that the launch names.
    """

    dims: tuple[Index | str, ...]
    waits: bool
    sizes: tuple[str, ...] = ()
    pooled_bytes: Index = 0


class DeviceProgram(Struct, frozen=True, omit_defaults=True):
    """One run of a model on a device.

    Attributes:
        arch: Architecture of the code.
        emulated: Whether the code is for this machine's CPU instead.
        kernels: By name.
        functions: Kernel of the plan to its launches: name, and which of its arguments it takes.
        reads: Kernel of the plan to how many of its arguments it only reads: the first ones.
        operations: In order; none of a plan of open sizes, which follow from the plan.
        most_elements: No tensor may have more when sizes are known; 0 for no limit.
    """

    arch: str
    emulated: bool
    kernels: Mapping[str, Start]
    functions: Mapping[str, tuple[tuple[str, tuple[Index, ...]], ...]]
    reads: Mapping[str, Index]
    operations: tuple[StreamOperation, ...]
    most_elements: Size = 0

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
                _check_launch(program, kernel, numbers, step)
            if program.reads[step.function] > len(step.args):
                raise ValueError(f"{step.function} reads more than its arguments")
        elif plan.open is not None and not isinstance(step, CopyStep):
            raise ValueError("a step of an open plan is neither a kernel nor a copy")
    if program.operations != stated_operations(plan, program.functions):
        raise ValueError("its operations are not those of the call plan")


def _check_launch(
    program: DeviceProgram, kernel: str, numbers: Sequence[int], step: KernelStep
) -> None:
    start, count = program.kernels[kernel], len(step.args)
    known = [size for size in start.dims if isinstance(size, int)]
    threads = [size for size in start.dims[3:] if isinstance(size, int)]
    whole = len(start.dims) == 6 and len(threads) == 3 and min(known) >= 1
    if not whole or prod(threads) > _MAX_THREADS:
        raise ValueError(f"{kernel} cannot be started with {start.dims}")
    if not all(number < count for number in numbers):
        raise ValueError(f"{kernel} takes arguments {list(numbers)} of {count}")
    used = set(start.sizes)
    for size in start_sizes(start):
        used.update(size.variables() if isinstance(size, Dim) else ())
    if not used <= set(step.sizes):
        raise ValueError(f"{kernel} takes sizes that its step has not")


def start_sizes(start: Start) -> tuple[SizeExpression, ...]:
    """Return how many blocks and threads a kernel has.

    Raises:
        ArtifactError: A text is no size.
    """
    return tuple([size_from_json(size) for size in start.dims])


def program_stamp(text: bytes, plan: CallPlan) -> int:
    """Return what binds kernels to the program that starts them, and to the plan's sizes."""
    return stamp_of([text.decode(errors="replace"), plan_stamp(plan)])


def stated_operations(
    plan: CallPlan, launches: Mapping[str, Sequence[tuple[str, tuple[int, ...]]]]
) -> tuple[StreamOperation, ...]:
    """Return the operations as a program states them."""
    return () if plan.open is not None else plan_operations(plan, launches)


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
    first: dict[int, list[DeviceSpot]] = {}
    last: dict[int, list[DeviceSpot]] = {}
    touched: dict[DeviceSpot, tuple[int, int]] = {}
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


def _spot(argument: Argument) -> DeviceSpot:
    return DeviceSpot(argument.place.value, argument.index)


def constants_used(plan: CallPlan) -> tuple[int, ...]:
    """Return the numbers of the constants that the plan reads, ascending."""
    used = {
        argument.index
        for step in plan.steps
        for argument in step_arguments(step)
        if argument.place is ArgumentSource.CONSTANT
    }
    return tuple(sorted(used))
