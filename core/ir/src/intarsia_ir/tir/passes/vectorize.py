# SPDX-License-Identifier: Apache-2.0
"""Turn loops marked VECTORIZED into vector expressions.

A loop that has no vector form runs serially instead: its iterations differ in control flow, carry a
value from one to the next, or touch memory other than along the last dimension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from msgspec import Struct, field

from ..expr import (
    INDEX,
    Binary,
    BinaryOp,
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
from ..func import PrimFunc
from ..stmt import Allocate, Barrier, For, ForKind, IfStmt, Invoke, LetStmt, Seq, Stmt, Store
from ..walk import children
from .rebuild import replace_statements, unknown_below


def vectorize(function: PrimFunc) -> PrimFunc:
    """Return ``function`` without VECTORIZED loops; innermost loops first."""
    body = _vectorize(function.body)
    return function if body is function.body else replace(function, body=body)


def _vectorize(stmt: Stmt) -> Stmt:
    return replace_statements(stmt, _replace_loop)


def _replace_loop(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind is not ForKind.VECTORIZED:
        return None
    body = _vectorize(stmt.body)
    if isinstance(stmt.extent, IntImm) and stmt.extent.value > 1:
        vector = _Vectorizer(stmt.var, stmt.extent.value)
        try:
            return vector.stmt(body)
        except _NoVectorForm:
            pass
    return replace(stmt, kind=ForKind.SERIAL, body=body)


class _NoVectorForm(Exception):
    """Ends the attempt to give a loop a vector form; never leaves this file."""


class _Vectorizer(Struct):
    """Gives statements their vector form for one loop variable."""

    var: TirVar
    lanes: int
    lets: dict[TirVar, TirVar] = field(default_factory=dict[TirVar, TirVar])
    memo: dict[PrimExpr, PrimExpr] = field(default_factory=dict[PrimExpr, PrimExpr])

    def stmt(self, stmt: Stmt) -> Stmt:
        """Return the vector form of a statement."""
        match stmt:
            case Store():
                return self._store(stmt)
            case Seq():
                return Seq(tuple([self.stmt(part) for part in stmt.body]))
            case For():
                return replace(stmt, extent=self._scalar(stmt.extent), body=self.stmt(stmt.body))
            case IfStmt():
                orelse = None if stmt.orelse is None else self.stmt(stmt.orelse)
                condition = self._scalar(stmt.condition)
                return replace(stmt, condition=condition, body=self.stmt(stmt.body), orelse=orelse)
            case LetStmt():
                value = self.expr(stmt.value)
                if value.lanes == 1:
                    return replace(stmt, value=value, body=self.stmt(stmt.body))
                var = TirVar(stmt.var.name, stmt.var.dtype, value.lanes)
                self.lets[stmt.var] = var
                return replace(stmt, var=var, value=value, body=self.stmt(stmt.body))
            case Allocate() | Barrier() | Invoke():
                raise _NoVectorForm
            case _:
                assert_never(stmt)

    def _store(self, stmt: Store) -> Stmt:
        indices = self._indices(stmt.indices)
        if not indices or indices[-1].lanes == 1:
            raise _NoVectorForm
        return Store(stmt.buffer, indices, self._wide(self.expr(stmt.value)))

    def _indices(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        new = tuple([self.expr(part) for part in indices])
        if any(part.lanes > 1 for part in new[:-1]):
            raise _NoVectorForm
        if new and new[-1].lanes > 1 and not isinstance(new[-1], Ramp):
            raise _NoVectorForm
        return new

    def _scalar(self, expr: PrimExpr) -> PrimExpr:
        value = self.expr(expr)
        if value.lanes > 1:
            raise _NoVectorForm
        return value

    def _wide(self, value: PrimExpr) -> PrimExpr:
        return value if value.lanes > 1 else Broadcast(value, self.lanes, value.dtype)

    def expr(self, expr: PrimExpr) -> PrimExpr:
        """Return the vector form of ``expr``, or ``expr`` if it is the same in every lane."""
        if expr not in self.memo:
            for node in unknown_below(expr, self.memo):
                self.memo[node] = self._build(node)
        return self.memo[expr]

    def _build(self, expr: PrimExpr) -> PrimExpr:
        if isinstance(expr, TirVar):
            if expr is self.var:
                return Ramp(IntImm(0), 1, self.lanes)
            return self.lets.get(expr, expr)
        if isinstance(expr, Load):
            indices = self._indices(expr.indices)
            if indices == expr.indices:  # nodes are compared by identity
                return expr
            return Load(expr.buffer, indices, expr.dtype, self.lanes)
        parts = children(expr)
        new = tuple([self.memo[part] for part in parts])
        if new == parts:
            return expr
        if expr.lanes > 1:
            raise _NoVectorForm
        return self._widen(expr, new)

    def _widen(self, expr: PrimExpr, new: tuple[PrimExpr, ...]) -> PrimExpr:
        match expr:
            case Binary():
                return _binary(expr.op, new[0], new[1])
            case Select():
                condition, a, b = (self._wide(part) for part in new)
                return Select(condition, a, b, expr.dtype, self.lanes)
            case IfThenElse():
                if new[0].lanes > 1:
                    raise _NoVectorForm
                return IfThenElse(
                    new[0], self._wide(new[1]), self._wide(new[2]), expr.dtype, self.lanes
                )
            case CastExpr():
                return replace(expr, value=new[0], lanes=self.lanes)
            case CallIntrinsic() | CallTarget():
                args = tuple([self._wide(part) for part in new])
                return replace(expr, args=args, lanes=self.lanes)
            case Broadcast() | Ramp() | ReduceLanes() | Load() | Read():
                raise _NoVectorForm
            case IntImm() | FloatImm() | TirVar():
                return expr
            case _:
                assert_never(expr)


def _binary(op: BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a op b``; a ramp that stays a ramp is kept as one."""
    if a.dtype is INDEX:
        match op, a, b:
            case (BinaryOp.ADD, Ramp(), Ramp()):
                return Ramp(a.base + b.base, a.stride + b.stride, a.lanes)
            case (BinaryOp.SUB, Ramp(), Ramp()) if a.stride != b.stride:
                return Ramp(a.base - b.base, a.stride - b.stride, a.lanes)
            case (BinaryOp.ADD, Ramp(), _) if b.lanes == 1:
                return Ramp(a.base + b, a.stride, a.lanes)
            case (BinaryOp.ADD, _, Ramp()) if a.lanes == 1:
                return Ramp(a + b.base, b.stride, b.lanes)
            case (BinaryOp.SUB, Ramp(), _) if b.lanes == 1:
                return Ramp(a.base - b, a.stride, a.lanes)
            case (BinaryOp.SUB, _, Ramp()) if a.lanes == 1:
                return Ramp(a - b.base, -b.stride, b.lanes)
            case (BinaryOp.MUL, Ramp(), IntImm()) if b.value != 0:
                return Ramp(a.base * b, a.stride * b.value, a.lanes)
            case (BinaryOp.MUL, IntImm(), Ramp()) if a.value != 0:
                return Ramp(b.base * a, b.stride * a.value, b.lanes)
            case _:
                pass
    return binary(op, a, b)
