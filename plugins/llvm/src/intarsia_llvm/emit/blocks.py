# SPDX-License-Identifier: Apache-2.0
"""The steps of a plan as instructions: calls, copies, and the control flow around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia_runtime.artifact.plan import (
    Argument,
    Block,
    CopyStep,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    RegionStep,
    SizesStep,
    Step,
    all_steps,
)
from intarsia_runtime.artifact.plan_walk import may_take_long
from intarsia_runtime.size import Size

from .open_sizes import SizeFrame
from .writer import FunctionWriter

_COPY_TEXT = """\
define internal void @intarsia.copy(ptr noalias %to, ptr noalias %from, i64 %bytes) \
noinline "no-builtins" #0 {
start:
  %whole = and i64 %bytes, -64
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %lines, label %behind
lines:
  %n = phi i64 [ 0, %start ], [ %following, %lines ]
  %source = getelementptr i8, ptr %from, i64 %n
  %line = load <64 x i8>, ptr %source, align 1
  %target = getelementptr i8, ptr %to, i64 %n
  store <64 x i8> %line, ptr %target, align 1
  %following = add i64 %n, 64
  %more = icmp ult i64 %following, %whole
  br i1 %more, label %lines, label %behind
behind:
  %left = icmp ult i64 %whole, %bytes
  br i1 %left, label %single, label %end
single:
  %k = phi i64 [ %whole, %behind ], [ %next, %single ]
  %place = getelementptr i8, ptr %from, i64 %k
  %byte = load i8, ptr %place, align 1
  %put = getelementptr i8, ptr %to, i64 %k
  store i8 %byte, ptr %put, align 1
  %next = add i64 %k, 1
  %again = icmp ult i64 %next, %bytes
  br i1 %again, label %single, label %end
