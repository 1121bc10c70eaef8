# SPDX-License-Identifier: Apache-2.0
"""Convolution on a matrix unit of images whose height and width are known at run time.

Strips are those of ``open_conv.py``, tiles those of ``matrix_unit_conv.py``: registers of up to 16
neighbouring results of a row. How many these are follows from the width of a strip, and the unit is
configured for that number, so a strip has as many products as one of fixed sizes. Rows of ``sums``
that a narrower register does not fill are passed over.

Where results lie is computed once for a tile, by vectors, while the unit multiplies. An epilogue
that computes it for each row has 55 instructions for 32 channels, for which the unit waits; with
places from a table it has 25 (3x3 windows of 32 channels: 0.85 of the time).

Of a narrow strip a register would hold few results, and every tile reads all weights: where it
takes fewer registers, all rows of the strip are one long row, as they lie in memory, with the
results between them, of windows that reach from the end of a row into the next, passed over. (A
row of 7 results of 3x3 windows has two of these, and 7 such rows are 4 registers, not 7.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import INDEX, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import LetStmt, Stmt

from .conv_strip import Convolution
from .loops import EpilogueStore, let_all, load, seq, serial, store, unflatten, vectorized
from .matrix_unit import RESIDENT_BYTES, SEGMENTS, MatrixUnit, Streamed, configured
from .matrix_unit_tiles import ResultRow, Segment, UnitTile, UnitTiles, matrix_unit_tiles
from .open_strips import StripItem, StripReader
from .tiling import column_parts

_ACROSS = 2
"""Registers of weights of a tile."""

_WORD_BYTES = 4

_LONGEST = 1 << 10
"""Results of a long row at most."""

_ONE = 1 << 20
"""Of the reciprocal of a width: products with places are exact quotients, both below 2**10."""


class OpenUnitStrip(Struct, frozen=True):
    """What a strip of results is computed from.

    Attributes:
        unit: What multiplies.
        conv: The convolution.
        epilogue: Stores an element.
        steps: Extents of the loops to sum over, outermost first.
        stride: Bytes from what one result reads first to what its neighbour in the row does.
        pitch: Results from one row to the next as they lie in memory; ``None`` if that is no
            multiple of the distance of neighbours.
    """

    unit: MatrixUnit
    conv: Convolution
    epilogue: EpilogueStore
    steps: tuple[int, ...]
    stride: int
    pitch: PrimExpr | None

    def blocks(self, work: StripItem, read: StripReader) -> Stmt:
        """Compute the blocks of channels of an item one after the other.

        Args:
            work: What is computed; its blocks are :func:`unit_columns` channels wide.
            read: How a result reads what it is computed from.
        """
        bound: list[tuple[TirVar, PrimExpr]] = []
        grid = self._grid(work, bound)
        (first, behind), stmts = work.blocks, list[Stmt]()
        for start, count, used in column_parts(self.conv.columns, unit_columns(self.conv)):
            low, high = maximum(first, start), minimum(behind, start + count)

            def block(n: PrimExpr, low: PrimExpr = low, used: int = used) -> Stmt:
                number = TirVar("block")
                one = self._block(work, read, grid, (number, used))
                return LetStmt(number, low + n, one)

            stmts.append(serial(maximum(high - low, 0), block, "n"))
        body = configured(self.unit, grid.size, self.steps[-1], seq(*stmts))
        return let_all(bound, body)

    def _grid(self, work: StripItem, bound: list[tuple[TirVar, PrimExpr]]) -> _Grid:
        """Return how the results of a strip are cut; adds to the variables to be bound."""
        rows = self.unit.rows

        def let(name: str, value: PrimExpr) -> PrimExpr:
            var = TirVar(name)
            bound.append((var, value))
            return var

        lines, length, inverse = work.height, work.width, index(0)
        if self.pitch is not None:
            long = let("long", (work.height - 1) * self.pitch + work.width)
            apart = work.height * ((work.width + (rows - 1)) // rows)
            is_long = (long <= _LONGEST) & ((long + (rows - 1)) // rows < apart)
            lines = let("lines", select(is_long, index(1), lines))
            length = let("length", select(is_long, long, length))
            one = index(_ONE) // maximum(self.pitch, 1) + 1
            inverse = let("inverse", select(is_long, one, index(0)))
        segments = let("segments", maximum((length + (rows - 1)) // rows, 1))
        size = let("size", (length + segments - 1) // segments)
        return _Grid(lines, length, segments, size, inverse)

    def _block(
        self,
        work: StripItem,
        read: StripReader,
        grid: _Grid,
        part: tuple[PrimExpr, int],
    ) -> Stmt:
        """Return the loop over the tiles of a block.

        Args:
            work: What is computed.
            read: How a result reads what it is computed from.
            grid: How its results are cut into segments.
            part: Number of the block in its group, and columns of it that are there.
        """
        segments, size = grid.segments, grid.size
        conv, (number, used) = self.conv, part
        last, width = grid.lines * segments - 1, conv.weight.shape[2]
        tiles = (grid.lines * segments + (SEGMENTS - 1)) // SEGMENTS
        across, channel = unit_columns(conv) // width, number * unit_columns(conv)
        block = work.group * -(-conv.columns // width) + number * across

        def tile(t: PrimExpr) -> UnitTile:
            words = ("row", "column", "done", "begin")
            names = [[TirVar(name) for name in words] for _ in range(SEGMENTS)]
            bound: list[tuple[TirVar, PrimExpr]] = []
            for number, (row, column, done, begin) in enumerate(names):
                wanted = t * SEGMENTS + number
                place = minimum(wanted, last)
                left = place % segments * size
                bound += [
                    (row, place // segments),
                    (column, minimum(left, grid.length - size)),
                    (done, left - column + (wanted - place) * size),
                    (begin, read.place(row, column)),
                ]

            table = Buffer("places", (SEGMENTS * self.unit.rows,), INDEX, MemoryScope.STACK)
            filled = seq(*(self._places(work, grid, table, s, names[s]) for s in range(SEGMENTS)))

            def segment(s: PrimExpr) -> Segment:
                begin = select(s < 1, names[0][-1], names[1][-1])
                results = partial(self._results, work, channel, table, s)

                def left(k: Sequence[PrimExpr]) -> PrimExpr:
                    return read.element(begin, k)

                return Segment(left, self.stride, index(0), results)

            return UnitTile(segment, self._right(block), bound=bound, table=(table, filled))

        block_bytes = unit_columns(conv) * conv.weight.shape[1] * _WORD_BYTES
        streamed = Streamed(right=block_bytes > RESIDENT_BYTES)
        rows = self.unit.rows
        common = UnitTiles(self.unit, tiles, SEGMENTS, rows, used, self.steps, streamed)
        return matrix_unit_tiles(common, tile)

    def _places(
        self,
        work: StripItem,
        grid: _Grid,
        table: Buffer,
        segment: int,
        names: Sequence[PrimExpr],
    ) -> Stmt:
        """Compute the places of the results of a segment by vectors; -1 of those that are none.

        Images, rows and columns are numbered together. ``names`` are the row of the segment, its
        column, results that are done before, and where what they read begins.
        """
        row, column, done, _ = names
        rows, columns = (index(size) for size in self.conv.window.output)
        begin = TirVar("begin")
        top = (work.image * rows + (work.row + row)) * columns + (work.column + column)

        def place(r: PrimExpr) -> Stmt:
            exists, number = (r >= done) & (r < grid.size), begin + r
            if self.pitch is not None:
                down = (column + r) * grid.inverse // _ONE
                exists &= column + r - down * self.pitch < work.width
                number = number + down * (columns - self.pitch)
            wanted = select(exists, number, index(-1))
            return store(table, (segment * self.unit.rows + r,), wanted)

        return LetStmt(begin, top, vectorized(self.unit.rows, place))

    def _results(
        self, work: StripItem, first: PrimExpr, table: Buffer, segment: PrimExpr, r: PrimExpr
    ) -> ResultRow:
        """Return a row of results of channels from ``first`` of the group on."""
        number, channel = TirVar("number"), work.group * self.conv.columns + first

        def stored(c: PrimExpr, value: PrimExpr) -> Stmt:
            place = unflatten(number, [self.conv.data.shape[0], *self.conv.window.output])
            return self.epilogue(value, (*place, channel + c))

        own = load(table, segment * self.unit.rows + r)
        return ResultRow(stored, [(number, own)], number >= 0)

    def _right(self, block: PrimExpr) -> Callable[[Sequence[PrimExpr], int], PrimExpr]:
        def first(k: Sequence[PrimExpr], behind: int) -> PrimExpr:
            row = index(0)
            for position, extent in zip(k, self.steps, strict=True):
                row = row * extent + position
            return load(self.conv.weight, block + behind, row, index(0))

        return first


class _Grid(Struct, frozen=True):
    """How the results of a strip are cut into segments.

    Attributes:
        lines: Rows, or one that holds all of them.
        length: Results of each.
        segments: How many it is cut into.
        size: Results of a segment.
        inverse: Reciprocal of the results from row to row of one that holds all; else 0.
    """

    lines: PrimExpr
    length: PrimExpr
    segments: PrimExpr
    size: PrimExpr
    inverse: PrimExpr


def unit_columns(conv: Convolution) -> int:
    """Return how many channels a tile computes: of two registers of weights, if there are two."""
    width = conv.weight.shape[2]
    return min(_ACROSS, -(-conv.columns // width)) * width
