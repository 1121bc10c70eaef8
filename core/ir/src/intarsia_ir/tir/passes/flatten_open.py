# SPDX-License-Identifier: Apache-2.0
"""Make the strides of arrays of open sizes part of the indices: one dimension is left.

Everything behind this pass, from simplification to code generators, sees arithmetic on the size
variables of the kernel and no shape that is not a number: a parameter of open sizes has the one
dimension ``elements``. What shapes divide, or take the larger of, is computed once, where the
kernel begins: height and width behind five layers are 60 operations, and stand in every index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim, Size

from ..buffer import Buffer
from ..expr import (
    INDEX,
    Binary,
    BinaryOp,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    index,
    size_variable,
)
from ..func import PrimFunc
from ..stmt import Allocate, LetStmt, Stmt, Store
from ..walk import map_statement, rewrite


def flatten_open(
    function: PrimFunc,
    shapes: Mapping[Buffer, Sequence[Size]] = MappingProxyType({}),
    numbers: Mapping[PrimExpr, PrimExpr] = MappingProxyType({}),
) -> PrimFunc:
    """Return the kernel with flat parameters where sizes are open, and with its size variables.

    Args:
        function: The kernel.
        shapes: The shapes of parameters that have others than they say.
        numbers: What stands for constants that are variables.

    Raises:
        VerifyError: A temporary on the stack has an open size.
    """
    flat: dict[Buffer, Buffer] = {}
    named = _NamedSizes()
    replaced: dict[PrimExpr, PrimExpr] = {**numbers}
    named.add(numbers.values())
    for buffer in function.params:
        shape = shapes.get(buffer, buffer.shape)
        if any(isinstance(size, Dim) for size in shape):
            flat[buffer] = replace(buffer, shape=(prod(shape),))

    def place(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
        return _flat_index(shapes.get(buffer, buffer.shape), indices, named)

    def rule(node: PrimExpr) -> PrimExpr | None:
        if isinstance(node, Load) and node.buffer in flat:
            where = place(node.buffer, node.indices)
            return replace(node, buffer=flat[node.buffer], indices=(where,))
        return named.rule(node)

    def on_stmt(stmt: Stmt) -> Stmt:
        mapped = map_statement(stmt, on_stmt, lambda expr: rewrite(expr, rule, replaced))
        if isinstance(mapped, Store) and mapped.buffer in flat:
            where = place(mapped.buffer, mapped.indices)
            return Store(flat[mapped.buffer], (where,), mapped.value)
        if isinstance(mapped, Allocate) and isinstance(mapped.buffer.elements, Dim):
            raise VerifyError(f"'{mapped.buffer.name}' is a temporary of an open size")
        return mapped

    params = tuple(flat.get(buffer, buffer) for buffer in function.params)
    body = on_stmt(function.body)
    for name, value in reversed(named.bound):
        body = LetStmt(name, value, body)
    return replace(function, params=params, body=body, sizes=named.variables)


def _name(variable: TirVar) -> str:
    return variable.name


class _NamedSizes:
    """Variables for what is computed from sizes alone, by divisions, minima and maxima.

    Equal expressions are one object, so that indices that fit each other are seen to.

    Attributes:
        bound: The variables and what they are, in an order in which they can be computed.
    """

    def __init__(self) -> None:
        self._used: set[TirVar] = set()
        self.bound: list[tuple[TirVar, PrimExpr]] = []
        self._known: dict[tuple[object, ...], PrimExpr] = {}
        self._pure: set[PrimExpr] = set()
        self._positive: set[PrimExpr] = set()
        self._sizes: dict[Size, PrimExpr] = {}

    @property
    def variables(self) -> tuple[TirVar, ...]:
        """The size variables that came up."""
        return tuple(sorted(self._used, key=_name))

    def add(self, variables: Iterable[PrimExpr]) -> None:
        """Note size variables that stand for numbers."""
        for variable in variables:
            assert isinstance(variable, TirVar)
            self._used.add(variable)
            self._pure.add(variable)

    def size(self, size: Size) -> PrimExpr:
        """Return the expression of a size."""
        if size not in self._sizes:
            self._sizes[size] = rewrite(index(size), self.rule)
        return self._sizes[size]

    def rule(self, node: PrimExpr) -> PrimExpr | None:
        """Return what stands for a node whose operands are replaced already."""
        match node:
            case TirVar() if node is size_variable(node.name):
                self._pure.add(node)
                self._used.add(node)
                return None
            case Binary(op=op, a=a, b=b) if op in _KEPT or op in _NAMED:
                if not (self._is_pure(a) and self._is_pure(b)):
                    return None
                if op in _DIVISIONS and not self._is_positive(b):
                    return None  # it must stay behind the condition that it may stand behind
            case _:
                return None
        key = (op, *(part.value if isinstance(part, IntImm) else part for part in (a, b)))
        if key not in self._known:
            made: PrimExpr = node
            if op in _NAMED:
                made = TirVar(f"size{len(self.bound)}")
                self.bound.append((made, node))
                if op is BinaryOp.MAX and (self._is_positive(a) or self._is_positive(b)):
                    self._positive.add(made)
            self._known[key] = made
            self._pure.add(made)
        return self._known[key]

    def _is_pure(self, node: PrimExpr) -> bool:
        return node in self._pure or (isinstance(node, IntImm) and node.dtype is INDEX)

    def _is_positive(self, node: PrimExpr) -> bool:
        return node.value > 0 if isinstance(node, IntImm) else node in self._positive


_KEPT = frozenset((BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL))
_DIVISIONS = frozenset((BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD))
_NAMED = frozenset((BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.MIN, BinaryOp.MAX))


def _flat_index(shape: Sequence[Size], indices: Sequence[PrimExpr], named: _NamedSizes) -> PrimExpr:
    """Return the row-major number of an element, or the ramp of a vector's elements."""
    total: PrimExpr = IntImm(0)
    last = indices[-1] if indices else None
    for size, at in zip(shape, indices, strict=True):
        base = at.base if isinstance(at, Ramp) else at
        whole = _joined(total, base)
        is_zero = isinstance(total, IntImm) and total.value == 0
        before = total if is_zero else total * named.size(size)
        total = before + base if whole is None else whole
    return replace(last, base=total) if isinstance(last, Ramp) else total


