# SPDX-License-Identifier: Apache-2.0
"""Give each vector of a REGISTER buffer an array of its own, for compilers that vectorize loops.

``vectorized i: acc[0, i] += a * w[i]; vectorized i: acc[1, i] += b * w[i]`` -->
``vectorized i: acc_0[i] += a * w[i]; vectorized i: acc_1[i] += b * w[i]``

A compiler keeps a small array in a register if one loop over its lanes is all that touches it, as
``merge_lanes.py`` makes it; of one large array with constant offsets it makes memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from msgspec import Struct, field

from ..buffer import Buffer, MemoryScope
from ..expr import Binary, BinaryOp, IntImm, Load, PrimExpr, Ramp, TirVar
from ..func import PrimFunc
from ..stmt import Allocate, Barrier, For, ForKind, IfStmt, Invoke, LetStmt, Seq, Stmt, Store
from ..walk import post_order, rewrite_stmt
from .rebuild import replace_statements


def split_registers(function: PrimFunc) -> PrimFunc:
    """Return ``function``, whose UNROLLED loops are written out, with split buffers.

    Buffers whose vectors do not lie at constant places stay as they are.
    """
    body = replace_statements(function.body, _split)
    return function if body is function.body else replace(function, body=body)


def _split(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Allocate) or stmt.buffer.scope is not MemoryScope.REGISTER:
        return None
    body = replace_statements(stmt.body, _split)
    pieces = _Pieces(stmt.buffer)
    if not pieces.collect(body, {}):
        return stmt if body is stmt.body else replace(stmt, body=body)
    result = pieces.apply(body)
    for buffer in reversed(pieces.buffers.values()):
        result = Allocate(buffer, result)
    return result


class _Pieces(Struct):
    """The vectors of one buffer.

    Attributes:
        whole: The buffer.
        lanes: Lanes of each vector; 0 until the first is found.
        buffers: What takes its place, by the number of its first element.
    """

    whole: Buffer
    lanes: int = 0
    buffers: dict[int, Buffer] = field(default_factory=dict[int, Buffer])

    def collect(self, stmt: Stmt, lanes: dict[TirVar, int]) -> bool:
        """Find the vectors; False if one does not lie at a constant place.

        Args:
            stmt: Where to look.
            lanes: Variables of the vectorized loops around, with their extents.
        """
        match stmt:
            case For():
                known = lanes
                if stmt.kind is ForKind.VECTORIZED and isinstance(stmt.extent, IntImm):
                    known = lanes | {stmt.var: stmt.extent.value}
                return self._loads((stmt.extent,), lanes) and self.collect(stmt.body, known)
            case Store():
                own = stmt.buffer is not self.whole or self._add(stmt.indices, lanes, store=True)
                return own and self._loads((*stmt.indices, stmt.value), lanes)
            case Seq():
                return all(self.collect(part, lanes) for part in stmt.body)
            case IfStmt():
                parts = [stmt.body, *([] if stmt.orelse is None else [stmt.orelse])]
                return self._loads((stmt.condition,), lanes) and all(
                    self.collect(part, lanes) for part in parts
                )
            case Allocate():
                return self.collect(stmt.body, lanes)
            case LetStmt():
                return self._loads((stmt.value,), lanes) and self.collect(stmt.body, lanes)
            case Barrier() | Invoke():
                return False
            case _:
                assert_never(stmt)

    def _loads(self, roots: tuple[PrimExpr, ...], lanes: dict[TirVar, int]) -> bool:
        return all(
            self._add(node.indices, lanes, store=False)
            for node in post_order(*roots)
            if isinstance(node, Load) and node.buffer is self.whole
        )

    def _add(self, indices: tuple[PrimExpr, ...], lanes: dict[TirVar, int], *, store: bool) -> bool:
        found = self._start(indices)
        if found is None:
            return False
        start, lane = found
        if isinstance(lane, TirVar) and lane not in lanes:
            return False
        count = lane.lanes if isinstance(lane, Ramp) else lanes[lane]
        if store and not self.lanes:
            self.lanes = count
        if not self.lanes or count > self.lanes or start % self.lanes:
            return False
        if start not in self.buffers:
            name = f"{self.whole.name}_{start // self.lanes}"
            self.buffers[start] = replace(self.whole, name=name, shape=(self.lanes,))
        return True

    def _start(self, indices: tuple[PrimExpr, ...]) -> tuple[int, TirVar | Ramp] | None:
        """Number of the vector's first element, and what counts its lanes: a variable or itself."""
        *outer, last = indices
        start = 0
        for at, size in zip(outer, self.whole.shape[:-1], strict=True):
            if not isinstance(at, IntImm):
                return None
            start = start * size + at.value
        start *= self.whole.shape[-1]
        match last:
            case TirVar():
                return start, last
            case Binary(op=BinaryOp.ADD, a=TirVar() as lane, b=IntImm() as base):
                return start + base.value, lane
            case Binary(op=BinaryOp.ADD, a=IntImm() as base, b=TirVar() as lane):
                return start + base.value, lane
            case Ramp(base=IntImm() as base, stride=1):
                return start + base.value, Ramp(IntImm(0), 1, last.lanes)
            case _:
                return None

    def apply(self, stmt: Stmt) -> Stmt:
        """Replace the buffer by its vectors."""

        def on_load(expr: PrimExpr) -> PrimExpr | None:
            if not isinstance(expr, Load) or expr.buffer is not self.whole:
                return None
            buffer, lane = self._place(expr.indices)
            return replace(expr, buffer=buffer, indices=(lane,))

        def on_store(part: Stmt) -> Stmt | None:
            if not isinstance(part, Store) or part.buffer is not self.whole:
                return None
            buffer, lane = self._place(part.indices)
            return Store(buffer, (lane,), part.value)

        return replace_statements(rewrite_stmt(stmt, on_load), on_store)

    def _place(self, indices: tuple[PrimExpr, ...]) -> tuple[Buffer, TirVar | Ramp]:
        found = self._start(indices)
        assert found is not None  # as collect() saw it
        start, lane = found
        return self.buffers[start], lane
