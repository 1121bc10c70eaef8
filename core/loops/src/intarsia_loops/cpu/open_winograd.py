# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution F(2x2, 3x3) of images of open sizes: bands of a fixed number of tiles.

The transforms and their layouts are those of ``winograd.py``. Tiles of 2x2 results are numbered
through all images, rows and columns. A band is as many tiles as have 256 to 768 KiB of transformed
data (twice as much if weights have 1 MiB); the number depends only on the channels. The last band
overlaps the one before::

    for band of tiles:
      parallel: tiles of the band, 8 at a time:  V = B^T d B           # [16, tiles, C]
      parallel: blocks of channels x groups of tiles:
        for e in 16:  M[e] = V[e] @ U[e]                                # register tile
        out = epilogue(A^T M A)

- Registers: a group has as many tiles as the register tile has rows, 14 on AVX-512 and 6 on AVX2;
  groups of 4 cover the remainder of a band. A band with fewer repeats its last tile.
- Code: where kernels may call procedures, convolutions of a model share the transform
  (``winograd_input.py``), and from K of 64 on the tiles of products (``shared_tiles.py``).
- Positions: a division each gives row and column of a group's first tile; the following tiles step
  on, with a comparison at the end of a row.
- Caches: where weights come from memory, up to three large groups and all small ones share a read
  of the weights of a position, as in ``winograd.py``, and prefetch those of the next position.