def _joined(outer: PrimExpr, inner: PrimExpr) -> PrimExpr | None:
    """Return ``x`` of ``x // d`` and ``x % d``: rows of several dimensions are rows of one.

    Of ``x // (c * d)`` and ``x // c % d`` it is ``x // c``; simplifying makes the first of
    ``x // c // d``.
    """
    match outer, inner:
        case (
            Binary(op=BinaryOp.FLOOR_DIV, a=whole, b=divisor),
            Binary(op=BinaryOp.FLOOR_MOD, a=other, b=same),
        ) if _equal(whole, other) and _equal(divisor, same):
            return whole
        case (
            Binary(op=BinaryOp.FLOOR_DIV, a=whole, b=divisor),
            Binary(
                op=BinaryOp.FLOOR_MOD,
                a=Binary(op=BinaryOp.FLOOR_DIV, a=other, b=first) as quotient,
                b=second,
            ),
        ) if _equal(whole, other) and _is_product(divisor, (first, second)):
            return quotient
        case _:
            return None


def _is_product(whole: PrimExpr, parts: Sequence[PrimExpr]) -> bool:
    """Whether a divisor is the product of others, in any order."""
    (number, factors), given = _factors((whole,)), _factors(parts)
    left = list(factors)
    for factor in given[1]:
        same = next((n for n, one in enumerate(left) if _equal(one, factor)), None)
        if same is None:
            return False
        del left[same]
    return not left and number == given[0]


def _factors(parts: Sequence[PrimExpr]) -> tuple[int, list[PrimExpr]]:
    """Return the constant factor of a product and its other ones."""
    number, factors, waiting = 1, list[PrimExpr](), list(parts)
    while waiting:
        match waiting.pop():
            case Binary(op=BinaryOp.MUL, a=a, b=b):
                waiting += (a, b)
            case IntImm(value=value):
                number *= value
            case other:
                factors.append(other)
    return number, factors


def _equal(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two parts of one index are the same: passes in front may have copied them."""
    match a, b:
        case _ if a is b:
            return True
        case Binary(), Binary():
            return a.op is b.op and _equal(a.a, b.a) and _equal(a.b, b.b)
        case IntImm(), IntImm():
            return a.value == b.value
        case Load(), Load():
            return a.buffer is b.buffer and all(map(_equal, a.indices, b.indices))
        case _:
            return False
