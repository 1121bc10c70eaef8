# SPDX-License-Identifier: Apache-2.0
"""The steps of a plan as statements in C: calls, copies, and the control flow around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    Block,
    CopyStep,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    RegionStep,
    SizesStep,
    Step,
)
from intarsia_runtime.dtype import DType

from .spelling import MEMORY_TYPES

AddressOf: TypeAlias = Callable[[Argument], str]
"""Returns the address of an argument."""

RegionCall: TypeAlias = Callable[[RegionStep, AddressOf], Sequence[str]]
"""Returns the statements that call a region, given the addresses of its tensors."""

_INDENT = "    "


class Statements:
    """Writes steps, and those inside them.

    Args:
        place: Gives the address of an argument's place.
        region: Writes the call of a region.
    """

    def __init__(self, place: AddressOf, region: RegionCall) -> None:
        self._place = place
        self._region = region
        self._loops = 0  # of which one is around the other now
        self._iterations: list[str] = []

    def write(self, steps: Sequence[Step]) -> list[str]:
        """Return the statements, indented as in a function."""
        return [line for step in steps for line in self._step(step)]

    def address_of(self, arg: Argument) -> str:
        """Return the address of an argument: of the row of the iteration, if it is one."""
        base = self._place(arg)
        if arg.loop is None:
            return base
        count = arg.bytes if arg.place is ArgumentSource.WORKSPACE else prod(arg.shape)
        return f"{base} + {self._iterations[arg.loop]} * {count}"

    def _typed(self, arg: Argument) -> str:
        """An address as a pointer to the elements of an argument."""
        address = self.address_of(arg)
        if arg.place is not ArgumentSource.WORKSPACE:
            return address
        return f"({MEMORY_TYPES[arg.dtype]} *)(void *)({address})"

    def _step(self, step: Step) -> list[str]:
        match step:
            case RegionStep():
                return [*self._region(step, self.address_of)]
            case KernelStep():
                args = ", ".join(self._typed(arg) for arg in step.args)
                return [f"    kernel_{step.function}({args});"]
            case CopyStep():
                target, source = self.address_of(step.destination), self.address_of(step.source)
                return [f"    copy_bytes({target}, {source}, {step.source.bytes}U);"]
            case GuardStep():
                return []  # of numbers, which were compared when the model was compiled
            case IfStep():
                condition = self._scalar(step.condition)
                then, orelse = self._inside(step.then), self._inside(step.orelse)
                return [f"    if ({condition}) {{", *then, "    } else {", *orelse, "    }"]
            case LoopStep():
                return self._loop(step)
            case SizesStep():
                raise AssertionError("a plan of open sizes has no face in C")

    def _inside(self, block: Block) -> list[str]:
        return [_INDENT + line for line in self.write(block.steps)]

    def _scalar(self, arg: Argument) -> str:
        kind = MEMORY_TYPES[arg.dtype]
        return f"*(const {kind} *)(const void *)({self.address_of(arg)})"

    def _loop(self, step: LoopStep) -> list[str]:
        iteration, limit = f"iteration_{self._loops}", f"limit_{self._loops}"
        self._loops += 1
        holds = [] if step.most is None else [f"{iteration} < {step.most}"]
        lines = ["    {"]
        if step.trip is not None:
            kind = MEMORY_TYPES[DType.INT64]
            lines.append(f"        const {kind} {limit} = {self._scalar(step.trip)};")
            holds.append(f"{iteration} < {limit}")
        if step.condition is not None:
            holds.append(self._scalar(step.condition))
        head = " && ".join(holds)
        lines.append(f"        for (int64_t {iteration} = 0; {head}; ++{iteration}) {{")
        if step.iteration is not None:
            kind = MEMORY_TYPES[DType.INT64]
            target = f"*({kind} *)(void *)({self.address_of(step.iteration)})"
            lines.append(f"            {target} = {iteration};")
        self._iterations.append(iteration)
        lines += [2 * _INDENT + line for line in self.write(step.body.steps)]
        self._iterations.pop()
        return [*lines, "        }", "    }"]
