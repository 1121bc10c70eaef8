# SPDX-License-Identifier: Apache-2.0
"""Traversal and rewriting of loop-IR expressions and statements.

Expressions are DAGs: a node used twice is visited, rewritten and evaluated once. Expression
traversals do not recurse; statement traversals recurse over the nesting of loops, which is shallow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TypeAlias, assert_never

from intarsia_runtime.errors import VerifyError

from .expr import (
    Binary,
    Broadcast,
    CallIntrinsic,
    CallTarget,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Read,
    ReduceLanes,
    Select,
    TirVar,
    binary,
)
from .stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Stmt, Store
from .tensor import ArgReduction, Reduction, Tensor

ExprRule: TypeAlias = Callable[[PrimExpr], PrimExpr | None]


def _none(_expr: PrimExpr) -> tuple[PrimExpr, ...]:
    return ()


def _value(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    assert isinstance(expr, CastExpr | Broadcast | ReduceLanes)  # as the table says
    return (expr.value,)


def _base(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    assert isinstance(expr, Ramp)  # as the table says
    return (expr.base,)


_CHILDREN: Mapping[type, Callable[[PrimExpr], tuple[PrimExpr, ...]]] = {
    **dict.fromkeys((IntImm, FloatImm, TirVar), _none),
    **dict.fromkeys((Load, Read), attrgetter("indices")),
    **dict.fromkeys((CallIntrinsic, CallTarget), attrgetter("args")),
    **dict.fromkeys((Select, IfThenElse), attrgetter("condition", "a", "b")),
    **dict.fromkeys((CastExpr, Broadcast, ReduceLanes), _value),
    Binary: attrgetter("a", "b"),
    Ramp: _base,
}
"""Of each class of expressions, what returns the operands: more is asked of nothing else."""


def children(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    """Return the direct operands of an expression, in order."""
    return _CHILDREN[type(expr)](expr)


def with_children(expr: PrimExpr, new: tuple[PrimExpr, ...]) -> PrimExpr:
    """Return ``expr`` over other operands; the same object if they are the same.

    Lanes follow the operands, so substituting a vector for a variable gives a vector expression;
    index arithmetic is folded anew.
    """
    if new == children(expr):  # nodes are compared by identity
        return expr
    match expr:
        case Binary():
            return binary(expr.op, new[0], new[1])
        case Select():
            condition, a, b = _widened(new)
            return replace(expr, condition=condition, a=a, b=b, lanes=a.lanes)
        case IfThenElse():
            a, b = _widened(new[1:]) if new[0].lanes == 1 else _widened(new)[1:]
            return replace(expr, condition=new[0], a=a, b=b, lanes=a.lanes)
        case CastExpr():
            return CastExpr(new[0], expr.dtype, new[0].lanes)
        case CallIntrinsic() | CallTarget():
            args = _widened(new)
            return replace(expr, args=args, lanes=_lanes(*args))
        case Load():
            return Load(expr.buffer, new, expr.dtype, _lanes(*new))
        case Read():
            return Read(expr.tensor, new, expr.dtype, _lanes(*new))
        case Broadcast():
            return Broadcast(new[0], expr.lanes, expr.dtype)
        case ReduceLanes():
            return replace(expr, value=new[0])
        case Ramp():
            return Ramp(new[0], expr.stride, expr.lanes, expr.dtype)
        case IntImm() | FloatImm() | TirVar():
            return expr
        case _:
            assert_never(expr)


def _lanes(*operands: PrimExpr) -> int:
    return max((operand.lanes for operand in operands), default=1)


def _widened(operands: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """Give every operand the lanes of the widest."""
    lanes = _lanes(*operands)
    return tuple(
        operand if operand.lanes == lanes else Broadcast(operand, lanes, operand.dtype)
        for operand in operands
    )


def post_order(*roots: PrimExpr) -> Iterator[PrimExpr]:
    """Yield every distinct node below ``roots`` once, operands before users."""
    seen: set[PrimExpr] = set()
    stack = [*reversed(roots)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        below = [child for child in reversed(children(node)) if child not in seen]
        if below:
            stack += [node, *below]
        else:
            seen.add(node)
            yield node


def rewrite(
    root: PrimExpr, rule: ExprRule, replaced: dict[PrimExpr, PrimExpr] | None = None
) -> PrimExpr:
    """Rebuild ``root`` bottom-up, each distinct node once; the same object if nothing changed.

    Args:
        root: Expression to rewrite.
        rule: Given a node over rewritten operands, its replacement or ``None`` to keep it.
        replaced: Old node to new node; consulted first and filled in, so roots can share it.
    """
    memo: dict[PrimExpr, PrimExpr] = {} if replaced is None else replaced
    stack = [root]
    while stack:
        node = stack.pop()
        if node in memo:
            continue
        operands = children(node)
        below = [child for child in reversed(operands) if child not in memo]
        if below:
            stack += [node, *below]
            continue
        rebuilt = node
        for child in operands:
            if memo[child] is not child:
                rebuilt = with_children(node, tuple([memo[child] for child in operands]))
                break
        result = rule(rebuilt)
        memo[node] = rebuilt if result is None else result
    return memo[root]


def substitute(root: PrimExpr, mapping: Mapping[TirVar, PrimExpr]) -> PrimExpr:
    """Replace variables by expressions; the same object if none occurs."""
    return rewrite(root, _keep, {**mapping}) if mapping else root


def _keep(_node: PrimExpr) -> PrimExpr | None:
    return None


def variables(root: PrimExpr) -> frozenset[TirVar]:
    """Return the variables that occur in an expression."""
    return frozenset(node for node in post_order(root) if isinstance(node, TirVar))


def body_exprs(body: PrimExpr | Reduction | ArgReduction | None) -> tuple[PrimExpr, ...]:
    """Return the expressions of a tensor's body; none for a given tensor."""
    match body:
        case None:
            return ()
        case Reduction():
            return (body.value, body.init)
        case ArgReduction():
            return (body.value,)
        case _:
            return (body,)


