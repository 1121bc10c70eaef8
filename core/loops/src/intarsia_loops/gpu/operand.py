# SPDX-License-Identifier: Apache-2.0
"""An operand of a product: how the threads of a block bring its tiles into shared memory.

Neighbouring threads take neighbours in memory, so a warp reads whole lines. A tile goes one of two
ways. Through registers: :meth:`TileOperand.fetch` loads them before a tile is multiplied,
:meth:`TileOperand.put` stores them behind it, so the loads run beside the arithmetic, and one tile
is in flight. Or by asynchronous copies (:meth:`TileOperand.copy`; ``cp.async`` of CUDA), which take
no registers, so several tiles are in flight: of 16 bytes where so many lie side by side in memory
and in the tile, of 4 bytes where elements have 4. What lies outside the matrix is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import lets, load, store, unrolled
from intarsia_ir.tir.expr import (
    IfThenElse,
    Load,
    PrimExpr,
    TirVar,
    all_of,
    cast,
    const,
    index,
)
from intarsia_ir.tir.stmt import IfStmt, Invoke, Stmt
from intarsia_runtime.dtype import DType

from .traits import GridTraits
from .vectors import VECTOR

_Item: TypeAlias = "Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]"
"""``item(n, x, k)``: what a thread does with its elements of a tile from its ``n``-th on; the first
of them is at row or column ``x`` and at ``k``."""


class TileOperand(Struct, frozen=True, eq=False):
    """The matrix A or B of a block; ``x`` counts rows of A, columns of B.

    Attributes:
        element: ``element(x, k)`` of the matrix, for indices inside it.
        first: The first ``x`` of the block's tiles.
        count: Rows of A, columns of B.
        depth: K.
        whole_depth: Whether whole steps make K up, so that nothing lies outside of it.
        by_depth: Whether neighbours along K are neighbours in memory; else those along ``x``.
        run: How many elements lie side by side there, as of a product's ``left_run``.
        tile: Tiles in shared memory, ``[buffer, x, k]`` or ``[buffer, k, x]``.
        tile_by_depth: Whether it is the former.
        fetched: Registers of a thread for one tile.
        size: Of a tile along ``x``.
        step: Of a tile along K.
        threads: Of a block.
        thread: Number of this one.
        traits: Of the device; elements are loaded one by one without.
    """

    element: Callable[[PrimExpr, PrimExpr], PrimExpr]
    first: PrimExpr
    count: int
    depth: int
    whole_depth: bool
    by_depth: bool
    run: int
    tile: Buffer
    tile_by_depth: bool
    fetched: Buffer
    size: int
    step: int
    threads: int
    thread: PrimExpr
    traits: GridTraits | None

    @property
    def lanes(self) -> int:
        """Elements that a thread loads at once: 16 bytes of them, or one."""
        value, lanes = self.element(index(0), index(0)), VECTOR // self.tile.dtype.bytes
        whole = isinstance(value, Load) and value.dtype is self.tile.dtype and self.run % lanes == 0
        share = self.size * self.step // self.threads
        return lanes if whole and self.traits and share % lanes == 0 else 1

    @property
    def copied_by(self) -> str:
        """The backend's function that copies elements asynchronously; empty if they go through
        registers."""
        copies = None if self.traits is None else self.traits.copies
        if copies is None:
            return ""
        if self.lanes > 1 and self.by_depth == self.tile_by_depth:
            return copies.copy_16
        source, _ = _guarded(self.element(index(0), index(0)))
        one = source is not None and source.dtype is self.tile.dtype and self.tile.dtype.bytes == 4
        return copies.copy_4 if one else ""

    def fetch(self, k: PrimExpr) -> Stmt:
        """Load the elements of the step that begins at ``k`` into registers."""
        lanes, to = self.lanes, self.fetched
        zero = const(0, to.dtype)

        def item(n: PrimExpr, x: PrimExpr, at: PrimExpr) -> Stmt:
            value = self.element(self.first + x, k + at)
            fetch = store(to, (n,), cast(value, to.dtype))
            if lanes > 1 and self.traits is not None and isinstance(value, Load):
                fetch = Invoke(self.traits.kind, self.traits.load_16, (load(to, n), value))
            inside = self._inside(x, k + at)
            if inside is None:
                return fetch
            return IfStmt(inside, fetch, unrolled(lanes, lambda e: store(to, (n + e,), zero), "e"))

        return self._shared_out(item, lanes)

    def put(self, buffer: PrimExpr) -> Stmt:
        """Store the registers to a tile."""
        lanes = self.lanes

        def item(n: PrimExpr, x: PrimExpr, k: PrimExpr) -> Stmt:
            def lane(e: PrimExpr) -> Stmt:
                place = self._place(buffer, x, k + e) if self.by_depth else None
                place = place or self._place(buffer, x + e, k)
                return store(self.tile, place, load(self.fetched, n + e))

            return unrolled(lanes, lane, "e")

        return self._shared_out(item, lanes)

    def copy(self, k: PrimExpr, buffer: PrimExpr) -> Stmt:
        """Start to copy the step that begins at ``k`` to a tile."""
        function, traits = self.copied_by, self.traits
        assert traits is not None, "without traits nothing is copied so"
        lanes = self.lanes if traits.copies and function == traits.copies.copy_16 else 1

        def item(_n: PrimExpr, x: PrimExpr, at: PrimExpr) -> Stmt:
            source, condition = _guarded(self.element(self.first + x, k + at))
            assert source is not None, "only loads are copied"
            inside = [each for each in (self._inside(x, k + at), condition) if each is not None]
            flag = cast(all_of(inside), DType.INT32) if inside else const(1, DType.INT32)
            to = load(self.tile, *self._place(buffer, x, at))
            return Invoke(traits.kind, function, (to, source), (flag,))

        return self._shared_out(item, lanes)

    def _place(self, buffer: PrimExpr, x: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
        return (buffer, x, k) if self.tile_by_depth else (buffer, k, x)

    def _inside(self, x: PrimExpr, k: PrimExpr) -> PrimExpr | None:
        deep = 1 if self.whole_depth else self.step + self.depth + 1  # never divides the depth
        return inside_of((self.first + x, self.count, self.size), (k, self.depth, deep))

    def _shared_out(self, item: _Item, lanes: int) -> Stmt:
        """Run ``item`` for all elements; the threads take them in the order of memory."""
        x, k = TirVar("x"), TirVar("k")

        def piece(n: PrimExpr) -> Stmt:
            at = (n * self.threads + self.thread) * lanes
            values = [at // self.step, at % self.step]
            if not self.by_depth:
                values = [at % self.size, at // self.size]
            return lets([x, k], values, item(n * lanes, x, k))

        return unrolled(self.size * self.step // self.threads // lanes, piece, "piece")


def _guarded(value: PrimExpr) -> tuple[Load | None, PrimExpr | None]:
    """Return what an element loads, and where it does not stand for 0; ``None`` if it computes."""
    if isinstance(value, Load):
        return value, None
    if isinstance(value, IfThenElse) and isinstance(value.a, Load):
        return value.a, value.condition
    return None, None


def inside_of(*parts: tuple[PrimExpr, int, int]) -> PrimExpr | None:
    """Whether every place is below its limit; ``None`` where whole tiles fit."""
    conditions = [at < limit for at, limit, size in parts if limit % size]
    return all_of(conditions) if conditions else None
