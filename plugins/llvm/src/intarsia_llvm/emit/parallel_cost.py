# SPDX-License-Identifier: Apache-2.0
"""How long loops run, roughly: whether it is profitable to wake threads."""

from __future__ import annotations

from typing import assert_never

from intarsia_ir.tir.buffer import MemoryScope
from intarsia_ir.tir.expr import IntImm, PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Stmt, Store

from ..amx import MULTIPLY, grid_of

LEAST_SHARED = 6_000
"""Effort below which a parallel loop runs on the calling thread: some 0.8 us.

To share a loop takes 0.2 us, and no thread is waited for that does not come.
"""

LEAST_WOKEN = 200_000
"""Effort below which a parallel loop is not for OpenMP: some 25 us.

All its threads must come: within 1 us while they wait actively, up to 100 us if they sleep, and
milliseconds where other programs keep the processors busy.
"""

_MEMORY = 8  # a vector written to memory, with what was read for it, by one kept in a register
_PRODUCT = 32  # two registers of a matrix unit
_UNKNOWN = 4  # rounds of a loop whose extent is known at run time only: the taps of a window


def is_parallel_profitable(loop: For) -> bool:
    """Whether a loop does enough work for more than one thread."""
    return _takes(loop, LEAST_SHARED)


def is_wakeup_profitable(loop: For) -> bool:
    """Whether a loop does so much that threads may be woken and waited for."""
    return _takes(loop, LEAST_WOKEN)


def _takes(loop: For, least: int) -> bool:
    if not isinstance(loop.extent, IntImm):
        return True
    return loop.extent.value > 1 and loop.extent.value * effort(loop.body) >= least


def effort(stmt: Stmt) -> int:
    """Return about how many vector operations a statement takes, half a cycle each."""
    match stmt:
        case For():
            return _rounds(stmt.extent) * effort(stmt.body)
        case Store():
            return 1 if stmt.buffer.scope is MemoryScope.REGISTER else _MEMORY
        case Seq():
            return sum(effort(part) for part in stmt.body)
        case IfStmt():
            branches = [stmt.body] if stmt.orelse is None else [stmt.body, stmt.orelse]
            return max(effort(branch) for branch in branches)
        case LetStmt():
            return 1 + effort(stmt.body)
        case Allocate():
            return effort(stmt.body)
        case Invoke(function=name) if name.startswith(MULTIPLY):
            down, across = grid_of(name)
            return _PRODUCT * down * across
        case Invoke(callee=PrimFunc() as callee):
            return effort(callee.body)
        case Barrier() | Invoke():
            return 1
        case _:
            assert_never(stmt)


def _rounds(extent: PrimExpr) -> int:
    return extent.value if isinstance(extent, IntImm) else _UNKNOWN
