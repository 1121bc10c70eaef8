# SPDX-License-Identifier: Apache-2.0
"""Sizes that only the run knows: the frame, and the function that fills it.

The layout of the frame is told in :mod:`intarsia_runtime.artifact.plan`.
"""

from __future__ import annotations

from intarsia_ir.tir.expr import index, size_variable
from intarsia_runtime.artifact.plan import ALIGNMENT, CallPlan, OpenSizes
from intarsia_runtime.size import Dim, Size

from .expressions import Expressions
from .writer import Declarations, FunctionWriter


class Frame:
    """The frame of an open plan as a function reads it.

    Args:
        w: Where to write.
        address: The frame.
        sizes: Of the plan.
    """

    def __init__(self, w: FunctionWriter, address: str, sizes: OpenSizes) -> None:
        self._w = w
        self._address = address
        self._e = Expressions(w)
        self._sizes = sizes
        for number, source in enumerate(sizes.variables):
            variable = size_variable(source.name)
            self._e.variables[variable] = self._load(number)
            self._e.positive.add(variable)

    def _slot(self, number: int) -> str:
        return self._w.emit(f"getelementptr i64, ptr {self._address}, i64 {number}")

    def _load(self, number: int) -> str:
        return self._w.emit(f"load i64, ptr {self._slot(number)}, align 8")

    def variable(self, name: str) -> str:
        """Return the value of a size variable."""
        return self._e.variables[size_variable(name)]

    def offset(self, slot: int) -> str:
        """Return where a slot of the workspace begins."""
        return self._load(len(self._sizes.variables) + 1 + slot)

    def value(self, size: Size) -> str:
        """Return the number that a size is."""
        value = self._e.value(index(size))
        self._w.values.clear()  # known by identity, and the expression is gone
        return value

    def store(self, number: int, value: str) -> None:
        """Set an entry behind the variables."""
        slot = self._slot(len(self._sizes.variables) + number)
        self._w.do(f"store i64 {value}, ptr {slot}, align 8")


def emit_plan_sizes(plan: CallPlan, declarations: Declarations) -> str:
    """Return ``intarsia_plan_sizes(frame)`` of a plan of open sizes."""
    sizes = plan.open
    assert sizes is not None  # the caller asks
    w = FunctionWriter(declarations)
    frame = Frame(w, "%frame", sizes)
    for number, guard in enumerate(sizes.guards, start=1):
        equal = w.emit(f"icmp eq i64 {frame.value(guard.left)}, {frame.value(guard.right)}")
        good, bad = w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {equal}, label %{good}, label %{bad}")
        w.start_block(bad)
        w.do(f"ret i32 {number}")
        w.start_block(good)
    start = "0"
    for number, size in enumerate(sizes.slots, start=1):
        frame.store(number, start)
        padded = w.emit(f"add i64 {frame.value(size)}, {ALIGNMENT - 1}")
        start = w.emit(f"add i64 {start}, {w.emit(f'and i64 {padded}, {-ALIGNMENT}')}")
    frame.store(0, start)
    number = 1 + len(sizes.slots)
    for spec in plan.outputs:
        for size in spec.shape:
            frame.store(number, frame.value(size))
            number += 1
    body = [*w.allocas, *w.lines, "  ret i32 0", "}", ""]
    return "\n".join(["define i32 @intarsia_plan_sizes(ptr %frame) #0 {", "start:", *body])


def checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape for static checks: -1 where any size will do."""
    return tuple(-1 if isinstance(size, Dim) else size for size in shape)
