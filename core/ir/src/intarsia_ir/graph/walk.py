# SPDX-License-Identifier: Apache-2.0
"""Iterative traversals; nothing here recurses, so depth is limited by memory only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TypeAlias, assert_never, cast

from msgspec import structs

from intarsia_runtime.size import Dim

from ..budget import budget
from .expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    call,
    get_item,
    make_tuple,
)
from .types import TensorType, TupleType

RewriteRule: TypeAlias = Callable[[Expr], Expr | None]


def _none(_expr: Expr) -> tuple[Expr, ...]:
    return ()


def _tuple(expr: Expr) -> tuple[Expr, ...]:
    assert isinstance(expr, TupleGetItem)
    return (expr.tuple,)


_CHILDREN: Mapping[type, Callable[[Expr], tuple[Expr, ...]]] = {
    **dict.fromkeys((Call, CallFunction), attrgetter("args")),
    **dict.fromkeys((Var, Constant), _none),
    Tuple: attrgetter("fields"),
    TupleGetItem: _tuple,
    Let: attrgetter("var", "value", "body"),
    If: attrgetter("condition", "then_branch", "else_branch"),
}
"""Of each class of expressions, what returns the operands: every pass asks it of every node."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of ``expr``, in order."""
    return _CHILDREN[type(expr)](expr)


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Yield every distinct node below ``roots`` once, operands before users."""
    seen: set[Expr] = set()
    stack: list[Expr | None] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node is None:  # what is below the next one is done
            node = stack.pop()
            assert node is not None
            yield node
        elif node not in seen:
            seen.add(node)
            below = children(node)
            if below:
                stack += (node, None)
                stack.extend(reversed(below))
            else:
                yield node


def calls(function: Function) -> Iterator[Call]:
    """Yield every operator call of a function once, operands before users."""
    for node in post_order(function.body):
        if isinstance(node, Call):
            yield node


def size_variables(function: Function) -> tuple[str, ...]:
    """Return the names of the size variables in a function's types and attributes, in order."""
    names: set[str] = set()
    for node in (*function.params, *post_order(function.body)):
        values: list[object] = [node.type]
        if isinstance(node, Call):
            values += structs.asdict(node.attrs).values()
        while values:
            value = values.pop()
            match value:
                case Dim():
                    names |= value.variables()
                case TensorType(shape=shape):
                    values += shape
                case TupleType(fields=fields):
                    values += fields
                case tuple():
                    values += cast("tuple[object, ...]", value)
                case _:
                    pass
    return tuple(sorted(names))


def count_uses(roots: Iterable[Expr]) -> dict[Expr, int]:
    """Return how many operand slots (and roots) refer to each node."""
    roots = tuple(roots)
    uses: dict[Expr, int] = {}
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    for node in post_order(*roots):
        for child in children(node):
            uses[child] = uses.get(child, 0) + 1
    return uses


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """Return ``expr`` over other operands, types inferred anew; itself if they are the same."""
    if children(expr) == new:  # nodes are equal to none but themselves
        return expr
    match expr:
        case Call():
            return call(expr.op, *new, attrs=expr.attrs, span=expr.span)
        case CallFunction():
            return replace(expr, args=new)
        case Tuple():
            return make_tuple(new, span=expr.span)
        case TupleGetItem():
            return get_item(new[0], expr.index, span=expr.span)
        case Let():
            var = new[0]
            if not isinstance(var, Var):
                return new[2]
            return replace(expr, var=var, value=new[1], body=new[2], type=new[2].type)
        case If():
            return replace(
                expr, condition=new[0], then_branch=new[1], else_branch=new[2], type=new[1].type
            )
        case Var() | Constant():
            return expr
        case _:
            assert_never(expr)


def rewrite_expr(root: Expr, rule: RewriteRule, replaced: dict[Expr, Expr] | None = None) -> Expr:
    """Rebuild ``root`` bottom-up, each node once; shared nodes stay shared.

    Args:
        root: Expression to rewrite.
        rule: Given a node whose operands are already rewritten, its replacement or ``None``.
        replaced: Old node to new node; filled in, and consulted first, so that several roots can
            share one rewrite and a caller can substitute nodes.
    """
    memo: dict[Expr, Expr] = {} if replaced is None else replaced
    limits = budget()
    for node in post_order(root):
        if node in memo:
            continue
        limits.check()
        rebuilt = with_children(node, tuple([memo[child] for child in children(node)]))
        result = rule(rebuilt)
        memo[node] = rebuilt if result is None else result
    return memo[root]


def rewrite_function(function: Function, rule: RewriteRule) -> Function:
    """Rewrite the body of a function; the same object if nothing changed."""
    body = rewrite_expr(function.body, rule)
    return function if body is function.body else replace(function, body=body)


def substitute(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """Replace nodes by others everywhere below ``root``."""
    return rewrite_expr(root, _keep, dict(mapping))


def _keep(_node: Expr) -> Expr | None:
    return None
