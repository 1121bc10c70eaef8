# SPDX-License-Identifier: Apache-2.0
"""The register tile where an instruction multiplies two rows by two columns (``SMMLA`` of NEON).

A vector holds 8 bytes along K of two rows, or of two columns, and an instruction adds the four sums
of 8 products to a vector of sums: 32 products where ``SDOT`` has 16. ``BFMMLA`` does the same with
4 bfloat16 of each. Weights are packed so (:func:`~.packing.pair_columns`); rows are read as for one
lane after another (``lane_loop.py``), and two of them trade words::

    for k in K by 4:                           # serial: 16 bytes
        b[0..4 * vectors) = B[k..k+4) of pairs of columns     # 8 registers of 2 vectors
        for p in pairs of rows:                # unrolled
            a = A[2p, k..k+4), A[2p+1, k..k+4) as two vectors of both      # 2 + 2 registers
            c[p, 0..2 * vectors) += a[0] * b[even] + a[1] * b[odd]

Registers: 4 pairs x 4 sums + 8 of B + 4 of A = 28 of 32. A sum holds two neighbouring columns of
two rows; behind K they become rows. Weights that are packed so have no other loop: a single row is
its own second one, which takes no more instructions than a row of lanes does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Broadcast, Load, PrimExpr, Ramp, TirVar, const, index
from intarsia_ir.tir.stmt import Allocate, Stmt, Store

from .lane_loop import LANES, LaneLoop, vector_of
from .loops import let_all, seq, unrolled
from .packed_operands import RowPairs

_OfPair: TypeAlias = Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]
"""Returns what is done for two rows and the number of their pair."""


class _PairedTile(Struct, frozen=True):
    """A tile of rows two at a time.

    Attributes:
        unit: What multiplies.
        tile: The same tile, one row at a time.
        sums: Two vectors for each vector of results of a pair of rows.
    """

    unit: RowPairs
    tile: LaneLoop
    sums: Buffer

    def products(self, first: tuple[PrimExpr, ...]) -> Stmt:
        """Add the products of four words along K."""
        kind, exchange = self.sums.dtype, self.unit.exchange
        columns: list[tuple[int, int, TirVar]] = []
        bound: list[tuple[TirVar, PrimExpr]] = []
        for half in range(2):
            for column in range(0, self.tile.acc.shape[1], LANES):
                for number in range(2):
                    step = (*first[:-1], first[-1] + (2 * half + number))
                    words = vector_of(self.tile.right(step, index(column)))
                    var = TirVar("b", words.dtype, LANES)
                    bound.append((var, words))
                    columns.append((half, column // LANES * 2 + number, var))

        def pair(first_row: PrimExpr, second_row: PrimExpr, number: PrimExpr) -> Stmt:
            a, b = (self.unit.vector(self.tile.left(r, first)) for r in (first_row, second_row))
            assert a is not None  # as of the sample of the loop by lanes
            assert b is not None
            both = [TirVar("a", a.dtype, LANES) for _ in range(2)]
            lets = [(both[0], exchange(a, b, "low", 2)), (both[1], exchange(a, b, "high", 2))]
            adds: list[Stmt] = []
            for half, place, right in columns:
                here = (number, Ramp(index(place * LANES), 1, LANES))
                total = Load(self.sums, here, kind, LANES)
                adds.append(Store(self.sums, here, self.unit.add(total, both[half], right)))
            return let_all(lets, seq(*adds))

        return let_all(bound, self._each_pair(pair))

    def gather(self) -> Stmt:
        """Add the sums of pairs to those of rows."""
        kind, exchange = self.sums.dtype, self.unit.exchange

        def pair(first_row: PrimExpr, second_row: PrimExpr, number: PrimExpr) -> Stmt:
            rows = [first_row] if first_row is second_row else [first_row, second_row]
            made: list[Stmt] = []
            for column in range(0, self.tile.acc.shape[1], LANES):
                halves = [
                    Load(self.sums, (number, Ramp(index(at), 1, LANES)), kind, LANES)
                    for at in (2 * column, 2 * column + LANES)
                ]
                for row, name in zip(rows, ("low", "high"), strict=False):
                    here = (row, Ramp(index(column), 1, LANES))
                    total = Load(self.tile.acc, here, kind, LANES)
                    added = total + exchange(halves[0], halves[1], name, 2)
                    made.append(Store(self.tile.acc, here, added))
            return seq(*made)

        return self._each_pair(pair)

    def clear(self) -> Stmt:
        """Set all sums to zero."""
        zero = Broadcast(const(0, self.sums.dtype), LANES, self.sums.dtype)

        def clear(number: PrimExpr) -> Stmt:
            return seq(
                *(
                    Store(self.sums, (number, Ramp(index(column), 1, LANES)), zero)
                    for column in range(0, self.sums.shape[1], LANES)
                )
            )

        return unrolled(self.sums.shape[0], clear, "p")

    def _each_pair(self, body: _OfPair) -> Stmt:
        """Do ``body`` for all pairs of rows; a row without a second one is its own."""
        rows = self.tile.rows[0]
        pairs = unrolled(rows // 2, lambda p: body(p * 2, p * 2 + 1, p), "p")
        last = index(rows - 1)
        return seq(pairs, body(last, last, index(rows // 2))) if rows % 2 else pairs


def suits_pairs(words: int) -> bool:
    """Whether so many words along K, which lie side by side, are whole vectors."""
    return words > 0 and words % LANES == 0


def lane_loops(tile: LaneLoop) -> Stmt:
    """Return the loops over K of a tile by lanes, or by pairs of rows if weights are packed so."""
    unit = tile.tiling.row_pairs
    if unit is None:
        return tile.loops()
    shape = (-(-tile.rows[0] // 2), 2 * tile.acc.shape[1])
    sums = Buffer("sums", shape, tile.acc.dtype, MemoryScope.REGISTER)
    made = _PairedTile(unit, tile, sums)
    return Allocate(sums, seq(made.clear(), tile.nest((), made.products), made.gather()))
