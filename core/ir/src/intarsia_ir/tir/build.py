# SPDX-License-Identifier: Apache-2.0
"""Shorthand for loops that are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from intarsia_runtime.dtype import DType

from .buffer import Buffer, MemoryScope
from .expr import Load, PrimExpr, TirVar, index
from .stmt import Allocate, For, ForKind, IfStmt, LetStmt, Seq, Stmt, Store


def load(buffer: Buffer, *indices: PrimExpr | int) -> Load:
    """Read one element."""
    return Load(buffer, tuple([index(i) for i in indices]), buffer.dtype, 1)


def store(buffer: Buffer, indices: Sequence[PrimExpr | int], value: PrimExpr) -> Stmt:
    """Write one element."""
    return Store(buffer, tuple([index(i) for i in indices]), value)


def cell(name: str, dtype: DType) -> Buffer:
    """Return one scalar that can be written again; it lives where it is allocated."""
    return Buffer(name, (1,), dtype, MemoryScope.REGISTER)


def get(variable: Buffer) -> Load:
    """Read a scalar made by :func:`cell`."""
    return load(variable, 0)


def put(variable: Buffer, value: PrimExpr) -> Stmt:
    """Write a scalar made by :func:`cell`."""
    return store(variable, (0,), value)


def seq(*parts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened."""
    flat: list[Stmt] = []
    for part in parts:
        flat.extend(part.body if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def serial(extent: PrimExpr | int, body: Callable[[PrimExpr], Stmt], name: str = "i") -> Stmt:
    """``for i in range(extent): body(i)``."""
    var = TirVar(name)
    return For(var, index(extent), ForKind.SERIAL, body(var))


def parallel(extent: PrimExpr | int, body: Callable[[PrimExpr], Stmt], name: str = "row") -> Stmt:
    """The same, its iterations independent of one another and in any order."""
    var = TirVar(name)
    return For(var, index(extent), ForKind.PARALLEL, body(var))


def unrolled(extent: int, body: Callable[[PrimExpr], Stmt], name: str = "u") -> Stmt:
    """The same, written out by the compiler."""
    var = TirVar(name)
    return For(var, index(extent), ForKind.UNROLLED, body(var))


def allocate(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """Memory that lives for ``body``."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def guarded(condition: PrimExpr | None, body: Stmt) -> Stmt:
    """``body`` where a condition holds; everywhere if there is none."""
    return body if condition is None else IfStmt(condition, body)


def let(value: PrimExpr, body: Callable[[PrimExpr], Stmt], name: str = "value") -> Stmt:
    """Give a value, computed once, a name in ``body``."""
    var = TirVar(name, value.dtype, value.lanes)
    return LetStmt(var, value, body(var))


def lets(variables: Sequence[TirVar], values: Sequence[PrimExpr], body: Stmt) -> Stmt:
    """Variables that stand for values in ``body``."""
    for var, value in zip(reversed(variables), reversed(values), strict=True):
        body = LetStmt(var, value, body)
    return body


def unflatten(number: PrimExpr, extents: Sequence[int]) -> list[PrimExpr]:
    """Return the indices of an element from its number in row-major order."""
    found: list[PrimExpr] = []
    for at, extent in enumerate(extents):
        step = prod(extents[at + 1 :])
        value = number if step == 1 else number // step
        found.append(value % extent if at else value)
    return found
