# SPDX-License-Identifier: Apache-2.0
"""How long loops run, roughly: whether threads are worth waking for them."""

from __future__ import annotations

from typing import assert_never

from intarsia.tir.buffer import Scope
from intarsia.tir.expr import IntImm, PrimExpr
from intarsia.tir.stmt import Allocate, Barrier, For, If, Invoke, LetStmt, Seq, Stmt, Store

LEAST_EFFORT = 200_000
"""Effort below which a parallel loop runs on the calling thread: some 25 us.

Two threads gain half of that at best. Sharing a loop costs 1 us while the other threads wait
actively, up to 100 us to wake them, and milliseconds where other programs keep the processors busy.
"""

_MEMORY = 8  # a vector written to memory, with what was read for it, by one kept in a register
_UNKNOWN = 4  # rounds of a loop whose extent is known at run time only: the taps of a window


def is_worth_sharing(loop: For) -> bool:
    """Whether a loop does enough work for more than one thread."""
    if not isinstance(loop.extent, IntImm):
        return True
    return loop.extent.value > 1 and loop.extent.value * effort(loop.body) >= LEAST_EFFORT


def effort(stmt: Stmt) -> int:
    """Return about how many vector operations a statement takes, half a cycle each."""
    match stmt:
        case For():
            return _rounds(stmt.extent) * effort(stmt.body)
        case Store():
            return 1 if stmt.buffer.scope is Scope.REGISTER else _MEMORY
        case Seq():
            return sum(effort(part) for part in stmt.body)
        case If():
            branches = [stmt.body] if stmt.orelse is None else [stmt.body, stmt.orelse]
            return max(effort(branch) for branch in branches)
        case LetStmt():
            return 1 + effort(stmt.body)
        case Allocate():
            return effort(stmt.body)
        case Barrier() | Invoke():
            return 1
        case _:
            assert_never(stmt)


def _rounds(extent: PrimExpr) -> int:
    return extent.value if isinstance(extent, IntImm) else _UNKNOWN
