# SPDX-License-Identifier: Apache-2.0
"""Statements of the loop IR."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from .buffer import Buffer
from .expr import PrimExpr, TirVar


class ForKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"  # split over the threads of the shared pool; iterations are independent
    VECTORIZED = "vectorized"  # becomes vector expressions; extent is the number of lanes
    UNROLLED = "unrolled"


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """``for var in range(extent): body``; ``extent`` may depend on outer loop variables."""

    var: TirVar
    extent: PrimExpr
    kind: ForKind
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write an element; with a :class:`~intarsia.tir.expr.Ramp` as the last index, a vector."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Statements in order."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """``body`` when the scalar condition holds, else ``orelse`` (if any)."""

    condition: PrimExpr
    body: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Allocate:
    """A STACK or REGISTER buffer that lives for ``body``; its contents start undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt:
    """``var`` stands for a scalar value in ``body``."""

    var: TirVar
    value: PrimExpr
    body: Stmt


Stmt: TypeAlias = For | Store | Seq | If | Allocate | LetStmt