end:
  ret void
}"""
"""Copies an open number of bytes. A library that calls ``memcpy`` is linked three times, to find
out and to say that it needs libc: a sixth of the time that a small model takes to compile."""


class Blocks:
    """Writes steps, and those inside them, into one function.

    Args:
        w: Where to write.
        address: Writes the address of an argument's place and returns it.
        region: Writes the call of a region; ``address_of`` gives the addresses of its tensors.
        sizes: Writes what a step does that reads sizes.
        frame: The sizes of an open plan; ``None`` if all are numbers.
        poll: Writes what lets the user end a loop; ``None`` if nobody can.
    """

    def __init__(
        self,
        w: FunctionWriter,
        address: Callable[[Argument], str],
        region: Callable[[RegionStep], None],
        sizes: Callable[[SizesStep], None],
        frame: SizeFrame | None = None,
        poll: Callable[[], None] | None = None,
    ) -> None:
        self._w = w
        self._address = address
        self._region = region
        self._sizes = sizes
        self._frame = frame
        self._poll = poll
        self._guards = 0
        self._iterations: list[str] = []  # numbers of the iterations of the loops that are open

    def write(self, steps: Sequence[Step]) -> None:
        """Write steps, one after the other."""
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case KernelStep():
                self._kernel(step)
            case RegionStep():
                self._region(step)
            case SizesStep():
                self._sizes(step)
            case CopyStep():
                self._copy(step)
            case GuardStep():
                self._guard(step)
            case IfStep():
                self._if(step)
            case LoopStep():
                self._loop(step)

    def address_of(self, arg: Argument) -> str:
        """Write the address of an argument, or of its row in this iteration, and return it."""
        base = self._address(arg)
        if arg.loop is None:
            return base
        offset = self._w.emit(f"mul i64 {self._iterations[arg.loop]}, {self._number(arg.bytes)}")
        return self._w.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _number(self, size: Size) -> str:
        return str(size) if self._frame is None else self._frame.value(size)

    def _kernel(self, step: KernelStep) -> None:
        args = [f"ptr {self.address_of(arg)}" for arg in step.args]
        if self._frame is not None:
            args += [f"i64 {self._frame.variable(name)}" for name in step.sizes]
        self._w.do(f"call void @{step.function}({', '.join(args)})")

    def _copy(self, step: CopyStep) -> None:
        w = self._w
        target, source = self.address_of(step.destination), self.address_of(step.source)
        size = self._number(step.source.bytes)
        if size.isdigit():
            copy = w.declarations.use("void", "llvm.memcpy.p0.p0.i64", ("ptr", "ptr", "i64", "i1"))
            w.do(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")
        else:
            w.declarations.lines["intarsia.copy"] = _COPY_TEXT
            w.do(f"call void @intarsia.copy(ptr {target}, ptr {source}, i64 {size})")

    def _guard(self, step: GuardStep) -> None:
        self._guards += 1
        left, right = self._number(step.guard.left), self._number(step.guard.right)
        w, good, bad = self._w, self._w.fresh_label(), self._w.fresh_label()
        equal = w.emit(f"icmp eq i64 {left}, {right}")
        w.do(f"br i1 {equal}, label %{good}, label %{bad}")
        w.start_block(bad)
        w.do(f"ret i32 {self._guards}")
        w.start_block(good)

    def _holds(self, condition: Argument) -> str:
        flag = self._w.emit(f"load i8, ptr {self.address_of(condition)}, align 1")
        return self._w.emit(f"icmp ne i8 {flag}, 0")

    def _inside(self, block: Block, label: str, following: str) -> None:
        w = self._w
        w.start_block(label)
        with w.branch():
            self.write(block.steps)
        w.do(f"br label %{following}")

    def _if(self, step: IfStep) -> None:
        w = self._w
        then, orelse, following = w.fresh_label(), w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {self._holds(step.condition)}, label %{then}, label %{orelse}")
        self._inside(step.then, then, following)
        self._inside(step.orelse, orelse, following)
        w.start_block(following)
        self._reload(step)

    def _reload(self, step: IfStep | LoopStep) -> None:
        """Read again the sizes that steps inside have set: a value inside does not reach here."""
        stages = {s.stage for s in all_steps((step,)) if isinstance(s, SizesStep)}
        if self._frame is not None:
            for stage in sorted(stages):
                self._frame.reach(stage)

    def _loop(self, step: LoopStep) -> None:
        """Write a loop; the number of the iteration lies on the stack, where LLVM finds it."""
        w = self._w
        head, inside, again, following = [w.fresh_label() for _ in range(4)]
        limits = [] if step.most is None else [self._number(step.most)]
        if step.trip is not None:
            limits.append(w.emit(f"load i64, ptr {self.address_of(step.trip)}, align 1"))
        slot = w.alloca("i64", 1, 8)
        w.do(f"store i64 0, ptr {slot}, align 8")
        w.do(f"br label %{head}")
        w.start_block(head)
        iteration = w.emit(f"load i64, ptr {slot}, align 8")
        self._reload(step)
        for limit in limits:
            self._leave_unless(w.emit(f"icmp slt i64 {iteration}, {limit}"), following)
        if step.condition is not None:
            self._leave_unless(self._holds(step.condition), following)
        if step.iteration is not None:
            w.do(f"store i64 {iteration}, ptr {self.address_of(step.iteration)}, align 1")
        w.do(f"br label %{inside}")
        self._iterations.append(iteration)
        self._inside(step.body, inside, again)
        self._iterations.pop()
        w.start_block(again)
        self._ask(iteration, step)
        following_iteration = w.emit(f"add i64 {iteration}, 1")
        w.do(f"store i64 {following_iteration}, ptr {slot}, align 8")
        w.do(f"br label %{head}")
        w.start_block(following)
        self._reload(step)

    def _ask(self, iteration: str, step: LoopStep) -> None:
        """Let the user end a loop that may take long, every 64 iterations."""
        if self._poll is None or not may_take_long(step):
            return
        w = self._w
        asked, go_on = w.fresh_label(), w.fresh_label()
        part = w.emit(f"and i64 {iteration}, 63")
        w.do(f"br i1 {w.emit(f'icmp eq i64 {part}, 63')}, label %{asked}, label %{go_on}")
        w.start_block(asked)
        self._poll()
        w.do(f"br label %{go_on}")
        w.start_block(go_on)

    def _leave_unless(self, holds: str, following: str) -> None:
        stay = self._w.fresh_label()
        self._w.do(f"br i1 {holds}, label %{stay}, label %{following}")
        self._w.start_block(stay)
