# SPDX-License-Identifier: Apache-2.0
"""GEMM on a matrix unit with M known at run time: int8 A and packed constant B.

The tile is that of ``matrix_unit_dense.py``: 2 x 2 registers, 4 sums + 2 A + 2 B of 8. Rows are cut
into tiles of 32, and up to 16 behind them are a tile of 1 x 2 registers, which are configured for
that number: the unit takes time for each row. Loops, outermost first::

    parallel: panels of tiles x groups of blocks of B       # a group has at most 256 KiB
      for round in tiles of 32 rows, rows behind the last tile:
        for tile of the panel:
          for block of B in the group:
            for k: 2 x 2 products, or 1 x 2

The rounds share their code, most of which is the epilogue; the products of the second segment stand
behind a condition. Two loops took 1.06 of the time to compile an encoder, and 1.0 to 1.1 to run it.

Caches: there are at least eight groups, so one often stays in the first-level cache while the rows
of a panel pass. Otherwise the rows of a tile do, and blocks stream from the second-level cache.
The second segment of the last tile may overlap the first one, and its first results are dropped, as
in ``matrix_unit_tiles.py``. Signed A, and rows that lie a multiple of 2 KiB apart, are copied as in
``panel.py``, at most 256 KiB of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt
from intarsia_runtime.size import minimum as minimum_size

from .dense import ITEMS
from .loops import (
    EpilogueStore,
    Source,
    copy_rows,
    counted,
    let_all,
    load,
    parallel,
    seq,
    serial,
    store,
    unflatten,
)
from .matrix_unit import SEGMENTS, MatrixUnit, configured, streamed_by
from .matrix_unit_dense import GROUP_BYTES
from .matrix_unit_tiles import ResultRow, Segment, UnitTile, UnitTiles, matrix_unit_tiles
from .panel import LINE, Matrix, is_aliased
from .tiling import CpuTiling, column_parts

_ACROSS = 2
"""Registers of weights of a tile."""

_WORD_BYTES = 4

_PANEL_BYTES = 256 * 1024
"""Most memory of copied rows."""

_TILES = 64
"""Most tiles of a panel that is not copied."""


def open_matrix_unit_dense_loops(
    tiling: CpuTiling,
    unit: MatrixUnit,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of ``left @ weight``; arguments as of ``matrix_unit_dense_loops``."""
    across = min(_ACROSS, weight.shape[0])
    work = _OpenUnitProduct(tiling, unit, left, weight, epilogue, outer, across)
    return seq(*(work.loops(*part) for part in column_parts(outputs, across * unit.lanes)))


