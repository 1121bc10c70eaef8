# SPDX-License-Identifier: Apache-2.0
"""Make neighbouring loops over lanes one, for compilers that vectorize loops.

``vectorized i: a[i] += x; vectorized i: b[i] += y`` --> ``vectorized i: a[i] += x; b[i] += y``

A compiler writes a short loop of one statement out before it looks for vectors, and then finds none
in what is left; of a longer one it makes vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import is_

from ..buffer import MemoryScope
from ..expr import Binary, BinaryOp, IntImm, Load, PrimExpr, TirVar
from ..func import PrimFunc
from ..stmt import For, ForKind, Seq, Stmt, Store
from ..walk import post_order, substitute_stmt
from .rebuild import replace_statements


def merge_lanes(function: PrimFunc) -> PrimFunc:
    """Return ``function`` with neighbouring vectorized loops joined, where no lane of one touches
    another lane of the other.
    """
    body = _merge(function.body)
    return function if body is function.body else replace(function, body=body)


def _merge(stmt: Stmt) -> Stmt:
    return replace_statements(stmt, _merge_sequence)


def _merge_sequence(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Seq):
        return None
    parts: list[Stmt] = []
    flat = [part for merged in map(_merge, stmt.body) for part in _statements(merged)]
    for part in flat:
        last = parts[-1] if parts else None
        joined = None
        if isinstance(last, For) and isinstance(part, For):
            joined = _joined(last, part)
        if joined is None:
            parts.append(part)
        else:
            parts[-1] = joined
    if len(parts) == len(stmt.body) and all(map(is_, parts, stmt.body)):
        return stmt
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))


def _joined(first: For, second: For) -> For | None:
    """Return both loops as one; ``None`` if they must stay apart."""
    if not isinstance(first.extent, IntImm) or not isinstance(second.extent, IntImm):
        return None
    lanes = first.extent.value
    if second.extent.value != lanes or not _only_stores(first) or not _only_stores(second):
        return None
    body = substitute_stmt(second.body, {second.var: first.var})
    stores = [part for part in _statements(first.body) if isinstance(part, Store)]
    more = [part for part in _statements(body) if isinstance(part, Store)]
    if not _keep_apart(stores, more, first.var, lanes):
        return None
    return replace(first, body=Seq((*stores, *more)))


def _only_stores(loop: For) -> bool:
    return loop.kind is ForKind.VECTORIZED and all(
        isinstance(part, Store) for part in _statements(loop.body)
    )


def _keep_apart(first: Sequence[Store], second: Sequence[Store], lane: TirVar, lanes: int) -> bool:
    """Whether the lanes of two loops may take turns: each reads and writes what is its own."""
    known: dict[object, list[tuple[PrimExpr, ...]]] = {}
    for store in first:
        known.setdefault(store.buffer, []).append(store.indices)
    for store in second:
        for at in known.get(store.buffer, ()):
            own = store.buffer.scope is MemoryScope.REGISTER and at == store.indices == (lane,)
            if not own and not _disjoint(at, store.indices, lane, lanes):
                return False
    written = {store.buffer for store in (*first, *second)}
    return all(
        node.buffer.scope is MemoryScope.REGISTER and node.indices == (lane,)
        for store in (*first, *second)
        for node in post_order(*store.indices, store.value)
        if isinstance(node, Load) and node.buffer in written
    )


def _disjoint(
    first: tuple[PrimExpr, ...], second: tuple[PrimExpr, ...], lane: TirVar, lanes: int
) -> bool:
    """Whether two vectors of stores differ in a dimension by more than their lanes reach."""
    for one, other in zip(first, second, strict=True):
        (start, terms), (end, others) = _sum(one), _sum(other)
        if terms != others:
            continue
        reach = terms.pop(lane, 0) * (lanes - 1)
        linear = not any(lane in post_order(atom) for atom in _atoms(one))
        if linear and abs(start - end) > abs(reach):
            return True
    return False


def _sum(expr: PrimExpr) -> tuple[int, dict[object, int]]:
    """Return a position as a constant, and the factor of each variable and of what is no sum."""
    constant, terms = 0, Counter[object]()
    for factor, part in _parts(expr):
        if isinstance(part, IntImm):
            constant += factor * part.value
        else:
            terms[_identity(part)] += factor
    return constant, dict(terms)


def _atoms(expr: PrimExpr) -> list[PrimExpr]:
    """Return the parts of a sum that are neither constants nor variables."""
    return [part for _, part in _parts(expr) if not isinstance(part, IntImm | TirVar)]


def _parts(expr: PrimExpr) -> list[tuple[int, PrimExpr]]:
    """Return what a sum adds up, each part with its factor."""
    parts: list[tuple[int, PrimExpr]] = []
    left = [(1, expr)]
    while left:
        factor, part = left.pop()
        match part:
            case Binary(op=BinaryOp.ADD, a=a, b=b):
                left += [(factor, a), (factor, b)]
            case Binary(op=BinaryOp.SUB, a=a, b=b):
                left += [(factor, a), (-factor, b)]
            case Binary(op=BinaryOp.MUL, a=a, b=IntImm() as number):
                left.append((factor * number.value, a))
            case _:
                parts.append((factor, part))
    return parts


def _identity(expr: PrimExpr) -> object:
    """Return what is equal for equal quotients and rests of sums; else the expression itself."""
    if isinstance(expr, Binary) and expr.op in (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD):
        return expr.op, _key(expr.a), _key(expr.b)
    return expr


def _key(expr: PrimExpr) -> object:
    constant, terms = _sum(expr)
    return constant, frozenset(terms.items())


def _statements(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.body if isinstance(stmt, Seq) else (stmt,)
