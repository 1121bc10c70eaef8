# SPDX-License-Identifier: Apache-2.0
"""Kernels: statements of the loop IR as LLVM functions.

A parallel loop becomes a function of its own, ``body(buffers..., variables..., low, high)``, which
``@intarsia.parallel`` (see ``threads.py``) calls on every thread with a part of the range.

Functions that only compute how to share work, and those that unpack the frame of a body, run once
for each loop. LLVM does not optimize them: with open sizes that was 11 to 14 % of its time.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct, field

from intarsia_ir.tir.expr import IntImm, Load
from intarsia_ir.tir.forward import KERNEL, forwarded
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    IfStmt,
    Invoke,
    LetStmt,
    Seq,
    Stmt,
    Store,
)
from intarsia_ir.tir.walk import expr_nodes, statements
from intarsia_runtime.errors import UnsupportedError

from .expressions import Expressions
from .matrix_unit import emit_procedure
from .parallel_cost import is_parallel_profitable, is_wakeup_profitable
from .registers import is_written_once, only_sums
from .slots import all_slots, held_slot, slots_of
from .spelling import memory_type
from .unique_names import free_names
from .writer import Declarations, FunctionWriter

_ALIGNMENT = 64
_UNOPTIMIZED = "noinline optnone"
_BARE_ALIGNMENT = 8  # of the stack, which would have to be aligned further at run time


def emit_kernel(
    function: PrimFunc,
    declarations: Declarations,
    linkage: str,
    *,
    scheduled: bool,
) -> str:
    """Return the text of ``@<name>``, of that linkage, and of the bodies of its parallel loops.

    Args:
        function: The kernel.
        declarations: What the module uses of others.
        linkage: Who sees it.
        scheduled: Whether LLVM has no loop of it to vectorize (:mod:`.scheduled`).
    """
    kernel = _Kernel(function.name, declarations, linkage, scheduled)
    kernel.function(function)
    return "\n".join(kernel.functions)


class _Kernel(Struct):
    name: str
    declarations: Declarations
    linkage: str
    scheduled: bool
    functions: list[str] = field(default_factory=list[str])
    bodies: int = 0
    works: bool = False  # outside of bodies

    def function(self, function: PrimFunc) -> None:
        e = Expressions(FunctionWriter(self.declarations), scheduled=self.scheduled)
        parameters: list[str] = []
        # A forward becomes part of its callers; what it says of its parameters is said of others'.
        inlined = forwarded(function) is not None
        kind = "ptr" if inlined else "ptr noalias"
        for number, buffer in enumerate(function.params):
            e.buffers[buffer] = f"%p{number}"
            parameters.append(f"{kind} %p{number}")
        for number, size in enumerate(function.sizes):
            e.variables[size] = f"%s{number}"
            e.least[size] = 0
            parameters.append(f"i64 %s{number}")
        self.stmt(e, function.body, parallel=not self.declarations.serial)
        attributes = "noinline" if self.works or not self.bodies else _UNOPTIMIZED
        attributes = "alwaysinline" if inlined else attributes
        self._close_function(self.name, parameters, e.w, attributes, self.linkage)

    def _close_function(
        self,
        name: str,
        parameters: list[str],
        w: FunctionWriter,
        attributes: str,
        linkage: str = "internal",
    ) -> None:
        head = f"define {linkage} void @{name}({', '.join(parameters)}) {attributes} #0 {{"
        self.functions.append(
            "\n".join([head, "start:", *w.allocas, *w.lines, "  ret void", "}", ""])
        )

    def stmt(self, e: Expressions, stmt: Stmt, *, parallel: bool) -> None:
        """Write a statement; ``parallel`` says whether a parallel loop may start here."""
        if parallel and isinstance(stmt, Store | Invoke):
            self.works = True
        match stmt:
            case For(extent=IntImm(value=times), kind=ForKind.UNROLLED):
                e.least[stmt.var] = 0
                for number in range(times):
                    e.variables[stmt.var] = str(number)
                    self.stmt(e, stmt.body, parallel=parallel)
            case For():
                if stmt.kind is ForKind.PARALLEL and parallel and is_parallel_profitable(stmt):
                    self._parallel(e, stmt)
                else:
                    self._loop(e, stmt, parallel=parallel)
            case Store():
                e.store(stmt.buffer, stmt.indices, stmt.value)
                e.w.values.clear()
            case Seq():
                for part in stmt.body:
                    self.stmt(e, part, parallel=parallel)
            case IfStmt():
                self._if(e, stmt, parallel=parallel)
            case Allocate():
                buffer = stmt.buffer
                if is_written_once(stmt):
                    e.named[buffer] = {}
                    self.stmt(e, stmt.body, parallel=parallel)
                    return
                memory = memory_type(buffer.dtype)
                alignment = _BARE_ALIGNMENT if self.declarations.bare else _ALIGNMENT
                e.buffers[buffer] = e.w.alloca(memory, max(1, buffer.elements), alignment)
                self.stmt(e, stmt.body, parallel=parallel)
            case LetStmt():
                e.variables[stmt.var] = e.value(stmt.value)
                least = e.lower_bound(stmt.value)
                if least is not None:
                    e.least[stmt.var] = least
                e.w.values.clear()
                self.stmt(e, stmt.body, parallel=parallel)
            case Invoke() if stmt.kind == KERNEL:
                args = [f"ptr {_begin(e, place)}" for place in stmt.places]
                args += [f"i64 {e.value(size)}" for size in stmt.values]
                if stmt.callee is not None:
                    kinds = (*("ptr" for _ in stmt.places), *("i64" for _ in stmt.values))
                    self.declarations.procedure(stmt.function, kinds)
                e.w.do(f"call void @{stmt.function}({', '.join(args)})")
                e.w.loaded.clear()
                e.w.values.clear()
            case Invoke():
                emit_procedure(e, stmt)
            case Barrier():
                raise UnsupportedError(
                    "the code generator 'llvm' has no blocks of threads",
                    hint="barriers are for devices that have them",
                )
            case _:
                assert_never(stmt)

    def _if(self, e: Expressions, stmt: IfStmt, *, parallel: bool) -> None:
        w = e.w
        condition = e.value(stmt.condition)
        w.values.clear()
        chosen, other, end = w.fresh_label(), w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {condition}, label %{chosen}, label %{other}")
        for label, body in ((chosen, stmt.body), (other, stmt.orelse)):
            w.start_block(label)
            with w.branch():
                if body is not None:
                    self.stmt(e, body, parallel=parallel)
            w.do(f"br label %{end}")
        w.start_block(end)

    def _loop(self, e: Expressions, loop: For, *, parallel: bool) -> None:
        w = e.w
        extent = e.value(loop.extent)
        w.values.clear()
        self._range(e, loop, "0", extent, parallel=parallel)

    def _range(self, e: Expressions, loop: For, low: str, high: str, *, parallel: bool) -> None:
        """Write ``for var in [low, high)``; it counts in 32 bits where addresses have as many."""
        with e.w.loop():
            self._iterations(e, loop, low, high, parallel=parallel)

    def _iterations(
        self, e: Expressions, loop: For, low: str, high: str, *, parallel: bool
    ) -> None:
        w = e.w
        index = "i32" if self.declarations.bare else "i64"
        if index != "i64" and not high.isdigit():
            high = w.emit(f"trunc i64 {high} to {index}")
        before, body, end = w.label, w.fresh_label(), w.fresh_label()
        certain = low == "0" and isinstance(loop.extent, IntImm) and loop.extent.value > 0
        if certain:
            w.do(f"br label %{body}")
        else:
            some = w.emit(f"icmp slt {index} {low}, {high}")
            w.do(f"br i1 {some}, label %{body}, label %{end}")
        w.start_block(body)
        var = w.define()
        following = f"%n{w.count}"
        counter = var
        place = len(w.lines)
        w.lines.append("")
        if index != "i64":
            counter = f"%c{w.count}"
            w.do(f"{var} = zext nneg {index} {counter} to i64")
        e.variables[loop.var] = var
        e.least[loop.var] = 0
        sums = only_sums(loop.body)
        around, e.summing = e.summing, var if sums else ""
        self.stmt(e, loop.body, parallel=parallel)
        e.summing = around
        count = f"add nuw nsw {index} {counter}, 1"
        w.do(f"{following} = {count if sums else self._hidden(w, count)}")
        again = w.emit(f"icmp ne {index} {following}, {high}")
        arrivals = f"[ {low}, %{before} ], [ {following}, %{w.label} ]"
        w.lines[place] = f"  {counter} = phi {index} {arrivals}"
        w.do(f"br i1 {again}, label %{body}, label %{end}")
        w.start_block(end)

    def _hidden(self, w: FunctionWriter, count: str) -> str:
        """Return an instruction that counts, such that LLVM does not know from where.

        LLVM's strength reduction asks what the counters of all loops around add to an address. It
        takes a tenth of LLVM's time, and makes pointers to step on of addresses that the
        instructions of some machines compute themselves, which is no faster there. Loops that only
        sum, the innermost ones, still profit.
        """
        if not (self.scheduled and self.declarations.hides_counters):
            return count
        return f'call i64 asm "", "=r,0"(i64 {w.emit(count)}) nounwind memory(none)'

    def _parallel(self, e: Expressions, loop: For) -> None:
        """Move the loop into a function, and let the threads run it."""
        stmts = list(statements(loop.body))
        nodes = list(expr_nodes(stmts))
        buffers, variables = free_names(loop.var, stmts, nodes)
        self.bodies += 1
        name = f"{self.name}.body{self.bodies}"
        inner = Expressions(FunctionWriter(self.declarations), scheduled=self.scheduled)
        parameters: list[str] = []
        for number, buffer in enumerate(buffers):
            inner.buffers[buffer] = f"%p{number}"
            parameters.append(f"ptr noalias %p{number}")
        for number, var in enumerate(variables):
            inner.variables[var] = f"%i{number}"
            parameters.append(f"i64 %i{number}")
            if var in e.least:
                inner.least[var] = e.least[var]
        slots = slots_of(nodes)
        inner.slot = "" if slots is None else "%slot"
        own = [] if slots is None else ["i64 %slot"]
        self._range(inner, loop, "%low", "%high", parallel=False)
        self._close_function(
            name, [*parameters, *own, "i64 %low", "i64 %high"], inner.w, "noinline"
        )
        self._thunk(name, parameters, has_slots=slots is not None)
        w = e.w
        extent = e.value(loop.extent)
        w.values.clear()
        frame = w.alloca("i64", max(1, len(parameters) + len(own)), 8)
        values = [("ptr", e.buffers[b]) for b in buffers]
        values += [("i64", e.variable(v)) for v in variables]
        values += [] if slots is None else [("i64", all_slots(e, slots))]
        for number, (kind, value) in enumerate(values):
            slot = w.emit(f"getelementptr i64, ptr {frame}, i64 {number}")
            w.do(f"store {kind} {value}, ptr {slot}, align 8")
        loop_is_long = "true" if is_wakeup_profitable(loop) else "false"
        call = f"ptr @{name}.thunk, ptr {frame}, i64 {extent}, i1 {loop_is_long}"
        w.do(f"call void @intarsia.parallel({call})")
        w.loaded.clear()  # what the loop wrote has to be read again

    def _thunk(self, name: str, parameters: list[str], *, has_slots: bool) -> None:
        """Write the function that unpacks the frame, and holds a slot where the body needs one."""
        w = FunctionWriter(self.declarations)
        args: list[str] = []
        for number, parameter in enumerate(parameters):
            kind = parameter.split(" ")[0]
            slot = w.emit(f"getelementptr i64, ptr %frame, i64 {number}")
            args.append(f"{kind} " + w.emit(f"load {kind}, ptr {slot}, align 8"))
        limits = ["i64 %low", "i64 %high"]
        if has_slots:
            free = w.emit(f"getelementptr i64, ptr %frame, i64 {len(parameters)}")
            with held_slot(w, free) as own:
                w.do(f"call void @{name}({', '.join([*args, f'i64 {own}', *limits])})")
        else:
            w.do(f"call void @{name}({', '.join([*args, *limits])})")
        self._close_function(f"{name}.thunk", ["ptr %frame", *limits], w, _UNOPTIMIZED)


def _begin(e: Expressions, place: Load) -> str:
    """Return the address that a callee's buffer begins at."""
    if all(isinstance(part, IntImm) and part.value == 0 for part in place.indices):
        return e.buffers[place.buffer]
    return e.address(place.buffer, place.indices)
