# SPDX-License-Identifier: Apache-2.0
"""Sizes that steps compute: what reads them, lays out what depends on them, and gets memory.

The context and the frame are told in :mod:`intarsia_runtime.artifact.plan`.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.statements import AddressOf
from intarsia_runtime.artifact.plan import (
    MOST_BYTES,
    NO_ROOM,
    CallPlan,
    OpenSizes,
    SizesStep,
    frame_entries,
    frame_entry,
)
from intarsia_runtime.size import Atom, Dim, Size

from .open_sizes import FRAME, CFrame, stage_head

CHECKED_SIZES = """\
/* a * b and a + b of numbers up to 2^62; what is beyond sets wrong. */
static int64_t checked_product(int64_t a, int64_t b, int *wrong)
{
    const int64_t most = INT64_C(1) << 62;
    const int64_t x = a < 0 ? -a : a;
    const int64_t y = b < 0 ? -b : b;
    if (x == 0 || y == 0) {
        return 0;
    }
    if (x > most / y) {
        *wrong = 1;
        return 0;
    }
    return a * b;
}

static int64_t checked_sum(int64_t a, int64_t b, int *wrong)
{
    const int64_t most = INT64_C(1) << 62;
    if (a + b > most || a + b < -most) {
        *wrong = 1;
        return 0;
    }
    return a + b;
}
"""
"""Arithmetic on sizes, which steps compute and so may be any numbers."""


def print_stage_sizes(plan: CallPlan, sizes: OpenSizes, stage: int, functions: Functions) -> str:
    """Return ``intarsia_plan_sizes_<stage>(frame)``."""
    return _StageSizes(plan, sizes, stage, functions).text()


class _StageSizes:
    """The function that computes the sizes of one stage, from 1."""

    def __init__(self, plan: CallPlan, sizes: OpenSizes, stage: int, functions: Functions) -> None:
        self._plan = plan
        self._sizes = sizes
        self._stage = stage
        self._frame = CFrame(functions, sizes)
        self._status = frame_entries(plan) - 1
        self._sums = 0
        self._lines: list[str] = []

    def text(self) -> str:
        """Return the function."""
        self._lines = [*stage_head(self._stage), "    int wrong = 0;"]
        self._check_variables()
        self._check_guards()
        self._check_room()
        self._lay_out()
        self._store_outputs()
        return "\n".join([*self._lines, "    return 0;", "}", ""])

    def _value(self, size: Size) -> str:
        """Return a size as an operand; what it needs stands before."""
        text = self._frame.value(size)
        self._lines += self._frame.take_statements()
        return text

    def _leave_if(self, wrong: str, status: int) -> None:
        """Return from the function with a status if a condition holds."""
        self._lines += [
            f"    if ({wrong}) {{",
            f"        {FRAME}[{self._status}] = {_number(status)};",
            "        return -1;",
            "    }",
        ]

    def _check_variables(self) -> None:
        """Check that what steps computed are sizes: neither negative nor huge."""
        for name in self._sizes.stages[self._stage - 1]:
            value = f"(uint64_t){self._frame.variable(name)}"
            number = self._sizes.names.index(name)
            self._leave_if(f"{value} > UINT64_C({MOST_BYTES})", -1 - number)

    def _check_guards(self) -> None:
        for number, guard in enumerate(self._sizes.guards, start=1):
            if self._sizes.stage(guard.left, guard.right) == self._stage:
                left, right = self._value(guard.left), self._value(guard.right)
                self._leave_if(f"{left} != {right}", number)

    def _check_room(self) -> None:
        """Check that all arithmetic on sizes stays below 2**62."""
        for _, size in self._slots():
            self._check(size)
        for spec in self._plan.outputs:
            if self._sizes.stage(*spec.shape) == self._stage:
                for size in (spec.bytes, *spec.shape):
                    self._check(size)
        self._leave_if("wrong", NO_ROOM)

    def _check(self, size: Size) -> None:
        if isinstance(size, Dim):
            self._lines.append(f"    wrong |= {self._sum(size)} < 0;")

    def _sum(self, size: Size) -> str:
        """Write the sum of a size, step by step; return the variable that holds it."""
        if isinstance(size, int):
            return _number(size)
        total = "INT64_C(0)"
        for atoms, factor in size.terms:
            term = _number(factor)
            for atom in atoms:
                term = f"checked_product({term}, {self._atom(atom)}, &wrong)"
            total = f"checked_sum({total}, {term}, &wrong)"
        self._sums += 1
        self._lines.append(f"    const int64_t sum_{self._sums} = {total};")
        return f"sum_{self._sums}"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            return self._frame.variable(atom)
        for operand in (atom.a, atom.b):
            self._sum(operand)
        return self._value(Dim((((atom,), 1),)))

    def _slots(self) -> list[tuple[int, Size]]:
        numbered = enumerate(self._sizes.slots)
        return [(n, size) for n, size in numbered if self._sizes.stage(size) == self._stage]

    def _lay_out(self) -> None:
        """Put each slot of the stage where the last of those ends that it lies behind."""
        frame, slots = self._frame, self._slots()
        for number, size in slots:
            self._lines += [*frame.start_of(number), *frame.end_of(number, size)]
            self._leave_if(f"(uint64_t)end_{number} > UINT64_C({MOST_BYTES})", NO_ROOM)
        self._lines += frame.workspace_of([number for number, _ in slots], self._stage)

    def _store_outputs(self) -> None:
        number = self._frame.shapes
        for spec in self._plan.outputs:
            if self._sizes.stage(*spec.shape) == self._stage:
                for axis, size in enumerate(spec.shape):
                    text = self._value(size)
                    self._lines.append(f"    {FRAME}[{number + axis}] = {text};")
            number += len(spec.shape)


class StageMemory(Struct, frozen=True):
    """Writes what reads the sizes of a stage, and where what depends on them lies.

    Attributes:
        plan: The plan, of open sizes.
        sizes: Its sizes.
        frame: The frame in C.
    """

    plan: CallPlan
    sizes: OpenSizes
    frame: CFrame

    @property
    def _behind(self) -> int:
        """Number of the first entry of the context behind the frame."""
        return 1 + frame_entry(self.plan)

    def workspace(self, slot: int) -> str:
        """Return the address of the workspace that a slot is in."""
        stage = self.sizes.stage(self.sizes.slots[slot])
        return f"context[{self._behind + 2 * stage if stage else 0}].memory"

    def output(self, number: int) -> str | None:
        """Return the address of an output whose sizes steps compute; ``None`` of another one."""
        if not self.sizes.stage(*self.plan.outputs[number].shape):
            return None
        return f"context[{self._output_entry(number)}].handle"

    def _output_entry(self, number: int) -> int:
        return self._behind + 2 + 2 * len(self.sizes.stages) + number

    def statements(self, step: SizesStep, address_of: AddressOf) -> list[str]:
        """Return what reads the sizes, computes what depends on them, and gets its memory."""
        lines: list[str] = []
        for size in step.sizes:
            value = f"*(const int64_t *)(const void *)({address_of(size.argument)})"
            lines.append(f"    {self.frame.variable(size.name)} = {value};")
        entry, needed = self._behind + 2 * step.stage, self.frame.bytes(step.stage)
        lines += [
            f"    if (intarsia_plan_sizes_{step.stage}({FRAME}) != 0) {{",
            "        return -1;",
            "    }",
            f"    if ((uint64_t){needed} > context[{entry + 1}].bytes) {{",
            *(f"    {line}" for line in self._grown(entry, step.stage, needed)),
            f"        context[{entry + 1}].bytes = (uintptr_t){needed};",
            "    }",
        ]
        for number, spec in enumerate(self.plan.outputs if step.is_final else ()):
            if self.sizes.stage(*spec.shape) == step.stage:
                size = self.frame.value(spec.bytes)
                place = len(self.sizes.stages) + 1 + number
                lines += self.frame.take_statements()
                lines += self._grown(self._output_entry(number), place, size)
        return lines

    def _grown(self, entry: int, number: int, size: str) -> list[str]:
        """Return what asks the runtime for memory."""
        state = f"context[{self._behind + 1}].handle"
        call = f"context[{self._behind}].grow({state}, {number}, {size})"
        return [
            f"    context[{entry}].handle = {call};",
            f"    if (context[{entry}].handle == 0) {{",
            "        return -1;",
            "    }",
        ]


def _number(value: int) -> str:
    """Return a number as an ``int64_t``, whatever it is."""
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
