# SPDX-License-Identifier: Apache-2.0
"""GEMM of an open number of rows: ``C[M, N] = A[M, K] @ B``, B packed, M known when it runs.

The register tile is that of ``dense.py``; only the number of tiles is not known. Tiles cover the
rows from the first one on, and the last tile ends at the last row: it overlaps the one before
instead of being smaller, so every tile of a product has the same code. Some rows are then computed
twice, with the same result. There are versions for tiles of 1 row, of 4 and of as many as the
registers hold; the run takes the one that computes the fewest rows, where a tile of fewer than
four costs as much as one of four, because its sums wait for each other (``tiling.best_rows``).

Loops, outermost first::

    version: rows of a tile
      parallel: panels of tiles x groups of blocks of B
        for block of B in the group:        # [K, width], stays in the first-level cache
          for tile of the panel:            # micro_kernel.py: all of K, accumulators in registers

A panel has as many tiles as ``panel_bytes`` holds, so it stays in the second-level cache while the
blocks of B pass, as in ``dense.py``. A block of large weights is prefetched by the first tiles of
the block before: by four of 4 rows, by eight of the largest. XNNPACK's GEMM takes M the same way:
tiles of ``mr`` rows, and a remainder by a kernel of fewer.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import BinaryOp, PrimExpr, all_of, binary, index, minimum
from intarsia_ir.tir.stmt import IfStmt, Stmt

from .dense import ITEMS
from .loops import EpilogueStore, load, parallel, seq, serial, unflatten
from .micro_kernel import register_tile
from .panel import Matrix
from .prefetch import prefetch_next_block
from .tiling import CpuTiling, column_parts

_FULL = 4
"""Rows of a tile whose sums are enough not to wait for each other."""

_TILES = 16
"""Most tiles of a panel: enough to use a block of weights again, few enough to share the rows."""


def open_dense_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Buffer,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: Register tile.
        left: The rows; ``m`` is an expression over size variables.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    rows = index(left.m)
    largest = tiling.rows_for(weight.shape[2] // tiling.lanes)

    def version(tile: int) -> Stmt:
        return _tiles(tiling, left, weight, outputs, epilogue, outer, (tile, largest))

    return tile_versions(rows, largest, version)


def tile_versions(rows: PrimExpr, largest: int, version: Callable[[int], Stmt]) -> Stmt:
    """Return the version whose tiles compute the fewest rows, chosen when it runs.

    Args:
        rows: How many rows there are.
        largest: Rows of the largest tile.
        version: ``version(tile)``: the loops with tiles of so many rows, for at least as many.
    """
    sizes = [*(size for size in (1, _FULL) if size < largest), largest]
    chosen = version(largest)
    for number in reversed(range(len(sizes) - 1)):
        size, above = sizes[number], sizes[number + 1 :]
        taken = rows < above[0]  # no larger tile fits
        if size >= _FULL:
            own = _cost(rows, size)
            costs = [_cost(rows, larger) for larger in above]
            cheapest = all_of([own < cost for cost in costs])
            taken = binary(BinaryOp.OR, taken, cheapest)
        chosen = IfStmt(taken, version(size), chosen)
    return chosen


def _cost(rows: PrimExpr, tile: int) -> PrimExpr:
    """Return twice the cost of all tiles, in rows, with the overhead of half a row for each."""
    return ((rows + (tile - 1)) // tile) * (2 * max(tile, _FULL) + 1)


def _fetching(tile: int, largest: int) -> int:
    """Return how many tiles of a block prefetch the next one."""
    if tile == largest:
        return 8
    return 1 if tile < _FULL else 4


def _tiles(
    tiling: CpuTiling,
    left: Matrix,
    weight: Buffer,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
    tiles: tuple[int, int],
) -> Stmt:
    tile, largest = tiles
    depth, width = left.k, weight.shape[2]
    rows = index(left.m)
    count = (rows + (tile - 1)) // tile
    in_panel = max(1, min(_TILES, tiling.panel_bytes // max(1, depth * weight.dtype.bytes * tile)))
    fetching = min(in_panel, _fetching(tile, largest))
    stmts: list[Stmt] = []
    for first, blocks, used in column_parts(outputs, width):
        group = max(1, -(-blocks // ITEMS))
        groups = -(-blocks // group)

        def item(
            p: PrimExpr, f: int = first, b: int = blocks, u: int = used, g: int = group,
            n: int = groups,
        ) -> Stmt:  # fmt: skip
            begin = (p // n) * in_panel
            end = minimum(begin + in_panel, count)
            block = (p % n) * g
            number = index(g) if b % g == 0 else minimum(index(g), b - block)

            def column(c: PrimExpr) -> Stmt:
                return serial(end - begin, lambda t: one(begin + t, t, block + c + f, u), "m")

            return serial(number, column, "n")

        def one(number: PrimExpr, before: PrimExpr, block: PrimExpr, used: int) -> Stmt:
            start = minimum(number * tile, rows - tile)
            return register_tile(
                tiling,
                rows=tile,
                columns=used,
                largest=(largest, width),
                steps=(depth,),
                left=lambda r, k: left.element(start + r, k[0]),
                right=lambda k, c: load(weight, block, k[0], c),
                epilogue=lambda r, c, value: epilogue(
                    value, (*unflatten(start + r, outer), block * width + c)
                ),
                dtype=weight.dtype,
                weight_prefetch=prefetch_next_block(
                    tiling.prefetch,
                    weight,
                    (block + 1, 0),
                    depth,
                    (minimum(before, fetching - 1) * tile, fetching * tile),
                    tile,
                ),
            )

        stmts.append(parallel((count + (in_panel - 1)) // in_panel * groups, item))
    return seq(*stmts)
