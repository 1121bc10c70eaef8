# SPDX-License-Identifier: Apache-2.0
"""Have the caller provide what a kernel would keep on its stack.

For machines of small stacks, and for code that runs on one thread: threads would share the memory.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct, field

from ..buffer import Buffer, Scope
from ..expr import Load, PrimExpr
from ..func import PrimFunc
from ..stmt import Allocate, Stmt, Store
from ..walk import rewrite_stmt
from .rebuild import replace_statements


def stack_to_scratch(function: PrimFunc) -> PrimFunc:
    """Return ``function`` with its STACK buffers as scratch parameters."""
    moved = _Moved()
    body = replace_statements(function.body, moved.allocate)
    if not moved.buffers:
        return function
    body = replace_statements(rewrite_stmt(body, moved.load), moved.store)
    return replace(
        function,
        body=body,
        params=(*function.params, *moved.buffers.values()),
        scratch=function.scratch + len(moved.buffers),
    )


class _Moved(Struct):
    """Buffers of the stack and the parameters that take their places."""

    buffers: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])

    def allocate(self, stmt: Stmt) -> Stmt | None:
        """Take the allocation away."""
        if not isinstance(stmt, Allocate) or stmt.buffer.scope is not Scope.STACK:
            return None
        name = f"{stmt.buffer.name}_{len(self.buffers)}"
        self.buffers[stmt.buffer] = replace(stmt.buffer, name=name, scope=Scope.GLOBAL)
        return replace_statements(stmt.body, self.allocate)

    def load(self, expr: PrimExpr) -> PrimExpr | None:
        """Read the parameter."""
        if not isinstance(expr, Load) or expr.buffer not in self.buffers:
            return None
        return replace(expr, buffer=self.buffers[expr.buffer])

    def store(self, stmt: Stmt) -> Stmt | None:
        """Write the parameter."""
        if not isinstance(stmt, Store) or stmt.buffer not in self.buffers:
            return None
        return replace(stmt, buffer=self.buffers[stmt.buffer])
