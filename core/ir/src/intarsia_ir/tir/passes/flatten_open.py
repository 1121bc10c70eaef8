# SPDX-License-Identifier: Apache-2.0
"""Make the strides of arrays of open sizes part of the indices: one dimension is left.

Everything behind this pass, from simplification to code generators, sees arithmetic on the size
variables of the kernel and no shape that is not a number: a parameter of open sizes has the one
dimension ``elements``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim, Size

from ..buffer import Buffer
from ..expr import (
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
from ..stmt import Allocate, For, LetStmt, Stmt, Store
from ..walk import expr_nodes, map_statement, rewrite, statements


def flatten_open(function: PrimFunc) -> PrimFunc:
    """Return the kernel with flat parameters where sizes are open, and with its size variables.

    Raises:
        VerifyError: A temporary on the stack has an open size.
    """
    flat: dict[Buffer, Buffer] = {}
    for buffer in function.params:
        if any(isinstance(size, Dim) for size in buffer.shape):
            flat[buffer] = replace(buffer, shape=(buffer.elements,))

    def rule(node: PrimExpr) -> PrimExpr | None:
        if isinstance(node, Load) and node.buffer in flat:
            place = _flat_index(node.buffer.shape, node.indices)
            return replace(node, buffer=flat[node.buffer], indices=(place,))
        return None

    def on_stmt(stmt: Stmt) -> Stmt:
        mapped = map_statement(stmt, on_stmt, lambda expr: rewrite(expr, rule))
        if isinstance(mapped, Store) and mapped.buffer in flat:
            place = _flat_index(mapped.buffer.shape, mapped.indices)
            return Store(flat[mapped.buffer], (place,), mapped.value)
        if isinstance(mapped, Allocate) and isinstance(mapped.buffer.elements, Dim):
            raise VerifyError(f"'{mapped.buffer.name}' is a temporary of an open size")
        return mapped

    params = tuple(flat.get(buffer, buffer) for buffer in function.params)
    body = on_stmt(function.body)
    return replace(function, params=params, body=body, sizes=_sizes(body))


def _flat_index(shape: Sequence[Size], indices: Sequence[PrimExpr]) -> PrimExpr:
    """Return the row-major number of an element, or the ramp of a vector's elements."""
    total: PrimExpr = IntImm(0)
    last = indices[-1] if indices else None
    for size, at in zip(shape, indices, strict=True):
        base = at.base if isinstance(at, Ramp) else at
        whole = _joined(total, base)
        total = total * index(size) + base if whole is None else whole
    return replace(last, base=total) if isinstance(last, Ramp) else total


def _joined(outer: PrimExpr, inner: PrimExpr) -> PrimExpr | None:
    """Return ``x`` of ``x // d`` and ``x % d``: rows of several dimensions are rows of one."""
    match outer, inner:
        case (
            Binary(op=BinaryOp.FLOOR_DIV, a=whole, b=divisor),
            Binary(op=BinaryOp.FLOOR_MOD, a=other, b=same),
        ) if whole is other and _equal(divisor, same):
            return whole
        case _:
            return None


def _equal(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two expressions over size variables are the same one."""
    match a, b:
        case Binary(), Binary():
            return a.op is b.op and _equal(a.a, b.a) and _equal(a.b, b.b)
        case IntImm(), IntImm():
            return a.value == b.value
        case _:
            return a is b


def _sizes(body: Stmt) -> tuple[TirVar, ...]:
    """Return the variables that no statement binds, by name."""
    bound: set[TirVar] = set()
    for stmt in statements(body):
        if isinstance(stmt, For | LetStmt):
            bound.add(stmt.var)
    found = {node for node in expr_nodes(statements(body)) if isinstance(node, TirVar)} - bound
    return tuple(sorted(found & {size_variable(var.name) for var in found}, key=lambda v: v.name))
