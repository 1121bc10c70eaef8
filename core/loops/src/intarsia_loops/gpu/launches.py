# SPDX-License-Identifier: Apache-2.0
"""Splits a kernel of the loop IR into launches: statements in sequence become launches.

The number of blocks of a launch may be an expression over size variables, which the host computes
at run time. A launch of no blocks is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import guarded
from intarsia_ir.tir.expr import CallTarget, Load, PrimExpr, TirVar, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    Invoke,
    LetStmt,
    Seq,
    Stmt,
    Store,
    Thread,
)
from intarsia_ir.tir.walk import post_order, statement_exprs, statements, substitute_stmt
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim

from ..codegen.c_source import pooled_bytes
from .grid import bound, chunks, size_of
from .traits import GridTraits

Dims = tuple[int, int, int, int, int, int]
"""Blocks in x, y and z, then threads of a block in x, y and z. Numbers of blocks may be expressions
over size variables."""


class KernelLaunch(Struct, frozen=True, eq=False):
    """One function of the device and how it is started.

    Attributes:
        function: The function; its parameters are the buffers it uses, then its size variables.
        params: Number of each of its parameters among those of the kernel.
        dims: Blocks, and threads of a block.
        waits: Whether its threads wait for each other.
        pooled_bytes: Memory of a block that is taken from the device's pool; 0 if all is declared.
    """

    function: PrimFunc
    params: tuple[int, ...]
    dims: Dims
    waits: bool
    pooled_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.dims[3] * self.dims[4] * self.dims[5]


def split_launches(function: PrimFunc, traits: GridTraits) -> tuple[KernelLaunch, ...]:
    """Return the launches of a kernel, in order; loops marked PARALLEL become blocks of threads.

    Raises:
        UnsupportedError: A kernel asks for blocks that the target has not.
    """
    whole = _sized(function.body)
    parts = whole.body if isinstance(whole, Seq) else (whole,)
    found: list[KernelLaunch] = []
    for part in _flat(parts):
        body = _spread(part, traits)
        used = _used(body)
        if not used:
            continue
        numbers = tuple(n for n, buffer in enumerate(function.params) if buffer in used)
        params = tuple(function.params[n] for n in numbers)
        written = sum(1 for n in numbers if n >= len(function.input_params))
        name = f"{function.name}_k{len(found)}"
        own = PrimFunc(name, params, written, body, sizes=_sizes(function, body))
        waits = _waits(body, traits.shuffle_down)
        launch = KernelLaunch(own, numbers, _dims(body, name), waits, _pooled(body, traits))
        if launch.threads > traits.max_threads:
            raise UnsupportedError(
                f"'{name}' asks for {launch.threads} threads in a block; {traits.max_threads} are "
                "the most"
            )
        found.append(launch)
    return tuple(found)


def _sized(body: Stmt) -> Stmt:
    """Return a body with the sizes written out that a kernel names around it: grids read them."""
    while isinstance(body, LetStmt) and size_of(body.value) is not None:
        body = substitute_stmt(body.body, {body.var: body.value})
    return body


def block_threads(items: int, traits: GridTraits) -> int:
    """Return how many threads a block has where each has one item; the most if items are open."""
    if isinstance(items, Dim):
        return traits.max_threads
    return min(traits.max_threads, chunks(items, traits.warp) * traits.warp)


def _flat(parts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for part in parts:
        if isinstance(part, Seq):
            yield from _flat(part.body)
        else:
            yield part


def _spread(stmt: Stmt, traits: GridTraits) -> Stmt:
    """Give the iterations of an outermost PARALLEL loop a thread each."""
    if not isinstance(stmt, For) or stmt.kind is not ForKind.PARALLEL:
        return stmt
    total = size_of(stmt.extent)
    if total is None:
        return replace(stmt, kind=ForKind.SERIAL)
    size = block_threads(total, traits)
    block, thread = TirVar("block"), TirVar("thread")
    body = substitute_stmt(stmt.body, {stmt.var: block * size + thread})
    inside = block * size + thread < index(total)
    body = guarded(None if total % size == 0 else inside, body)
    inner = bound(Thread.THREAD_X, thread, size, body)
    return bound(Thread.BLOCK_X, block, chunks(total, size), inner)


def _sizes(function: PrimFunc, body: Stmt) -> tuple[TirVar, ...]:
    """Return the size variables that threads read; the host reads those of the grid alone."""
    read: list[PrimExpr] = []
    for stmt in statements(body):
        if not (isinstance(stmt, For) and stmt.kind is ForKind.BOUND):
            read += statement_exprs(stmt)
    used = set(post_order(*read))
    return tuple(size for size in function.sizes if size in used)


def _used(body: Stmt) -> set[Buffer]:
    used: set[Buffer] = set()
    for stmt in statements(body):
        if isinstance(stmt, Store):
            used.add(stmt.buffer)
        nodes = post_order(*statement_exprs(stmt))
        used.update(node.buffer for node in nodes if isinstance(node, Load))
    return used


def _waits(body: Stmt, shuffle: str) -> bool:
    for stmt in statements(body):
        if isinstance(stmt, Barrier | Invoke):
            return True
        nodes = post_order(*statement_exprs(stmt))
        if any(isinstance(node, CallTarget) and node.function == shuffle for node in nodes):
            return True
    return False


def _pooled(body: Stmt, traits: GridTraits) -> int:
    """Return the bytes of the arrays of a block if they are more than a kernel may declare."""
    shared = [
        stmt.buffer
        for stmt in statements(body)
        if isinstance(stmt, Allocate) and stmt.buffer.scope is MemoryScope.SHARED
    ]
    total = sum(pooled_bytes(buffer) for buffer in shared)
    return total if 0 < traits.declared_bytes < total else 0


def _dims(body: Stmt, name: str) -> Dims:
    extents: dict[Thread, int] = {}
    for stmt in statements(body):
        if not isinstance(stmt, For) or stmt.thread is None:
            continue
        size = size_of(stmt.extent)
        if size is None:
            raise UnsupportedError(f"'{name}' computes how many blocks it has while it runs")
        if extents.setdefault(stmt.thread, size) != size:
            raise UnsupportedError(
                f"'{name}' has loops of {extents[stmt.thread]} and {size} iterations bound to "
                f"{stmt.thread.value}",
                hint="loops bound alike in one launch have one extent",
            )
    x, y, z, a, b, c = (extents.get(thread, 1) for thread in Thread)
    return (x, y, z, a, b, c)
