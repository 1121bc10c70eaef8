# SPDX-License-Identifier: Apache-2.0
"""Shorthand for the loops of a grid; the rest is ``intarsia_ir.tir.build``."""

from __future__ import annotations

from intarsia_ir.tir.expr import TirVar, index
from intarsia_ir.tir.stmt import For, ForKind, Stmt, Thread


def bound(thread: Thread, var: TirVar, extent: int, body: Stmt) -> Stmt:
    """One block or thread for each iteration."""
    return For(var, index(extent), ForKind.BOUND, body, thread)


def chunks(extent: int, size: int) -> int:
    """Return how many pieces of a size cover an extent."""
    return -(-extent // size)
