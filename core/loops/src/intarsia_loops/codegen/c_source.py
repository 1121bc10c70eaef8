# SPDX-License-Identifier: Apache-2.0
"""Kernels of the loop IR as functions of a C-family language.

The language's names come from a :class:`~intarsia_loops.codegen.spelling.Spelling`. Loops stay
loops: vectors, unrolling and registers are left to the compiler, to which the text is plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import INDEX, CallIntrinsic, IntImm, Load, PrimExpr, Ramp, TirVar
from intarsia_ir.tir.forward import KERNEL
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
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
from intarsia_ir.tir.walk import (
    post_order,
    rewrite_stmt,
    statement_exprs,
    statements,
    substitute_stmt,
)
from intarsia_runtime.errors import UnsupportedError

from .c_functions import Functions
from .c_values import ExpressionWriter
from .c_vectors import VectorWriter
from .lanes import lane_of
from .names import Names, bare
from .vector_loops import VectorLoops, find_vectors

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while asm bool true false class new delete this template NAN INFINITY
j0 j1 jn y0 y1 yn gamma
"""
RESERVED = frozenset(_KEYWORDS.split())
"""Words that no variable of a kernel is called, besides the functions it can call."""


def kernel_name(function: PrimFunc) -> str:
    """Return what a kernel is called in the source."""
    return _kernel_called(function.name)


def _kernel_called(name: str) -> str:
    return f"kernel_{name}"


def print_kernel(function: PrimFunc, functions: Functions, *, vector_types: bool = True) -> str:
    """Return a kernel as a function of pointers, to inputs, outputs and scratch, and of sizes.

    Args:
        function: The kernel; intrinsics with a rule have been expanded.
        functions: Collects the small functions that the text calls.
        vector_types: Whether vectors may be of the spelling's vector types, if it has some.

    Raises:
        VerifyError: It uses what is not in scope.
        UnsupportedError: It has an operation that the language has not.
    """
    spelling = functions.spelling
    words = RESERVED | frozenset(spelling.intrinsics.values()) | spelling.functions
    words |= spelling.reserved
    v = ExpressionWriter(functions, Names(words))
    found = VectorLoops()
    if spelling.vector_bytes and vector_types:
        found = find_vectors(function.body, spelling.vector_bytes)
    return _KernelSource(v, VectorWriter(v, found)).function(function)


def expand_intrinsics(function: PrimFunc, rules: Mapping[Intrinsic, IntrinsicRule]) -> PrimFunc:
    """Return ``function`` with every intrinsic that has a rule replaced by what the rule says.

    What a rule gives is not expanded again: it is made of what the language has.
    """

    def rule(expr: PrimExpr) -> PrimExpr | None:
        if isinstance(expr, CallIntrinsic) and expr.intrinsic in rules:
            return rules[expr.intrinsic](*expr.args)
        return None

    body = rewrite_stmt(function.body, rule)
    return function if body is function.body else replace(function, body=body)


