# SPDX-License-Identifier: Apache-2.0
"""Product of a matrix and packed constant weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from ...tir.buffer import Buffer, Scope
from ...tir.expr import PrimExpr
from ...tir.stmt import Allocate, Stmt
from .loops import (
    Finish,
    Part,
    Source,
    copy_rows,
    cut,
    even_size,
    for_parts,
    load,
    parallel,
    seq,
    serial,
    store,
)
from .matrix_unit import Fetch
from .tile import Ahead, Shape, best_rows, block_width, column_parts, register_tile

LINE = 64
"""Bytes of a cache line."""
_SETS = 32  # a stride of this many cache lines puts rows into one or two sets of a level-1 cache
_LARGE_BYTES = 512 * 1024
_LONG_BYTES = 1024 * 1024
_HUGE_BYTES = 2 * 1024 * 1024
_WIDER = 2.25
_TWICE = 80  # of so many rows one may be computed twice
ITEMS = 8
"""Pieces of work that two or four threads can share evenly."""


class Matrix(Struct, frozen=True):
    """Rows to multiply.

    Attributes:
        rows: How many.
        depth: Elements of a row.
        element: ``element(row, k)``.
        stride_bytes: Distance between rows.
        copied: Whether rows must be copied before they are multiplied.
    """

    rows: int
    depth: int
    element: Callable[[PrimExpr, PrimExpr], PrimExpr]
    stride_bytes: int
    copied: bool = False


def product_width(rows: int, depth: int, outputs: int, shape: Shape) -> int:
    """Return how many output columns of constant weights are packed together.

    A result that does not stay in the second-level cache is written faster in longer pieces, if
    wide vectors make them some cache lines long. Weights that come from memory are better read
    for tall tiles.
    """
    width, lanes = block_width(outputs, shape), shape.lanes
    if lanes * 4 < LINE or rows * outputs * 4 < _LONG_BYTES or depth * outputs * 4 >= _LARGE_BYTES:
        return width
    return next((v * lanes for v in (4, 3) if outputs % (v * lanes) == 0), width)


def flat_rows(buffer: Source) -> Matrix:
    """Return a buffer of any rank as a matrix over its last dimension."""
    *outer, depth = buffer.shape

    def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(buffer, *unflatten(row, outer), k)

    return Matrix(prod(outer), depth, element, depth * buffer.dtype.bytes)


def unflatten(position: PrimExpr, shape: list[int]) -> list[PrimExpr]:
    """Return the indices of element ``position`` of an array of ``shape``."""
    indices: list[PrimExpr] = []
    rest = position
    for number, size in enumerate(reversed(shape)):
        last = number == len(shape) - 1
        indices.append(rest if last else rest % size)
        rest = rest // size
    return indices[::-1]


def dense_loops(
    shape: Shape, left: Matrix, weight: Buffer, outputs: int, finish: Finish, outer: list[int]
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        shape: Register tile.
        left: The rows.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        finish: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    width = weight.shape[2]
    limit = shape.rows_for(width // shape.lanes)
    if needs_copy(left):
        limit = min(limit, shape.rows)  # as many as the sets that they fall into hold
    rows = best_rows(left.rows, limit)
    blocks = -(-outputs // width)
    # Each panel reads all weights anew: what no second-level cache holds is read for few of them.
    wider = _WIDER if weight.bytes > _HUGE_BYTES else 1
    panel = _panel_rows(left, rows, blocks, int(shape.panel_bytes * wider))
    if not is_large(weight) and _with_data(left, outputs, weight):
        panel = _own_rows(left, rows, blocks, panel)

    def item(start: PrimExpr, size: int, first: PrimExpr, count: int, used: int) -> Stmt:
        return _panel(shape, left, weight, (start, size, rows), (first, count, used), finish, outer)

    twice = left.rows // _TWICE
    panels = cut(left.rows, _covering(left.rows, rows, panel, twice), twice=twice)
    return share_panels(panels, left, weight, outputs, item)


def share_panels(
    panels: Sequence[Part],
    left: Matrix,
    weight: Buffer,
    outputs: int,
    item: Callable[[PrimExpr, int, PrimExpr, int, int], Stmt],
) -> Stmt:
    """Share panels of rows and groups of blocks of weights between threads.

    Args:
        panels: Parts of the rows; a panel need not be counted in rows.
        left: All rows.
        weight: Packed ``[blocks, depth, width]``.
        outputs: Columns of the result.
        item: ``item(start, size, first, blocks, used)``: a panel's product with some blocks, of
            whose columns ``used`` are there.
    """
    with_data = _with_data(left, outputs, weight)
    stmts: list[Stmt] = []
    for part in panels:
        for first, count, used in column_parts(outputs, weight.shape[2]):
            group = blocks_at_once(count, sum(p.count for p in panels))
            for chunk in cut(count, group):

                def body(
                    p: PrimExpr, part: Part = part, c: Part = chunk, f: int = first, u: int = used
                ) -> Stmt:
                    panel, number = p % part.count, p // part.count
                    if with_data:
                        panel, number = p // c.count, p % c.count
                    block = number * c.size + (f + c.start)
                    return item(part.at(panel), part.size, block, c.size, u)

                stmts.append(parallel(part.count * chunk.count, body))
    return seq(*stmts)


def _with_data(left: Matrix, outputs: int, weight: Buffer) -> bool:
    return stays_with_data(left.rows * left.depth, left.rows * outputs, weight)


def stays_with_data(read: int, written: int, weight: Buffer) -> bool:
    """Whether a thread should go through all weights for some data, or through all data.

    Data are counted twice: another thread has written them in a cache of its own, and weights come
    from one that all share.

    Args:
        read: Elements of data, of the type of the weights.
        written: Results; of quads of bytes they are bytes.
        weight: All weights.
    """
    result = weight.dtype.bytes if weight.dtype.is_float else 1
    return weight.bytes <= 2 * (read * weight.dtype.bytes + written * result)


def _panel_rows(left: Matrix, rows: int, blocks: int, most_bytes: int) -> int:
    """Return how many rows share one pass over a block of weights, and one packed copy."""
    tiles = -(-left.rows // rows)
    most = min(tiles, max(1, most_bytes // max(1, left.depth * 4 * rows)))
    if blocks >= ITEMS:
        return min(left.rows, even_size(tiles, most) * rows)
    return min(left.rows, rows * even_share(tiles, most, -(-ITEMS // blocks)))


def _own_rows(left: Matrix, rows: int, blocks: int, panel: int) -> int:
    """Return the rows of at most a panel so that threads have the same rows in kernel after kernel.

    That needs an even number of equal panels; without one it is ``panel``.
    """
    even = [size for size in range(panel, 0, -rows) if left.rows % (2 * size) == 0]
    enough = [size for size in even if left.rows // size * blocks >= ITEMS]
    return next(iter(enough or even), panel)


def _covering(rows: int, tile: int, panel: int, twice: int) -> int:
    """Return the rows of at most a panel so that panels of whole tiles cover all rows.

    What is left over otherwise is a loop of its own: to compile, and to share between threads.

    Args:
        rows: All rows.
        tile: Rows of a tile.
        panel: Rows that a panel should have, which is returned if no other size will do.
        twice: How many rows may be in two panels.
    """
    if rows % panel == 0:
        return panel
    sizes = range(panel - panel % tile, panel // 2, -tile)
    close = [size for size in sizes if -rows % size <= twice]
    even = [size for size in close if -(-rows // size) % 2 == 0]
    return next(iter(even or close), panel)


def even_share(total: int, most: int, pieces: int) -> int:
    """Return how many of ``total`` go into a piece so that 2 and 4 threads get equal shares.

    Args:
        total: What there is to share.
        most: At most so many in a piece.
        pieces: Better at least so many pieces.
    """

    def waste(size: int) -> float:
        count = -(-total // size)
        lost = max(-(-count // t) * size * t / total for t in (2, 4))
        return lost + (0.0 if count >= pieces else 0.05 * (pieces - count))

    sizes = range(min(most, total), 0, -1)
    least = min(waste(size) for size in sizes)
    return next(size for size in sizes if waste(size) <= least + 0.02)


def blocks_at_once(blocks: int, panels: int) -> int:
    """Return how many blocks of columns one item computes."""
    wanted = -(-ITEMS // panels)
    return even_size(blocks, blocks // min(blocks, wanted))


def _panel(
    shape: Shape,
    left: Matrix,
    weight: Buffer,
    rows: tuple[PrimExpr, int, int],
    columns: tuple[PrimExpr, int, int],
    finish: Finish,
    outer: list[int],
) -> Stmt:
    """Multiply a panel of rows with some blocks of weights."""
    start, size, tile = rows
    first, blocks, used = columns
    width = weight.shape[2]
    wanted = needs_copy(left) if shape.copies_rows is None else shape.copies_rows
    packed = wanted and blocks > 1
    panel = Buffer("panel", (size, left.depth + 16), weight.dtype, Scope.STACK)

    def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(panel, row, k) if packed else left.element(start + row, k)

    def block(number: PrimExpr) -> Stmt:
        def tiled(row: PrimExpr, count: int) -> Stmt:
            return register_tile(
                shape,
                rows=count,
                columns=used,
                largest=(tile, width),
                steps=(left.depth,),
                left=lambda r, k: element(row + r, k[0]),
                right=lambda k, c: load(weight, number, k[0], c),
                finish=lambda r, c, value: finish(
                    value, (*unflatten(start + row + r, outer), number * width + c)
                ),
                dtype=weight.dtype,
                ahead=fetched_next(weight, number, (row, size), count),
            )

        return for_parts(cut(size, tile), tiled, "m")

    body = serial(blocks, lambda n: block(first + n), "n") if blocks > 1 else block(first)
    if not packed:
        return body
    copy = serial(
        size,
        lambda r: copy_rows(
            left.depth, shape.lanes, lambda k: store(panel, (r, k), left.element(start + r, k))
        ),
    )
    return Allocate(panel, seq(copy, body))


def fetch_next(
    shape: Shape,
    weight: Buffer,
    following: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    tile: tuple[PrimExpr, int],
) -> Fetch | None:
    """Return what fetches the next block of weights if they come from memory.

    Args:
        shape: The machine's.
        weight: All weights.
        following: ``following(step, column)``: a weight of the next block.
        tile: Number of a tile, and of how many with the same weights.
    """
    if shape.prefetch is None or not is_large(weight):
        return None
    return Fetch(shape.prefetch, following, *tile)


def fetched_next(
    weight: Buffer, block: PrimExpr, rows: tuple[PrimExpr, int], tile: int
) -> Ahead | None:
    """Return what a tile of vectors fetches of the next block of weights if they come from memory.

    A tile alone reads a block as fast as it comes: there is nothing to do meanwhile.

    Args:
        weight: All weights, packed ``[blocks, depth, width]``.
        block: The block that the tile reads.
        rows: Rows that other tiles have done with this block, and how many there are in all.
        tile: Rows of the tile.
    """
    if not is_large(weight) or tile == rows[1]:
        return None
    _, depth, width = weight.shape
    return Ahead(lambda place: load(weight, block + 1, 0, place), depth * width, *rows)


def is_large(weight: Buffer) -> bool:
    """Whether weights come from memory, so that the next block should be fetched meanwhile."""
    return weight.bytes >= _LARGE_BYTES and weight.shape[0] > 1


def needs_copy(left: Matrix) -> bool:
    """Whether rows fall on top of each other in the cache."""
    return left.rows > 1 and left.stride_bytes % (LINE * _SETS) == 0
