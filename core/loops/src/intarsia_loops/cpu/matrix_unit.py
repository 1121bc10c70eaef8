# SPDX-License-Identifier: Apache-2.0
"""Tiles of a matrix unit: registers that hold whole matrices (AMX of x86).

A register of A has ``rows`` rows of ``words`` 32-bit words (Int8x4 or Bf16x2), one of B ``words``
rows of ``lanes`` columns. One instruction adds all their products to a register of accumulators.
The rows of a register have a constant stride in memory, so M is split into segments of equally many
neighbouring rows; the last segment overlaps the one before. This avoids a remainder tile, and the
unit, whose configuration costs as much as a tile, is configured once for each thread.

Registers: a tile is 2 segments x 2 registers of columns: 4 sums + 2 A + 2 B = all 8 tile registers
of AMX, the 2 x 2 blocking that Intel's optimization manual recommends for TMUL. Sums leave the unit
through memory, 32 x 32 words = 4 KiB, which stay in the first-level cache; the epilogue reads them
by vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Load, PrimExpr, index
from intarsia_ir.tir.stmt import Allocate, Stmt
from intarsia_runtime.dtype import DType

from .loops import address_of, load, seq, serial, vectorized
from .prefetch import WeightPrefetch

_LEAST_ROWS = 4
_LEAST_WORDS = 4  # fewer are added as fast by vector instructions
SEGMENTS = 2
"""Segments of a tile."""


class MatrixUnit(Protocol):
    """A backend's procedures for a matrix unit, and how large its registers may be."""

    @property
    def rows(self) -> int:
        """Rows of a register of data or sums."""
        ...

    @property
    def words(self) -> int:
        """Int8x4 words in a row of a register of data."""
        ...

    @property
    def lanes(self) -> int:
        """Sums in a row."""
        ...

    @property
    def sums(self) -> DType:
        """Element type of sums: int32 of bytes, float32 of bfloat16."""
        ...

    def configure(self, rows: int, words: int) -> Stmt:
        """Say how large the registers are, before anything else and on the thread that uses them.

        It takes as long as a tile: loops do it once.
        """
        ...

    def clear(self, grid: tuple[int, int]) -> Stmt:
        """Set the sums of ``grid`` registers, down and across, to zero."""
        ...

    def multiply(self, left: Sequence[tuple[Load, int]], right: Load, across: int) -> Stmt:
        """Add products to the sums: of unsigned bytes of data and signed ones of weights, or of
        bfloat16.

        Args:
            left: For each segment, its first element or Int8x4 word, and the bytes from row to row.
            right: The first word of the weights ``[words, width]``.
            across: Registers of weights side by side.
        """
        ...

    def write(self, sums: Buffer, rows: int, grid: tuple[int, int]) -> Stmt:
        """Write the sums of ``grid`` registers to ``sums[grid[0] * rows, grid[1] * lanes]``."""
        ...

    def release(self) -> Stmt:
        """Give the registers back."""
        ...


class Segment(Struct, frozen=True):
    """Neighbouring rows of a product.

    Attributes:
        left: ``left(step)``: the element of the first row.
        stride: Bytes from row to row.
        done: Rows at the beginning that the segment before has too.
        epilogue: ``epilogue(row, column, sum)``: what to do with a result.
    """

    left: Callable[[Sequence[PrimExpr]], PrimExpr]
    stride: int
    done: PrimExpr
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


def segment_rows(rows: int, unit: MatrixUnit) -> tuple[int, int]:
    """Return into how many segments to cut neighbouring rows, and how many rows each has."""
    count = -(-rows // unit.rows)
    return count, -(-rows // count)


def chunk_of(depth: int, unit: MatrixUnit) -> int:
    """Return how many words of ``depth`` to multiply at a time; all times are equal."""
    most = min(depth, unit.words)
    return next(size for size in range(most, 0, -1) if depth % size == 0)


def suits_matrix_unit(rows: int, depth: int, unit: MatrixUnit) -> bool:
    """Whether the unit is faster than vectors for ``rows`` neighbours and ``depth`` words."""
    return rows >= _LEAST_ROWS and fills_registers(depth, unit)


def fills_registers(depth: int, unit: MatrixUnit) -> bool:
    """Whether enough of ``depth`` words can be multiplied at a time."""
    return depth > 0 and chunk_of(depth, unit) >= _LEAST_WORDS


def configured(unit: MatrixUnit, rows: int, depth: int, body: Stmt) -> Stmt:
    """Return ``body`` while the unit multiplies ``rows`` rows with ``depth`` words, chunk-wise."""
    return seq(unit.configure(rows, chunk_of(depth, unit)), body, unit.release())


def matrix_unit_tile(
    unit: MatrixUnit,
    segments: Sequence[Segment],
    rows: int,
    columns: tuple[int, int],
    steps: Sequence[int],
    right: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    weight_prefetch: WeightPrefetch | None = None,
) -> Stmt:
    """Return the loops of one tile; the unit is configured for it.

    Args:
        unit: What multiplies.
        segments: Rows of data.
        rows: Rows of each.
        columns: Columns that exist, and that the packed weights have.
        steps: Extents of the loops to sum over, outermost first.
        right: ``right(step, column)``: the packed weight.
        weight_prefetch: What to fetch into the cache meanwhile, counted in tiles.
    """
    used, width = columns
    grid = (len(segments), width // unit.lanes)
    chunk = chunk_of(steps[-1], unit)
    sums = Buffer("sums", (grid[0] * rows, width), unit.sums, MemoryScope.STACK)

    def nest(done: tuple[PrimExpr, ...]) -> Stmt:
        if len(done) < len(steps) - 1:
            return serial(steps[len(done)], lambda k: nest((*done, k)), "k")
        return serial(steps[-1] // chunk, lambda k: multiply((*done, k)), "k")

    def multiply(done: tuple[PrimExpr, ...]) -> Stmt:
        step = (*done[:-1], done[-1] * chunk)
        left = [(address_of(each.left(step)), each.stride) for each in segments]
        body = unit.multiply(left, address_of(right(step, index(0))), grid[1])
        extents = (*steps[:-1], steps[-1] // chunk)
        return (
            body
            if weight_prefetch is None
            else weight_prefetch.around(body, done, extents, (1, unit.lanes))
        )

    return Allocate(
        sums,
        seq(
            unit.clear(grid),
            nest(()),
            unit.write(sums, rows, grid),
            *(
                _epilogue(segment, sums, (number * rows, rows), (used, unit.lanes))
                for number, segment in enumerate(segments)
            ),
        ),
    )


def _epilogue(
    segment: Segment, sums: Buffer, row_range: tuple[int, int], columns: tuple[int, int]
) -> Stmt:
    """Hand on the sums of a segment, vector by vector, without rows that the one before has."""
    (first, rows), (used, lanes) = row_range, columns

    def row(r: PrimExpr) -> Stmt:
        sum_row = r + segment.done
        return seq(
            *(
                vectorized(
                    min(lanes, used - start),
                    lambda i, s=start: segment.epilogue(
                        sum_row, i + s, load(sums, sum_row + first, i + s)
                    ),
                )
                for start in range(0, used, lanes)
            )
        )

    return serial(index(rows) - segment.done, row, "r")
