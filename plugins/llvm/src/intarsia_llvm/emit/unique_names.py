# SPDX-License-Identifier: Apache-2.0
"""What the body of a parallel loop, which becomes a function, uses of the kernel around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Stmt, Store


def free_names(
    var: TirVar, stmts: Iterable[Stmt], nodes: Iterable[PrimExpr]
) -> tuple[list[Buffer], list[TirVar]]:
    """Return what the body of a loop uses from outside, in order of first use.

    Args:
        var: The loop's variable.
        stmts: The statements of its body.
        nodes: The nodes of their expressions.
    """
    buffers: dict[Buffer, None] = {}
    variables: dict[TirVar, None] = {}
    own_buffers: set[Buffer] = set()
    own_variables = {var}

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
    for node in nodes:
        if isinstance(node, Load):
            buffers.setdefault(node.buffer)
        elif isinstance(node, TirVar):
            variables.setdefault(node)
    return (
        [b for b in buffers if b not in own_buffers],
        [v for v in variables if v not in own_variables],
    )
