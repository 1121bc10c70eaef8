# SPDX-License-Identifier: Apache-2.0
"""Rebuild loops with some expressions replaced; what every pass over the loop IR is made of.

Rebuilding goes through the expression builders, so indices fold as they change. A node that does
not change stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from ..expr import PrimExpr
from ..stmt import Stmt
from ..walk import children, map_statement, with_children

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


def unknown_below(expr: PrimExpr, memo: Mapping[PrimExpr, PrimExpr]) -> Iterator[PrimExpr]:
    """Yield the nodes of an expression that are not in ``memo`` yet, operands before users.

    Whoever asks puts each into the memo before taking the next.
    """
    stack = [expr]
    while stack:
        node = stack.pop()
        if node in memo:
            continue
        below = [part for part in children(node) if part not in memo]
        if below:
            stack += [node, *below]
        else:
            yield node


def rebuild_stmt(
    stmt: Stmt, rule: ExprRule, on_stmt: Callable[[Stmt], Stmt | None] | None = None
) -> Stmt:
    """Rebuild every expression of a statement.

    Args:
        stmt: Statement to rebuild.
        rule: Replaces expressions.
        on_stmt: Asked first for every statement; what it returns is final.
    """
    replaced = None if on_stmt is None else on_stmt(stmt)
    if replaced is not None:
        return replaced
    memo: dict[int, PrimExpr] = {}  # one for each statement: expressions share no more than that

    def on_expr(expr: PrimExpr) -> PrimExpr:
        return rebuild_expr(expr, rule, memo)

    def below(part: Stmt) -> Stmt:
        return rebuild_stmt(part, rule, on_stmt)

    return map_statement(stmt, below, on_expr)


def replace_statements(stmt: Stmt, on_stmt: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Replace statements and leave expressions alone.

    Args:
        stmt: Where to begin.
        on_stmt: Asked for every statement, outer ones first; what it returns is final.
    """
    replaced = on_stmt(stmt)
    if replaced is not None:
        return replaced

    def below(part: Stmt) -> Stmt:
        return replace_statements(part, on_stmt)

    return map_statement(stmt, below, _same)


def _same(expr: PrimExpr) -> PrimExpr:
    return expr
