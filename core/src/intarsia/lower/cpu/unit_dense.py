# SPDX-License-Identifier: Apache-2.0
"""Product of a matrix of bytes and packed constant weights by a matrix unit."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ...tir.buffer import Buffer, Scope
from ...tir.expr import PrimExpr, index, minimum
from ...tir.stmt import Allocate, Stmt
from .ahead import is_large, next_block
from .dense import ITEMS, even_share, share_panels
from .loops import Finish, Source, copy_rows, cut, load, seq, serial, store, unflatten
from .matrix_unit import SEGMENTS, MatrixUnit, Segment, configured, segment_rows, unit_tile
from .panel import LINE, Matrix, needs_copy
from .tile import Shape

_QUAD = 4
_PANEL = 32 * 1024  # of data, results and what is added to them: a first cache has more


def unit_dense_loops(
    shape: Shape,
    unit: MatrixUnit,
    left: Matrix,
    weight: Source,
    outputs: int,
    finish: Finish,
    outer: list[int],
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        shape: What the machine has besides.
        unit: Its matrix unit.
        left: The rows, of quads.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        finish: Stores an element.
        outer: Dimensions that the rows of the result stand for.
    """
    work = _Product(shape, unit, left, weight, finish, outer)
    panels = cut(work.tiles, work.tiles_at_once(outputs))
    return share_panels(panels, left, weight, outputs, work.item)


class _Product(Struct, frozen=True):
    """Arguments as of :func:`unit_dense_loops`."""

    shape: Shape
    unit: MatrixUnit
    left: Matrix
    weight: Source
    finish: Finish
    outer: list[int]

    @property
    def rows(self) -> int:
        """Rows of a segment."""
        return segment_rows(self.left.rows, self.unit)[1]

    @property
    def segments(self) -> int:
        """Segments of a tile."""
        return min(SEGMENTS, segment_rows(self.left.rows, self.unit)[0])

    @property
    def tiles(self) -> int:
        """Tiles of all rows."""
        return -(-segment_rows(self.left.rows, self.unit)[0] // self.segments)

    def tiles_at_once(self, outputs: int) -> int:
        """Return how many tiles share one pass over a block of weights.

        Results are written half a cache line a row at a time, and what is added to them is read
        so: the other half shall still be there when the next block comes to it.
        """
        row_bytes = self.left.depth * _QUAD + 2 * outputs
        most = max(1, _PANEL // (row_bytes * self.rows * self.segments))
        if is_large(self.weight):
            most = self.tiles
        return min(most, even_share(self.tiles, most, -(-ITEMS // self.weight.shape[0])))

    def item(self, start: PrimExpr, size: int, first: PrimExpr, count: int, used: int) -> Stmt:
        """Multiply ``size`` tiles with ``count`` blocks of weights, from the ``first`` one on."""
        left = self.left
        if not left.copied and not needs_copy(left):
            return self._blocks(left, index(0), (start, size), (first, count, used))
        tile_rows = self.rows * self.segments
        kept = min(left.rows, size * tile_rows)
        base = minimum(start * tile_rows, left.rows - kept)
        copy = Buffer("panel", (kept, left.depth + LINE // _QUAD), self.weight.dtype, Scope.STACK)

        def row(r: PrimExpr) -> Stmt:
            return copy_rows(
                left.depth,
                self.shape.lanes,
                lambda k: store(copy, (r, k), left.element(base + r, k)),
            )

        def element(r: PrimExpr, k: PrimExpr) -> PrimExpr:
            return load(copy, r, k)

        copied = replace(left, element=element, stride_bytes=copy.shape[1] * _QUAD)
        body = self._blocks(copied, base, (start, size), (first, count, used))
        return Allocate(copy, seq(serial(kept, row), body))

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
        return configured(self.unit, self.rows, self.left.depth, body)

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
            row = minimum(wanted, self.left.rows - self.rows)
            return Segment(
                lambda k: source.element(row - base, k[0]),
                source.stride_bytes,
                wanted - row,
                lambda r, c, value: self.finish(
                    value, (*unflatten(row + r, self.outer), block * width + c)
                ),
            )

        left = (start + number) * self.segments
        return unit_tile(
            self.unit,
            [segment((left + s) * self.rows) for s in range(self.segments)],
            self.rows,
            (used, width),
            (self.left.depth,),
            lambda k, c: load(weight, block, k[0], c),
            next_block(
                self.shape.prefetch, weight, (block + 1, 0), self.left.depth, (number, size), 1
            ),
        )
