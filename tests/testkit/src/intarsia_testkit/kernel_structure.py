# SPDX-License-Identifier: Apache-2.0
"""The structure of a kernel as a value: equal for kernels that are the same program."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Seq, Stmt
from intarsia_ir.tir.walk import children, post_order, statement_exprs, sub_statements


def kernel_structure(func: PrimFunc) -> tuple[object, ...]:
    """Return a value that compares equal for two kernels of the same structure.

    Names of buffers and variables do not count, only which is which; nor does whether equal
    expressions are one object, nor how statements in order are grouped.
    """
    return _Structure().func(func)


class _Structure:
    """Numbers expressions by what they are made of, so that comparing is linear."""

    def __init__(self) -> None:
        self._owners: dict[Buffer | TirVar, int] = {}
        self._numbers: dict[object, int] = {}

    def func(self, func: PrimFunc) -> tuple[object, ...]:
        params = [(self._owner(b), b.shape, b.dtype, b.scope) for b in func.params]
        sizes = tuple(self._owner(size) for size in func.sizes)
        body = self._stmts(func.body)
        made = tuple(self._numbers)
        return (func.name, func.outputs, func.scratch, tuple(params), sizes, body, made)

    def _owner(self, owner: Buffer | TirVar) -> int:
        return self._owners.setdefault(owner, len(self._owners))

    def _stmts(self, stmt: Stmt) -> tuple[object, ...]:
        """The statements of a block; a sequence in a sequence is its statements."""
        if isinstance(stmt, Seq) and stmt.body:
            return tuple(part for sub in stmt.body for part in self._stmts(sub))
        exprs = tuple(self._expr(expr) for expr in statement_exprs(stmt))
        plain = tuple(self._plain(stmt))
        subs = tuple(self._stmts(sub) for sub in sub_statements(stmt))
        return ((type(stmt).__name__, plain, exprs, subs),)

    def _expr(self, expr: PrimExpr) -> int:
        known: dict[object, int] = {}
        for node in post_order(expr):
            parts = [type(node).__name__, *self._plain(node)]
            key = (*parts, *(known[child] for child in children(node)))
            known[node] = self._numbers.setdefault(key, len(self._numbers))
        return known[expr]

    def _plain(self, node: Any) -> list[object]:
        """What a node has besides expressions and statements; floats by their text, for NaN."""
        if isinstance(node, TirVar):
            return [self._owner(node), node.dtype, node.lanes]
        found: list[object] = []
        for item in fields(node):
            value = object.__getattribute__(node, item.name)
            if isinstance(value, Buffer):
                found += [self._owner(value), value.shape, value.dtype, value.scope]
            elif item.name == "var":
                found += [self._owner(value), value.dtype, value.lanes]
            elif isinstance(value, float):
                found.append(repr(value))
            elif isinstance(value, PrimFunc):
                found.append(kernel_structure(value))
            elif value is None or isinstance(value, int | str | Enum):
                found.append(value)
        return found
