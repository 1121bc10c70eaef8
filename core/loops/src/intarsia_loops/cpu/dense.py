# SPDX-License-Identifier: Apache-2.0
"""GEMM with prepacked constant weights: ``C[M, N] = A[M, K] @ B``, B as ``[N / width, K, width]``.

Loops, outermost first::

    parallel: panels of A x groups of blocks of B
      for block of B in the group:            # [K, width]
        for tile of the panel:                # micro_kernel.py: all of K, accumulators in registers

- Registers: 6 x 2 accumulators + 2 B + 1 A = 15 of 16 ymm, 14 x 2 + 2 + 1 = 31 of 32 zmm.
- Caches: a panel of A is at most ``panel_bytes`` (192 KiB) and stays in the second-level cache
  while all blocks of B pass; a block of B stays in the first-level cache for all tiles of the
  panel. Each panel reads all of B again. Products with K >= 2048 whose weights come from memory
  would have panels of few rows; they are split along K in parts of at most 1024, and the partial
  sums (at most 512 KiB) lie on the stack, in the same order of summation (``panel.py``).
- Prefetch: the next block of B, shared by the tiles (``prefetch.py``).
- Threads: if A and C are not much smaller than B, a thread keeps its rows from kernel to kernel and
  reads all weights (activation stationary). Its results are in its own cache, where other threads
  read them more slowly than weights from a shared one. Otherwise a thread keeps its weights and
  reads all rows (weight stationary).
- Results above 1 MiB are written in pieces of up to four vectors (:func:`product_width`), because
  hardware prefetchers follow stores in order. Where vectors are shorter than a cache line, a panel
  is a single tile, and its rows are written from left to right, if all weights stay in the
  second-level cache (3136 rows, K = 96, N = 384: 0.86 of the time, AVX2 on AMD Zen 4).

The loop order is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
(ACM TOMS 2008), with B packed when compiling instead of at run time, as XNNPACK prepacks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Stmt

from .loops import EpilogueStore, RangePart, Source, cut, equal_part_size, parallel, seq
from .panel import LINE, Matrix, Panel, needs_copy
from .prefetch import STREAMED_BYTES, is_streamed
from .row_pairs import suits_pairs
from .tiling import CpuTiling, best_rows, column_parts, float_width, for_width

_LONG_BYTES = 1024 * 1024
_HUGE_BYTES = 2 * 1024 * 1024
_LARGE_WEIGHTS_FACTOR = 2.25
_MAX_K_BLOCK = 1024  # of a product that is added up in parts, most of a part
_SUMS_BYTES = 512 * 1024  # of such a product, most that an item has on the stack
_LEAST_ROWS = 4  # of tiles whose sums are many enough not to wait for each other
_TWICE = 80  # of so many rows one may be computed twice
ITEMS = 8
"""Pieces of work that two or four threads can share evenly."""


def product_width(rows: int, depth: int, outputs: int, tiling: CpuTiling) -> int:
    """Return how many output columns of constant weights are packed together.

    A result that does not stay in the second-level cache is written faster in longer pieces, if
    wide vectors make them some cache lines long. Weights that come from memory are better read
    for tall tiles.
    """
    width, lanes = float_width(outputs, tiling), tiling.lanes
    if (
        lanes * 4 < LINE
        or rows * outputs * 4 < _LONG_BYTES
        or depth * outputs * 4 >= STREAMED_BYTES
    ):
        return width
    return next((v * lanes for v in (4, 3) if outputs % (v * lanes) == 0), width)


def _is_written_in_order(tiling: CpuTiling, left: Matrix, outputs: int, weight: Source) -> bool:
    """Whether a tile goes through all weights, so that rows of the result are written whole."""
    return (
        LINE // 4 < tiling.lanes * 4 < LINE
        and left.m * outputs * 4 >= _LONG_BYTES
        and weight.bytes <= tiling.panel_bytes
    )


def dense_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
    *,
    is_ordered: bool = False,
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: Register tile.
        left: The rows.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        is_ordered: Whether words of weights are (``ordered_words.py``), which are not added up in
            parts then.
    """
    width = weight.shape[2]
    tiling = for_width(tiling, width)
    limit = tiling.rows_for(width // tiling.lanes)
    if needs_copy(left):
        limit = min(limit, tiling.rows)  # as many as the sets that they fall into hold
    rows = best_rows(left.m, limit)
    blocks = -(-outputs // width)
    most = panel_bytes(tiling, weight)
    depth = left.k if is_ordered else _k_block(left, weight, rows, most)
    if tiling.row_pairs is not None and not suits_pairs(depth):
        depth = left.k
    panel = panel_rows(left.m, depth, rows, blocks, most)
    if not is_streamed(weight) and _is_data_stationary(left, outputs, weight):
        panel = _stationary_rows(left, rows, blocks, panel)
    if _is_written_in_order(tiling, left, outputs, weight):
        panel = rows

    def item(start: PrimExpr, size: int, first: PrimExpr, count: int, used: int) -> Stmt:
        panel_of_rows = Panel(
            *(tiling, left, weight, epilogue, outer, (start, size, rows), (first, count, used)),
            is_ordered,
        )
        return panel_of_rows.full_k() if depth == left.k else panel_of_rows.split_k(depth)

    overlap = left.m // _TWICE
    panels = cut(left.m, _covering_rows(left.m, rows, panel, overlap), overlap=overlap)
    most = blocks if depth == left.k else max(1, _SUMS_BYTES // (panel * width * 4))
    return share_panels(panels, left, weight, outputs, item, most)


def share_panels(
    panels: Sequence[RangePart],
    left: Matrix,
    weight: Source,
    outputs: int,
    item: Callable[[PrimExpr, int, PrimExpr, int, int], Stmt],
    most: int = sys.maxsize,
    *,
    width: int | None = None,
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
        width: Columns of a block, if not those of the packed weights.
    """
    data_stationary = _is_data_stationary(left, outputs, weight)
    stmts: list[Stmt] = []
    for part in panels:
        for first, count, used in column_parts(outputs, width or weight.shape[2]):
            group = blocks_per_item(count, sum(p.count for p in panels), most)
            for chunk in cut(count, group):

                def body(
                    p: PrimExpr,
                    part: RangePart = part,
                    c: RangePart = chunk,
                    f: int = first,
                    u: int = used,
                ) -> Stmt:
                    panel, number = p % part.count, p // part.count
                    if data_stationary:
                        panel, number = p // c.count, p % c.count
                    block = number * c.size + (f + c.start)
                    return item(part.start_of(panel), part.size, block, c.size, u)

                stmts.append(parallel(part.count * chunk.count, body))
    return seq(*stmts)


def _is_data_stationary(left: Matrix, outputs: int, weight: Source) -> bool:
    return is_data_stationary(left.m * left.k, left.m * outputs, weight)


def is_data_stationary(read: int, written: int, weight: Source) -> bool:
    """Whether a thread should go through all weights for some data, or through all data.

    Data are counted twice: another thread has written them in a cache of its own, and weights come
    from one that all share.

    Args:
        read: Elements of data, of the type of the weights.
        written: Results; of Int8x4 operands they are bytes.
        weight: All weights.
    """
    result = weight.dtype.bytes if weight.dtype.is_float else 1
    return weight.bytes <= 2 * (read * weight.dtype.bytes + written * result)


def panel_bytes(tiling: CpuTiling, weight: Source) -> int:
    """Return the most memory of a panel.

    Each panel reads all weights anew: what no second-level cache holds is read for few of them.
    """
    wider = _LARGE_WEIGHTS_FACTOR if weight.bytes > _HUGE_BYTES else 1
    return int(tiling.panel_bytes * wider)


def _k_block(left: Matrix, weight: Source, rows: int, most_bytes: int) -> int:
    """Return how much of the depth a panel is multiplied with before it goes on.

    Panels of deep products have few rows, and each panel reads all weights anew.

    Args:
        left: The rows.
        weight: All weights.
        rows: Rows of a tile.
        most_bytes: Most memory of a panel.
    """
    depth = left.k
    if depth < 2 * _MAX_K_BLOCK or not is_streamed(weight) or rows < _LEAST_ROWS:
        return depth
    if most_bytes // (depth * 4 * rows) * rows >= left.m:
        return depth
    parts = (part for part in range(_MAX_K_BLOCK, _MAX_K_BLOCK // 2, -1) if depth % part == 0)
    return next(parts, depth)


def panel_rows(all_rows: int, depth: int, rows: int, blocks: int, most_bytes: int) -> int:
    """Return how many rows share one pass over a block of weights, and one packed copy."""
    tiles = -(-all_rows // rows)
    most = min(tiles, max(1, most_bytes // max(1, depth * 4 * rows)))
    if blocks >= ITEMS:
        return min(all_rows, equal_part_size(tiles, most) * rows)
    return min(all_rows, rows * balanced_share(tiles, most, -(-ITEMS // blocks)))


def _stationary_rows(left: Matrix, rows: int, blocks: int, panel: int) -> int:
    """Return the rows of at most a panel so that threads have the same rows in kernel after kernel.

    That needs an even number of equal panels; without one it is ``panel``.
    """
    even = [size for size in range(panel, 0, -rows) if left.m % (2 * size) == 0]
    enough = [size for size in even if left.m // size * blocks >= ITEMS]
    return next(iter(enough or even), panel)


def _covering_rows(rows: int, tile: int, panel: int, overlap: int) -> int:
    """Return the rows of at most a panel so that panels of whole tiles cover all rows.

    The remainder would be a loop of its own: to compile, and to share between threads.

    Args:
        rows: All rows.
        tile: Rows of a tile.
        panel: Rows that a panel should have, which is returned if no other size will do.
        overlap: How many rows may be in two panels.
    """
    if rows % panel == 0:
        return panel
    sizes = range(panel - panel % tile, panel // 2, -tile)
    close = [size for size in sizes if -rows % size <= overlap]
    even = [size for size in close if -(-rows // size) % 2 == 0]
    return next(iter(even or close), panel)


def balanced_share(total: int, most: int, pieces: int) -> int:
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


def blocks_per_item(blocks: int, panels: int, most: int) -> int:
    """Return how many blocks of columns one item computes, ``most`` at most."""
    wanted = -(-ITEMS // panels)
    return equal_part_size(blocks, min(most, blocks // min(blocks, wanted)))
