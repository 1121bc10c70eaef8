# SPDX-License-Identifier: Apache-2.0
"""GEMM on a matrix unit: int8 or bfloat16 A and packed constant B.

As ``dense.py``, with the tile of ``matrix_unit.py`` (2 x 2 registers: 4 sums + 2 A + 2 B of 8).
Loops, outermost first::

    parallel: panels of A x groups of blocks of B
      for group of blocks of B:
        for tile of the panel:              # 32 rows of A stay in the first-level cache
          for block of B in the group:      # streams from the second-level cache
            for k: 2 x 2 products

A block of B are two registers side by side, each packed as ``[K, lanes]``: the rows of a register
are neighbours in memory. All weights are one group if a second-level cache of 2 MiB holds them
beside a panel; otherwise a group takes 256 KiB, and its tiles prefetch the next one. The rows of
the next tile are prefetched while a tile meets the blocks if A is large. Rows of A that lie a
multiple of 2 KiB apart are copied first, as in ``panel.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, index, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt

from .dense import ITEMS, balanced_share, share_panels
from .loops import (
    EpilogueStore,
    Source,
    address_of,
    copy_rows,
    cut,
    load,
    seq,
    serial,
    store,
    unflatten,
)
from .matrix_unit import SEGMENTS, MatrixUnit, configured, segment_rows, streamed_by
from .matrix_unit_tiles import ResultRow, Segment, UnitTile, UnitTiles, matrix_unit_tiles
from .panel import LINE, Matrix, needs_copy
from .prefetch import STREAMED_BYTES, prefetch_next_block, with_prefetch
from .tiling import CpuTiling

_ACROSS = 2  # registers of weights of a tile
_WORD_BYTES = 4
_LEAST_GROUP = 8  # blocks of weights, so that each has few rows of the next tile to prefetch

GROUP_BYTES = 256 * 1024
"""Blocks of weights that come from memory and meet all tiles of a panel before the next ones."""

RESIDENT_WEIGHTS = 1024 * 1024
"""Weights that stay in the second-level cache while panels pass."""


def matrix_unit_dense_loops(
    tiling: CpuTiling,
    unit: MatrixUnit,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: What the machine has besides.
        unit: Its matrix unit.
        left: The rows, of Int8x4 words.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    across = min(_ACROSS, weight.shape[0])
    work = _Product(tiling, unit, left, weight, epilogue, outer, across)
    panels = cut(work.tiles, work.tiles_per_panel())
    return share_panels(panels, left, weight, outputs, work.item, width=across * unit.lanes)


class _Product(Struct, frozen=True):
    """Arguments as of :func:`matrix_unit_dense_loops`."""

    tiling: CpuTiling
    unit: MatrixUnit
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]
    across: int

    @property
    def rows(self) -> int:
        """Rows of a segment."""
        return segment_rows(self.left.m, self.unit)[1]

    @property
    def segments(self) -> int:
        """Segments of a tile."""
        return min(SEGMENTS, segment_rows(self.left.m, self.unit)[0])

    @property
    def tiles(self) -> int:
        """Tiles of all rows."""
        return -(-segment_rows(self.left.m, self.unit)[0] // self.segments)

    def tiles_per_panel(self) -> int:
        """Return how many tiles share one pass over the weights.

        Weights that the second-level cache holds are read anew for each of several panels.
        """
        tiles, blocks = self.tiles, self.weight.shape[0] // self.across
        if self.weight.bytes <= RESIDENT_WEIGHTS and tiles >= ITEMS:
            return balanced_share(tiles, -(-tiles // ITEMS), ITEMS)
        return balanced_share(tiles, tiles, -(-ITEMS // blocks))

    def item(self, start: PrimExpr, size: int, first: PrimExpr, count: int, used: int) -> Stmt:
        """Multiply ``size`` tiles with ``count`` blocks of weights, from the ``first`` one on."""
        left = self.left
        if not left.copied and not needs_copy(left):
            return self._blocks(left, index(0), (start, size), (first, count, used))
        tile_rows = self.rows * self.segments
        copied_rows = min(left.m, size * tile_rows)
        base = minimum(start * tile_rows, left.m - copied_rows)
        copy = Buffer(
            "panel",
            (copied_rows, left.k + LINE // _WORD_BYTES),
            self.weight.dtype,
            MemoryScope.STACK,
        )

        def row(r: PrimExpr) -> Stmt:
            return copy_rows(
                left.k,
                self.tiling.lanes,
                lambda k: store(copy, (r, k), left.element(base + r, k)),
            )

        def element(r: PrimExpr, k: PrimExpr) -> PrimExpr:
            return load(copy, r, k)

        copied = replace(left, element=element, stride_bytes=copy.shape[1] * _WORD_BYTES)
        body = self._blocks(copied, base, (start, size), (first, count, used))
        return Allocate(copy, seq(serial(copied_rows, row), body))

    def _blocks(
        self,
        source: Matrix,
        base: PrimExpr,
        tiles: tuple[PrimExpr, int],
        columns: tuple[PrimExpr, int, int],
    ) -> Stmt:
        """Multiply ``source``, which has the rows from ``base`` on."""
        start, size = tiles
        first, count, used = columns
        weight, width = self.weight, self.across * self.unit.lanes
        group = self._group(count, size)
        per_group, rows = group * size, self.segments * self.rows

        def segment(block: PrimExpr, wanted: PrimExpr) -> Segment:
            even = self.left.m % rows == 0
            row = wanted if even else minimum(wanted, self.left.m - self.rows)
            return Segment(
                lambda k: source.element(row - base, k[0]),
                source.stride_bytes,
                index(0) if even else wanted - row,
                lambda r: ResultRow(
                    lambda c, value: self.epilogue(
                        value, (*unflatten(row + r, self.outer), block * width + c)
                    )
                ),
            )

        def tile(i: PrimExpr) -> UnitTile:
            number, inside = i // per_group, i % per_group
            block = first + number * group + inside % group
            row = (start + inside // group) * rows
            begin = (first + (number + 1) * group) * self.across
            return UnitTile(
                lambda s: segment(block, row + s * self.rows),
                lambda k, n: load(weight, block * self.across + n, k[0], index(0)),
                None
                if size == 1 or group == count
                else prefetch_next_block(
                    *(self.tiling.prefetch, weight, (begin, 0), group * self.across * self.left.k),
                    *((inside, per_group), 1),
                ),
                self._row_prefetch(source, row + rows - base, inside % group, group),
            )

        common = UnitTiles(
            *(self.unit, size * count, self.segments, self.rows, used, (self.left.k,)),
            streamed_by(group, self._block_bytes, is_one_tile=size == 1),
        )
        return configured(self.unit, self.rows, self.left.k, matrix_unit_tiles(common, tile))

    def _row_prefetch(
        self, source: Matrix, row: PrimExpr, number: PrimExpr, group: int
    ) -> Callable[[Sequence[PrimExpr], Stmt], Stmt] | None:
        """Return what fetches the rows of the next tile, from ``row`` on, into the second cache.

        Each of the ``group`` blocks of weights that a tile meets fetches the lines of some rows.
        """
        rows, prefetch = self.rows * self.segments, self.tiling.prefetch
        large = self.left.m * self.left.k * _WORD_BYTES >= STREAMED_BYTES
        if prefetch is None or not large or source is not self.left or group < _LEAST_GROUP:
            return None
        share = -(-rows // group)

        def around(step: Sequence[PrimExpr], body: Stmt) -> Stmt:
            wanted = (row + number * share + i for i in range(share))
            lines = (source.element(minimum(r, index(self.left.m - 1)), step[0]) for r in wanted)
            return with_prefetch(prefetch, (address_of(line) for line in lines), body)

        return around

    @property
    def _block_bytes(self) -> int:
        return self.left.k * self.across * self.unit.lanes * _WORD_BYTES

    def _group(self, count: int, size: int) -> int:
        """Return how many of ``count`` blocks of weights a tile of rows meets before the next."""
        if size == 1 or self.weight.bytes <= RESIDENT_WEIGHTS:
            return count
        most = max(1, GROUP_BYTES // self._block_bytes)
        return next(group for group in range(min(count, most), 0, -1) if count % group == 0)
