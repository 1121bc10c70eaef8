# SPDX-License-Identifier: Apache-2.0
"""What the runtime half reads of a unit: how kernels are started, and on what device.

Imports the runtime alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, to_builtins

from intarsia_runtime.artifact.plan import CallPlan, KernelStep, plan_stamp
from intarsia_runtime.plugin import (
    Index,
    LoadRequest,
    print_unit_json,
    read_versioned_json,
    stamp_of,
)

FILE, SOURCE = "program.json", "kernels.cl"
SCHEMA = 1
WRITER = "intarsia-opencl"


class KernelStart(Struct, frozen=True):
    """One function of the device, as a kernel of the plan starts it.

    Attributes:
        name: Of the function.
        arguments: Numbers of its arguments among those of the kernel of the plan.
        groups: Work-groups in x, y and z.
        items: Work-items of a group in x, y and z.
    """

    name: str
    arguments: tuple[Index, ...]
    groups: tuple[Index, Index, Index]
    items: tuple[Index, Index, Index]


class OpenclProgram(Struct, frozen=True):
    """How a model runs on a device.

    Attributes:
        device_type: Value of the option ``-device-type``.
        device: Value of the option ``-device``.
        fp64: Whether kernels compute in float64.
        group_items: Work-items of the largest group.
        local_bytes: Local memory of the largest group.
        functions: Kernel of the plan to what it starts, in order.
        reads: Kernel of the plan to how many of its arguments it only reads: the first ones.
    """

    device_type: str
    device: str
    fp64: bool
    group_items: Index
    local_bytes: Index
    functions: Mapping[str, tuple[KernelStart, ...]]
    reads: Mapping[str, Index]

    def to_json(self) -> bytes:
        """Return the program as text."""
        return print_unit_json(to_builtins(self), schema=SCHEMA)


def stamp_line(program: bytes, plan: CallPlan) -> bytes:
    """Return the last line of a source: it binds kernels to the sizes that they are called with."""
    stamp = stamp_of([program.decode(errors="replace"), plan_stamp(plan)])
    return b"/* for program %d */\n" % stamp


def read_program(request: LoadRequest, plan: CallPlan) -> OpenclProgram:
    """Read the program of a unit, and check that it and its kernels are for the plan.

    Raises:
        ArtifactError: The unit is damaged, or of another plan.
    """
    text = request.file(FILE)
    with request.interpreting(FILE):
        program = read_versioned_json(text, OpenclProgram, file=FILE, schema=SCHEMA, writer=WRITER)
        if not request.file(SOURCE).endswith(stamp_line(text, plan)):
            raise request.damaged(f"{SOURCE} is for another {FILE} or plan")
        for start, count in _starts(program, plan):
            dims = (*start.groups, *start.items)
            if min(dims) < 1 or not all(number < count for number in start.arguments):
                raise ValueError(f"{start.name} cannot be started so")
    return program


def _starts(program: OpenclProgram, plan: CallPlan) -> Iterator[tuple[KernelStart, int]]:
    """Return each start with the number of arguments of its kernel."""
    for step in plan.steps:
        if isinstance(step, KernelStep):
            if program.reads[step.function] > len(step.args):
                raise ValueError(f"{step.function} reads more than its arguments")
            for start in program.functions[step.function]:
                yield start, len(step.args)
