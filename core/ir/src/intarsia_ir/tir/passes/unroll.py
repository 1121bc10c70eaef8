# SPDX-License-Identifier: Apache-2.0
"""Write out loops marked UNROLLED, once for each iteration."""

from __future__ import annotations

from dataclasses import replace

from intarsia_runtime.errors import VerifyError

from ..expr import IntImm
from ..func import PrimFunc
from ..stmt import For, ForKind, Seq, Stmt
from ..walk import substitute_stmt
from .rebuild import replace_statements


def unroll(function: PrimFunc) -> PrimFunc:
    """Return ``function`` without UNROLLED loops; outer loops are written out before inner ones.

    Raises:
        VerifyError: The extent of such a loop is not a constant.
    """
    body = _unroll(function.body)
    return function if body is function.body else replace(function, body=body)


def _unroll(stmt: Stmt) -> Stmt:
    return replace_statements(stmt, _write_out)


def _write_out(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind is not ForKind.UNROLLED:
        return None
    if not isinstance(stmt.extent, IntImm):
        raise VerifyError(f"the extent of the unrolled loop '{stmt.var.name}' is not a constant")
    parts: list[Stmt] = []
    for number in range(stmt.extent.value):
        part = _unroll(_renamed(substitute_stmt(stmt.body, {stmt.var: IntImm(number)})))
        parts.extend(part.body if isinstance(part, Seq) else (part,))
    return Seq(tuple(parts))


def _renamed(stmt: Stmt) -> Stmt:
    """Give loops variables of their own: passes remember what they know of a variable."""
    return replace_statements(stmt, _rename_loop)


def _rename_loop(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For):
        return None
    var = replace(stmt.var)
    return replace(stmt, var=var, body=_renamed(substitute_stmt(stmt.body, {stmt.var: var})))
