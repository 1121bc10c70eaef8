# SPDX-License-Identifier: Apache-2.0
"""Tiles of a matrix unit: registers that hold whole matrices (AMX of x86).

A register of A has ``rows`` rows of ``words`` 32-bit words (Int8x4 or Bf16x2), one of B ``words``
rows of ``lanes`` columns. One instruction adds all their products to a register of accumulators.
The rows of a register have a constant stride in memory, so M is split into segments of equally many
neighbouring rows; the last segment overlaps the one before. This avoids a remainder tile, and the
unit, whose configuration costs as much as a tile, is configured once for each thread.

Registers: a tile is 2 segments x 2 registers of columns: 4 sums + 2 A + 2 B = all 8 tile registers
of AMX, the 2 x 2 blocking that Intel's optimization manual recommends for TMUL: a step loads 4
registers (32 cycles from a first-level cache) and multiplies 4 times (64 cycles).

Caches: a step reads 2 KiB of A and 2 KiB of B in 64 cycles, and a second-level cache gives about 32
bytes a cycle: one of them must stay in the first-level cache. The other one is read past it
(:class:`Streamed`, ``tileloaddt1``), or it would displace the first: 61 instead of 91 % of the peak
for 32 KiB of each (Emerald Rapids).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, PrimExpr
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from .loops import Source, seq

_LEAST_ROWS = 4
_LEAST_WORDS = 4  # fewer are added as fast by vector instructions
SEGMENTS = 2
"""Segments of a tile."""

RESIDENT_BYTES = 32 * 1024
"""Weights that stay in a first-level cache of 48 KiB while data pass."""


class Streamed(Struct, frozen=True):
    """Operands that are read past the first-level cache, where they would displace the other one.

    Attributes:
        left: Data: a panel passes while a block of weights stays in the cache.
        right: Weights: blocks pass while the rows of a tile stay.
    """

    left: bool = False
    right: bool = False


def streamed_by(group: int, block_bytes: int, *, is_one_tile: bool = False) -> Streamed:
    """Return what is read past the first-level cache, if that does not hold both.

    Args:
        group: Blocks of weights that a tile of rows meets before the next one.
        block_bytes: Size of each.
        is_one_tile: Whether there is no other tile, for which weights could stay.
    """
    if group * block_bytes <= RESIDENT_BYTES:
        return Streamed()
    return Streamed(right=True) if group > 1 or is_one_tile else Streamed(left=True)


class UnitOperands(Struct, frozen=True):
    """What a matrix unit multiplies in a step.

    Attributes:
        left: For each segment, its first element or Int8x4 word, and the bytes from row to row.
        right: The first word of each register of weights ``[words, lanes]``.
        streamed: What is read past the first-level cache.
        segments: How many of the segments there are, 1 or all, where the run decides.
    """

    left: Sequence[tuple[Load, int | PrimExpr]]
    right: Sequence[Load]
    streamed: Streamed = Streamed()
    segments: PrimExpr | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Registers of sums, down and across."""
        return len(self.left), len(self.right)


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

    @property
    def byte_vectors(self) -> int:
        """Rows of registers of sums, side by side, that become bytes together."""
        ...

    def configure(self, rows: int | PrimExpr, words: int) -> Stmt:
        """Say how large the registers are, before anything else and on the thread that uses them.

        It takes as long as a tile: loops do it once.
        """
        ...

    def clear(self, grid: tuple[int, int]) -> Stmt:
        """Set the sums of ``grid`` registers, down and across, to zero."""
        ...

    def multiply(self, operands: UnitOperands) -> Stmt:
        """Add products to the sums: of unsigned bytes of data and signed ones of weights, or of
        bfloat16.
        """
        ...

    def exchange(self, operands: UnitOperands, sums: Buffer, rows: int) -> Stmt:
        """Write the sums as :meth:`write`, and let the products take their place.

        Each register is written, cleared and added to before the next one is written.
        """
        ...

    def write(
        self, sums: Buffer, rows: int, grid: tuple[int, int], segments: PrimExpr | None = None
    ) -> Stmt:
        """Write the sums of ``grid`` registers to ``sums[grid[0] * rows, grid[1] * lanes]``.

        ``segments`` are those of :class:`UnitOperands`.
        """
        ...

    def release(self) -> Stmt:
        """Give the registers back."""
        ...


def segment_rows(rows: int, unit: MatrixUnit) -> tuple[int, int]:
    """Return into how many segments to cut neighbouring rows, and how many rows each has."""
    count = -(-rows // unit.rows)
    return count, -(-rows // count)


def chunk_of(depth: int, unit: MatrixUnit) -> int:
    """Return how many words of ``depth`` to multiply at a time; all times are equal."""
    most = min(depth, unit.words)
    return next(size for size in range(most, 0, -1) if depth % size == 0)


def suits_matrix_unit(rows: Size, depth: int, unit: MatrixUnit) -> bool:
    """Whether the unit is faster than vectors for ``rows`` neighbours and ``depth`` words.

    Open rows are taken to be enough.
    """
    return (isinstance(rows, Dim) or rows >= _LEAST_ROWS) and fills_registers(depth, unit)


def is_packed_for(weight: Source, unit: MatrixUnit) -> bool:
    """Whether a block of packed weights is as wide as a register."""
    return weight.shape[2] == unit.lanes


def fills_registers(depth: int, unit: MatrixUnit) -> bool:
    """Whether enough of ``depth`` words can be multiplied at a time."""
    return depth > 0 and chunk_of(depth, unit) >= _LEAST_WORDS


def configured(unit: MatrixUnit, rows: int | PrimExpr, depth: int, body: Stmt) -> Stmt:
    """Return ``body`` while the unit multiplies ``rows`` rows with ``depth`` words, chunk-wise."""
    return seq(unit.configure(rows, chunk_of(depth, unit)), body, unit.release())
