# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices, square by square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from ...ir.expr import tensor_type
from ...ops.shape import Transpose
from ...tir.buffer import Buffer
from ...tir.expr import PrimExpr
from ...tir.func import PrimFunc
from ...tir.stmt import Stmt
from ..kernels import FusedGroup
from .loops import cut, load, parallel, seq, serial, store

Square: TypeAlias = "Callable[[Buffer, Buffer, int, tuple[PrimExpr, PrimExpr, PrimExpr]], Stmt]"
"""``square(source, result, size, (image, row, column))``: the transpose of one square."""


def transpose_kernel(group: FusedGroup, size: int, square: Square) -> PrimFunc | None:
    """Return the kernel of ``transpose`` alone, where it swaps matrices of 32-bit elements.

    Args:
        group: The fused group.
        size: Rows and columns of a square.
        square: How a backend transposes one.
    """
    if group.anchor is None or not isinstance(group.anchor.attrs, Transpose.Attrs):
        return None
    kind = tensor_type(group.anchor.args[0])
    matrices = as_matrices(kind.static_shape, group.anchor.attrs.axes)
    if matrices is None or kind.dtype.bits != 32 or min(matrices[1:]) < size:
        return None
    batch, rows, columns = matrices
    source = Buffer("x", (batch, rows, columns), kind.dtype)
    result = Buffer("out", (batch, columns, rows), kind.dtype)
    body = transpose_loops(source, result, size, square)
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

    Args:
        source: ``[batch, rows, columns]``, rows and columns at least ``size``.
        result: ``[batch, columns, rows]``.
        size: Rows and columns of a square.
        square: The transpose of one.
    """
    batch, rows, columns = source.shape
    stmts: list[Stmt] = []
    for part in cut(columns, size):

        def item(p: PrimExpr, start: int = part.start, width: int = part.size) -> Stmt:
            block, image = p // batch, p % batch
            place = image, block * width + start, width
            return _strip(source, result, size, square, place)

        stmts.append(parallel(part.count * batch, item))
    return seq(*stmts) if rows else seq()


def _strip(
    source: Buffer,
    result: Buffer,
    size: int,
    square: Square,
    place: tuple[PrimExpr, PrimExpr, int],
) -> Stmt:
    """Transpose some neighbouring columns."""
    image, column, width = place
    stmts: list[Stmt] = []
    for part in cut(source.shape[1], size):

        def body(i: PrimExpr, start: int = part.start, height: int = part.size) -> Stmt:
            row = i * height + start
            if width == size == height:
                return square(source, result, size, (image, row, column))
            return serial(
                width,
                lambda c: serial(
                    height,
                    lambda r: store(
                        result,
                        (image, column + c, row + r),
                        load(source, image, row + r, column + c),
                    ),
                ),
            )

        stmts.append(serial(part.count, body))
    return seq(*stmts)
