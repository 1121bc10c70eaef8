# SPDX-License-Identifier: Apache-2.0
"""Sizes that only the run knows: expressions over the frame, and the function that fills it.

The layout of the frame is told in :mod:`intarsia_runtime.artifact.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.tir.expr import index, size_variable
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_source import RESERVED
from intarsia_loops.codegen.c_values import ExpressionWriter
from intarsia_loops.codegen.names import Names, bare
from intarsia_runtime.artifact.plan import ALIGNMENT, CallPlan, OpenSizes
from intarsia_runtime.artifact.plan_sizes import slots_behind
from intarsia_runtime.size import Size

FRAME = "frame"
"""What functions call the frame."""


def any_size(shape: Sequence[Size]) -> tuple[int, ...]:
    """Return a shape for static checks: -1 for an open size."""
    return tuple([size if isinstance(size, int) else -1 for size in shape])


class CFrame:
    """The frame of an open plan as a function reads it.

    Args:
        functions: Collects the small functions that the text calls.
        sizes: Of the plan.
    """

    def __init__(self, functions: Functions, sizes: OpenSizes) -> None:
        self._values = ExpressionWriter(functions, Names(RESERVED | {FRAME, "end", "context"}))
        self._sizes = sizes
        self._behind = slots_behind(sizes)
        self._slots = len(sizes.names) + 1 + len(sizes.stages)
        for number, name in enumerate(sizes.names):
            variable = size_variable(name)
            self._values.variables[variable] = f"{FRAME}[{number}]"
            self._values.counters.add(variable)
            self._values.natural.add(variable)

    def variable(self, name: str) -> str:
        """Return the value of a size variable."""
        return self._values.variables[size_variable(name)]

    def offset(self, slot: int) -> str:
        """Return where a slot of the workspace begins."""
        return f"{FRAME}[{self._slots + slot}]"

    def bytes(self, stage: int) -> str:
        """Return how many bytes the workspace of a stage has."""
        return f"{FRAME}[{len(self._sizes.names) + stage}]"

    @property
    def shapes(self) -> int:
        """Number of the entry where the sizes of the outputs begin."""
        return self._slots + len(self._sizes.slots)

    def start_of(self, slot: int) -> list[str]:
        """Return the statements that put a slot where the last of those before it ends."""
        return self._largest(self.offset(slot), self._behind[slot])

    def end_of(self, slot: int, size: Size) -> list[str]:
        """Return the statements that compute where a slot ends."""
        padded = f"((int64_t)({self.value(size)}) + {ALIGNMENT - 1}) & ~(int64_t){ALIGNMENT - 1}"
        end = f"    const int64_t end_{slot} = {self.offset(slot)} + ({padded});"
        return [*self.take_statements(), end]

    def workspace_of(self, slots: Sequence[int], stage: int) -> list[str]:
        """Return the statements that compute how many bytes the workspace of a stage has."""
        covered = {number for slot in slots for number in self._behind[slot]}
        return self._largest(self.bytes(stage), [slot for slot in slots if slot not in covered])

    def _largest(self, target: str, slots: Sequence[int]) -> list[str]:
        """Return the statements that set ``target`` to the last end of some slots."""
        lines = [f"    {target} = {f'end_{slots[0]}' if slots else '0'};"]
        for slot in slots[1:]:
            lines += [
                f"    if ({target} < end_{slot}) {{",
                f"        {target} = end_{slot};",
                "    }",
            ]
        return lines

    def value(self, size: Size) -> str:
        """Return the number that a size is, as an operand."""
        values, expr = self._values, index(size)
        with values.statement(expr):
            return values.position(expr)

    def take_statements(self) -> list[str]:
        """Return the statements that must stand before what was asked for since the last call."""
        lines, self._values.lines = self._values.lines, []
        return lines


def stage_head(stage: int) -> list[str]:
    """Return how the function begins that computes the sizes of a stage."""
    head = f"int32_t intarsia_plan_sizes{f'_{stage}' if stage else ''}(int64_t *{FRAME})"
    return [f"{head};", head, "{"]


def print_plan_sizes(plan: CallPlan, functions: Functions, *, is_static: bool = False) -> str:
    """Return ``intarsia_plan_sizes(frame)`` of a plan of open sizes.

    Args:
        plan: The plan.
        functions: Collects the small functions that the text calls.
        is_static: Whether it is ``plan_sizes(frame)`` of one file alone.
    """
    sizes = plan.open
    assert sizes is not None  # the caller asks
    frame = CFrame(functions, sizes)
    lines = [f"static int32_t plan_sizes(int64_t *{FRAME})", "{"] if is_static else stage_head(0)
    for number, guard in enumerate(sizes.guards, start=1):
        if sizes.stage(guard.left, guard.right):
            continue
        left, right = frame.value(guard.left), frame.value(guard.right)
        lines += [*frame.take_statements(), f"    if ({left} != {right}) {{"]
        lines += [f"        return {number};", "    }"]
    slots: list[int] = []
    for number, size in enumerate(sizes.slots):
        if not sizes.stage(size):
            lines += [*frame.start_of(number), *frame.end_of(number, size)]
            slots.append(number)
    lines += frame.workspace_of(slots, 0)
    number = frame.shapes
    for spec in plan.outputs:
        for size in () if sizes.stage(*spec.shape) else spec.shape:
            text = bare(frame.value(size))
            lines += [*frame.take_statements(), f"    {FRAME}[{number}] = {text};"]
            number += 1
        number += len(spec.shape) if sizes.stage(*spec.shape) else 0
    return "\n".join([*lines, "    return 0;", "}", ""])