def pooled_bytes(buffer: Buffer) -> int:
    """Return how many bytes of a block's pool an array takes: whole vectors of 16 bytes."""
    return -(-buffer.bytes // _VECTOR) * _VECTOR


_VECTOR = 16
_FEW_LANES = 4


class _KernelSource(Struct):
    v: ExpressionWriter
    vectors: VectorWriter
    _pooled: int = 0

    def function(self, function: PrimFunc) -> str:
        v, spelling = self.v, self.v.spelling
        parameters: list[str] = []
        for buffer in function.params:
            name = v.names.fresh(buffer.name)
            v.buffers[buffer] = name
            const = "const " if buffer in function.input_params else ""
            kind = f"{spelling.space}{const}{spelling.memory[buffer.dtype]}"
            parameters.append(f"{kind} *{spelling.restrict} {name}")
        for size in function.sizes:
            name = v.variables[size] = v.names.fresh(size.name)
            v.counters.add(size)
            v.natural.add(size)
            given = v.names.fresh(f"{size.name} given") if spelling.size else name
            parameters.append(f"{spelling.size or spelling.index} {given}")
            if given != name:
                v.write(f"const {spelling.index} {name} = ({spelling.index}){given};")
        self.stmt(function.body)
        unused = [f"    (void){v.buffers[b]};" for b in function.params if b not in v.used]
        unused += [f"    (void){v.variables[n]};" for n in function.sizes if n not in v.used]
        head = f"{spelling.kernel} {kernel_name(function)}("
        joined = f",\n{' ' * len(head)}".join(parameters) or "void"
        return "\n".join([f"{head}{joined})", "{", *unused, *v.lines, "}", ""])

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._loop(stmt)
            case Store():
                self._store(stmt)
            case Seq():
                for part in stmt.body:
                    self.stmt(part)
            case IfStmt():
                self._if(stmt)
            case Allocate():
                self._allocate(stmt)
            case LetStmt():
                self._let(stmt)
            case Barrier():
                self._needs(self.v.spelling.barrier, "barriers")
                self.v.write(self.v.spelling.barrier)
            case Invoke():
                self._invoke(stmt)
            case _:
                assert_never(stmt)

    def _needs(self, spelled: str | None, what: str) -> None:
        if not spelled:
            raise UnsupportedError(
                f"the code generator '{self.v.spelling.kind}' has no {what}",
                hint="loops bound to blocks and threads are for devices that have them",
            )

    def _bound(self, loop: For) -> None:
        """The body for one iteration, whose number the device knows."""
        v = self.v
        number = None if loop.thread is None else v.spelling.threads.get(loop.thread)
        self._needs(number, "blocks of threads")
        name = v.names.fresh(loop.var.name)
        v.variables[loop.var] = name
        v.counters.add(loop.var)
        v.natural.add(loop.var)
        place = len(v.lines)
        v.write(f"const {v.spelling.index} {name} = ({v.spelling.index}){number};")
        self.stmt(loop.body)
        if loop.var not in v.used:
            del v.lines[place]

    def _invoke(self, call: Invoke) -> None:
        v = self.v
        name = call.function
        if call.kind == KERNEL:
            name = _kernel_called(name)
        else:
            v.check_function(call.kind, name)
        with v.statement(*call.places, *call.values):
            args = [f"&{v.element(place.buffer, place.indices)}" for place in call.places]
            for value in call.values:
                count = value.dtype is INDEX
                args.append(bare(v.position(value) if count else v.value(value)))
            v.write(f"{name}({', '.join(args)});")

    def _loop(self, loop: For) -> None:
        if loop.kind is ForKind.BOUND:
            self._bound(loop)
        elif loop in self.vectors.found.loops:
            self.vectors.loop(loop)
        elif loop.kind is ForKind.VECTORIZED:
            with self.vectors.spilled(loop):
                self._counted(loop)
        else:
            self._counted(loop)

    def _counted(self, loop: For) -> None:
        v = self.v
        with v.statement(loop.extent):
            extent = v.position(loop.extent)
        name = v.names.fresh(loop.var.name)
        v.variables[loop.var] = name
        v.counters.add(loop.var)
        v.natural.add(loop.var)
        if loop.kind is ForKind.UNROLLED and v.spelling.unroll:
            v.write(v.spelling.unroll)
        word = f"{v.spelling.lanes} " if v.spelling.lanes and _has_few_lanes(loop) else ""
        v.write(f"{word}for ({v.spelling.index} {name} = 0; {name} < {bare(extent)}; ++{name}) {{")
        with v.block():
            self.stmt(loop.body)
        v.write("}")
        v.names.release(name)

    def _store(self, stmt: Store) -> None:
        v = self.v
        lanes = max((at.lanes for at in stmt.indices), default=1)
        if lanes > 1:
            self._store_lanes(stmt, lanes)
            return
        with v.statement(*stmt.indices, stmt.value):
            value = v.stored(stmt.buffer, stmt.value)
            v.write(f"{v.element(stmt.buffer, stmt.indices)} = {bare(value)};")

    def _store_lanes(self, stmt: Store, lanes: int) -> None:
        """Store a vector; one that reads what it overwrites is put together in a copy first."""
        lane = TirVar("lane")
        at = tuple(lane_of(i, lane) for i in stmt.indices)
        value = lane_of(stmt.value, lane)
        again = any(
            isinstance(node, Load) and node.buffer is stmt.buffer for node in post_order(stmt.value)
        )
        if not again:
            self._loop(_lanes(lane, lanes, Store(stmt.buffer, at, value)))
            return
        copy = replace(stmt.buffer, name="vector", shape=(lanes,))
        moved = TirVar("lane")
        item = Load(copy, (moved,), copy.dtype, 1)
        back = Store(stmt.buffer, tuple(lane_of(i, moved) for i in stmt.indices), item)
        first = _lanes(lane, lanes, Store(copy, (lane,), value))
        self._allocate(Allocate(copy, Seq((first, _lanes(moved, lanes, back)))))

    def _if(self, stmt: IfStmt) -> None:
        v = self.v
        with v.statement(stmt.condition):
            condition = v.value(stmt.condition)
        v.write(f"if ({bare(condition)}) {{")
        with v.block():
            self.stmt(stmt.body)
        if stmt.orelse is not None:
            v.write("} else {")
            with v.block():
                self.stmt(stmt.orelse)
        v.write("}")

    def _allocate(self, stmt: Allocate) -> None:
        v, buffer = self.v, stmt.buffer
        name = v.names.fresh(buffer.name)
        v.buffers[buffer] = name
        place = len(v.lines)
        kind = v.spelling.memory[buffer.dtype]
        before = v.spelling.local
        if buffer.scope is MemoryScope.SHARED:
            before = v.spelling.shared
            self._needs(before, "memory that threads share")
        if buffer.scope is MemoryScope.SHARED and v.spelling.pool:
            v.write(f"{kind} *const {name} = ({kind} *)({v.spelling.pool} + {self._pooled});")
            self._pooled += pooled_bytes(buffer)
        elif not self.vectors.declare(buffer, name):
            v.write(f"{before}{kind} {name}[{max(1, buffer.elements)}];")
        self.stmt(stmt.body)
        if buffer not in v.used:
            del v.lines[place]
        elif not _is_read(buffer, stmt.body):  # compilers warn of what is only written
            v.lines.insert(place + 1, f"{v.indent}(void){name};")

    def _let(self, stmt: LetStmt) -> None:
        v, var = self.v, stmt.var
        if var.lanes > 1:
            self._let_vector(stmt)
            return
        with v.statement(stmt.value):
            counted = var.dtype is INDEX and v.is_position(stmt.value)
            value = v.position(stmt.value) if counted else v.value(stmt.value)
        name = v.names.fresh(var.name)
        v.variables[var] = name
        if counted:
            v.counters.add(var)
            if v.is_natural(stmt.value):
                v.natural.add(var)
        kind = v.spelling.index if counted else v.spelling.values[var.dtype]
        place = len(v.lines)
        v.write(f"const {kind} {name} = {bare(value)};")
        self.stmt(stmt.body)
        if var not in v.used:
            del v.lines[place]

    def _let_vector(self, stmt: LetStmt) -> None:
        """Give a vector a name: that of an array with its elements."""
        var = stmt.var
        kept = Buffer(var.name, (var.lanes,), var.dtype, MemoryScope.REGISTER)
        whole = (Ramp(IntImm(0), 1, var.lanes),)
        read = Load(kept, whole, var.dtype, var.lanes)
        body = substitute_stmt(stmt.body, {var: read})
        self._allocate(Allocate(kept, Seq((Store(kept, whole, stmt.value), body))))


def _has_few_lanes(loop: For) -> bool:
    """Whether a loop is over so few lanes that compilers write out all that it has for each."""
    is_short = isinstance(loop.extent, IntImm) and loop.extent.value <= _FEW_LANES
    return is_short and loop.kind is ForKind.VECTORIZED and isinstance(loop.body, Seq)


def _is_read(buffer: Buffer, body: Stmt) -> bool:
    """Whether a statement that is not a store to the buffer itself loads from it."""
    return any(
        isinstance(node, Load) and node.buffer is buffer
        for stmt in statements(body)
        if not isinstance(stmt, Store) or stmt.buffer is not buffer
        for node in post_order(*statement_exprs(stmt))
    )


def _lanes(lane: TirVar, count: int, body: Stmt) -> For:
    return For(lane, IntImm(count), ForKind.SERIAL, body)
