# SPDX-License-Identifier: Apache-2.0
"""How a register tile stores its results: the epilogue on the sums of each row.

It is written out for each row, where sums are in registers. Kernels with tiles of several sizes
have a long one, as gelu is, as a loop over the rows of a tile, whose sums are on the stack then.
Where instructions narrow two vectors to one (NEON), results of bytes are computed two vectors at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, const
from intarsia_ir.tir.stmt import Allocate, Stmt, Store
from intarsia_ir.tir.walk import statements
from intarsia_runtime.dtype import DType

from ..cost import has_long_function
from .loops import load, seq, serial, store, unrolled, vectorized
from .tiling import CpuTiling

TileEpilogue: TypeAlias = "Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]"
"""``epilogue(row, column, sum)`` stores a result."""


def tile_stores(
    acc: Buffer, tile: tuple[int, int, int], epilogue: TileEpilogue, *, is_looped: bool
) -> Stmt:
    """Return what stores all results of a tile.

    Args:
        acc: The sums.
        tile: Rows, columns and lanes.
        epilogue: Stores a result.
        is_looped: Whether a long epilogue is a loop over rows.
    """
    if is_looped and is_long(epilogue, acc.dtype):
        return _looped_stores(acc, *tile, epilogue)
    return _unrolled_stores(acc, *tile, epilogue)


def stored_lanes(tiling: CpuTiling, epilogue: TileEpilogue, dtype: DType) -> int:
    """Return how many columns an epilogue computes at a time: more if they become bytes."""
    stored = epilogue(TirVar("r"), TirVar("v"), const(0, dtype))
    return tiling.lanes * (tiling.byte_vectors if stores_bytes(stored) else 1)


def stores_bytes(stored: Stmt) -> bool:
    """Whether all that an epilogue stores are bytes."""
    stores = [stmt for stmt in statements(stored) if isinstance(stmt, Store)]
    return all(stmt.buffer.dtype.bits == 8 for stmt in stores)


def is_long(epilogue: TileEpilogue, dtype: DType) -> bool:
    """Whether an epilogue becomes many instructions."""
    stored = epilogue(TirVar("r"), TirVar("v"), const(0, dtype))
    stores = [stmt for stmt in statements(stored) if isinstance(stmt, Store)]
    return any(has_long_function(stmt.value) for stmt in stores)


def _unrolled_stores(
    acc: Buffer,
    rows: int,
    columns: int,
    lanes: int,
    epilogue: TileEpilogue,
) -> Stmt:
    """Run the epilogue on each row, written out."""
    return unrolled(rows, lambda r: _store_row(acc, (r, rows), columns, lanes, epilogue), "r")


def _looped_stores(
    acc: Buffer,
    rows: int,
    columns: int,
    lanes: int,
    epilogue: TileEpilogue,
) -> Stmt:
    """Put the sums of a tile on the stack, and run the epilogue row by row.

    That costs a store and a load of a vector, which a function of 30 instructions hides.
    """
    sums = Buffer("sums", (rows, acc.shape[1]), acc.dtype, MemoryScope.STACK)

    def keep(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
        return store(sums, (r, c), value)

    held = _unrolled_stores(acc, rows, acc.shape[1], lanes, keep)
    return Allocate(sums, seq(held, stored_rows(sums, (rows, columns, lanes), epilogue)))


def stored_rows(
    sums: Buffer, tile: tuple[int | PrimExpr, int, int], epilogue: TileEpilogue
) -> Stmt:
    """Return the loop that runs the epilogue on rows of sums, one of each result.

    Args:
        sums: On the stack.
        tile: Rows, which the run may know, columns and lanes.
        epilogue: Stores a result.
    """
    rows, columns, lanes = tile
    most = sums.shape[0]
    return serial(rows, lambda r: _store_row(sums, (r, most), columns, lanes, epilogue), "r")


def _store_row(
    acc: Buffer,
    row_of: tuple[PrimExpr, int],
    columns: int,
    lanes: int,
    epilogue: TileEpilogue,
) -> Stmt:
    """Run the epilogue on a row, vector by vector; the last vector has the columns that remain."""
    row, rows = row_of
    stmts: list[Stmt] = []

    def total(column: PrimExpr) -> PrimExpr:
        value = load(acc, row, column)
        for first in range(rows, acc.shape[0], rows):
            value = value + load(acc, row + first, column)
        return value

    for start in range(0, columns, lanes):
        used = min(lanes, columns - start)
        stmts.append(vectorized(used, lambda i, s=start: epilogue(row, i + s, total(i + s))))
    return seq(*stmts)
