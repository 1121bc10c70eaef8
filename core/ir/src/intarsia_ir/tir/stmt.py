# SPDX-License-Identifier: Apache-2.0
"""Statements of the loop IR."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from .buffer import Buffer
from .expr import Load, PrimExpr, TirVar

if TYPE_CHECKING:
    from .func import PrimFunc


class ForKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"  # split over the threads of the shared pool; iterations are independent
    VECTORIZED = "vectorized"  # becomes vector expressions; extent is the number of lanes
    UNROLLED = "unrolled"
    BOUND = "bound"  # iterations are the blocks or threads of a device: see Thread


class Thread(Enum):
    """What the iterations of a BOUND loop are: blocks of a grid, or threads of one block.

    Blocks are independent, in any order. Threads of a block run at once, share SHARED buffers and
    wait for each other at a :class:`Barrier`.
    """

    BLOCK_X = "block.x"
    BLOCK_Y = "block.y"
    BLOCK_Z = "block.z"
    THREAD_X = "thread.x"
    THREAD_Y = "thread.y"
    THREAD_Z = "thread.z"

    @property
    def in_block(self) -> bool:
        """Whether it counts the threads of a block."""
        return self.value.startswith("thread")


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """``for var in range(extent): body``; ``extent`` may depend on outer loop variables.

    A BOUND loop has a constant extent and says in ``thread`` what runs its iterations.
    """

    var: TirVar
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread: Thread | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write an element; with a :class:`~intarsia_ir.tir.expr.Ramp` as the last index, a vector."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Statements in order."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class IfStmt:
    """``body`` when the scalar condition holds, else ``orelse`` (if any)."""

    condition: PrimExpr
    body: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Allocate:
    """A STACK, REGISTER or SHARED buffer that lives for ``body``; it starts undefined.

    A SHARED buffer is allocated outside the loops over the threads that share it.
    """

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt:
    """``var`` stands for a scalar value in ``body``."""

    var: TirVar
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """All threads of a block wait here; what one wrote before, the others read behind."""


@dataclass(frozen=True, slots=True, eq=False)
class Invoke:
    """Call of a code generator's own procedure, which reads and writes memory.

    Attributes:
        kind: The target kind whose code generator has it.
        function: Its name there.
        places: Where in memory it works: each the address of the element that a load names.
        values: Scalars.
        callee: What it does, if it is part of no code generator: its buffers begin at the places,
            and its sizes are the values. Kernels that call the same one share it.
    """

    kind: str
    function: str
    places: tuple[Load, ...]
    values: tuple[PrimExpr, ...] = ()
    callee: PrimFunc | None = None


Stmt: TypeAlias = For | Store | Seq | IfStmt | Allocate | LetStmt | Barrier | Invoke
