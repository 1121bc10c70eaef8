# SPDX-License-Identifier: Apache-2.0
"""GEMM on a matrix unit: int8 or bfloat16 A and packed constant B.

As ``dense.py``, with the tile of ``matrix_unit.py`` (2 x 2 registers: 4 sums + 2 A + 2 B of 8). A
panel, its results and the operands of the epilogue stay in 32 KiB, two thirds of a first-level
cache of 48 KiB, while a group of blocks passes: results are stored half a cache line a row at a
time, and the other half must still be there when the next block comes. Rows of A that lie a
multiple of 2 KiB apart are copied first, as in ``panel.py``. The next block of B is prefetched.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, index, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt

from .dense import ITEMS, balanced_share, share_panels
from .loops import EpilogueStore, Source, copy_rows, cut, load, seq, serial, store, unflatten
from .matrix_unit import SEGMENTS, MatrixUnit, Segment, configured, matrix_unit_tile, segment_rows
from .panel import LINE, Matrix, needs_copy
from .prefetch import is_streamed, prefetch_next_block
from .tiling import CpuTiling

_WORD_BYTES = 4
_PANEL_BYTES = 32 * 1024  # of data, results and what is added to them: a first cache has more


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
        left: The rows, of quads.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    work = _Product(tiling, unit, left, weight, epilogue, outer)
    panels = cut(work.tiles, work.tiles_per_panel(outputs))
    return share_panels(panels, left, weight, outputs, work.item)


class _Product(Struct, frozen=True):
    """Arguments as of :func:`matrix_unit_dense_loops`."""

    tiling: CpuTiling
    unit: MatrixUnit
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]

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

    def tiles_per_panel(self, outputs: int) -> int:
        """Return how many tiles share one pass over a block of weights.

        Results are written half a cache line a row at a time, and what is added to them is read
        so: the other half shall still be there when the next block comes to it.
        """
        row_bytes = self.left.k * _WORD_BYTES + 2 * outputs
        most = max(1, _PANEL_BYTES // (row_bytes * self.rows * self.segments))
        if is_streamed(self.weight):
            most = self.tiles
        return min(most, balanced_share(self.tiles, most, -(-ITEMS // self.weight.shape[0])))

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

        def block(n: PrimExpr) -> Stmt:
            return serial(
                size, lambda t: self._tile(source, base, (start, t, size), (n, used)), "t"
            )

        body = serial(count, lambda n: block(first + n), "n")
        return configured(self.unit, self.rows, self.left.k, body)

    def _tile(
        self,
        source: Matrix,
        base: PrimExpr,
        tile: tuple[PrimExpr, PrimExpr, int],
        columns: tuple[PrimExpr, int],
    ) -> Stmt:
        start, number, size = tile
        block, used = columns
        weight, width = self.weight, self.weight.shape[2]

        def segment(wanted: PrimExpr) -> Segment:
            row = minimum(wanted, self.left.m - self.rows)
            return Segment(
                lambda k: source.element(row - base, k[0]),
                source.stride_bytes,
                wanted - row,
                lambda r, c, value: self.epilogue(
                    value, (*unflatten(row + r, self.outer), block * width + c)
                ),
            )

        left = (start + number) * self.segments
        return matrix_unit_tile(
            self.unit,
            [segment((left + s) * self.rows) for s in range(self.segments)],
            self.rows,
            (used, width),
            (self.left.k,),
            lambda k, c: load(weight, block, k[0], c),
            prefetch_next_block(
                self.tiling.prefetch, weight, (block + 1, 0), self.left.k, (number, size), 1
            ),
        )
