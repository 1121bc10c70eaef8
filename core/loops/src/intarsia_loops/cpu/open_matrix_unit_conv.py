# SPDX-License-Identifier: Apache-2.0
"""Convolution on a matrix unit of images whose height and width are known at run time.

Strips are those of ``open_conv.py``, tiles those of ``matrix_unit_conv.py``: registers of up to 16
neighbouring results of a row. How many these are follows from the width of a strip, and the unit is
configured for that number, so a strip has as many products as one of fixed sizes. Rows of ``sums``
that a narrower register does not fill are passed over.

Where results lie is computed once for a tile, by vectors, while the unit multiplies, and kept until
the unit computes the next one. Before the first tile there are no results, so one loop computes a
tile and does the epilogue of the one before. An epilogue that computes places for each row has 55
instructions for 32 channels, for which the unit waits; with places from a table it has 25 (3x3
windows of 32 channels: 0.85 of the time).

The tiles of all blocks of channels are one loop, so the epilogue of the last tile of a block is
hidden, too. Where tiles lie is computed by reciprocals, not divisions. A strip of one segment does
not multiply a second one (256 channels of 2x2 pixels: 0.77 of the time). Blocks of weights that
come from memory are fetched meanwhile.

Of a narrow strip a register would hold few results, and every tile reads all weights: where it
takes fewer registers, all rows of the strip are one long row, as they lie in memory, with the
results between them, of windows that reach from the end of a row into the next, passed over. (A
row of 7 results of 3x3 windows has two of these, and 7 such rows are 4 registers, not 7.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import INDEX, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt

from .conv_strip import Convolution
from .loops import (
    EpilogueStore,
    address_of,
    flattened,
    let_all,
    load,
    quotients,
    seq,
    store,
    unflatten,
    vectorized,
)
from .matrix_unit import RESIDENT_BYTES, SEGMENTS, MatrixUnit, Streamed, chunk_of, configured
from .matrix_unit_tiles import ResultRow, Segment, UnitTile, UnitTiles, matrix_unit_tiles
from .open_strips import StripItem, StripReader
from .open_unit_segments import EXACT, UnitGrid, segments_of
from .prefetch import OpenUnitPrefetch, Prefetch, is_streamed
from .tiling import column_parts

_ACROSS = 2
"""Registers of weights of a tile."""

_WORD_BYTES = 4

_LINE_WORDS = 16
"""Words of weights in a cache line."""

_LONGEST = 1 << 10
"""Results of a long row at most."""

_NONE = index(-1)
"""The place of a result that does not exist."""

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
        prefetch: How weights are fetched, if the machine has to be told.
    """

    unit: MatrixUnit
    conv: Convolution
    epilogue: EpilogueStore
    steps: tuple[int, ...]
    stride: int
    pitch: PrimExpr | None
    prefetch: Prefetch | None

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
            tiles = self._tiles(work, read, grid, (low, high - low, used))
            stmts.append(IfStmt(low < high, tiles))
        body = configured(self.unit, grid.size, self.steps[-1], seq(*stmts))
        return let_all(bound, body)

    def _grid(self, work: StripItem, bound: list[tuple[TirVar, PrimExpr]]) -> UnitGrid:
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
        total = let("total", lines * segments)
        tiles = let("tiles", maximum((total + (SEGMENTS - 1)) // SEGMENTS, 1))
        apart, of_tiles = (
            let(name, index(EXACT) // divisor + 1)
            for name, divisor in (("apart", segments), ("of_tiles", tiles))
        )
        fetched = index(0)
        if is_streamed(self.conv.weight):
            block = unit_columns(self.conv) * self.conv.weight.shape[1] // _LINE_WORDS
            shared = (index(-(-block // self._chunks) - 1) + tiles) // tiles
            fetched = let("fetched", select(tiles < 2, index(0), shared))
        stride = let("stride", index(self.stride))
        return UnitGrid(
            *(length, inverse, size, (segments, apart), total, (tiles, of_tiles), fetched, stride)
        )

    def _tiles(
        self,
        work: StripItem,
        read: StripReader,
        grid: UnitGrid,
        part: tuple[PrimExpr, PrimExpr, int],
    ) -> Stmt:
        """Return the loop over the tiles of some blocks.

        Args:
            work: What is computed.
            read: How a result reads what it is computed from.
            grid: How its results are cut into segments.
            part: First block of its group, how many, and columns of each that are there.
        """
        (tiles, of_tiles), conv, (low, count, used) = grid.tiles, self.conv, part
        width = conv.weight.shape[2]
        across = unit_columns(conv) // width
        blocks = work.group * -(-conv.columns // width)
        table = Buffer("places", (SEGMENTS * self.unit.rows,), INDEX, MemoryScope.STACK)

        def tile(i: PrimExpr) -> UnitTile:
            block, above, number, done = (
                TirVar(name) for name in ("block", "above", "number", "finished")
            )
            names, places = segments_of(grid, read, number)
            bound = [
                (above, i * of_tiles // EXACT),
                (block, low + above),
                (number, i - above * tiles),
                (done, low + maximum(i - 1, 0) * of_tiles // EXACT),  # block of the tile before
                *places,
            ]
            filled = seq(*(self._places(work, grid, table, s, names[s]) for s in range(SEGMENTS)))

            def segment(s: PrimExpr) -> Segment:
                begin = select(s < 1, names[0][-1], names[1][-1])
                results = partial(self._results, work, done * unit_columns(conv), table, s)

                def left(k: Sequence[PrimExpr]) -> PrimExpr:
                    return read.element(begin, k)

                return Segment(left, grid.stride, index(0), results)

            right = self._right(blocks + block * across)
            fetched = self._fetched(grid, blocks + (block + 1) * across, number)
            return UnitTile(segment, right, fetched, bound=bound, filled=filled)

        block_bytes = unit_columns(conv) * conv.weight.shape[1] * _WORD_BYTES
        streamed = Streamed(right=block_bytes > RESIDENT_BYTES)
        rows, present = self.unit.rows, minimum(grid.total, SEGMENTS)
        common = UnitTiles(
            *(self.unit, tiles * count, SEGMENTS, rows, used, self.steps, streamed, present),
            position=quotients,
            table=(table, self._of_none(table)),
        )
        return matrix_unit_tiles(common, tile)

    def _of_none(self, table: Buffer) -> Stmt:
        """Say in a table of places that there are no results."""
        rows = self.unit.rows
        return seq(
            *(
                vectorized(rows, lambda r, s=s: store(table, (s * rows + r,), _NONE))
                for s in range(SEGMENTS)
            )
        )

    def _fetched(
        self, grid: UnitGrid, block: PrimExpr, number: PrimExpr
    ) -> OpenUnitPrefetch | None:
        """Return what a tile of this number in its block fetches of the next block."""
        weight, prefetch = self.conv.weight, self.prefetch
        if prefetch is None or not is_streamed(weight):
            return None
        return OpenUnitPrefetch(
            prefetch,
            lambda word: address_of(load(weight, block, 0, word)),
            _LINE_WORDS,
            number * self._chunks * grid.fetched,
            grid.fetched,
        )

    @property
    def _chunks(self) -> int:
        """Steps of a tile."""
        return prod(self.steps) // chunk_of(self.steps[-1], self.unit)

    def _places(
        self,
        work: StripItem,
        grid: UnitGrid,
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
            wanted = select(exists, number, _NONE)
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
            return load(self.conv.weight, block + behind, flattened(k, self.steps), index(0))

        return first


def unit_columns(conv: Convolution) -> int:
    """Return how many channels a tile computes: of two registers of weights, if there are two."""
    width = conv.weight.shape[2]
    return min(_ACROSS, -(-conv.columns // width)) * width
