# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices of a few rows or columns, by small squares of registers.

Rows are interleaved: a square has as many rows as the next power of two, at most 8 + 2 of 16 ymm;
each of its columns is one store. Columns, as the channels of a photo are, are taken apart: a square
has as many rows, each of which is one load that may end in the next row, and a column is one store.
Sixteen squares side by side are the work of a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    if_then_else,
    index,
    maximum,
    minimum,
)
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt, Store

from .loops import let_all, load, parallel, seq, serial, store

TransposeRegisters: TypeAlias = (
    "Callable[[Sequence[PrimExpr], Callable[[int, PrimExpr], Stmt]], Stmt]"
)
"""``transpose_registers(rows, write)``: as of :class:`~intarsia_loops.cpu.tiling.CpuTiling`;
squares of any power of two."""

_STRIP = 16
"""Small squares of a strip that one thread takes."""


def open_interleave_loops(
    source: Buffer, result: Buffer, transpose_registers: TransposeRegisters
) -> Stmt:
    """Return the loops of :func:`interleave_loops` for an open number of columns.

    Nothing is written behind a square, so the last one may overlap the one before.
    """
    batch, rows, columns = source.shape
    size = 1 << (rows - 1).bit_length()
    wide = index(columns)
    squares = (wide + (size - 1)) // size
    strips = (squares + (_STRIP - 1)) // _STRIP

    def strip(p: PrimExpr) -> Stmt:
        # A division each, and not one for every vector.
        image, begin, first = TirVar("image"), TirVar("begin"), TirVar("first")

        def step(i: PrimExpr) -> Stmt:
            body = _interleaved(source, result, (image, first), transpose_registers)
            return LetStmt(first, minimum((begin + i) * size, wide - size), body)

        loop = serial(minimum(squares - begin, _STRIP), step)
        return let_all([(image, p // strips), (begin, p % strips * _STRIP)], loop)

    return parallel(index(batch) * strips, strip)


def interleave_loops(
    source: Buffer, result: Buffer, transpose_registers: TransposeRegisters
) -> Stmt:
    """Return loops for ``result[b, j * rows + i] = source[b, i, j]``, a few rows, by small squares.

    Columns are stored from left to right as vectors as long as a square has rows, in which what is
    too much is overwritten by the next one; the last column of a square is stored as long as it is.

    Args:
        source: ``[batch, rows, columns]``, columns at least as many as a square has.
        result: ``[batch, columns * rows]``.
        transpose_registers: The transpose of some vectors.
    """
    batch, rows, columns = source.shape
    size = 1 << (rows - 1).bit_length()
    count = min(_STRIP, columns // size)
    strips = -(-columns // (count * size))

    def strip(p: PrimExpr) -> Stmt:
        image, begin = p // strips, minimum((p % strips) * (count * size), columns - count * size)

        def step(i: PrimExpr) -> Stmt:
            return _interleaved(source, result, (image, begin + i * size), transpose_registers)

        return serial(count, step)

    return parallel(strips * batch, strip)


def deinterleave_loops(
    source: Buffer, result: Buffer, transpose_registers: TransposeRegisters
) -> Stmt:
    """Return loops for ``result[b, j, i] = source[b, i * columns + j]``, a few columns.

    Squares end a row before the last one, behind which nothing may be read; the rows that are left
    are copied by elements. Rows may be open.

    Args:
        source: ``[batch, rows * columns]``, more than two columns.
        result: ``[batch, columns, rows]``.
        transpose_registers: The transpose of some vectors.
    """
    batch, columns, _ = result.shape
    rows, size = index(result.shape[2]), 1 << (columns - 1).bit_length()
    squares = maximum(rows - 1, 0) // size
    strips = maximum((squares + (_STRIP - 1)) // _STRIP, 1)

    def element(image: PrimExpr, row: PrimExpr) -> Stmt:
        def one(column: PrimExpr) -> Stmt:
            return store(result, (image, column, row), load(source, image, row * columns + column))

        return serial(columns, one)

    def strip(p: PrimExpr) -> Stmt:
        image, begin, count = TirVar("image"), TirVar("begin"), TirVar("count")

        def step(i: PrimExpr) -> Stmt:
            return _deinterleaved(source, result, (image, (begin + i) * size), transpose_registers)

        last = (begin + count) * size
        left = if_then_else(begin + count < squares, 0, rows - last)
        rest = serial(left, lambda i: element(image, last + i))
        bound = [
            (image, p // strips),
            (begin, p % strips * _STRIP),
            (count, minimum(squares - begin, _STRIP)),
        ]
        return let_all(bound, seq(serial(count, step), rest))

    return parallel(index(batch) * strips, strip)


def _deinterleaved(
    source: Buffer,
    result: Buffer,
    place: tuple[PrimExpr, PrimExpr],
    transpose_registers: TransposeRegisters,
) -> Stmt:
    """Transpose a small square of a few columns, at a matrix and a row."""
    (image, first), columns = place, result.shape[1]
    size = 1 << (columns - 1).bit_length()

    def down(row: int) -> PrimExpr:
        start = (first + row) * columns
        return Load(source, (image, Ramp(start, 1, size)), source.dtype, size)

    def write(number: int, value: PrimExpr) -> Stmt:
        if number >= columns:
            return seq()
        return Store(result, (image, index(number), Ramp(first, 1, size)), value)

    return transpose_registers([down(row) for row in range(size)], write)


def _interleaved(
    source: Buffer,
    result: Buffer,
    place: tuple[PrimExpr, PrimExpr],
    transpose_registers: TransposeRegisters,
) -> Stmt:
    """Transpose a small square of a few rows, at a matrix and a column."""
    (image, first), rows = place, source.shape[1]
    size = 1 << (rows - 1).bit_length()
    across = [
        Load(
            source,
            (image, index(min(row, rows - 1)), Ramp(first, 1, size)),
            source.dtype,
            size,
        )
        for row in range(size)
    ]

    def write(number: int, value: PrimExpr) -> Stmt:
        used = rows if number == size - 1 else size
        indices = (image, Ramp((first + number) * rows, 1, used))
        if used == size:
            return Store(result, indices, value)
        part = Buffer("part", (size,), source.dtype, MemoryScope.REGISTER)
        store_all = Store(part, (Ramp(index(0), 1, size),), value)
        taken = Load(part, (Ramp(index(0), 1, used),), source.dtype, used)
        return Allocate(part, seq(store_all, Store(result, indices, taken)))

    return transpose_registers(across, write)
