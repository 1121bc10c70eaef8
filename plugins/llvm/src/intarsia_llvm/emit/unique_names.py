# SPDX-License-Identifier: Apache-2.0
"""What the body of a parallel loop, which becomes a function, uses of the kernel around it."""

from __future__ import annotations

from typing import assert_never

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, TirVar
from intarsia_ir.tir.stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Store
from intarsia_ir.tir.walk import expr_nodes, statements


def free_names(loop: For) -> tuple[list[Buffer], list[TirVar]]:
    """Return what the body uses from outside, in order of first use."""
    buffers: dict[Buffer, None] = {}
    variables: dict[TirVar, None] = {}
    own_buffers: set[Buffer] = set()
    own_variables = {loop.var}

    stmts = list(statements(loop.body))
    for stmt in stmts:
        match stmt:
            case For() | LetStmt():
                own_variables.add(stmt.var)
            case Allocate():
                own_buffers.add(stmt.buffer)
            case Store():
                buffers.setdefault(stmt.buffer)
            case Seq() | IfStmt() | Barrier() | Invoke():
                pass
            case _:
                assert_never(stmt)
    for node in expr_nodes(stmts):
        if isinstance(node, Load):
            buffers.setdefault(node.buffer)
        elif isinstance(node, TirVar):
            variables.setdefault(node)
    return (
        [b for b in buffers if b not in own_buffers],
        [v for v in variables if v not in own_variables],
    )
