# SPDX-License-Identifier: Apache-2.0
"""Have the caller provide what a kernel would keep on its stack, and bound what stays there.

A stack has 8 MiB in the first thread of a Linux process, 128 KiB in threads of some C libraries,
and a few KiB on a microcontroller. A temporary that no stack is sure to hold becomes a scratch
parameter, which the memory plan gives a place in the workspace. Inside a parallel loop it has one
copy for each *slot*: a thread holds a slot while it runs iterations, and no other thread holds the
same one. So threads share nothing, and there are as many copies as threads run at once. A kernel of
open sizes has as many as the run has threads (:data:`~intarsia_runtime.artifact.plan.THREADS`), for
nobody knows how many iterations its loops have. Of a temporary whose size is the smaller one of a
number and of what the run needs, a stack that has room keeps that number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from msgspec import Struct, field

from intarsia_runtime.artifact.plan import THREADS
from intarsia_runtime.artifact.size_bounds import upper_bound
from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim, Size, minimum, variable

from ..buffer import Buffer, MemoryScope
from ..expr import IntImm, Load, PrimExpr, TirVar
from ..func import PrimFunc
from ..stmt import Allocate, For, ForKind, LetStmt, Stmt, Store
from ..walk import rewrite_stmt, sub_statements
from .rebuild import replace_statements

STACK_BYTES = 32 * 1024
"""Most bytes of STACK buffers of one kernel on a machine with an operating system.

