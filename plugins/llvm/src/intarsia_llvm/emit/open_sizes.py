# SPDX-License-Identifier: Apache-2.0
"""Sizes that only the run knows: the frame, and the function that fills it.

The layout of the frame is told in :mod:`intarsia_runtime.artifact.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia_ir.tir.expr import index, size_variable
from intarsia_runtime.artifact.plan import (
    ALIGNMENT,
    MOST_BYTES,
    NO_ROOM,
    CallPlan,
    OpenSizes,
    TensorSpec,
    frame_entries,
)
from intarsia_runtime.artifact.plan_sizes import slots_behind
from intarsia_runtime.size import Atom, Dim, Size

from .expressions import Expressions
from .writer import Declarations, FunctionWriter


class SizeFrame:
    """The frame of an open plan as a function reads it.

    Args:
        w: Where to write.
        address: The frame.
        sizes: Of the plan.

    Attributes:
        address: As given.
    """

    def __init__(self, w: FunctionWriter, address: str, sizes: OpenSizes) -> None:
        self._w = w
        self.address = address
        self._e = Expressions(w)
        self._sizes = sizes
        self._numbers = {name: number for number, name in enumerate(sizes.names)}
        self._slots = len(sizes.names) + 1 + len(sizes.stages)
        self._know(source.name for source in sizes.variables)

    def reach(self, stage: int) -> None:
        """Load the size variables of a stage."""
        self._know(self._sizes.stages[stage - 1])

    def _know(self, names: Iterable[str]) -> None:
        for name in names:
            variable = size_variable(name)
            self._e.variables[variable] = self._load(self._numbers[name])
            self._e.least[variable] = 0

    def _slot(self, number: int) -> str:
        return self._w.emit(f"getelementptr i64, ptr {self.address}, i64 {number}")

    def _load(self, number: int) -> str:
        return self._w.emit(f"load i64, ptr {self._slot(number)}, align 8")

    def variable(self, name: str) -> str:
        """Return the value of a size variable."""
        return self._e.variables[size_variable(name)]

    def offset(self, slot: int) -> str:
        """Return where a slot of the workspace begins."""
        return self._load(self._slots + slot)

    def bytes(self, stage: int) -> str:
        """Return how many bytes the workspace of a stage has."""
        return self._load(len(self._sizes.names) + stage)

    def set_variable(self, name: str, value: str) -> None:
        """Set the value of a size variable of a stage."""
        self._put(self._numbers[name], value)

    def value(self, size: Size) -> str:
        """Return the number that a size is."""
        value = self._e.value(index(size))
        self._w.values.clear()  # known by identity, and the expression is gone
        return value

    def store(self, number: int, value: str) -> None:
        """Set an entry behind the variables."""
        self._put(len(self._sizes.names) + number, value)

    def _put(self, number: int, value: str) -> None:
        self._w.do(f"store i64 {value}, ptr {self._slot(number)}, align 8")


def emit_plan_sizes(plan: CallPlan, declarations: Declarations) -> str:
    """Return ``intarsia_plan_sizes(frame)`` of a plan of open sizes, and one for each stage."""
    assert plan.open is not None  # the caller asks
    stages = range(len(plan.open.stages) + 1)
    return "\n".join([_PlanSizes(plan, plan.open, stage, declarations).text() for stage in stages])


class _PlanSizes:
    """The function that computes the sizes of one stage."""

    def __init__(
        self, plan: CallPlan, sizes: OpenSizes, stage: int, declarations: Declarations
    ) -> None:
        self._plan = plan
        self._sizes = sizes
        self._stage = stage
        self._w = FunctionWriter(declarations)
        self._frame = SizeFrame(self._w, "%frame", sizes)

    def text(self) -> str:
        """Return the function."""
        w, stage = self._w, self._stage
        for number in range(1, stage + 1):
            self._frame.reach(number)
        if stage:
            self._check_variables()
        self._check_guards()
        if stage:
            self._check_room()
        self._lay_out()
        self._store_outputs()
        name = f"intarsia_plan_sizes{f'_{stage}' if stage else ''}"
        body = [*w.allocas, *w.lines, "  ret i32 0", "}", ""]
        return "\n".join(
            [f"define i32 @{name}(ptr %frame) noinline optnone #0 {{", "start:", *body]
        )

    def _require(self, holds: str, status: int) -> None:
        """Return from the function unless a condition holds."""
        w = self._w
        good, bad = w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {holds}, label %{good}, label %{bad}")
        w.start_block(bad)
        if self._stage:
            self._frame.store(frame_entries(self._plan) - 1 - len(self._sizes.names), str(status))
        w.do(f"ret i32 {-1 if self._stage else status}")
        w.start_block(good)

    def _check_variables(self) -> None:
        """Check that what steps computed are sizes: neither negative nor huge."""
        for name in self._sizes.stages[self._stage - 1]:
            value = self._frame.variable(name)
            number = self._sizes.names.index(name)
            self._require(self._w.emit(f"icmp ule i64 {value}, {MOST_BYTES}"), -1 - number)

    def _check_guards(self) -> None:
        for number, guard in enumerate(self._sizes.guards, start=1):
            if self._sizes.stage(guard.left, guard.right) == self._stage:
                left, right = self._frame.value(guard.left), self._frame.value(guard.right)
                self._require(self._w.emit(f"icmp eq i64 {left}, {right}"), number)

    def _check_room(self) -> None:
        """Check that all arithmetic on sizes stays below 2**62."""
        checked = CheckedSizes(self._w, self._frame)
        for _, size in self._slots():
            checked.check(size)
        for spec in self._outputs():
            checked.check(spec.bytes)
            for size in spec.shape:
                checked.check(size)
        self._require(checked.fits(), NO_ROOM)

    def _slots(self) -> list[tuple[int, Size]]:
        numbered = enumerate(self._sizes.slots)
        return [(n, size) for n, size in numbered if self._sizes.stage(size) == self._stage]

    def _outputs(self) -> list[TensorSpec]:
        return [s for s in self._plan.outputs if self._sizes.stage(*s.shape) == self._stage]

    def _lay_out(self) -> None:
        """Put each slot of the stage where the last of those ends that it lies behind."""
        w, frame, behind = self._w, self._frame, slots_behind(self._sizes)
        first = 1 + len(self._sizes.stages)
        ends: dict[int, str] = {}
        padded: dict[Size, str] = {}
        for number, size in self._slots():
            start = self._largest([ends[n] for n in behind[number]])
            frame.store(first + number, start)
            if size not in padded:
                more = w.emit(f"add i64 {frame.value(size)}, {ALIGNMENT - 1}")
                padded[size] = w.emit(f"and i64 {more}, {-ALIGNMENT}")
            ends[number] = w.emit(f"add i64 {start}, {padded[size]}")
            if self._stage:
                self._require(w.emit(f"icmp ule i64 {ends[number]}, {MOST_BYTES}"), NO_ROOM)
        covered = {n for number in ends for n in behind[number]}
        frame.store(self._stage, self._largest([ends[n] for n in ends if n not in covered]))

    def _largest(self, values: Sequence[str]) -> str:
        """Return the largest of some values; 0 of none."""
        function = self._w.declarations.use("i64", "llvm.smax.i64", ("i64", "i64"))
        largest = values[0] if values else "0"
        for value in values[1:]:
            largest = self._w.emit(f"call i64 {function}(i64 {largest}, i64 {value})")
        return largest

    def _store_outputs(self) -> None:
        number = 1 + len(self._sizes.stages) + len(self._sizes.slots)
        for spec in self._plan.outputs:
            if self._sizes.stage(*spec.shape) == self._stage:
                for axis, size in enumerate(spec.shape):
                    self._frame.store(number + axis, self._frame.value(size))
            number += len(spec.shape)


class CheckedSizes:
    """Notes whether arithmetic on sizes leaves ``range(2**62 + 1)``.

    Args:
        w: Where to write.
        frame: Values of the size variables.
    """

    def __init__(self, w: FunctionWriter, frame: SizeFrame) -> None:
        self._w = w
        self._frame = frame
        self._wrong: list[str] = []

    def check(self, size: Size) -> None:
        """Compute a size, of which no part may overflow; it may not be negative or huge either."""
        if isinstance(size, Dim):
            value = self._sum(size)
            self._wrong.append(self._w.emit(f"icmp ugt i64 {value}, {MOST_BYTES}"))

    def fits(self) -> str:
        """Return whether all did."""
        wrong = "false"
        for flag in self._wrong:
            wrong = self._w.emit(f"or i1 {wrong}, {flag}")
        return self._w.emit(f"xor i1 {wrong}, true")

    def _sum(self, size: Size) -> str:
        if isinstance(size, int):
            return str(size)
        total = "0"
        for atoms, factor in size.terms:
            term = str(factor)
            for atom in atoms:
                term = self._apply("smul", term, self._atom(atom))
            total = self._apply("sadd", total, term)
        return total

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            return self._frame.variable(atom)
        for operand in (atom.a, atom.b):
            self._sum(operand)
        return self._frame.value(Dim((((atom,), 1),)))

    def _apply(self, name: str, a: str, b: str) -> str:
        function = self._w.declarations.use(
            "{ i64, i1 }", f"llvm.{name}.with.overflow.i64", ("i64", "i64")
        )
        both = self._w.emit(f"call {{ i64, i1 }} {function}(i64 {a}, i64 {b})")
        self._wrong.append(self._w.emit(f"extractvalue {{ i64, i1 }} {both}, 1"))
        return self._w.emit(f"extractvalue {{ i64, i1 }} {both}, 0")


def checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape for static checks: -1 for an open size."""
    return tuple(-1 if isinstance(size, Dim) else size for size in shape)
