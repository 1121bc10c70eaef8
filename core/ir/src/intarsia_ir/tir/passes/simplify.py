# SPDX-License-Identifier: Apache-2.0
"""Simplify index arithmetic with what is known of the loops around it.

Indices are kept as sums ``c0 + c1*x1 + c2*x2 + ...`` with the interval each term can take. Division
and remainder by a constant split such a sum into a part that divides and a part that is too small
to matter, which is what undoes the index arithmetic of fused reshapes. Decided conditions
disappear.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct, field

from ..expr import (
    COMPARISONS,
    INDEX,
    Binary,
    BinaryOp,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Select,
    TirVar,
    binary,
)
from ..func import PrimFunc
from ..stmt import For, IfStmt, LetStmt, Seq, Stmt
from ..walk import children, map_statement, with_children
from .affine import AffineSum

_CHOICES = (IfThenElse, Select)
_SUMS = frozenset((BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL))
_DIVISIONS = frozenset((BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD))
_FAR = 1 << 62
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
"""Range of an index, and of data of type int64, whose arithmetic wraps."""


def simplify(function: PrimFunc) -> PrimFunc:
    """Return ``function`` with simpler indices, decided branches and no loops that run once."""
    ranges: dict[TirVar, tuple[int, int]] = dict.fromkeys(function.sizes, (0, _FAR))
    body = _Simplifier(ranges, is_open=bool(ranges)).stmt(function.body)
    return function if body is function.body else replace(function, body=body)


class _Simplifier(Struct):
    ranges: dict[TirVar, tuple[int, int]]
    is_open: bool  # what is computed from open sizes has a name, and a range
    values: dict[TirVar, PrimExpr] = field(default_factory=dict[TirVar, PrimExpr])
    bounds: dict[PrimExpr, tuple[int, int]] = field(default_factory=dict[PrimExpr, tuple[int, int]])
    atoms: dict[tuple[object, ...], PrimExpr] = field(
        default_factory=dict[tuple[object, ...], PrimExpr]
    )
    parts: dict[PrimExpr, tuple[BinaryOp, AffineSum, int]] = field(
        default_factory=dict[PrimExpr, tuple[BinaryOp, AffineSum, int]]
    )
    memo: dict[PrimExpr, PrimExpr] = field(default_factory=dict[PrimExpr, PrimExpr])
    built: dict[tuple[object, ...], PrimExpr] = field(
        default_factory=dict[tuple[object, ...], PrimExpr]
    )
    sums: dict[PrimExpr, AffineSum] = field(default_factory=dict[PrimExpr, AffineSum])
    data: dict[PrimExpr, bool] = field(default_factory=dict[PrimExpr, bool])

    def stmt(self, stmt: Stmt) -> Stmt:
        """Return the simpler form of a statement."""
        simpler = self._on_stmt(stmt)
        return map_statement(stmt, self.stmt, self.expr) if simpler is None else simpler

    def _on_stmt(self, stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For):
            return self._loop(stmt)
        if isinstance(stmt, LetStmt) and self.is_open and stmt.var.dtype is INDEX:
            self.ranges[stmt.var] = self._values(self.expr(stmt.value))
        if isinstance(stmt, IfStmt):
            condition = self.expr(stmt.condition)
            if isinstance(condition, IntImm):
                chosen = stmt.body if condition.value else stmt.orelse
                return Seq(()) if chosen is None else self.stmt(chosen)
        return None

    def _loop(self, loop: For) -> Stmt:
        extent = self.expr(loop.extent)
        if isinstance(extent, IntImm) and extent.value == 1:
            self.values[loop.var] = IntImm(0)
            return self.stmt(loop.body)
        if isinstance(extent, IntImm) and extent.value <= 0:
            return Seq(())
        _, high = self._interval(self._sum(extent))
        self.ranges[loop.var] = (0, min(high - 1, _FAR))
        body = self.stmt(loop.body)
        same = extent is loop.extent and body is loop.body
        return loop if same else replace(loop, extent=extent, body=body)

    def expr(self, expr: PrimExpr) -> PrimExpr:
        """Return the simpler form of any expression."""
        memo = self.memo
        stack = [] if expr in memo else [expr]
        while stack:
            node = stack.pop()
            if node in memo:
                continue
            operands = children(node)
            below = [part for part in operands if part not in memo]
            if below:
                stack += [node, *below]
            else:
                memo[node] = self._simpler(node, operands)
        return memo[expr]

    def _simpler(self, expr: PrimExpr, operands: tuple[PrimExpr, ...]) -> PrimExpr:
        """Return the simpler form of an expression whose operands have theirs."""
        if not operands:
            return self.values.get(expr, expr) if isinstance(expr, TirVar) else expr
        simple = tuple([self.memo[part] for part in operands])
        if isinstance(expr, _CHOICES):
            condition, a, b = simple
            if isinstance(condition, IntImm) and condition.lanes == 1:
                return a if condition.value else b
        new = expr if simple == operands else with_children(expr, simple)  # by identity
        if not isinstance(new, Binary) or new.lanes > 1:
            return new
        if new.a.dtype is INDEX:
            return self._compare(new) if new.op in COMPARISONS else self._arithmetic(new)
        return _logic(new)

    def _compare(self, expr: Binary) -> PrimExpr:
        low, high = self._difference(expr)
        match expr.op:
            case BinaryOp.LT if high < 0 or low >= 0:
                return IntImm(int(high < 0), expr.dtype)
            case BinaryOp.LE if high <= 0 or low > 0:
                return IntImm(int(high <= 0), expr.dtype)
            case BinaryOp.GT if low > 0 or high <= 0:
                return IntImm(int(low > 0), expr.dtype)
            case BinaryOp.GE if low >= 0 or high < 0:
                return IntImm(int(low >= 0), expr.dtype)
            case BinaryOp.EQ if low > 0 or high < 0 or low == high == 0:
                return IntImm(int(low == high == 0), expr.dtype)
            case BinaryOp.NE if low > 0 or high < 0 or low == high == 0:
                return IntImm(int(low != 0 or high != 0), expr.dtype)
            case _:
                return expr

    def _arithmetic(self, expr: Binary) -> PrimExpr:
        if expr.op in _SUMS or expr.op in _DIVISIONS:
            return self._build(self._sum(expr))
        if expr.op is not BinaryOp.MIN and expr.op is not BinaryOp.MAX:
            return expr
        low, high = self._difference(expr)
        smaller, larger = (expr.a, expr.b) if high <= 0 else (expr.b, expr.a)
        if high > 0 and low < 0:
            return expr
        return smaller if expr.op is BinaryOp.MIN else larger

    def _sum(self, expr: PrimExpr) -> AffineSum:
        """Return an index expression whose operands are simple already as a sum."""
        known = self.sums.get(expr)
        if known is None:
            known = self._new_sum(expr)
            self.sums[expr] = known
        return known

    def _new_sum(self, expr: PrimExpr) -> AffineSum:
        if isinstance(expr, IntImm):
            return AffineSum(expr.value, {})
        if not isinstance(expr, Binary) or expr.dtype is not INDEX or expr in self.parts:
            return AffineSum(0, {expr: 1})
        op, a, b = expr.op, expr.a, expr.b
        if op is BinaryOp.ADD:
            return self._merge(self._sum(a).plus(self._sum(b)))
        if op is BinaryOp.SUB:
            return self._merge(self._sum(a).plus(self._sum(b), -1))
        if op is BinaryOp.MUL:
            if isinstance(a, IntImm):
                a, b = b, a
            if isinstance(b, IntImm):
                return self._sum(a).times(b.value)
        elif isinstance(b, IntImm) and op in _DIVISIONS and self._divides(b.value, a):
            divide = self._divide if op is BinaryOp.FLOOR_DIV else self._remainder
            return divide(self._sum(a), b.value)
        return AffineSum(0, {expr: 1})

    def _divides(self, divisor: int, value: PrimExpr) -> bool:
        return divisor > 0 and not self._may_wrap(self._sum(value))

    def _divide(self, value: AffineSum, divisor: int) -> AffineSum:
        quotient, rest = value.split(divisor)
        low, high = self._interval(rest)
        if low // divisor == high // divisor:
            return AffineSum(quotient.constant + low // divisor, quotient.terms)
        atom = self._atom(BinaryOp.FLOOR_DIV, rest, divisor)
        return quotient.plus(AffineSum(0, {atom: 1}))

    def _remainder(self, value: AffineSum, divisor: int) -> AffineSum:
        _, rest = value.split(divisor)
        low, high = self._interval(rest)
        if low // divisor == high // divisor:
            return AffineSum(rest.constant - divisor * (low // divisor), rest.terms)
        return AffineSum(0, {self._atom(BinaryOp.FLOOR_MOD, rest, divisor): 1})

    def _atom(self, op: BinaryOp, value: AffineSum, divisor: int) -> PrimExpr:
        """Return the one node for ``value op divisor``."""
        key = (op, divisor, value.constant, frozenset(value.terms.items()))
        if key not in self.atoms:
            atom = binary(op, self._build(value), IntImm(divisor))
            low, high = self._interval(value)
            if op is BinaryOp.FLOOR_DIV:
                self.bounds[atom] = (low // divisor, high // divisor)
            else:
                self.bounds[atom] = (0, divisor - 1)
            self.parts[atom] = (op, value, divisor)
            self.atoms[key] = atom
        return self.atoms[key]

    def _merge(self, value: AffineSum) -> AffineSum:
        """Replace ``c * (x % d) + c * d * (x // d)`` by ``c * x``."""
        for atom, factor in tuple(value.terms.items()):
            part = self.parts.get(atom)
            if part is None or part[0] is not BinaryOp.FLOOR_MOD:
                continue
            _, whole, divisor = part
            key = (BinaryOp.FLOOR_DIV, divisor, whole.constant, frozenset(whole.terms.items()))
            other = self.atoms.get(key)
            if other is not None and value.terms.get(other) == factor * divisor:
                terms = {t: c for t, c in value.terms.items() if t is not atom and t is not other}
                return self._merge(AffineSum(value.constant, terms).plus(whole, factor))
        return value

    def _difference(self, expr: Binary) -> tuple[int, int]:
        """Return the interval of one operand less the other; any if one of them may wrap."""
        a, b = self._sum(expr.a), self._sum(expr.b)
        if self._may_wrap(a) or self._may_wrap(b):
            return _LOW, _HIGH
        return self._interval(a.plus(b, -1))

    def _may_wrap(self, value: AffineSum) -> bool:
        """Whether a sum has terms that are data and may lie beyond int64; indices never do."""
        if not any(map(self._is_data, value.terms)):
            return False
        low, high = self._interval(value)
        return low < _LOW or high > _HIGH

    def _is_data(self, expr: PrimExpr) -> bool:
        """Whether elements of a tensor are part of an expression."""
        stack = [] if isinstance(expr, TirVar) or expr in self.data else [expr]
        while stack:
            node = stack.pop()
            below = [part for part in children(node) if part not in self.data]
            if isinstance(node, Load) or not below:
                found = isinstance(node, Load) or any(self.data[part] for part in children(node))
                self.data[node] = found
            elif node not in self.data:
                stack += [node, *below]
        return self.data.get(expr, False)

    def _interval(self, value: AffineSum) -> tuple[int, int]:
        low = high = value.constant
        for atom, factor in value.terms.items():
            a, b = self._atom_interval(atom)
            low += min(a * factor, b * factor)
            high += max(a * factor, b * factor)
        return low, high

    def _atom_interval(self, atom: PrimExpr) -> tuple[int, int]:
        if isinstance(atom, TirVar):
            return self.ranges.get(atom, (_LOW, _HIGH))
        if atom in self.bounds:
            return self.bounds[atom]
        if isinstance(atom, Binary) and atom.op in (BinaryOp.MIN, BinaryOp.MAX):
            (a, b), (c, d) = self._values(atom.a), self._values(atom.b)
            pick = min if atom.op is BinaryOp.MIN else max
            return pick(a, c), pick(b, d)
        return _LOW, _HIGH

    def _values(self, expr: PrimExpr) -> tuple[int, int]:
        value = self._sum(expr)
        return (_LOW, _HIGH) if self._may_wrap(value) else self._interval(value)

    def _build(self, value: AffineSum) -> PrimExpr:
        """Return a sum as an expression, in the order its terms came up; constants last.

        Sums that begin alike share what they begin with, and equal ones are one object.
        """
        key: tuple[object, ...] = ()
        result: PrimExpr | None = None
        for atom, factor in value.terms.items():
            key = (*key, atom, factor)
            known = self.built.get(key)
            if known is None:
                term = atom if factor in (1, -1) else atom * abs(factor)
                if result is None:
                    known = term if factor > 0 else 0 - term
                else:
                    known = result + term if factor > 0 else result - term
                self.built[key] = known
            result = known
        if result is None:
            result = IntImm(value.constant)
        elif value.constant:
            key = (*key, value.constant)
            known = self.built.get(key)
            if known is None:
                constant = value.constant
                known = result + constant if constant > 0 else result - -constant
                self.built[key] = known
            result = known
        self.sums[result] = value
        return result


def _logic(expr: Binary) -> PrimExpr:
    """Drop decided operands of ``&`` and ``|`` over scalar conditions."""
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(one, IntImm) and expr.dtype.value == "bool":
            match expr.op:
                case BinaryOp.AND:
                    return other if one.value else one
                case BinaryOp.OR:
                    return one if one.value else other
                case _:
                    return expr
    return expr
