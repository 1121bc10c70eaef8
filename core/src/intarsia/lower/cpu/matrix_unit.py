# SPDX-License-Identifier: Apache-2.0
"""Products by a matrix unit: a processor's registers that hold whole matrices.

A register of data has some rows of bytes, one of weights 16 columns of quads, and one instruction
adds all products of both to a register of sums. A quad is four bytes, or a pair of bfloat16. All
rows of a register lie at equal distances in memory, so the rows of a product are cut into segments
of equally many neighbours; the last segment overlaps the one before. A tile is two segments and one
or two registers of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from ...dtype import DType
from ...tir.buffer import Buffer, Scope
from ...tir.expr import Load, PrimExpr, index
from ...tir.stmt import Allocate, Stmt
from .ahead import Ahead
from .loops import load, place_of, seq, serial, vectorized

_LEAST_ROWS = 4
_LEAST_QUADS = 4  # fewer are added as fast by vector instructions
SEGMENTS = 2
"""Segments of a tile."""


class MatrixUnit(Protocol):
    """A backend's procedures for a matrix unit, and how large its registers may be."""

    @property
    def rows(self) -> int:
        """Rows of a register of data or sums."""
        ...

    @property
    def quads(self) -> int:
        """Quads in a row of a register of data."""
        ...

    @property
    def lanes(self) -> int:
        """Sums in a row."""
        ...

    @property
    def sums(self) -> DType:
        """Element type of sums: int32 of bytes, float32 of bfloat16."""
        ...

    def configure(self, rows: int, quads: int) -> Stmt:
        """Say how large the registers are, before anything else and on the thread that uses them.

        It takes as long as a tile: loops do it once.
        """
        ...

    def clear(self, shape: tuple[int, int]) -> Stmt:
        """Set the sums of ``shape`` registers, down and across, to zero."""
        ...

    def multiply(self, left: Sequence[tuple[Load, int]], right: Load, across: int) -> Stmt:
        """Add products to the sums: of unsigned bytes of data and signed ones of weights, or of
        bfloat16.

        Args:
            left: For each segment, its first element or quad, and the bytes from row to row.
            right: The first quad of the weights ``[quads, width]``.
            across: Registers of weights side by side.
        """
        ...

    def write(self, sums: Buffer, rows: int, shape: tuple[int, int]) -> Stmt:
        """Write the sums of ``shape`` registers to ``sums[shape[0] * rows, shape[1] * lanes]``."""
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
        finish: ``finish(row, column, sum)``: what to do with a result.
    """

    left: Callable[[Sequence[PrimExpr]], PrimExpr]
    stride: int
    done: PrimExpr
    finish: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


def segment_rows(rows: int, unit: MatrixUnit) -> tuple[int, int]:
    """Return into how many segments to cut neighbouring rows, and how many rows each has."""
    count = -(-rows // unit.rows)
    return count, -(-rows // count)


def chunk_of(depth: int, unit: MatrixUnit) -> int:
    """Return how many quads of ``depth`` to multiply at a time; all times are equal."""
    most = min(depth, unit.quads)
    return next(size for size in range(most, 0, -1) if depth % size == 0)


def suits_unit(rows: int, depth: int, unit: MatrixUnit) -> bool:
    """Whether the unit is faster than vectors for ``rows`` neighbours and ``depth`` quads."""
    return rows >= _LEAST_ROWS and fills_registers(depth, unit)


def fills_registers(depth: int, unit: MatrixUnit) -> bool:
    """Whether enough of ``depth`` quads can be multiplied at a time."""
    return depth > 0 and chunk_of(depth, unit) >= _LEAST_QUADS


def configured(unit: MatrixUnit, rows: int, depth: int, body: Stmt) -> Stmt:
    """Return ``body`` while the unit multiplies ``rows`` rows with ``depth`` quads, chunk-wise."""
    return seq(unit.configure(rows, chunk_of(depth, unit)), body, unit.release())


def unit_tile(
    unit: MatrixUnit,
    segments: Sequence[Segment],
    rows: int,
    columns: tuple[int, int],
    steps: Sequence[int],
    right: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    ahead: Ahead | None = None,
) -> Stmt:
    """Return the loops of one tile; the unit is configured for it.

    Args:
        unit: What multiplies.
        segments: Rows of data.
        rows: Rows of each.
        columns: Columns that exist, and that the packed weights have.
        steps: Extents of the loops to sum over, outermost first.
        right: ``right(step, column)``: the packed weight.
        ahead: What to fetch into the cache meanwhile, counted in tiles.
    """
    used, width = columns
    shape = (len(segments), width // unit.lanes)
    chunk = chunk_of(steps[-1], unit)
    sums = Buffer("sums", (shape[0] * rows, width), unit.sums, Scope.STACK)

    def nest(done: tuple[PrimExpr, ...]) -> Stmt:
        if len(done) < len(steps) - 1:
            return serial(steps[len(done)], lambda k: nest((*done, k)), "k")
        return serial(steps[-1] // chunk, lambda k: multiply((*done, k)), "k")

    def multiply(done: tuple[PrimExpr, ...]) -> Stmt:
        step = (*done[:-1], done[-1] * chunk)
        left = [(place_of(each.left(step)), each.stride) for each in segments]
        body = unit.multiply(left, place_of(right(step, index(0))), shape[1])
        extents = (*steps[:-1], steps[-1] // chunk)
        return body if ahead is None else ahead.around(body, done, extents, (1, unit.lanes))

    return Allocate(
        sums,
        seq(
            unit.clear(shape),
            nest(()),
            unit.write(sums, rows, shape),
            *(
                _finish(segment, sums, (number * rows, rows), (used, unit.lanes))
                for number, segment in enumerate(segments)
            ),
        ),
    )


def _finish(
    segment: Segment, sums: Buffer, place: tuple[int, int], columns: tuple[int, int]
) -> Stmt:
    """Hand on the sums of a segment, vector by vector, without rows that the one before has."""
    (first, rows), (used, lanes) = place, columns

    def row(r: PrimExpr) -> Stmt:
        at = r + segment.done
        return seq(
            *(
                vectorized(
                    min(lanes, used - start),
                    lambda i, s=start: segment.finish(at, i + s, load(sums, at + first, i + s)),
                )
                for start in range(0, used, lanes)
            )
        )

    return serial(index(rows) - segment.done, row, "r")
