# SPDX-License-Identifier: Apache-2.0
"""The steps of a plan as statements in C: calls, copies, and the control flow around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol, TypeAlias

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
from intarsia_runtime.artifact.plan_walk import may_take_long
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .spelling import MEMORY_TYPES


class SizeTexts(Protocol):
    """Sizes of a plan of open sizes, in C."""

    def variable(self, name: str, /) -> str:
        """Return the value of a size variable."""
        ...

    def value(self, size: Size, /) -> str:
        """Return the number that a size is, as an operand."""
        ...

    def take_statements(self) -> list[str]:
        """Return the statements that must stand before what was asked for since the last call."""
        ...


AddressOf: TypeAlias = Callable[[Argument], str]
"""Returns the address of an argument."""

RegionCall: TypeAlias = Callable[[RegionStep, AddressOf], Sequence[str]]
"""Returns the statements that call a region, given the addresses of its tensors."""

SizesRead: TypeAlias = Callable[[SizesStep, AddressOf], Sequence[str]]
"""Returns the statements that read sizes, given the addresses of the tensors that have them."""

_INDENT = "    "


class Statements:
    """Writes steps, and those inside them.

    Args:
        place: Gives the address of an argument's place.
        region: Writes the call of a region.
        frame: Gives the sizes of a plan of open sizes; ``None`` if all are numbers.
        sizes: Writes what reads sizes that steps compute.
        poll: A call that is 0 where the user wants a loop to end; ``None`` if nobody can.
        guards: How many guards were checked before the steps.
    """

    def __init__(
        self,
        place: AddressOf,
        region: RegionCall,
        frame: SizeTexts | None = None,
        sizes: SizesRead | None = None,
        poll: str | None = None,
        *,
        guards: int = 0,
    ) -> None:
        self._place = place
        self._region = region
        self._frame = frame
        self._sizes = sizes
        self._poll = poll
        self._guards = guards
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
        return f"{base} + {self._iterations[arg.loop]} * {self._number(count)}"

    def _number(self, size: Size) -> str:
        """Return a size as an operand."""
        return str(size) if self._frame is None else self._frame.value(size)

    def _before(self) -> list[str]:
        """Return the statements that sizes written since need."""
        return [] if self._frame is None else self._frame.take_statements()

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
                args = [self._typed(arg) for arg in step.args]
                args += [] if self._frame is None else [self._frame.variable(n) for n in step.sizes]
                return [*self._before(), f"    kernel_{step.function}({', '.join(args)});"]
            case CopyStep():
                target, source = self.address_of(step.destination), self.address_of(step.source)
                count = f"{step.source.bytes}U"
                if self._frame is not None:
                    count = f"(uintptr_t)({self._number(step.source.bytes)})"
                return [*self._before(), f"    copy_bytes({target}, {source}, {count});"]
            case GuardStep():
                return self._guard(step)
            case IfStep():
                condition = self._scalar(step.condition)
                before = self._before()
                then, orelse = self._inside(step.then), self._inside(step.orelse)
                body = [f"    if ({condition}) {{", *then, "    } else {", *orelse, "    }"]
                return [*before, *body]
            case LoopStep():
                return self._loop(step)
            case SizesStep():
                assert self._sizes is not None  # of a plan whose steps compute sizes
                return [*self._sizes(step, self.address_of)]

    def _guard(self, step: GuardStep) -> list[str]:
        """Return the statement that ends a run whose sizes do not go together, or whose branch is
        chosen for a value that is an error.
        """
        self._guards += 1
        left, right = step.guard.left, step.guard.right
        if isinstance(left, int) and isinstance(right, int):
            return [] if left == right else [f"    return {self._guards};"]
        left, right = self._number(left), self._number(right)
        head = f"    if ({left} != {right}) {{"
        return [*self._before(), head, f"        return {self._guards};", "    }"]

    def _inside(self, block: Block) -> list[str]:
        return [_INDENT + line for line in self.write(block.steps)]

    def _scalar(self, arg: Argument) -> str:
        kind = MEMORY_TYPES[arg.dtype]
        return f"*(const {kind} *)(const void *)({self.address_of(arg)})"

    def _loop(self, step: LoopStep) -> list[str]:
        iteration, limit = f"iteration_{self._loops}", f"limit_{self._loops}"
        self._loops += 1
        holds = [] if step.most is None else [f"{iteration} < {self._number(step.most)}"]
        lines = ["    {"]
        if step.trip is not None:
            kind = MEMORY_TYPES[DType.INT64]
            lines.append(f"        const {kind} {limit} = {self._scalar(step.trip)};")
            holds.append(f"{iteration} < {limit}")
        if step.condition is not None:
            holds.append(self._scalar(step.condition))
        head = " && ".join(holds)
        lines += self._before()
        lines.append(f"        for (int64_t {iteration} = 0; {head}; ++{iteration}) {{")
        if step.iteration is not None:
            kind = MEMORY_TYPES[DType.INT64]
            target = f"*({kind} *)(void *)({self.address_of(step.iteration)})"
            lines += self._before()
            lines.append(f"            {target} = {iteration};")
        self._iterations.append(iteration)
        lines += [2 * _INDENT + line for line in self.write(step.body.steps)]
        self._iterations.pop()
        return [*lines, *self._ask(iteration, step), "        }", "    }"]

    def _ask(self, iteration: str, step: LoopStep) -> list[str]:
        """Return what lets the user end a loop that may take long, every 64 iterations."""
        if self._poll is None or not may_take_long(step):
            return []
        holds = f"({iteration} & 63) == 63 && {self._poll} == 0"
        return [f"            if ({holds}) {{", "                return -1;", "            }"]
