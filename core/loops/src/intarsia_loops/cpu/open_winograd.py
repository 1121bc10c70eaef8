# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution F(2x2, 3x3) of images of open sizes: bands of a fixed number of tiles.

The transforms and their layouts are those of ``winograd.py``. Tiles of 2x2 results are numbered
through all images, rows and columns. A band is as many tiles as have 768 KiB of transformed data
(twice as much if weights have 1 MiB); the number depends only on the channels. The last band
overlaps the one before::

    for band of tiles:
      parallel: tiles of the band, 8 at a time:  V = B^T d B           # [16, tiles, C]
      parallel: blocks of channels x groups of tiles:
        for e in 16:  M[e] = V[e] @ U[e]                                # register tile
        out = epilogue(A^T M A)

- Registers: a group has as many tiles as the register tile has rows, 14 on AVX-512 and 6 on AVX2;
  groups of 4 cover the remainder of a band. A band with fewer repeats its last tile.
- Positions: a division each gives row and column of a group's first tile; the following tiles step
  on, with a comparison at the end of a row.
- Caches: where weights come from memory, up to three large groups and all small ones share a read
  of the weights of a position, as in ``winograd.py``, and prefetch those of the next position.
- Accuracy: as in ``winograd.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import prod
from typing import cast

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    BinaryOp,
    PrimExpr,
    TirVar,
    all_of,
    equal,
    if_then_else,
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
    vectorized,
)
from .micro_kernel import register_tile
from .prefetch import prefetch_next_block, prefetch_next_open_block
from .tiling import CpuTiling, column_parts
from .winograd import BAND_BYTES, SIZE, WinogradOperands, transform_channels, write_results

_SMALL = 4
"""Tiles of a small group."""

