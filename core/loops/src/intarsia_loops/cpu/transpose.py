# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices by squares of registers.

A square of ``lanes`` x ``lanes`` elements is loaded row by row, transposed by log2(lanes) rounds in
which pairs of vectors exchange blocks of lanes, and stored column by column: 8 + 2 of 16 ymm, 16 +
2 of 32 zmm. Loads and stores are whole vectors, so every cache line is touched once for each square
instead of once for each element. Squares at the end overlap the ones before. A thread walks down a
strip of squares, whose columns stay in the first-level cache. XNNPACK's ``x32-transposec`` kernels
and the 8x8 transpose of Intel's optimization manual do the same.

A strip of a matrix that leaves the second-level cache would fetch its lines from memory for half of
what they hold, one a row, where no prefetcher follows. The next strip finds the other half in the
first-level cache if there are at most 256 rows. A matrix of more is cut into tiles of rows, 128 KiB
each: a tile is read from the cache by all its strips but the first, and each strip writes at least
two whole lines of every column.

Rows a multiple of 4096 bytes apart, as channels of 32 x 32 pixels are, fall into one set of a
first-level cache: their squares are transposed side by side, all of a line at once. (64 channels of
32 x 32 pixels take 0.68 of the time, 128 of 64 x 64 0.63, AMD Zen 4.)

Where a dimension is open, its squares are counted when it runs, and tiles of open rows, too; there
is a version by elements for matrices that are smaller than a square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.ops.shape import Transpose
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, PrimExpr, TirVar, all_of, index, maximum, minimum, select
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from ..matrices import as_matrices
from ..typical import extents
from .aliased_rows import most_rows
from .interleave import (
    TransposeRegisters,
    deinterleave_loops,
    interleave_loops,
    open_interleave_loops,
)
from .loops import let_all, load, parallel, seq, serial, store
from .panel import LINE

Square: TypeAlias = "Callable[[Buffer, Buffer, int, tuple[PrimExpr, PrimExpr, PrimExpr]], Stmt]"
"""``square(source, result, size, (image, row, column))``: the transpose of one square."""

_TILE_BYTES, _TILES, _LINES = 128 * 1024, 8, 2
"""Of the rows of a tile; tiles that threads share; lines of a column that a strip writes."""

_FEW = 256
"""Rows of which a line each, 16 KiB, stays in a first-level cache from one strip to the next."""


def transpose_kernel(
    group: FusedGroup,
    size: int,
    square: Square,
    *,
    transpose_registers: TransposeRegisters | None = None,
    few: int = 0,
) -> PrimFunc | None:
    """Return the kernel of a ``transpose`` with nothing fused that swaps the last two dimensions.

    Args:
        group: The fused group.
        size: Rows and columns of a square of 32-bit elements, and of smaller ones.
        square: How a backend transposes one.
        transpose_registers: How it transposes vectors in registers; ``None`` leaves matrices with
            fewer rows than a square to default loops.
        few: Rows up to which it transposes them so, if they are more than those of a square.
    """
    if group.anchor is None or not isinstance(group.anchor.attrs, Transpose.Attrs):
        return None
    kind = tensor_type(group.anchor.args[0])
    matrices = as_matrices(extents(kind), group.anchor.attrs.axes)
    size = size * 4 // max(4, kind.dtype.bytes)
    if matrices is None or kind.dtype is DType.BOOL or size < 4:
        return None
    batch, rows, columns = matrices
    source = Buffer("x", (batch, rows, columns), kind.dtype)
    result = Buffer("out", (batch, columns, rows), kind.dtype)
    if transpose_registers is not None and _has_few_columns(source, size):
        flat = replace(source, shape=(batch, rows * columns))
        body = deinterleave_loops(flat, result, transpose_registers)
        return PrimFunc(group.name, (flat, result), 1, body)
    if any(isinstance(extent, Dim) for extent in matrices):
        few_rows = transpose_registers if kind.dtype.bits == 32 else None
        return _open_kernel(group.name, source, result, (size, square), (few, few_rows))
    if columns < size:
        return None
    most = _most_interleaved(few, size, columns)
    if transpose_registers is not None and kind.dtype.bits == 32 and 1 < rows <= most:
        result = Buffer("out", (batch, columns * rows), kind.dtype)
        body = interleave_loops(source, result, transpose_registers)
    elif rows >= size:
        body = transpose_loops(source, result, size, square)
    else:
        return None
    return PrimFunc(group.name, (source, result), 1, body)


def _has_few_columns(source: Buffer, size: int) -> bool:
    """Whether a matrix has fewer columns than a square, and more rows, as the pixels of a photo."""
    _, rows, columns = source.shape
    if source.dtype.bits != 32 or isinstance(columns, Dim) or not 2 < columns < size:
        return False
    return isinstance(rows, Dim) or rows >= size