class _OpenUnitProduct(Struct, frozen=True):
    """The loops of one product; arguments as of :func:`open_matrix_unit_dense_loops`.

    Attributes:
        tiling: What the machine has besides.
        unit: Its matrix unit.
        left: The rows.
        weight: Packed weights.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        across: Registers of weights of a tile.
    """

    tiling: CpuTiling
    unit: MatrixUnit
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]
    across: int

    def loops(self, first: int, blocks: int, used: int) -> Stmt:
        """Share panels of rows and groups of some blocks of columns between threads."""
        group, unit_rows = self._group(blocks), self.unit.rows
        groups = -(-blocks // group)
        names = ("tiles", "rest", "high", "panels")
        tiles, rest, high, panels = (TirVar(name) for name in names)
        step, wanted, rows = SEGMENTS * unit_rows, -(-ITEMS // groups), index(self.left.m)
        bound = [
            (tiles, (rows + (step - unit_rows - 1)) // step),
            (rest, maximum(rows - tiles * step, 0)),
            (high, maximum(minimum((tiles + (wanted - 1)) // wanted, self._most_tiles), 1)),
            (panels, maximum((tiles + (high - 1)) // high, 1)),
        ]

        def item(p: PrimExpr) -> Stmt:
            names = ("start", "size", "some", "begin", "count")
            start, size, some, begin, count = (TirVar(name) for name in names)
            panel = counted(BinaryOp.FLOOR_DIV, p, groups)
            place = counted(BinaryOp.FLOOR_MOD, p, groups)
            values = [
                (start, panel * high),
                (size, minimum(high, tiles - start)),
                (some, select(start + size >= tiles, rest, index(0))),
                (begin, place * group + first),
                (count, minimum(index(group), index(first + blocks) - begin)),
            ]
            body = self._panel((start, size, some), (begin, count), group, used)
            return let_all(values, body)

        return let_all(bound, parallel(counted(BinaryOp.MUL, panels, groups), item))

    def _panel(
        self,
        part: tuple[PrimExpr, PrimExpr, PrimExpr],
        blocks: tuple[PrimExpr, PrimExpr],
        group: int,
        used: int,
    ) -> Stmt:
        """Multiply a panel with some blocks.

        Args:
            part: The first tile, how many there are, and how many rows are behind them.
            blocks: The first block, and how many.
            group: How many these are at most.
            used: Columns of a block.
        """
        start, size, some = part
        step = SEGMENTS * self.unit.rows
        if not self._is_copied:
            return self._both(self.left, index(0), part, blocks, (group, used))
        most = minimum_size(self.left.m, self._most_tiles * step + self.unit.rows)
        panel = Buffer(
            "panel", (cast("int", most), self._pitch), self.weight.dtype, MemoryScope.STACK
        )
        base, rows = TirVar("base"), index(self.left.m)
        copied = self._copy(panel, base, minimum((start + size) * step, rows) + some - base)
        body = self._both(self._copied(panel), base, part, blocks, (group, used))
        before = maximum(rows - self.unit.rows, 0)  # a segment that overlaps may begin there
        bound = [(base, minimum(start * step, before))]
        return let_all(bound, Allocate(panel, seq(copied, body)))

    def _both(
        self,
        source: Matrix,
        base: PrimExpr,
        part: tuple[PrimExpr, PrimExpr, PrimExpr],
        blocks: tuple[PrimExpr, PrimExpr],
        columns: tuple[int, int],
    ) -> Stmt:
        """Multiply the tiles, then the rows behind them, of what has the rows from one on.

        Both are rounds of one loop: two would have two copies of the epilogue.
        """
        (start, size, some), unit, apart = part, self.unit, TirVar("apart")

        def round_of(number: PrimExpr) -> Stmt:
            names = ("height", "present", "before", "tiles")
            height, present, before, tiles = (TirVar(name) for name in names)
            is_behind = number > 0
            bound = [
                (height, select(is_behind, some, index(unit.rows))),
                (present, select(is_behind, index(1), index(SEGMENTS))),
                (before, select(is_behind, start + size, start)),
                (tiles, select(is_behind, minimum(some, 1), size)),
            ]
            tile = self._tile((source, apart), base, (before, height), blocks)
            body = self._tiles((present, height), tiles * blocks[1], columns, tile)
            return let_all(bound, IfStmt(tiles > 0, body))

        return LetStmt(apart, index(source.stride_bytes), serial(2, round_of, "round"))

    def _tile(
        self,
        source_rows: tuple[Matrix, PrimExpr],
        base: PrimExpr,
        rows: tuple[PrimExpr, PrimExpr],
        blocks: tuple[PrimExpr, PrimExpr],
    ) -> Callable[[PrimExpr], UnitTile]:
        """Return the tiles from one on whose segments have so many rows, by their number."""
        (source, apart), (before, height), (begin, count) = source_rows, rows, blocks
        width, step = self.across * self.unit.lanes, self.unit.rows

        def tile(i: PrimExpr) -> UnitTile:
            block, first = TirVar("block"), TirVar("first")
            last = index(self.left.m) - height
            places = [TirVar(f"row{s}") for s in range(SEGMENTS)]
            bound = [
                (block, begin + i % maximum(count, 1)),
                (first, (before + i // maximum(count, 1)) * (SEGMENTS * step)),
                *((row, minimum(first + s * step, last)) for s, row in enumerate(places)),
            ]

            def segment(s: PrimExpr) -> Segment:
                row = select(s < 1, *places)

                def stored(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
                    outer = unflatten(row + r, self.outer)
                    return self.epilogue(value, (*outer, block * width + c))

                return Segment(
                    lambda k: source.element(row - base, k[0]),
                    apart,
                    first + s * step - row,
                    lambda r: ResultRow(partial(stored, r)),
                    height,
                )

            return UnitTile(segment, self._right(block), bound=bound)

        return tile

    def _tiles(
        self,
        segments: tuple[PrimExpr, PrimExpr],
        count: PrimExpr,
        columns: tuple[int, int],
        tile: Callable[[PrimExpr], UnitTile],
    ) -> Stmt:
        """Return a loop over tiles of some segments, each of so many rows."""
        unit, depth, (group, used), (present, height) = self.unit, self.left.k, columns, segments
        streamed = streamed_by(group, self._block_bytes)
        common = UnitTiles(unit, count, SEGMENTS, unit.rows, used, (depth,), streamed, present)
        return configured(unit, height, depth, matrix_unit_tiles(common, tile))

    def _right(self, block: PrimExpr) -> Callable[[Sequence[PrimExpr], int], PrimExpr]:
        return lambda k, n: load(self.weight, block * self.across + n, k[0], index(0))

    @property
    def _is_copied(self) -> bool:
        return self.left.copied or is_aliased(self.left)

    @property
    def _pitch(self) -> int:
        """Words from row to row of a copy: whole lines, as memory of a thread has them."""
        words = LINE // _WORD_BYTES
        return -(-self.left.k // words) * words + words

    def _copied(self, panel: Buffer) -> Matrix:
        def element(r: PrimExpr, k: PrimExpr) -> PrimExpr:
            return load(panel, r, k)

        return replace(self.left, element=element, stride_bytes=self._pitch * _WORD_BYTES)

    def _copy(self, panel: Buffer, base: PrimExpr, rows: PrimExpr) -> Stmt:
        left = self.left

        def row(r: PrimExpr) -> Stmt:
            return copy_rows(
                left.k,
                self.tiling.lanes,
                lambda k: store(panel, (r, k), left.element(base + r, k)),
            )

        return serial(rows, row, "r")

    @property
    def _block_bytes(self) -> int:
        return self.left.k * self.across * self.unit.lanes * _WORD_BYTES

    @property
    def _most_tiles(self) -> int:
        """Tiles of a panel at most."""
        if not self._is_copied:
            return _TILES
        return max(1, _PANEL_BYTES // (SEGMENTS * self.unit.rows * self._pitch * _WORD_BYTES))

    def _group(self, blocks: int) -> int:
        """Return how many blocks of weights an item has."""
        most = max(1, GROUP_BYTES // self._block_bytes)
        groups = -(-blocks // min(most, -(-blocks // ITEMS)))
        return -(-blocks // groups)