def reads(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that a tensor's body reads, each once, in order of first use."""
    found: dict[Tensor, None] = {}
    for node in post_order(*body_exprs(tensor.body)):
        if isinstance(node, Read):
            found.setdefault(node.tensor)
    return tuple(found)


def tensors(*roots: Tensor) -> Iterator[Tensor]:
    """Yield every distinct tensor that ``roots`` depend on once, producers before readers."""
    seen: set[Tensor] = set()
    stack: list[tuple[Tensor, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            yield tensor
        elif tensor not in seen:
            seen.add(tensor)
            stack.append((tensor, True))
            stack.extend((read, False) for read in reversed(reads(tensor)) if read not in seen)


def rewrite_body(
    body: PrimExpr | Reduction | ArgReduction, rule: Callable[[PrimExpr], PrimExpr]
) -> PrimExpr | Reduction | ArgReduction:
    """Return a tensor's body with ``rule`` applied to each of its expressions as a whole."""
    match body:
        case Reduction():
            return replace(body, value=rule(body.value), init=rule(body.init))
        case ArgReduction():
            return replace(body, value=rule(body.value))
        case _:
            return rule(body)


def statements(root: Stmt) -> Iterator[Stmt]:
    """Yield every statement below ``root``, outer before inner, in program order."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack.extend(reversed(sub_statements(stmt)))


def sub_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside one."""
    match stmt:
        case For() | Allocate() | LetStmt():
            return (stmt.body,)
        case IfStmt():
            return (stmt.body,) if stmt.orelse is None else (stmt.body, stmt.orelse)
        case Seq():
            return stmt.body
        case Store() | Barrier() | Invoke():
            return ()
        case _:
            assert_never(stmt)


def statement_exprs(stmt: Stmt) -> tuple[PrimExpr, ...]:
    """Return the expressions directly in a statement, not those of statements inside it."""
    match stmt:
        case For():
            return (stmt.extent,)
        case Store():
            return (*stmt.indices, stmt.value)
        case IfStmt():
            return (stmt.condition,)
        case LetStmt():
            return (stmt.value,)
        case Invoke():
            return (*stmt.places, *stmt.values)
        case Seq() | Allocate() | Barrier():
            return ()
        case _:
            assert_never(stmt)


def expr_nodes(stmts: Iterable[Stmt]) -> Iterator[PrimExpr]:
    """Yield every distinct node of the expressions directly in statements once, operands first."""
    return post_order(*chain.from_iterable(map(statement_exprs, stmts)))


def map_statement(
    stmt: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[PrimExpr], PrimExpr]
) -> Stmt:
    """Rebuild one statement from its mapped parts; the same object if nothing changed.

    Its own expressions are mapped before the statements inside it.
    """
    exprs = statement_exprs(stmt)
    new_exprs = tuple([on_expr(expr) for expr in exprs])
    subs = sub_statements(stmt)
    new_subs = tuple([on_stmt(sub) for sub in subs])
    if new_subs == subs and new_exprs == exprs:  # nodes are compared by identity
        return stmt
    match stmt:
        case For():
            return For(stmt.var, new_exprs[0], stmt.kind, new_subs[0], stmt.thread)
        case Store():
            return Store(stmt.buffer, new_exprs[:-1], new_exprs[-1])
        case IfStmt():
            orelse = None if stmt.orelse is None else new_subs[1]
            return IfStmt(new_exprs[0], new_subs[0], orelse)
        case LetStmt():
            return LetStmt(stmt.var, new_exprs[0], new_subs[0])
        case Allocate():
            return Allocate(stmt.buffer, new_subs[0])
        case Seq():
            return Seq(new_subs)
        case Invoke():
            return with_operands(stmt, new_exprs)
        case Barrier():
            return stmt
        case _:
            assert_never(stmt)


def with_operands(call: Invoke, operands: tuple[PrimExpr, ...]) -> Invoke:
    """Return a procedure call over other places and values, in this order.

    Raises:
        VerifyError: A place became something that is not in memory.
    """
    count = len(call.places)
    places = tuple(place for place in operands[:count] if isinstance(place, Load))
    if len(places) != count:
        raise VerifyError(f"a place that '{call.function}' works at is no element of a buffer")
    return replace(call, places=places, values=operands[count:])


def rewrite_stmt(root: Stmt, rule: ExprRule) -> Stmt:
    """Rewrite every expression of a statement with ``rule``; the same object if nothing changed."""

    def on_expr(expr: PrimExpr) -> PrimExpr:
        return rewrite(expr, rule)

    def on_stmt(stmt: Stmt) -> Stmt:
        return map_statement(stmt, on_stmt, on_expr)

    return on_stmt(root)


def substitute_stmt(root: Stmt, mapping: Mapping[TirVar, PrimExpr]) -> Stmt:
    """Replace variables by expressions everywhere in a statement."""

    def on_expr(expr: PrimExpr) -> PrimExpr:
        return substitute(expr, mapping)

    def on_stmt(stmt: Stmt) -> Stmt:
        return map_statement(stmt, on_stmt, on_expr)

    return on_stmt(root)
