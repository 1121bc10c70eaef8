# SPDX-License-Identifier: Apache-2.0
"""The register tile where an instruction multiplies two rows by two columns (``SMMLA`` of NEON).

A vector holds 8 bytes along K of two rows, or of two columns, and an instruction adds the four sums
of 8 products to a vector of sums: 32 products where ``SDOT`` has 16. ``BFMMLA`` does the same with
4 bfloat16 of each. Weights are packed so (:func:`~.packing.pair_columns`); rows are read as for one
lane after another (``lane_loop.py``), and two of them trade words::

    for k in K by 4:                           # serial: 16 bytes
        for p in pairs of rows:                # unrolled
            a[p] = A[2p, k..k+4), A[2p+1, k..k+4) as two vectors of both       # 2 registers
        for half, b in B[k..k+4):              # 4 * vectors vectors of a pair of columns
            for p in pairs of rows:
                c[p, b] += a[p][half] * b

Registers: a tile of 4 rows x 6 vectors of columns has 24 sums, 4 of A and 2 of B, 30 of 32; 48 of
its 72 instructions multiply, of 8 x 2 vectors 32 of 56. Wide tiles pay, because words of two rows
are exchanged anew for each block of columns; 6 x 4 vectors would need all 32 registers, which LLVM
fills without spilling for few processors. A sum holds two neighbouring columns of two rows; behind
K they become rows. Weights that are packed so have no other loop: a single row is its own second
one, which takes no more instructions than a row of lanes does.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Broadcast, Load, PrimExpr, Ramp, TirVar, const, index
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt, Store

from .lane_loop import LANES, LaneLoop, vector_of
from .loops import let_all, seq
from .packed_operands import RowPairs


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
        exchange, left = self.unit.exchange, self.tile.left
        both: list[tuple[TirVar, TirVar]] = []
        bound: list[tuple[TirVar, PrimExpr]] = []
        for rows in self._pairs():
            a, b = (self.unit.vector(left(r, first)) for r in (rows[0], rows[-1]))
            assert a is not None  # as of the sample of the loop by lanes
            assert b is not None
            low, high = (TirVar("a", a.dtype, LANES) for _ in range(2))
            bound += [(low, exchange(a, b, "low", 2)), (high, exchange(a, b, "high", 2))]
            both.append((low, high))
        columns = range(0, self.tile.acc.shape[1], LANES)
        adds = [
            self._products_of(first, (half, column, number), both)
            for half in range(2) for column in columns for number in range(2)
        ]  # fmt: skip
        return let_all(bound, seq(*adds))

    def _products_of(
        self,
        first: tuple[PrimExpr, ...],
        place: tuple[int, int, int],
        both: list[tuple[TirVar, TirVar]],
    ) -> Stmt:
        """Multiply half of the words of a pair of columns by those of all rows."""
        kind, (half, column, number) = self.sums.dtype, place
        step = (*first[:-1], first[-1] + (2 * half + number))
        words = vector_of(self.tile.right(step, index(column)))
        right = TirVar("b", words.dtype, LANES)
        adds: list[Stmt] = []
        for pair, halves in enumerate(both):
            here = (index(pair), Ramp(index(2 * column + number * LANES), 1, LANES))
            total = Load(self.sums, here, kind, LANES)
            adds.append(Store(self.sums, here, self.unit.add(total, halves[half], right)))
        return LetStmt(right, words, seq(*adds))

    def _pairs(self) -> list[tuple[int, ...]]:
        """Return the rows of each pair; the last one may be alone."""
        rows = self.tile.rows[0]
        return [tuple(range(first, min(first + 2, rows))) for first in range(0, rows, 2)]

    def gather(self) -> Stmt:
        """Add the sums of pairs to those of rows.

        The second row comes first: LLVM then makes the first one by an insertion into the same
        register, which would take a copy of it before.
        """
        kind, exchange = self.sums.dtype, self.unit.exchange
        made: list[Stmt] = []
        for pair, rows in enumerate(self._pairs()):
            for column in range(0, self.tile.acc.shape[1], LANES):
                halves = [
                    Load(self.sums, (index(pair), Ramp(index(at), 1, LANES)), kind, LANES)
                    for at in (2 * column, 2 * column + LANES)
                ]
                for row, name in reversed([*zip(rows, ("low", "high"), strict=False)]):
                    here = (index(row), Ramp(index(column), 1, LANES))
                    total = Load(self.tile.acc, here, kind, LANES)
                    added = total + exchange(halves[0], halves[1], name, 2)
                    made.append(Store(self.tile.acc, here, added))
        return seq(*made)

    def clear(self) -> Stmt:
        """Set all sums to zero."""
        zero = Broadcast(const(0, self.sums.dtype), LANES, self.sums.dtype)
        rows, columns = self.sums.shape
        return seq(
            *(
                Store(self.sums, (index(row), Ramp(index(column), 1, LANES)), zero)
                for row in range(rows)
                for column in range(0, columns, LANES)
            )
        )


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
