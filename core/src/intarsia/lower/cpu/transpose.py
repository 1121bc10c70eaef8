# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices, square by square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from ...dtype import DType
from ...ir.expr import tensor_type
from ...ops.shape import Transpose
from ...tir.buffer import Buffer, Scope
from ...tir.expr import Load, PrimExpr, Ramp, index, minimum
from ...tir.func import PrimFunc
from ...tir.stmt import Allocate, Stmt, Store
from ..kernels import FusedGroup
from .loops import parallel, seq, serial

Square: TypeAlias = "Callable[[Buffer, Buffer, int, tuple[PrimExpr, PrimExpr, PrimExpr]], Stmt]"
"""``square(source, result, size, (image, row, column))``: the transpose of one square."""


Turn: TypeAlias = "Callable[[Sequence[PrimExpr], Callable[[int, PrimExpr], Stmt]], Stmt]"
"""``turn(rows, write)``: as of :class:`~intarsia.lower.cpu.tile.Shape`, for any power of two."""

_STRIP = 16
"""Small squares of a strip that one thread takes."""


def transpose_kernel(
    group: FusedGroup, size: int, square: Square, *, turn: Turn | None = None
) -> PrimFunc | None:
    """Return the kernel of ``transpose`` alone, where it swaps matrices of numbers.

    Args:
        group: The fused group.
        size: Rows and columns of a square of 32-bit elements, and of smaller ones.
        square: How a backend transposes one.
        turn: How it transposes vectors; ``None`` leaves matrices of a few rows to default loops.
    """
    if group.anchor is None or not isinstance(group.anchor.attrs, Transpose.Attrs):
        return None
    kind = tensor_type(group.anchor.args[0])
    matrices = as_matrices(kind.static_shape, group.anchor.attrs.axes)
    size = size * 4 // max(4, kind.dtype.bytes)
    if matrices is None or kind.dtype is DType.BOOL or size < 4 or matrices[2] < size:
        return None
    batch, rows, columns = matrices
    source = Buffer("x", (batch, rows, columns), kind.dtype)
    result = Buffer("out", (batch, columns, rows), kind.dtype)
    if rows >= size:
        body = transpose_loops(source, result, size, square)
    elif turn is not None and kind.dtype.bits == 32 and rows > 1:
        result = Buffer("out", (batch, columns * rows), kind.dtype)
        body = interleave_loops(source, result, turn)
    else:
        return None
    return PrimFunc(group.name, (source, result), 1, body)


def as_matrices(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return ``(batch, rows, columns)`` if a transpose swaps the last two of three dimensions.

    Dimensions of size 1 are left out, and those that stay neighbours are one.
    """
    kept = [axis for axis in axes if shape[axis] != 1]
    groups: list[list[int]] = []
    rank = {axis: number for number, axis in enumerate(sorted(kept))}
    for axis in kept:
        if groups and rank[axis] == rank[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [prod(shape[axis] for axis in group) for group in groups]
    order = sorted(range(len(groups)), key=lambda n: groups[n][0])
    if order == [1, 0]:
        return 1, sizes[1], sizes[0]
    if order == [0, 2, 1]:
        return sizes[0], sizes[2], sizes[1]
    return None


def transpose_loops(source: Buffer, result: Buffer, size: int, square: Square) -> Stmt:
    """Return loops for ``result[b, j, i] = source[b, i, j]``.

    Squares at the ends overlap the ones before, if there is no whole number of them.

    Args:
        source: ``[batch, rows, columns]``, rows and columns at least ``size``.
        result: ``[batch, columns, rows]``.
        size: Rows and columns of a square.
        square: The transpose of one.
    """
    batch, rows, columns = source.shape
    strips = -(-columns // size)

    def strip(p: PrimExpr) -> Stmt:
        image, column = p // strips, minimum((p % strips) * size, columns - size)

        def step(i: PrimExpr) -> Stmt:
            row = minimum(i * size, rows - size)
            return square(source, result, size, (image, row, column))

        return serial(-(-rows // size), step)

    return parallel(strips * batch, strip)


def interleave_loops(source: Buffer, result: Buffer, turn: Turn) -> Stmt:
    """Return loops for ``result[b, j * rows + i] = source[b, i, j]``, a few rows, by small squares.

    Columns are stored from left to right as vectors as long as a square has rows, in which what is
    too much is overwritten by the next one; the last column of a square is stored as long as it is.

    Args:
        source: ``[batch, rows, columns]``, columns at least as many as a square has.
        result: ``[batch, columns * rows]``.
        turn: The transpose of some vectors.
    """
    batch, rows, columns = source.shape
    size = 1 << (rows - 1).bit_length()
    count = min(_STRIP, columns // size)
    strips = -(-columns // (count * size))

    def column(image: PrimExpr, at: PrimExpr, value: PrimExpr, used: int) -> Stmt:
        place = (image, Ramp(at * rows, 1, used))
        if used == size:
            return Store(result, place, value)
        part = Buffer("part", (size,), source.dtype, Scope.REGISTER)
        whole = Store(part, (Ramp(index(0), 1, size),), value)
        taken = Load(part, (Ramp(index(0), 1, used),), source.dtype, used)
        return Allocate(part, seq(whole, Store(result, place, taken)))

    def strip(p: PrimExpr) -> Stmt:
        image, begin = p // strips, minimum((p % strips) * (count * size), columns - count * size)

        def step(i: PrimExpr) -> Stmt:
            first = begin + i * size
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
                return column(image, first + number, value, used)

            return turn(across, write)

        return serial(count, step)

    return parallel(strips * batch, strip)