_BAND_BYTES = BAND_BYTES * 3 // 4
"""Most memory of transformed data at a time; where weights are at least as large, twice as much."""

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
    band = max(1, (_BAND_BYTES if stationary else 2 * _BAND_BYTES) // tile_bytes)
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

    def _each(
        self,
        start: PrimExpr,
        count: PrimExpr,
        body: Callable[[PrimExpr, tuple[PrimExpr, PrimExpr, PrimExpr]], Stmt],
    ) -> Stmt:
        """Run ``body(number, place)`` for neighbouring tiles; ``start`` counts in the band."""
        rows, across = (index(size) for size in self.conv.grid)
        cursor = Buffer("cursor", (3,), INDEX, MemoryScope.REGISTER)
        at, line = TirVar("at"), TirVar("line")
        begin = [
            store(cursor, (0,), line // rows),
            store(cursor, (1,), line % rows),
            store(cursor, (2,), at % across),
        ]

        def one(number: PrimExpr) -> Stmt:
            image, row, column = (TirVar(name) for name in ("image", "row", "column"))
            down = TirVar("down")
            is_last, is_end = equal(column + 1, across), equal(down, rows)
            stepped = LetStmt(
                down,
                select(is_last, row + 1, row),
                seq(
                    store(cursor, (2,), select(is_last, index(0), column + 1)),
                    store(cursor, (1,), select(is_end, index(0), down)),
                    store(cursor, (0,), select(is_end, image + 1, image)),
                ),
            )
            values = zip((image, row, column), range(3), strict=True)
            bound = [(var, load(cursor, number)) for var, number in values]
            place = (image, row * 2, column * 2)
            return let_all(bound, seq(body(start + number, place), stepped))

        loop = serial(count, one, "t")
        bound = [(at, self.first + start), (line, at // across)]
        return let_all(bound, Allocate(cursor, seq(*begin, loop)))

    def transforms(self) -> Stmt:
        """Write the transformed data of all tiles."""

        def some(p: PrimExpr) -> Stmt:
            begin = p * _TOGETHER
            count = minimum(self.count - begin, _TOGETHER)
            return self._each(begin, count, self._transform)

        return parallel((self.count + (_TOGETHER - 1)) // _TOGETHER, some)

    def _place(self, e: PrimExpr | int, tile: PrimExpr, channel: PrimExpr) -> PrimExpr:
        """Return where the transformed data have an element."""
        return self.memory[1] * e + (tile * self.conv.data.shape[3] + channel)

    def _transform(self, tile: PrimExpr, place: tuple[PrimExpr, PrimExpr, PrimExpr]) -> Stmt:
        """Write ``B^T d B`` of one tile.

        What differs at the edges is only how registers are filled: pixels outside of the image have
        a negative number. The transform itself is there once.
        """
        (image, top, left), (wide, _), data = place, self.memory, self.conv.data
        window = self.conv.window
        rows, columns = (index(size) for size in window.size)
        y, x = top - window.padding[0], left - window.padding[1]
        is_inside = all_of([y >= 0, y + SIZE <= rows, x >= 0, x + SIZE <= columns])
        lines = [TirVar(f"line{r}") for r in range(SIZE)]
        inside = TirVar("inside")
        bound = [(inside, select(is_inside, index(1), index(0)))]
        bound += [(line, (image * rows + (y + r)) * columns + x) for r, line in enumerate(lines)]
        pixels = Buffer("pixels", (SIZE * SIZE,), INDEX, MemoryScope.STACK)

        def column(s: PrimExpr) -> Stmt:
            across = x + s
            is_there = all_of([across >= 0, across < columns])
            stmts: list[Stmt] = []
            for r, line in enumerate(lines):
                down = all_of([y + r >= 0, y + r < rows, is_there])
                stmts.append(store(pixels, (s * SIZE + r,), select(down, line + s, index(-1))))
            return seq(*stmts)

        def given(tile_in: Buffer, start: PrimExpr, width: int) -> Stmt:
            def middle(r: int, s: int, v: PrimExpr) -> Stmt:
                value = load(data, 0, 0, lines[r] + s, start + v)
                return store(tile_in, (r * SIZE + s, v), value)

            def edge(r: int, s: int, v: PrimExpr) -> Stmt:
                pixel = load(pixels, s * SIZE + r)
                value = if_then_else(pixel >= 0, load(data, 0, 0, pixel, start + v), 0)
                return store(tile_in, (r * SIZE + s, v), value)

            def filled(one: Callable[[int, int, PrimExpr], Stmt]) -> Stmt:
                elements = product(range(SIZE), repeat=2)
                return seq(*(vectorized(width, partial(one, r, s)) for r, s in elements))

            return IfStmt(inside > 0, filled(middle), filled(edge))

        def written(e: int, channel: PrimExpr, value: PrimExpr) -> Stmt:
            return store(wide, (self._place(e, tile, channel),), value)

        found = IfStmt(equal(inside, 0), serial(SIZE, column, "s"))
        body = seq(found, transform_channels(self.tiling, data, given, written))
        return let_all(bound, Allocate(pixels, body))

    def products(self) -> list[Stmt]:
        """Multiply the transformed data of all tiles, and write their results."""
        width = self.conv.weight.shape[3]
        large = min(self.tiling.rows, self.tiling.rows_for(width // self.tiling.lanes))
        small = min(_SMALL, large)
        wide, narrow = TirVar("wide"), TirVar("narrow")
        full, rest = self.count // large, self.count % large
        more = select(rest > max(large - small, small), index(1), index(0))
        bound = [
            (wide, full + minimum(full, more)),
            (narrow, (maximum(self.count - wide * large, 0) + (small - 1)) // small),
        ]

        def part(first: int, blocks: int, used: int) -> Stmt:
            if not self.is_data_stationary:
                return self._by_weights(first, blocks, used, (wide, narrow), (large, small))
            groups = wide + narrow

            def item(p: PrimExpr) -> Stmt:
                block, number = TirVar("block"), TirVar("group")
                place = [(block, counted(BinaryOp.FLOOR_MOD, p, blocks) + first)]
                place.append((number, counted(BinaryOp.FLOOR_DIV, p, blocks)))
                at_wide = minimum(number * large, self.count - large)
                behind = wide * large + (number - wide) * small
                at_narrow = maximum(minimum(behind, self.count - small), 0)
                chosen = self._group(block, used, (number < wide, at_wide, at_narrow), large)
                return let_all(place, chosen)

            return parallel(counted(BinaryOp.MUL, groups, blocks), item)

        parts = column_parts(self.conv.outputs, width)
        return [let_all(bound, seq(*(part(*of_columns) for of_columns in parts)))]

    def _by_weights(
        self,
        first: int,
        blocks: int,
        used: int,
        counts: tuple[PrimExpr, PrimExpr],
        sizes: tuple[int, int],
    ) -> Stmt:
        """Let several groups share a read of the weights of a place, which come from memory.

        Args:
            first: The first block of outputs.
            blocks: How many there are.
            used: Outputs of a block.
            counts: How many large and small groups there are.
            sizes: Tiles of a large and a small group.
        """
        (wide, narrow), (large, small) = counts, sizes
        width = self.conv.weight.shape[3]
        chunks = maximum((wide + (_SHARING - 1)) // _SHARING, 1)
        room = (_SHARING + 1) * large + small
        sums = Buffer("sums", (SIZE * SIZE, room, width), self.conv.data.dtype, MemoryScope.STACK)

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
                total = (end - begin) + some

                def of_large(n: PrimExpr) -> Stmt:
                    start = minimum((begin + n) * large, self.count - large)
                    return self._product((block, e), used, (start, large), (base, sums), (n, total))

                def of_small(n: PrimExpr) -> Stmt:
                    start = maximum(minimum(wide * large + n * small, self.count - small), 0)
                    tile = (n + (end - begin), total)
                    return self._product((block, e), used, (start, small), (base, sums), tile)

                return seq(serial(end - begin, of_large, "n"), serial(some, of_small, "n"))

            products = serial(SIZE * SIZE, place, "e")
            results = self._results(block, used, (base, behind - base), sums)
            return let_all(bound, Allocate(sums, seq(products, results)))

        return parallel(counted(BinaryOp.MUL, chunks, blocks), item)

    def _product(
        self,
        place: tuple[PrimExpr, PrimExpr],
        used: int,
        tiles: tuple[PrimExpr, int],
        kept: tuple[PrimExpr, Buffer],
        shared: tuple[PrimExpr, PrimExpr],
    ) -> Stmt:
        """Multiply the data of some tiles at a place with the weights of a block.

        Args:
            place: Numbers of the block and of the place.
            used: Outputs of the block.
            tiles: Number of the first tile, and how many.
            kept: Number of the tile whose sums are first in a buffer, and the buffer.
            shared: Number of the group among those that share the weights, and how many these are.
        """
        (block, e), (first, rows), (base, sums) = place, tiles, kept
        weight, start, wide = self.conv.weight, TirVar("start"), self.memory[0]
        depth, width = weight.shape[2:]
        fetched = prefetch_next_open_block(self.tiling.prefetch, weight, (block, e + 1, 0), shared)

        def row(r: PrimExpr | int) -> PrimExpr:
            return minimum(start + r, self.count - 1)

        loops = register_tile(
            self.tiling,
            rows=rows,
            columns=used,
            largest=(rows, width),
            steps=(depth,),
            left=lambda r, k: load(
                wide, self._place(e, row(r) if rows <= _SMALL else start + r, k[0])
            ),
            right=lambda k, c: load(weight, block, e, k[0], c),
            epilogue=lambda r, c, value: store(sums, (e, start - base + r, c), value),
            dtype=self.conv.data.dtype,
            weight_prefetch=fetched,
        )
        return LetStmt(start, first, loops if fetched is None else fetched.bind(depth, loops))

    def _results(
        self, block: PrimExpr, used: int, tiles: tuple[PrimExpr, PrimExpr], sums: Buffer
    ) -> Stmt:
        """Write the results of some tiles, the first of which has the first sums."""
        start, count = tiles
        width = self.conv.weight.shape[3]

        def channels(c: PrimExpr, lanes: int) -> Stmt:
            def tile(number: PrimExpr, place: tuple[PrimExpr, PrimExpr, PrimExpr]) -> Stmt:
                def taken(e: int, v: PrimExpr) -> PrimExpr:
                    return load(sums, e, number - start, c + v)

                return write_results(
                    self.conv, self.epilogue, place, taken, (block * width + c, lanes)
                )

            return self._each(start, count, tile)

        return for_parts(cut(used, self.tiling.lanes), channels, "channel")

    def _group(
        self, block: PrimExpr, used: int, chosen: tuple[PrimExpr, PrimExpr, PrimExpr], large: int
    ) -> Stmt:
        """Compute a large or a small group of tiles for one block of outputs."""
        is_large, at_large, at_small = chosen
        depth, width = self.conv.weight.shape[2:]
        sums = Buffer("sums", (SIZE * SIZE, large, width), self.conv.data.dtype, MemoryScope.STACK)
        small, start, wide = min(_SMALL, large), TirVar("start"), self.memory[0]

        def multiplied(e: PrimExpr, rows: int) -> Stmt:
            def row(r: PrimExpr | int) -> PrimExpr:
                return start + r if rows == large else minimum(start + r, self.count - 1)

            return register_tile(
                self.tiling,
                rows=rows,
                columns=used,
                largest=(large, width),
                steps=(depth,),
                left=lambda r, k: load(wide, self._place(e, row(r), k[0])),
                right=lambda k, c: load(self.conv.weight, block, e, k[0], c),
                epilogue=lambda r, c, value: store(sums, (e, r, c), value),
                dtype=self.conv.data.dtype,
                weight_prefetch=prefetch_next_block(
                    self.tiling.prefetch,
                    self.conv.weight,
                    (block, e + 1, 0),
                    depth,
                    (index(0), large),
                    rows,
                ),
            )

        def products(rows: int) -> Stmt:
            return serial(SIZE * SIZE, lambda e: multiplied(e, rows), "e")

        both = IfStmt(is_large, products(large), products(small))
        if small == large:
            both = products(large)
        size = minimum(select(is_large, index(large), index(small)), self.count)
        results = self._results(block, used, (start, size), sums)
        at = select(is_large, at_large, at_small)
        return LetStmt(start, at, Allocate(sums, seq(both, results)))
