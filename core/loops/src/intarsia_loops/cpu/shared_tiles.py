# SPDX-License-Identifier: Apache-2.0
"""Register tiles of open products as functions of their own, which the products of a model share.

Products of a model differ in K, N and epilogue, and have the same micro-kernels. Where the number
of rows is open, each product needs those of all sizes, which take most of the time of compiling it.
Here all of them are one procedure, compiled once::

    tiles(A, B, sums, rows, stride of A, stride of B, K):   # and the next block, to be fetched
        if rows == 14: sums[0..14) = A[0..14) @ B      # in registers, micro_kernel.py
        elif rows == 7: ...

Sums pass through the stack, and the epilogue is a loop over their rows. A tile of 14 x 2 vectors
takes 14 cycles for a step of K, and 28 stores and loads more for all of them: 2 % at K of 128, 5 %
at K of 64 (AMD Zen 4, which stores half of a vector in a cycle). So products of two activations
with a smaller K have tiles of their own; those with weights are few of many layers. BLIS and
XNNPACK have micro-kernels as functions, too: with C in memory, or with one epilogue of few.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, select
from intarsia_ir.tir.forward import KERNEL
from intarsia_ir.tir.stmt import Allocate, Invoke, Stmt
from intarsia_runtime.dtype import DType

from .loops import address_of, let_all, load, seq, serial
from .micro_kernel import operands_fetched
from .prefetch import OpenWeightPrefetch
from .row_tiles import FEW_ROWS, EvenTiles
from .tile_procedures import TileShape, most_small, tile_procedure
from .tile_stores import TileEpilogue, stored_rows
from .tiling import CpuTiling

LEAST_DEPTH = 64
"""K from which on a call, and sums that pass through the stack, cost next to nothing. With a K of
32, an encoder in 8 bits takes 1.08 of the time for 384 words."""


class TileOperands(Struct, frozen=True):
    """The operands of a tile; elements are loads.

    Attributes:
        left: The first element of the first row of A.
        right: The first element of B.
        strides: Elements from one row to the next, of A and of B.
        depth: K, or the part of it that lies side by side in A.
        fetched: The next block of B.
        parts: How many such parts there are, as of taps of a dilated window, and the elements of A
            from one to the next; ``None`` if there is one.
    """

    left: PrimExpr
    right: PrimExpr
    strides: tuple[PrimExpr, PrimExpr]
    depth: PrimExpr
    fetched: OpenWeightPrefetch | None = None
    parts: tuple[PrimExpr, PrimExpr] | None = None


class SharedTiles(Struct, frozen=True):
    """The tiles that cover an open number of rows by some columns.

    Attributes:
        tiling: Register tile of the machine; see :func:`shares_tiles`.
        even: How tiles cover the rows.
        columns: How many are stored, and how many are computed, whole vectors. Where the run says
            how many are stored, single elements are.
        dtype: Of all elements.
    """

    tiling: CpuTiling
    even: EvenTiles
    columns: tuple[int | PrimExpr, int]
    dtype: DType

    def tile(
        self,
        part: tuple[PrimExpr, PrimExpr],
        number: PrimExpr,
        multiply: Callable[[PrimExpr, Callable[[TileOperands], Stmt]], Stmt],
        stored: Callable[[PrimExpr], TileEpilogue],
    ) -> Stmt:
        """Compute and store a tile.

        Args:
            part: The first of some large tiles, and how many they are.
            number: Of the tile, of those and all smaller ones behind them.
            multiply: ``multiply(start, call)``: the statement that calls the procedure with the
                operands of a tile that starts at some row.
            stored: ``stored(start)`` is what stores the results of such a tile.
        """
        tiling, lanes, (begin, large) = self.tiling, self.tiling.lanes, part
        used, columns = self.columns
        sums = Buffer("sums", (self.even.largest, columns), self.dtype, MemoryScope.STACK)
        start, rows = TirVar("start"), TirVar("rows")
        is_large = number < large
        among = select(is_large, begin + number, number - large)
        values = zip((start, rows), self.even.tile(among, is_large), strict=True)
        shape = tile_shape(tiling, self.even.largest, columns, self.dtype)
        epilogue, fetched = stored(start), list[Stmt]()
        if isinstance(used, int):
            tile = (rows, used, lanes)
            fetched = operands_fetched(tiling, epilogue, tile, self.dtype)
            kept = stored_rows(sums, tile, epilogue)
        else:

            def row(r: PrimExpr) -> Stmt:
                return serial(used, lambda c: epilogue(r, c, load(sums, r, c)), "n")

            kept = serial(rows, row, "r")
        made = multiply(start, lambda given: call_tiles(shape, rows, given, load(sums, 0, 0)))
        return let_all([*values], Allocate(sums, seq(*fetched, made, kept)))


def shares_tiles(tiling: CpuTiling) -> bool:
    """Whether a machine's tiles may be procedures: those that are loops over vectors alone."""
    special = (tiling.add, tiling.sums, tiling.micro_kernel, tiling.left_lanes, tiling.row_pairs)
    return tiling.shares_tiles and all(part is None for part in special)


def even_tiles(rows: PrimExpr, largest: int) -> EvenTiles:
    """Return how tiles of the largest size and of all small ones cover rows."""
    return EvenTiles(rows, largest, most_small(largest))


def tile_shape(tiling: CpuTiling, largest: int, columns: int, dtype: DType) -> TileShape:
    """Return the tiles of a machine, of the largest size and of small ones.

    A product has one vector of columns at most behind those of two: there, few rows are enough.
    """
    most = most_small(largest)
    sizes = (largest, *range(min(most, FEW_ROWS) if columns <= tiling.lanes else most, 0, -1))
    return TileShape(tiling.lanes, tiling.rows, sizes, columns, dtype, tiling.prefetch)


def call_tiles(shape: TileShape, rows: PrimExpr, operands: TileOperands, sums: PrimExpr) -> Stmt:
    """Return the call that computes the sums of a tile of so many rows, one of its sizes.

    Args:
        shape: Of the procedure.
        rows: Of the tile.
        operands: The operands.
        sums: The first of the sums, as a load; a row of them has all columns of the tiles.
    """
    places = [operands.left, operands.right]
    values = [rows, *operands.strides, operands.depth]
    if operands.parts is not None:
        shape = replace(shape, has_parts=True)
        values += operands.parts
    fetched = operands.fetched
    if fetched is not None:
        places.append(fetched.weight(index(0)))
        values += [fetched.first, fetched.per_step]
    elif shape.prefetch is not None:  # a line that is there, which is cheaper than other tiles
        places.append(operands.right)
        values += [index(0), index(0)]
    procedure = tile_procedure(shape)
    first = tuple(address_of(place) for place in (*places, sums))
    return Invoke(KERNEL, procedure.name, first, tuple(values), procedure)
