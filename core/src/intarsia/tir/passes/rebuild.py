# SPDX-License-Identifier: Apache-2.0
"""Rebuild loops with some expressions replaced; what every pass over the loop IR is made of.

Rebuilding goes through the expression builders, so indices fold as they change. A node that does
not change stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from ..expr import PrimExpr
from ..stmt import Allocate, Barrier, For, If, Invoke, LetStmt, Seq, Stmt, Store
from ..walk import children, statement_exprs, with_children, with_operands

ExprRule: TypeAlias = Callable[[PrimExpr], PrimExpr | None]
"""Given a node, its replacement, or ``None`` to rebuild the node from its operands."""


def rebuild_expr(expr: PrimExpr, rule: ExprRule, memo: dict[int, PrimExpr]) -> PrimExpr:
    """Rebuild an expression top-down; ``memo`` keeps shared subexpressions shared.

    The memo is keyed by identity, so it may only live as long as the old expression does.
    """
    stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            new = tuple([memo[id(part)] for part in children(node)])
            memo[id(node)] = with_children(node, new)
        elif id(node) not in memo:
            replaced = rule(node)
            if replaced is not None:
                memo[id(node)] = replaced
                continue
            stack.append((node, True))
            stack.extend([(part, False) for part in reversed(children(node))])
    return memo[id(expr)]


def unknown_below(expr: PrimExpr, memo: Mapping[int, PrimExpr]) -> Iterator[PrimExpr]:
    """Yield the nodes of an expression that are not in ``memo`` yet, operands before users.

    Whoever asks puts each into the memo, by identity, before taking the next.
    """
    stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in memo:
            continue
        if ready:
            yield node
            continue
        stack.append((node, True))
        stack.extend([(part, False) for part in children(node) if id(part) not in memo])


def rebuild_stmt(
    stmt: Stmt, rule: ExprRule, on_stmt: Callable[[Stmt], Stmt | None] | None = None
) -> Stmt:
    """Rebuild every expression of a statement.

    Args:
        stmt: Statement to rebuild.
        rule: Replaces expressions.
        on_stmt: Asked first for every statement; what it returns is final.
    """
    if on_stmt is not None:
        replaced = on_stmt(stmt)
        if replaced is not None:
            return replaced
    memo: dict[int, PrimExpr] = {}
    match stmt:
        case For():
            extent = rebuild_expr(stmt.extent, rule, memo)
            body = rebuild_stmt(stmt.body, rule, on_stmt)
            same = extent is stmt.extent and body is stmt.body
            return stmt if same else replace(stmt, extent=extent, body=body)
        case Store():
            indices = tuple([rebuild_expr(i, rule, memo) for i in stmt.indices])
            value = rebuild_expr(stmt.value, rule, memo)
            same = value is stmt.value and all(
                a is b for a, b in zip(indices, stmt.indices, strict=True)
            )
            return stmt if same else replace(stmt, indices=indices, value=value)
        case Seq():
            parts = tuple([rebuild_stmt(part, rule, on_stmt) for part in stmt.body])
            return (
                stmt if all(a is b for a, b in zip(parts, stmt.body, strict=True)) else Seq(parts)
            )
        case If():
            orelse = None if stmt.orelse is None else rebuild_stmt(stmt.orelse, rule, on_stmt)
            condition = rebuild_expr(stmt.condition, rule, memo)
            return replace(
                stmt,
                condition=condition,
                body=rebuild_stmt(stmt.body, rule, on_stmt),
                orelse=orelse,
            )
        case Allocate():
            body = rebuild_stmt(stmt.body, rule, on_stmt)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case LetStmt():
            value = rebuild_expr(stmt.value, rule, memo)
            return replace(stmt, value=value, body=rebuild_stmt(stmt.body, rule, on_stmt))
        case Invoke():
            operands = tuple([rebuild_expr(e, rule, memo) for e in statement_exprs(stmt)])
            return with_operands(stmt, operands)
        case Barrier():
            return stmt
        case _:
            assert_never(stmt)