What fits the first-level cache stays on the stack. A kernel and the body of its parallel loop are
two frames of this size at most, half of the smallest usual stack of a thread, 128 KiB (musl).
"""

SMALL_STACK_BYTES = 4 * 1024
"""The same on a microcontroller, and of C sources that may be compiled for one."""

DEVICE_FRAME_BYTES = 512 * 1024
"""Most memory that a thread of a device has of its own (CUDA's local memory)."""

FRAME_BYTES = STACK_BYTES + 16 * 1024
"""Most bytes of all temporaries of one kernel; registers that are spilled have the other part."""

_COPIES_BYTES = 256 << 20
_CACHE_LINE = 64


class ThreadSlots(Struct, frozen=True):
    """How code finds a slot that no other thread holds meanwhile.

    Attributes:
        most: Threads that may run a parallel loop at once.
        number: ``number(count)``: the number of the slot, below ``count``, that the thread holds.
        is_fixed: Whether as many threads run as ``most`` says.
    """

    most: int
    number: Callable[[Size], PrimExpr]
    is_fixed: bool = False


def stack_to_scratch(
    function: PrimFunc, most: int = 0, slots: ThreadSlots | None = None
) -> PrimFunc:
    """Return ``function`` with its largest STACK buffers as scratch parameters.

    Args:
        function: A kernel.
        most: Bytes of STACK buffers that stay, the smallest ones.
        slots: How threads find memory of their own; without, one thread runs the loops around.
    """
    chosen, kept = _largest(function, most)
    moved = _Moved(chosen, kept, slots, _threads(function, slots))
    if not chosen and not kept:
        return function
    body = replace_statements(function.body, moved.outside)
    body = replace_statements(rewrite_stmt(body, moved.load), moved.store)
    return replace(
        function,
        body=body,
        params=(*function.params, *moved.params),
        scratch=function.scratch + len(moved.params),
    )


def verify_frame(function: PrimFunc, most: int = FRAME_BYTES) -> None:
    """Check that the temporaries of a kernel fit a stack.

    Raises:
        VerifyError: They take more than ``most`` bytes.
    """
    size = frame_bytes(function)
    if size > most:
        raise VerifyError(
            f"the kernel keeps {size} bytes on the stack of a thread, and may keep {most}",
            where=function.name,
        )


def frame_bytes(function: PrimFunc) -> int:
    """Return the bytes of all temporaries that a kernel has of its own, copies of loops counted."""
    own = (MemoryScope.STACK, MemoryScope.REGISTER)
    return sum(b.bytes * times for b, times in _allocated(function.body) if b.scope in own)


def _allocated(stmt: Stmt, times: int = 1) -> Iterator[tuple[Buffer, int]]:
    """Yield what a statement allocates, and how many copies unrolled loops make of it."""
    if isinstance(stmt, Allocate):
        yield stmt.buffer, times
    if isinstance(stmt, For) and stmt.kind is ForKind.UNROLLED and isinstance(stmt.extent, IntImm):
        times *= stmt.extent.value
    for part in sub_statements(stmt):
        yield from _allocated(part, times)


def _threads(function: PrimFunc, slots: ThreadSlots | None) -> Size:
    """Return how many threads may run the kernel at once."""
    if slots is None:
        return 1
    is_open = any(isinstance(size, Dim) for buffer in function.params for size in buffer.shape)
    if is_open and not slots.is_fixed and slots.most > 1:
        return minimum(variable(THREADS), slots.most)
    return slots.most


def _largest(function: PrimFunc, most: int) -> tuple[frozenset[Buffer], dict[Buffer, Buffer]]:
    """Return the STACK buffers that move, and what those of open sizes are that stay.

    The largest ones move, and all of open sizes without an upper bound. Those of fixed sizes stay
    first.
    """
    sizes: dict[Buffer, int] = {}
    bounded: dict[Buffer, Buffer] = {}
    chosen: list[Buffer] = []
    for buffer, times in _allocated(function.body):
        if buffer.scope is not MemoryScope.STACK:
            continue
        fixed = _bounded(buffer)
        if fixed is None:
            chosen.append(buffer)
            continue
        if fixed is not buffer:
            bounded[buffer] = fixed
        sizes[buffer] = sizes.get(buffer, 0) + fixed.bytes * times
    left = most
    for buffer in sorted(sizes, key=lambda buffer: (buffer in bounded, sizes[buffer])):
        left -= sizes[buffer]
        if left < 0 or most == 0:
            chosen.append(buffer)
            bounded.pop(buffer, None)
    return frozenset(chosen), bounded


def _bounded(buffer: Buffer) -> Buffer | None:
    """Return a buffer that is as large as another one can be; ``None`` if nothing bounds it."""
    if not isinstance(buffer.elements, Dim):
        return buffer
    bounds = [upper_bound(size, {}) for size in buffer.shape]
    known = tuple([max(bound, 0) for bound in bounds if bound is not None])
    return replace(buffer, shape=known) if len(known) == len(bounds) else None


class _Moved(Struct):
    """Buffers of the stack and what takes their places.

    Attributes:
        chosen: Which of them move.
        kept: What stays in the place of those of open sizes.
        slots: How threads find memory of their own.
        threads: How many there may be.
        params: The new parameters.
        places: The parameter of a buffer, and the slot of the thread where there are several.
        around: How often the parallel loops around run their body.
    """

    chosen: frozenset[Buffer]
    kept: Mapping[Buffer, Buffer]
    slots: ThreadSlots | None
    threads: Size
    params: list[Buffer] = field(default_factory=list[Buffer])
    places: dict[Buffer, tuple[Buffer, tuple[TirVar, ...]]] = field(
        default_factory=dict[Buffer, tuple[Buffer, tuple[TirVar, ...]]]
    )
    around: Size = 1

    def outside(self, stmt: Stmt) -> Stmt | None:
        """Take allocations away; note the parallel loops on the way."""
        if isinstance(stmt, For) and stmt.kind is ForKind.PARALLEL:
            return self._shared(stmt)
        if isinstance(stmt, Allocate) and stmt.buffer in self.kept:
            fixed = self.kept[stmt.buffer]
            self.places[stmt.buffer] = fixed, ()
            return Allocate(fixed, replace_statements(stmt.body, self.outside))
        if not isinstance(stmt, Allocate) or stmt.buffer not in self.chosen:
            return None
        slot = self._place(stmt.buffer)
        body = replace_statements(stmt.body, self.outside)
        return body if slot is None else LetStmt(*slot, body)

    def _shared(self, loop: For) -> Stmt | None:
        """Take allocations out of a parallel loop."""
        inside = {buffer for buffer, _ in _allocated(loop.body)}
        if self.chosen.isdisjoint(inside):
            return None if inside & self.kept.keys() else loop
        before, kind = self.around, ForKind.SERIAL
        if self.slots is not None:
            most, extent = self.slots.most, loop.extent
            count = max(extent.value, 1) if isinstance(extent, IntImm) else most
            self.around, kind = minimum(before * count, self.threads), ForKind.PARALLEL
        body = replace_statements(loop.body, self.outside)
        self.around = before
        return replace(loop, kind=kind, body=body)

    def _place(self, buffer: Buffer) -> tuple[TirVar, PrimExpr] | None:
        """Note the parameter that takes a buffer's place; returns the slot to hold, if any."""
        if buffer not in self.places:
            several = self.slots is not None and self.around != 1
            name = f"{buffer.name}_{len(self.params)}"
            shape = (self._copies(buffer), *_in_lines(buffer)) if several else buffer.shape
            param = replace(
                buffer, name=name, shape=cast("tuple[int, ...]", shape), scope=MemoryScope.GLOBAL
            )
            self.params.append(param)
            self.places[buffer] = param, ((TirVar("slot"),) if several else ())
        param, slot = self.places[buffer]
        if self.slots is None or not slot:
            return None
        return slot[0], self.slots.number(param.shape[0])

    def _copies(self, buffer: Buffer) -> Size:
        """Return how many threads have a copy of a buffer; others wait for one."""
        if isinstance(buffer.elements, Dim):
            return self.around
        bounded = max(1, _COPIES_BYTES // max(buffer.bytes, 1))
        return minimum(self.around, bounded)

    def load(self, expr: PrimExpr) -> PrimExpr | None:
        """Read the parameter."""
        if not isinstance(expr, Load) or expr.buffer not in self.places:
            return None
        param, slot = self.places[expr.buffer]
        return replace(expr, buffer=param, indices=(*slot, *expr.indices))

    def store(self, stmt: Stmt) -> Stmt | None:
        """Write the parameter."""
        if not isinstance(stmt, Store) or stmt.buffer not in self.places:
            return None
        param, slot = self.places[stmt.buffer]
        return replace(stmt, buffer=param, indices=(*slot, *stmt.indices))


def _in_lines(buffer: Buffer) -> tuple[int, ...]:
    """Return the shape of a copy that shares no cache line with the next one."""
    if not buffer.shape or buffer.bytes % _CACHE_LINE == 0:
        return buffer.shape
    together = max(1, _CACHE_LINE // buffer.dtype.bytes)
    return (*buffer.shape[:-1], -(-buffer.shape[-1] // together) * together)
