# SPDX-License-Identifier: Apache-2.0
"""What the runtime half reads of a unit: how kernels are started, and on what device.

Imports the runtime alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from intarsia_runtime.artifact.plan import CallPlan, KernelStep, plan_stamp
from intarsia_runtime.artifact.size_json import size_from_json
from intarsia_runtime.plugin import (
    Index,
    LoadRequest,
    print_unit_json,
    read_versioned_json,
    stamp_of,
)
from intarsia_runtime.size import Dim, Size, value_of

FILE, SOURCE = "program.json", "kernels.cl"
SCHEMA = 1
WRITER = "intarsia-opencl"


class KernelStart(Struct, frozen=True, omit_defaults=True):
    """One function of the device, as a kernel of the plan starts it.

    Attributes:
        name: Of the function.
        arguments: Numbers of its arguments among those of the kernel of the plan.
        groups: Work-groups in x, y and z; of open sizes, texts of expressions.
        items: Work-items of a group in x, y and z.
        sizes: Size variables that it takes behind its buffers.
    """

    name: str
    arguments: tuple[Index, ...]
    groups: tuple[Index | str, Index | str, Index | str]
    items: tuple[Index, Index, Index]
    sizes: tuple[str, ...] = ()

    @property
    def group_sizes(self) -> tuple[Size, ...]:
        """Work-groups as sizes.

        Raises:
            ArtifactError: A text is no size.
        """
        return tuple([size_from_json(size) for size in self.groups])

    def closed(self, values: Mapping[str, int]) -> KernelStart | None:
        """Return the start for values of the size variables; ``None`` if there are no groups."""
        x, y, z = (value_of(size, values) for size in self.group_sizes)
        return replace(self, groups=(x, y, z)) if min(x, y, z) > 0 else None


class OpenclProgram(Struct, frozen=True, omit_defaults=True):
    """How a model runs on a device.

    Attributes:
        device_type: Value of the option ``-device-type``.
        device: Value of the option ``-device``.
        fp64: Whether kernels compute in float64.
        group_items: Work-items of the largest group.
        local_bytes: Local memory of the largest group.
        functions: Kernel of the plan to what it starts, in order.
        reads: Kernel of the plan to how many of its arguments it only reads: the first ones.
        most_elements: No tensor may have more when sizes are known; 0 for no limit.
    """

    device_type: str
    device: str
    fp64: bool
    group_items: Index
    local_bytes: Index
    functions: Mapping[str, tuple[KernelStart, ...]]
    reads: Mapping[str, Index]
    most_elements: Index = 0

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
        for start, step in _starts(program, plan):
            dims = [size for size in (*start.groups, *start.items) if isinstance(size, int)]
            used = set(start.sizes)
            for size in start.group_sizes:
                used.update(size.variables() if isinstance(size, Dim) else ())
            fits = all(number < len(step.args) for number in start.arguments)
            if min(dims) < 1 or not fits or not used <= set(step.sizes):
                raise ValueError(f"{start.name} cannot be started so")
    return program


def _starts(program: OpenclProgram, plan: CallPlan) -> Iterator[tuple[KernelStart, KernelStep]]:
    """Return each start with the step that it is for."""
    for step in plan.steps:
        if isinstance(step, KernelStep):
            if program.reads[step.function] > len(step.args):
                raise ValueError(f"{step.function} reads more than its arguments")
            for start in program.functions[step.function]:
                yield start, step
