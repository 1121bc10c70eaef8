# SPDX-License-Identifier: Apache-2.0
"""Product of a matrix and packed constant weights."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ...tir.buffer import Buffer
from ...tir.expr import PrimExpr
from ...tir.stmt import Stmt
from .ahead import LARGE_BYTES, is_large
from .loops import Finish, Part, Source, cut, even_size, parallel, seq
from .panel import LINE, Matrix, Panel, needs_copy
from .tile import Shape, best_rows, block_width, column_parts

_LONG_BYTES = 1024 * 1024
_HUGE_BYTES = 2 * 1024 * 1024
_WIDER = 2.25
_DEPTH = 1024  # of a product that is added up in parts, most of a part
_SUMS_BYTES = 512 * 1024  # of such a product, most that an item has on the stack
_LEAST_ROWS = 4  # of tiles whose sums are many enough not to wait for each other
_TWICE = 80  # of so many rows one may be computed twice
ITEMS = 8
"""Pieces of work that two or four threads can share evenly."""


def product_width(rows: int, depth: int, outputs: int, shape: Shape) -> int:
    """Return how many output columns of constant weights are packed together.

    A result that does not stay in the second-level cache is written faster in longer pieces, if
    wide vectors make them some cache lines long. Weights that come from memory are better read
    for tall tiles.
    """
    width, lanes = block_width(outputs, shape), shape.lanes
    if lanes * 4 < LINE or rows * outputs * 4 < _LONG_BYTES or depth * outputs * 4 >= LARGE_BYTES:
        return width
    return next((v * lanes for v in (4, 3) if outputs % (v * lanes) == 0), width)


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
    panel_bytes = int(shape.panel_bytes * wider)
    depth = _depth_at_once(left, weight, rows, panel_bytes)
    panel = _panel_rows(left.rows, depth, rows, blocks, panel_bytes)
    if not is_large(weight) and _with_data(left, outputs, weight):
        panel = _own_rows(left, rows, blocks, panel)

    def item(start: PrimExpr, size: int, first: PrimExpr, count: int, used: int) -> Stmt:
        at = Panel(shape, left, weight, finish, outer, (start, size, rows), (first, count, used))
        return at.whole() if depth == left.depth else at.by_depth(depth)

    twice = left.rows // _TWICE
    panels = cut(left.rows, _covering(left.rows, rows, panel, twice), twice=twice)
    most = blocks if depth == left.depth else max(1, _SUMS_BYTES // (panel * width * 4))
    return share_panels(panels, left, weight, outputs, item, most)


def share_panels(
    panels: Sequence[Part],
    left: Matrix,
    weight: Source,
    outputs: int,
    item: Callable[[PrimExpr, int, PrimExpr, int, int], Stmt],
    most: int = sys.maxsize,
) -> Stmt:
    """Share panels of rows and groups of blocks of weights between threads.

    Args:
        panels: Parts of the rows; a panel need not be counted in rows.
        left: All rows.
        weight: Packed ``[blocks, depth, width]``.
        outputs: Columns of the result.
        item: ``item(start, size, first, blocks, used)``: a panel's product with some blocks, of
            whose columns ``used`` are there.
        most: Blocks that an item may have.
    """
    with_data = _with_data(left, outputs, weight)
    stmts: list[Stmt] = []
    for part in panels:
        for first, count, used in column_parts(outputs, weight.shape[2]):
            group = blocks_at_once(count, sum(p.count for p in panels), most)
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


def _with_data(left: Matrix, outputs: int, weight: Source) -> bool:
    return stays_with_data(left.rows * left.depth, left.rows * outputs, weight)


def stays_with_data(read: int, written: int, weight: Source) -> bool:
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


def _depth_at_once(left: Matrix, weight: Buffer, rows: int, panel_bytes: int) -> int:
    """Return how much of the depth a panel is multiplied with before it goes on.

    Panels of deep products have few rows, and each panel reads all weights anew.

    Args:
        left: The rows.
        weight: All weights.
        rows: Rows of a tile.
        panel_bytes: Most memory of a panel.
    """
    depth = left.depth
    if depth < 2 * _DEPTH or not is_large(weight) or rows < _LEAST_ROWS:
        return depth
    if panel_bytes // (depth * 4 * rows) * rows >= left.rows:
        return depth
    parts = (part for part in range(_DEPTH, _DEPTH // 2, -1) if depth % part == 0)
    return next(parts, depth)


def _panel_rows(all_rows: int, depth: int, rows: int, blocks: int, most_bytes: int) -> int:
    """Return how many rows share one pass over a block of weights, and one packed copy."""
    tiles = -(-all_rows // rows)
    most = min(tiles, max(1, most_bytes // max(1, depth * 4 * rows)))
    if blocks >= ITEMS:
        return min(all_rows, even_size(tiles, most) * rows)
    return min(all_rows, rows * even_share(tiles, most, -(-ITEMS // blocks)))


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


def blocks_at_once(blocks: int, panels: int, most: int) -> int:
    """Return how many blocks of columns one item computes, ``most`` at most."""
    wanted = -(-ITEMS // panels)
    return even_size(blocks, min(most, blocks // min(blocks, wanted)))
