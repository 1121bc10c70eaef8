# SPDX-License-Identifier: Apache-2.0
"""Write vectors of registers as loops over their lanes, for compilers that vectorize loops.

``sum[0:8] = sum[0:8] + x * w[k, 0:8]`` --> ``vectorized i: sum[i] = sum[i] + x * w[k, i]``

``merge_lanes`` then joins neighbours. GCC 12 keeps four sums of 8 lanes in registers along the loop
around them if one loop over lanes has them all; with a loop for each, it loads and stores all in
every step, which takes five times as long.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from msgspec import Struct, field

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import CallTarget, IntImm, Load, PrimExpr, Ramp, ReduceLanes, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.rebuild import replace_statements
from intarsia_ir.tir.stmt import Allocate, For, ForKind, LetStmt, Seq, Stmt, Store
from intarsia_ir.tir.walk import post_order, substitute_stmt

from .lanes import lane_of


def loop_over_lanes(function: PrimFunc) -> PrimFunc:
    """Return ``function`` with loops over lanes in the place of vectors of REGISTER buffers, and of
    their copies to memory.

    A vector with a name becomes such a buffer.
    """
    body = replace_statements(function.body, _rewritten)
    return function if body is function.body else replace(function, body=body)


def _rewritten(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Seq) and not (_is_named(stmt) or _is_kept(stmt) or _is_copied(stmt)):
        return None
    run = _Run()
    run.add(stmt)
    old = stmt.body if isinstance(stmt, Seq) else ()
    if len(run.body) == len(old) and all(map(is_, run.body, old)):
        return stmt
    body: Stmt = run.body[0] if len(run.body) == 1 else Seq(tuple(run.body))
    for buffer in run.named:
        body = Allocate(buffer, body)
    return body


class _Run(Struct):
    """Statements in a row, the vectors that have names among them.

    Attributes:
        body: The statements, with loops over lanes.
        named: Buffers that take the place of names.
    """

    body: list[Stmt] = field(default_factory=list[Stmt])
    named: list[Buffer] = field(default_factory=list[Buffer])

    def add(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            for part in stmt.body:
                self.add(part)
        elif isinstance(stmt, LetStmt) and _is_named(stmt):
            var, whole = stmt.var, _whole(stmt.var.lanes)
            kept = Buffer(var.name, (var.lanes,), var.dtype, MemoryScope.REGISTER)
            read = Load(kept, whole, var.dtype, var.lanes)
            self.named.append(kept)
            self.add(Store(kept, whole, stmt.value))
            self.add(substitute_stmt(stmt.body, {var: read}))
        elif isinstance(stmt, Store) and (_is_kept(stmt) or _is_copied(stmt)):
            lane, lanes = TirVar("lane"), stmt.indices[-1].lanes
            place = tuple(lane_of(at, lane) for at in stmt.indices)
            own = Store(stmt.buffer, place, lane_of(stmt.value, lane))
            self.body.append(For(lane, IntImm(lanes), ForKind.VECTORIZED, own))
        else:
            self.body.append(replace_statements(stmt, _rewritten))


def _is_named(stmt: Stmt) -> bool:
    """Whether a statement names a vector that each lane makes for itself."""
    return isinstance(stmt, LetStmt) and stmt.var.lanes > 1 and _is_by_lanes(stmt.value)


def _is_kept(stmt: Stmt) -> bool:
    """Whether a statement writes all of a vector, of which each lane reads its own at most."""
    if not isinstance(stmt, Store) or stmt.buffer.scope is not MemoryScope.REGISTER:
        return False
    buffer = stmt.buffer
    loads = (node for node in post_order(stmt.value) if isinstance(node, Load))
    own = (load.indices for load in loads if load.buffer is buffer)
    return all(_is_whole(at, buffer) for at in (stmt.indices, *own)) and _is_by_lanes(stmt.value)


def _is_copied(stmt: Stmt) -> bool:
    """Whether a statement writes all of a REGISTER buffer to memory."""
    match stmt:
        case Store(value=Load(buffer=buffer, indices=at)):
            is_register = buffer.scope is MemoryScope.REGISTER and buffer is not stmt.buffer
            return is_register and _is_whole(at, buffer)
        case _:
            return False


def _is_by_lanes(value: PrimExpr) -> bool:
    return not any(isinstance(node, ReduceLanes | CallTarget) for node in post_order(value))


def _whole(lanes: int) -> tuple[PrimExpr, ...]:
    return (Ramp(IntImm(0), 1, lanes),)


def _is_whole(at: tuple[PrimExpr, ...], buffer: Buffer) -> bool:
    """Whether a place is one of the vectors that a buffer's last dimension is divided into."""
    match at:
        case (*outer, Ramp(base=IntImm(value=first), stride=1, lanes=lanes)):
            divided = first % lanes == buffer.shape[-1] % lanes == 0
            return divided and all(part.lanes == 1 for part in outer)
        case _:
            return False