- Accuracy: as in ``winograd.py``.
"""

from __future__ import annotations

from math import prod
from typing import cast

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    PrimExpr,
    TirVar,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt
from intarsia_runtime.size import maximum as maximum_size
from intarsia_runtime.size import minimum as minimum_size

from .loops import (
    EpilogueStore,
    counted,
    cut,
    for_parts,
    let_all,
    load,
    parallel,
    seq,
    serial,
    store,
)
from .micro_kernel import register_tile
from .prefetch import prefetch_next_open_block
from .shared_tiles import LEAST_DEPTH, TileOperands, call_tiles, shares_tiles, tile_shape
from .tiling import CpuTiling, column_parts
from .winograd import BAND_BYTES, SIZE, WinogradOperands, write_results
from .winograd_input import Place, TileGrid, transformed

_SMALL = 4
"""Tiles of a small group."""

_BAND_BYTES = BAND_BYTES * 3 // 4
"""Most memory of transformed data at a time; where weights are at least as large, twice as much."""

_LEAST_BAND_BYTES, _BY_WEIGHTS = 256 * 1024, 4
"""Such memory where weights are small, or how many times theirs it is: with 32 channels as fast as
768 KiB (ResNet 0.99 to 1.00 of the time)."""

_SHARING = 3
"""Large groups that share a read of the weights of a place, where weights are the larger."""

_TOGETHER = 8
"""Tiles whose data a thread transforms in one piece of work."""


def open_winograd_loops(
    tiling: CpuTiling, conv: WinogradOperands, epilogue: EpilogueStore
) -> tuple[Stmt, Buffer]:
    """Return the loops, and the scratch memory that they want.

    Args:
        tiling: Register tile of the machine.
        conv: Operands.
        epilogue: Gets indices ``(n, row, column, channel)``.
    """
    batch, _, _, channels = conv.data.shape
    tiles = index(batch * prod(conv.grid))
    tile_bytes = SIZE * SIZE * channels * conv.data.dtype.bytes
    stationary = conv.weight.bytes < BAND_BYTES
    band = max(1, _band_bytes(conv.weight.bytes) // tile_bytes)
    # A tile more: the 16 elements of a tile would lie a power of two apart, in one set of a cache.
    # A group that no smaller one stands in for reads tiles behind the last, and drops the results.
    most = cast("int", maximum_size(minimum_size(batch * prod(conv.grid), band), _SMALL))
    wide = Buffer("wide", (SIZE * SIZE * (most + 1) * channels,), conv.data.dtype)

    names = ("bands", "count", "first", "plane")
    bands, count, first, plane = [TirVar(name) for name in names]

    def one_band(number: PrimExpr) -> Stmt:
        work = _OpenBand(tiling, conv, (wide, plane), epilogue, first, count, stationary)
        body = seq(work.transforms(), *work.products())
        return LetStmt(first, maximum(minimum(number * count, tiles - count), 0), body)

    bound = [
        (bands, (tiles + (band - 1)) // band),
        (count, (tiles + maximum(bands - 1, 0)) // maximum(bands, 1)),
        (plane, index((most + 1) * channels)),
    ]
    return let_all(bound, serial(bands, one_band, "band")), wide


def _band_bytes(weights: int) -> int:
    """Return the memory of transformed data at a time, by the bytes of the weights."""
    if weights >= BAND_BYTES:
        return 2 * _BAND_BYTES
    return min(max(_BY_WEIGHTS * weights, _LEAST_BAND_BYTES), _BAND_BYTES)


class _OpenBand(Struct, frozen=True):
    """Some tiles of all images.

    Attributes:
        tiling: Register tile of the machine.
        conv: Operands.
        memory: Transformed data, ``[16, tiles, C]``, and elements of each of the 16 planes.
        epilogue: What to do with a result.
        first: Number of the first tile.
        count: How many there are.
        is_data_stationary: Whether all weights meet the data of a group before the next one does.
    """

    tiling: CpuTiling
    conv: WinogradOperands
    memory: tuple[Buffer, PrimExpr]
    epilogue: EpilogueStore
    first: PrimExpr
    count: PrimExpr
    is_data_stationary: bool

    @property
    def _is_shared(self) -> bool:
        """Whether tiles and transforms are procedures of all convolutions."""
        return shares_tiles(self.tiling)

    def transforms(self) -> Stmt:
        """Write the transformed data of all tiles."""

        def some(p: PrimExpr) -> Stmt:
            begin = p * _TOGETHER
            tiles = self.first + begin, begin, minimum(self.count - begin, _TOGETHER)
            return transformed(
                self.conv, self.memory, tiles, self.tiling.lanes, shared=self._is_shared
            )

        return parallel((self.count + (_TOGETHER - 1)) // _TOGETHER, some)

    def _place(self, e: PrimExpr | int, tile: PrimExpr, channel: PrimExpr) -> PrimExpr:
        """Return where the transformed data have an element."""
        return self.memory[1] * e + (tile * self.conv.data.shape[3] + channel)

    def products(self) -> list[Stmt]:
        """Multiply the transformed data of all tiles, and write their results."""
        (large, small), width = self._sizes, self.conv.weight.shape[3]
        wide, narrow = TirVar("wide"), TirVar("narrow")
        full, rest = self.count // large, self.count % large
        more = select(rest > max(large - small, small), index(1), index(0))
        bound = [
            (wide, full + minimum(full, more)),
            (narrow, (maximum(self.count - wide * large, 0) + (small - 1)) // small),
        ]

        def part(first: int, blocks: int, used: int) -> Stmt:
            if not self.is_data_stationary:
                return self._by_weights(first, blocks, used, (wide, narrow))
            groups = wide + narrow

            def item(p: PrimExpr) -> Stmt:
                block, number = TirVar("block"), TirVar("group")
                place = [(block, counted(BinaryOp.FLOOR_MOD, p, blocks) + first)]
                place.append((number, counted(BinaryOp.FLOOR_DIV, p, blocks)))
                at_wide = minimum(number * large, self.count - large)
                behind = wide * large + (number - wide) * small
                at_narrow = maximum(minimum(behind, self.count - small), 0)
                chosen = (number < wide, at_wide, at_narrow)
                return let_all(place, self._group(block, used, chosen))

            return parallel(counted(BinaryOp.MUL, groups, blocks), item)

        parts = column_parts(self.conv.outputs, width)
        return [let_all(bound, seq(*(part(*of_columns) for of_columns in parts)))]

    def _by_weights(
        self,
        first: int,
        blocks: int,
        used: int,
        counts: tuple[PrimExpr, PrimExpr],
    ) -> Stmt:
        """Let several groups share a read of the weights of a place, which come from memory.

        Args:
            first: The first block of outputs.
            blocks: How many there are.
            used: Outputs of a block.
            counts: How many large and small groups there are.
        """
        (wide, narrow), (large, small) = counts, self._sizes
        chunks = maximum((wide + (_SHARING - 1)) // _SHARING, 1)
        room = (_SHARING + 1) * large + small
        size = SIZE * SIZE, room, self._columns(used)
        sums = Buffer("sums", size, self.conv.data.dtype, MemoryScope.STACK)

        def item(p: PrimExpr) -> Stmt:
            block, begin, end, some, base, behind = (
                TirVar(n) for n in ("block", "begin", "end", "some", "base", "behind")
            )
            is_last = end >= wide
            bound = [
                (block, p // chunks + first),
                (begin, (p % chunks) * _SHARING),
                (end, minimum(begin + _SHARING, wide)),
                (some, select(is_last, narrow, index(0))),
                (base, maximum(minimum(begin * large, self.count - large), 0)),
                (behind, select(is_last, self.count, end * large)),
            ]

            def place(e: PrimExpr) -> Stmt:
                large_ones = end - begin
                total = large_ones + some

                def group(n: PrimExpr) -> Stmt:
                    at_large = minimum((begin + n) * large, self.count - large)
                    behind = wide * large + (n - large_ones) * small
                    at_small = maximum(minimum(behind, self.count - small), 0)
                    chosen = (n < large_ones, at_large, at_small)
                    return self._product((block, e), used, chosen, (base, sums), (n, total))

                return serial(total, group, "n")

            products = serial(SIZE * SIZE, place, "e")
            results = self._results(block, used, (base, behind - base), sums)
            return let_all(bound, Allocate(sums, seq(products, results)))

        return parallel(counted(BinaryOp.MUL, chunks, blocks), item)

    def _product(
        self,
        place: tuple[PrimExpr, PrimExpr],
        used: int,
        chosen: tuple[PrimExpr, PrimExpr, PrimExpr],
        kept: tuple[PrimExpr, Buffer],
        shared: tuple[PrimExpr, PrimExpr] | None = None,
    ) -> Stmt:
        """Multiply the data of a group of tiles at a place with the weights of a block.

        Args:
            place: Numbers of the block and of the place.
            used: Outputs of the block.
            chosen: Whether the group is large, and the number of its first tile if it is, and if
                it is not.
            kept: Number of the tile whose sums are first in a buffer, and the buffer.
            shared: Number of the group among those that share the weights, and how many these are.
        """
        (block, e), (is_large, at_large, at_small), (base, sums) = place, chosen, kept
        weight, start, wide = self.conv.weight, TirVar("start"), self.memory[0]
        depth, width = weight.shape[2:]
        large, small = self._sizes
        fetched = None
        if shared is not None:
            prefetch = self.tiling.prefetch
            fetched = prefetch_next_open_block(prefetch, weight, (block, e + 1, 0), shared)

        def bound(loops: Stmt) -> Stmt:
            return loops if fetched is None else fetched.bind(depth, loops)

        if self._is_shared and depth >= LEAST_DEPTH:
            first = load(wide, self._place(e, start, index(0))), load(weight, block, e, 0, 0)
            strides = index(self.conv.data.shape[3]), index(width)
            operands = TileOperands(*first, strides, index(depth), fetched)
            shape = tile_shape(self.tiling, large, self._columns(used), self.conv.data.dtype)
            rows = self._rows(is_large)
            call = call_tiles(shape, rows, operands, load(sums, e, start - base, 0))
            return LetStmt(start, select(is_large, at_large, at_small), bound(call))

        def tile(rows: int) -> Stmt:
            def row(r: PrimExpr | int) -> PrimExpr:
                return minimum(start + r, self.count - 1) if rows <= _SMALL else start + r

            return register_tile(
                self.tiling,
                rows=rows,
                columns=used,
                largest=(large, width),
                steps=(depth,),
                left=lambda r, k: load(wide, self._place(e, row(r), k[0])),
                right=lambda k, c: load(weight, block, e, k[0], c),
                epilogue=lambda r, c, value: store(sums, (e, start - base + r, c), value),
                dtype=self.conv.data.dtype,
                weight_prefetch=fetched,
            )

        both = tile(large) if small == large else IfStmt(is_large, tile(large), tile(small))
        return LetStmt(start, select(is_large, at_large, at_small), bound(both))

    @property
    def _sizes(self) -> tuple[int, int]:
        """Tiles of a large and of a small group."""
        width = self.conv.weight.shape[3]
        large = min(self.tiling.rows, self.tiling.rows_for(width // self.tiling.lanes))
        return large, min(_SMALL, large)

    def _columns(self, used: int) -> int:
        """Return the columns that a tile computes, whole vectors."""
        return -(-used // self.tiling.lanes) * self.tiling.lanes

    def _rows(self, is_large: PrimExpr) -> PrimExpr:
        """Return the tiles of a group; a band with fewer has a single one."""
        large, small = self._sizes
        return minimum(select(is_large, index(large), index(small)), self.count)

    def _results(
        self, block: PrimExpr, used: int, tiles: tuple[PrimExpr, PrimExpr], sums: Buffer
    ) -> Stmt:
        """Write the results of some tiles, the first of which has the first sums."""
        start, count = tiles
        width = self.conv.weight.shape[3]

        def channels(c: PrimExpr, lanes: int) -> Stmt:
            def tile(number: PrimExpr, place: Place) -> Stmt:
                def taken(e: int, v: PrimExpr) -> PrimExpr:
                    return load(sums, e, number, c + v)

                return write_results(
                    self.conv, self.epilogue, place, taken, (block * width + c, lanes)
                )

            grid = TileGrid(*(index(size) for size in self.conv.grid))
            return grid.each(self.first + start, count, tile)

        return for_parts(cut(used, self.tiling.lanes), channels, "channel")

    def _group(
        self, block: PrimExpr, used: int, chosen: tuple[PrimExpr, PrimExpr, PrimExpr]
    ) -> Stmt:
        """Compute a large or a small group of tiles for one block of outputs."""
        size, start = (SIZE * SIZE, self._sizes[0], self._columns(used)), TirVar("start")
        sums = Buffer("sums", size, self.conv.data.dtype, MemoryScope.STACK)

        def place(e: PrimExpr) -> Stmt:
            return self._product((block, e), used, chosen, (start, sums))

        products = serial(SIZE * SIZE, place, "e")
        results = self._results(block, used, (start, self._rows(chosen[0])), sums)
        return LetStmt(start, select(*chosen), Allocate(sums, seq(products, results)))
