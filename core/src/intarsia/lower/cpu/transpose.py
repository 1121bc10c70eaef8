# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices, square by square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from ...dtype import DType
from ...ir.expr import tensor_type
from ...ops.shape import Transpose
from ...tir.buffer import Buffer
from ...tir.expr import PrimExpr, minimum
from ...tir.func import PrimFunc
from ...tir.stmt import Stmt
from ..kernels import FusedGroup
from .loops import parallel, serial

Square: TypeAlias = "Callable[[Buffer, Buffer, int, tuple[PrimExpr, PrimExpr, PrimExpr]], Stmt]"
"""``square(source, result, size, (image, row, column))``: the transpose of one square."""


def transpose_kernel(group: FusedGroup, size: int, square: Square) -> PrimFunc | None:
    """Return the kernel of ``transpose`` alone, where it swaps matrices of numbers.

    Args:
        group: The fused group.
        size: Rows and columns of a square of 32-bit elements, and of smaller ones.
        square: How a backend transposes one.
    """
    if group.anchor is None or not isinstance(group.anchor.attrs, Transpose.Attrs):
        return None
    kind = tensor_type(group.anchor.args[0])
    matrices = as_matrices(kind.static_shape, group.anchor.attrs.axes)
    size = size * 4 // max(4, kind.dtype.bytes)
    if matrices is None or kind.dtype is DType.BOOL or min(matrices[1:]) < size or size < 4:
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
