# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel's loops are as they should run, so that LLVM has none to vectorize.

Such kernels have vectors where vectors pay, sums in registers, and before a loop what does not
change in it. Of LLVM's passes only those that work on single instructions find something to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.tir.buffer import MemoryScope
from intarsia_ir.tir.expr import INDEX, Binary, BinaryOp, IntImm, Load, PrimExpr, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import For, ForKind, LetStmt, Stmt, Store
from intarsia_ir.tir.walk import post_order, statements
from intarsia_loops.vectorizable import vectorizes
from intarsia_runtime.dtype import DType

_SHORT = 4  # iterations that a vector would not make faster
_TEMPORARY = (MemoryScope.REGISTER, MemoryScope.STACK)
_BLOCK = 32  # elements of the widest block of columns of float32; a remainder has fewer


def is_scheduled(function: PrimFunc) -> bool:
    """Say whether no innermost loop of a kernel writes single elements.

    Args:
        function: The kernel, with its VECTORIZED loops replaced by vectors.
    """
    stmts = list(statements(function.body))
    values = {stmt.var: stmt.value for stmt in stmts if isinstance(stmt, LetStmt)}
    return not any(isinstance(stmt, For) and _writes_elements(stmt, values) for stmt in stmts)


def _writes_elements(loop: For, values: Mapping[TirVar, PrimExpr]) -> bool:
    """Whether this is an innermost loop over single elements, and not a short one."""
    if loop.kind is ForKind.UNROLLED:
        return False
    if _is_short(loop.extent, values):
        return False
    found = False
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and stmt.kind is not ForKind.UNROLLED:
            return False
        found = found or (isinstance(stmt, Store) and _is_element(stmt, loop.var))
    return found and not _is_written_out(loop.body)


def _is_short(extent: PrimExpr, values: Mapping[TirVar, PrimExpr]) -> bool:
    """Whether a loop has too few iterations for vectors: a number, or fewer than a block has."""
    match extent:
        case TirVar() if extent in values:
            return _is_short(values[extent], values)
        case IntImm(value=count):
            return count <= _SHORT
        case Binary(op=BinaryOp.MIN, a=a, b=b):
            return any(isinstance(one, IntImm) and one.value < _BLOCK for one in (a, b))
        case Binary(op=BinaryOp.FLOOR_MOD, b=IntImm(value=divisor)):
            return divisor <= _BLOCK
        case _:
            return False


def _is_element(stmt: Store, var: TirVar) -> bool:
    """Whether a statement writes one element that could be a lane of a vector.

    A position that a loop steps on, or writes to the stack, could not; nor could a copy of
    elements that lie an open number of elements apart, nor a sum of floats, which has an order.
    Whether all words are in a range need not: a check takes no time beside what it is for.
    """
    if stmt.value.lanes != 1:
        return False
    if isinstance(stmt.value, Load) and not vectorizes(stmt.value, var):
        return False
    if stmt.buffer.scope not in _TEMPORARY:
        return True
    is_total = var not in post_order(*stmt.indices)
    dtype = stmt.buffer.dtype
    return dtype is not INDEX and not (is_total and (dtype.is_float or dtype is DType.BOOL))


def _is_written_out(body: Stmt) -> bool:
    """Whether a loop's body is copies of one statement, as a copy of lines that lie apart is."""
    return isinstance(body, For) and body.kind is ForKind.UNROLLED
