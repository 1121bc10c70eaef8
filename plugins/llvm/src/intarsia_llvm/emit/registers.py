# SPDX-License-Identifier: Apache-2.0
"""What kernels do with buffers in registers: loops of sums, and buffers that stand for values."""

from __future__ import annotations

from intarsia_ir.tir.buffer import MemoryScope
from intarsia_ir.tir.expr import INDEX, Load
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Invoke, LetStmt, Seq, Stmt, Store
from intarsia_ir.tir.walk import expr_nodes, statements, variables


def only_sums(body: Stmt) -> bool:
    """Whether a loop has no loop in it and writes registers alone, as sums of products do."""
    for stmt in statements(body):
        match stmt:
            case For(kind=kind) if kind is not ForKind.UNROLLED:
                return False
            case Store(buffer=buffer) if buffer.scope is not MemoryScope.REGISTER:
                return False
            case Invoke(callee=PrimFunc()):
                return False
            case _:
                pass
    return True


def is_written_once(stmt: Allocate) -> bool:
    """Whether elements of a buffer of indices in registers stand for values, as variables do.

    One statement writes them, outside of loops and branches, so each is written before it is read.
    Elements are named by numbers: of no variable but those of loops that are written out.
    """
    buffer = stmt.buffer
    if (
        buffer.scope is not MemoryScope.REGISTER
        or buffer.dtype is not INDEX
        or len(buffer.shape) != 1
    ):
        return False

    def writes(inner: Stmt) -> bool:
        return isinstance(inner, Store) and inner.buffer is buffer

    straight: list[Stmt] = [stmt.body]
    for inner in straight:
        match inner:
            case Seq():
                straight += inner.body
            case LetStmt() | Allocate() | For(kind=ForKind.UNROLLED):
                straight.append(inner.body)
            case _:
                pass
    inside = list(statements(stmt.body))
    if not sum(map(writes, straight)) == sum(map(writes, inside)) == 1:
        return False
    numbered = {
        loop.var for loop in inside if isinstance(loop, For) and loop.kind is ForKind.UNROLLED
    }
    places = [one.indices[0] for one in inside if isinstance(one, Store) and one.buffer is buffer]
    for node in expr_nodes(inside):
        if isinstance(node, Load) and node.buffer is buffer:
            places.append(node.indices[0])
    return all(place.lanes == 1 and variables(place) <= numbered for place in places)