def _most_interleaved(few: int, size: int, columns: Size) -> int:
    """Return how many rows at most are interleaved: ``few`` need more columns than they are."""
    return few if few >= size and (isinstance(columns, Dim) or columns > few) else size - 1


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
    width = size * _squares_abreast(source, size)
    strips, height = -(-columns // width), _tile_rows(source, size)
    tiles = -(-rows // height)

    def strip(image: PrimExpr, tile: PrimExpr, number: PrimExpr) -> Stmt:
        column = minimum(number * width, columns - width)

        def step(i: PrimExpr) -> Stmt:
            row = minimum(tile * height + i * size, rows - size)
            abreast = range(0, width, size)
            return seq(*(square(source, result, size, (image, row, column + c)) for c in abreast))

        return serial(-(-height // size), step)

    if tiles == 1:
        return parallel(strips * batch, lambda p: strip(p // strips, index(0), p % strips))
    return parallel(
        tiles * batch, lambda p: serial(strips, lambda n: strip(p // tiles, p % tiles, n))
    )


def _squares_abreast(source: Buffer, size: int) -> int:
    """Return how many squares side by side are transposed before those below them.

    Rows in one set of a first-level cache lose their lines before the next strip: all of a line is
    used at once.
    """
    _, rows, columns = source.shape
    squares = max(1, LINE // (size * source.dtype.bytes))
    is_aliased = rows > most_rows(columns * source.dtype.bytes)
    return squares if is_aliased and columns >= squares * size else 1


def _tile_rows(source: Buffer, size: int) -> int:
    """Return the rows of a tile: all of a matrix that stays in a cache, or whose strips do."""
    batch, rows, columns = source.shape
    row_bytes = columns * source.dtype.bytes
    if rows <= _FEW or rows * row_bytes <= 2 * _TILE_BYTES:
        return rows
    step = max(size, _LINES * 64 // source.dtype.bytes)
    most = min(_TILE_BYTES // row_bytes, rows * batch // _TILES)
    return min(rows, max(1, most // step) * step)


def _open_kernel(
    name: str,
    source: Buffer,
    result: Buffer,
    squares: tuple[int, Square],
    few_rows: tuple[int, TransposeRegisters | None],
) -> PrimFunc | None:
    """Return the kernel of matrices of open sizes; ``None`` if default loops have to do.

    Args:
        name: Of the kernel.
        source: ``[batch, rows, columns]``.
        result: ``[batch, columns, rows]``.
        squares: Rows and columns of a square, and its transpose.
        few_rows: How many are few, if more than a square has, and the transpose of as many vectors.
    """
    (size, square), (few, transpose_registers) = squares, few_rows
    batch, rows, columns = (index(extent) for extent in source.shape)
    most = _most_interleaved(few, size, source.shape[2])
    if isinstance(rows, IntImm) and 1 < rows.value <= most and transpose_registers is not None:
        flat = replace(result, shape=(result.shape[0], result.shape[1] * rows.value))
        wide = open_interleave_loops(source, flat, transpose_registers)
        fits: PrimExpr = columns >= 1 << (rows.value - 1).bit_length()
    elif any(isinstance(extent, IntImm) and extent.value < size for extent in (rows, columns)):
        return None
    else:
        flat = result
        wide = _open_square_loops(source, result, size, square)
        fits = all_of([extent >= size for extent in (rows, columns)])

    def element(p: PrimExpr) -> Stmt:
        image, column = p // columns, p % columns

        def copied(row: PrimExpr) -> Stmt:
            place = (image, column, row) if flat is result else (image, column * rows + row)
            return store(flat, place, load(source, image, row, column))

        # Where there are columns for a square, rows are too few, as code generators can tell.
        return serial(minimum(rows, size - 1) if isinstance(columns, IntImm) else rows, copied)

    body = IfStmt(fits, wide, parallel(batch * columns, element))
    return PrimFunc(name, (source, flat), 1, body)


def _open_square_loops(source: Buffer, result: Buffer, size: int, square: Square) -> Stmt:
    """Return the loops of :func:`transpose_loops` for an open number of rows or columns.

    Only an open number of rows is cut into tiles. (64 channels of 128 x 96 pixels to channels
    first: 0.46 of the time. Where columns are open, tiles take as long as all rows, or longer.)
    """
    batch, rows, columns = (index(extent) for extent in source.shape)
    strips, height, tiles = (TirVar(name) for name in ("strips", "height", "tiles"))
    bound = [(strips, (columns + (size - 1)) // size)]
    is_cut = not isinstance(rows, IntImm)
    if is_cut:
        bound += [(height, _open_tile_rows(source, size)), (tiles, (rows + (height - 1)) // height)]

    def strip(p: PrimExpr) -> Stmt:
        image, column, begin, row = (TirVar(name) for name in ("image", "column", "begin", "row"))
        above, first, present = p // strips, index(0), rows
        if is_cut:
            above, first = above // tiles, above % tiles * height
            present = minimum(height, rows - begin)

        def step(i: PrimExpr) -> Stmt:
            body = square(source, result, size, (image, row, column))
            return LetStmt(row, minimum(begin + i * size, rows - size), body)

        loop = serial((present + (size - 1)) // size, step)
        across = minimum((p % strips) * size, columns - size)
        return let_all([(image, above), (column, across), (begin, first)], loop)

    count = strips * tiles * batch if is_cut else strips * batch
    return let_all(bound, parallel(count, strip))


def _open_tile_rows(source: Buffer, size: int) -> PrimExpr:
    """Return the rows of a tile, of at least a square, as :func:`_tile_rows`."""
    batch, rows, columns = (index(extent) for extent in source.shape)
    row_bytes = columns * source.dtype.bytes
    step = max(size, _LINES * 64 // source.dtype.bytes)
    most = minimum(index(_TILE_BYTES) // row_bytes, rows * batch // _TILES)
    part = minimum(rows, maximum(most // step, 1) * step)
    return select((rows > _FEW) & (rows * row_bytes > 2 * _TILE_BYTES), part, rows)
