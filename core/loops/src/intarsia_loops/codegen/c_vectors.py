# SPDX-License-Identifier: Apache-2.0
"""Statements of GNU C's vector types, for what ``vector_loops.py`` finds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Binary, IntImm, Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import For, Store
from intarsia_ir.tir.walk import statement_exprs, statements, substitute

from .c_values import ExpressionWriter
from .names import bare
from .vector_loops import VectorLoops, has_lane, lanes_of, loads_of, stores_of


class VectorWriter(Struct):
    """Writes loops over lanes as statements of vectors.

    Attributes:
        v: Writes the expressions of the function.
        found: Which loops and buffers.
    """

    v: ExpressionWriter
    found: VectorLoops

    def loop(self, loop: For) -> None:
        """Write a loop of ``found``."""
        for store in stores_of(loop):
            self._store(store, loop.var, lanes_of(loop))

    def declare(self, buffer: Buffer, name: str) -> bool:
        """Declare a buffer if it is a vector, and say whether it is."""
        if buffer in self.found.buffers:
            self.v.write(f"{self._type(buffer)} {name};")
        return buffer in self.found.buffers

    @contextmanager
    def spilled(self, loop: For) -> Generator[None]:
        """Copy vectors to arrays in front of a loop that reads their lanes one by one."""
        v, names = self.v, dict[Buffer, str]()
        roots = chain.from_iterable(map(statement_exprs, statements(loop.body)))
        for buffer in dict.fromkeys(load.buffer for load in loads_of(roots)):
            if buffer in self.found.buffers:
                names[buffer] = v.buffers[buffer]
                copy = v.names.fresh(f"{buffer.name}_lanes")
                v.write(f"{v.spelling.memory[buffer.dtype]} {copy}[{buffer.elements}];")
                v.write(f"*({self._type(buffer)}u *){copy} = {names[buffer]};")
                v.buffers[buffer] = copy
        yield
        v.buffers.update(names)

    def _type(self, buffer: Buffer) -> str:
        return self.v.functions.vector_type(buffer.dtype, buffer.shape[0])

    def _store(self, stmt: Store, lane: TirVar, lanes: int) -> None:
        value = bare(self._value(stmt.value, lane, lanes))
        if not has_lane(stmt.value, lane):
            kind = self.v.functions.vector_type(stmt.buffer.dtype, lanes)
            value = f"{value} - ({kind}){{0}}"
        place = self._place(stmt.buffer, stmt.indices, lane, lanes, "")
        self.v.write(f"{place} = {value};")

    def _value(self, expr: PrimExpr, lane: TirVar, lanes: int) -> str:
        """Return a vector, or a scalar that is in all lanes."""
        if not has_lane(expr, lane):
            with self.v.statement(expr):
                return self.v.value(expr)
        match expr:
            case Load():
                return self._place(expr.buffer, expr.indices, lane, lanes, "const ")
            case Binary():
                a, b = (self._value(part, lane, lanes) for part in (expr.a, expr.b))
                return f"({a} {expr.op.value} {b})"
            case _:
                raise AssertionError("a loop of vectors has sums and products of loads alone")

    def _place(
        self, buffer: Buffer, at: tuple[PrimExpr, ...], lane: TirVar, lanes: int, const: str
    ) -> str:
        if buffer in self.found.buffers:
            self.v.used.add(buffer)
            return self.v.buffers[buffer]
        kind = self.v.functions.vector_type(buffer.dtype, lanes)
        first = tuple(substitute(part, {lane: IntImm(0)}) for part in at)
        with self.v.statement(*first):
            return f"*({const}{kind}u *)&{self.v.element(buffer, first)}"
