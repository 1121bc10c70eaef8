# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution F(2x2, 3x3): 16 products for four results instead of 36.

Output falls into tiles of 2x2. With ``d`` the 4x4 input of a tile and ``g`` the 3x3 weights, the
tile is ``A^T [(G g G^T) * (B^T d B)] A``, ``*`` element by element (Lavin and Gray, "Fast
algorithms for convolutional neural networks", 2015, CVPR 2016). ``G g G^T`` is packed when
compiling. Summed over input channels, each of the 16 elements is a GEMM: tiles by input channels by
output channels::

    for band of rows of tiles:
      parallel: tiles of the band:  V = B^T d B                          # [16, tiles, C]
      parallel: blocks of channels x tiles:
        for e in 16:  M[e] = V[e] @ U[e]                                 # register tile
        out = epilogue(A^T M A)

- Registers: the GEMM has the tile of ``micro_kernel.py``, 6 x 2 + 2 + 1 = 15 of 16 ymm. The input
  transform holds a 4x4 tile twice, 16 + 16 vectors, so some spill on AVX2; it costs 32 additions
  for each tile and channel, against 16 * N multiply-adds.
- Caches: V of a band is at most 1 MiB (2 MiB where weights are the larger and are read once), which
  is written and read again from the second-level or shared cache. M of an item lies on the stack.
- Prefetch: the weights of the next element, shared by the tiles; where weights are larger than
  data, up to four register tiles share one read of them.
- Accuracy: ``B`` and ``A`` have only 0, 1 and -1, and sums are nine times shorter: from 64 to 512
  channels the root mean square error is 0.72 to 0.76 times that of direct sums.

Sizes must be numbers; ``open_winograd.py`` has the loops for open sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, all_of, if_then_else
from intarsia_ir.tir.stmt import Allocate, IfStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .loops import (
    EpilogueStore,
    RangePart,
    cut,
    equal_part_size,
    for_parts,
    load,
    parallel,
    seq,
    serial,
    store,
    vectorized,
)
from .micro_kernel import register_tile
from .prefetch import prefetch_next_block
from .tiling import CpuTiling, best_rows, column_parts
from .window import Window

SIZE = 4
"""Elements along a tile's side that it reads."""
STEP = 2
"""Results along a tile's side."""
BAND_BYTES = 1024 * 1024
"""Most memory of transformed data at a time: it is written and read again."""
_TOGETHER = 4
"""Register tiles that share a read of the weights of a place, where weights are the larger."""


class WinogradOperands(Struct, frozen=True):
    """Operands of one convolution.

    Attributes:
        data: ``[N, H, W, C]``.
        weight: ``[blocks, 16, C, width]``, transformed.
        outputs: Channels of the result.
        window: Geometry: 3x3, neither strides nor dilation.
    """

    data: Buffer
    weight: Buffer
    outputs: int
    window: Window

    @property
    def grid(self) -> tuple[int, int]:
        """Rows of tiles, and tiles in a row."""
        rows, columns = self.window.output
        return (rows + STEP - 1) // STEP, (columns + STEP - 1) // STEP

    @property
    def band(self) -> int:
        """Rows of tiles whose data are transformed at a time."""
        most = BAND_BYTES if self.is_data_stationary else 2 * BAND_BYTES
        return equal_part_size(self.grid[0], most // self._row_bytes)

    @property
    def is_data_stationary(self) -> bool:
        """Whether data are more than weights: the larger of the two is gone through once.

        All weights then meet the data that a thread has just transformed, and not all data those
        weights that it has just read.
        """
        return self.weight.bytes < self.grid[0] * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        """Memory of a transformed row of tiles."""
        return SIZE * SIZE * self.grid[1] * self.data.shape[3] * self.data.dtype.bytes


def winograd_loops(
    tiling: CpuTiling, conv: WinogradOperands, epilogue: EpilogueStore
) -> tuple[Stmt, Buffer]:
    """Return the loops, and the scratch memory that they want.

    Args:
        tiling: Register tile of the machine.
        conv: Operands.
        epilogue: Gets indices ``(n, row, column, channel)``.
    """
    batch, _, _, channels = conv.data.shape
    rows, across = conv.grid
    wide = Buffer("wide", (SIZE * SIZE, conv.band * across, channels), conv.data.dtype)

    def one_image(image: PrimExpr) -> Stmt:
        def band(first: PrimExpr, height: int) -> Stmt:
            work = _Band(tiling, conv, wide, epilogue, image, first)
            return seq(parallel(height * across, work.transform), *work.products(height * across))

        return for_parts(cut(rows, conv.band), band, "band")

    return serial(batch, one_image, "n"), wide


class _Band(Struct, frozen=True):
    """Some rows of tiles of one image, numbered from the first one on.

    Attributes:
        tiling: Register tile of the machine.
        conv: Operands.
        wide: Transformed data, ``[16, tiles, C]``.
        epilogue: What to do with a result.
        image: The image.
        first: Its first row of tiles.
    """

    tiling: CpuTiling
    conv: WinogradOperands
    wide: Buffer
    epilogue: EpilogueStore
    image: PrimExpr
    first: PrimExpr

    def _corner(self, tile: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Return row and column of a tile's first result."""
        across = self.conv.grid[1]
        return (self.first + tile // across) * STEP, tile % across * STEP

    def transform(self, tile: PrimExpr) -> Stmt:
        """Write ``B^T d B`` of one tile."""
        top, left = self._corner(tile)
        return transform_tile(self.tiling, self.conv, self.wide, tile, (self.image, top, left))

    def products(self, tiles: int) -> list[Stmt]:
        """Multiply the transformed data of all tiles, and write their results."""
        width = self.conv.weight.shape[3]
        limit = best_rows(tiles, self.tiling.rows_for(width // self.tiling.lanes))
        elements_per_word = (
            1 if self.conv.is_data_stationary else equal_part_size(-(-tiles // limit), _TOGETHER)
        )
        return [
            self._blocks(first, blocks, used, part, limit)
            for first, blocks, used in column_parts(self.conv.outputs, width)
            for part in cut(tiles, min(tiles, elements_per_word * limit))
        ]

    def _blocks(self, first: int, blocks: int, used: int, part: RangePart, limit: int) -> Stmt:
        """Neighbours share a block of weights, or tiles."""

        def item(p: PrimExpr) -> Stmt:
            block, number = p // part.count, p % part.count
            if self.conv.is_data_stationary:
                block, number = p % blocks, p // blocks
            tile = number * part.size + part.start
            return self._block(block + first, used, tile, (part.size, limit))

        return parallel(blocks * part.count, item)

    def _block(self, block: PrimExpr, used: int, start: PrimExpr, tiles: tuple[int, int]) -> Stmt:
        """Compute some tiles of one block of outputs, so many in registers at a time."""
        count, limit = tiles
        depth, width = self.conv.weight.shape[2:]
        sums = Buffer("sums", (SIZE * SIZE, count, width), self.wide.dtype, MemoryScope.STACK)

        def multiplied(e: PrimExpr, first: PrimExpr, rows: int) -> Stmt:
            return register_tile(
                self.tiling,
                rows=rows,
                columns=used,
                largest=(limit, width),
                steps=(depth,),
                left=lambda r, k: load(self.wide, e, start + (first + r), k[0]),
                right=lambda k, c: load(self.conv.weight, block, e, k[0], c),
                epilogue=lambda r, c, value: store(sums, (e, first + r, c), value),
                dtype=self.wide.dtype,
                weight_prefetch=prefetch_next_block(
                    self.tiling.prefetch,
                    self.conv.weight,
                    (block, e + 1, 0),
                    depth,
                    (first, count),
                    rows,
                ),
            )

        def row_of_b(e: PrimExpr) -> Stmt:
            return for_parts(cut(count, limit), lambda m, rows: multiplied(e, m, rows), "m")

        def channels(c: PrimExpr, lanes: int) -> Stmt:
            def tile(r: PrimExpr) -> Stmt:
                def taken(e: int, v: PrimExpr) -> PrimExpr:
                    return load(sums, e, r, c + v)

                place = (self.image, *self._corner(start + r))
                return write_results(
                    self.conv, self.epilogue, place, taken, (block * width + c, lanes)
                )

            return serial(count, tile, "t")

        results = for_parts(cut(used, self.tiling.lanes), channels, "channel")
        return Allocate(sums, seq(serial(SIZE * SIZE, row_of_b, "e"), results))


def transform_tile(
    tiling: CpuTiling,
    conv: WinogradOperands,
    wide: Buffer,
    tile: PrimExpr,
    place: tuple[PrimExpr, PrimExpr, PrimExpr],
) -> Stmt:
    """Write ``B^T d B`` of one tile; what is outside the input is zero.

    Args:
        tiling: Register tile of the machine.
        conv: Operands.
        wide: Transformed data, ``[16, tiles, C]``.
        tile: Number of the tile there.
        place: Image, row and column of the tile's first result.
    """
    (image, top, left), window, data = place, conv.window, conv.data
    y, x = top - window.padding[0], left - window.padding[1]
    height, width = window.size

    def unchecked(r: int, s: int, c: PrimExpr) -> PrimExpr:
        return load(data, image, y + r, x + s, c)

    def partly(r: int, s: int, c: PrimExpr) -> PrimExpr:
        there = all_of([y + r >= 0, y + r < height, x + s >= 0, x + s < width])
        return if_then_else(there, unchecked(r, s, c), 0)

    def transformed(element: Callable[[int, int, PrimExpr], PrimExpr]) -> Stmt:
        def given(tile_in: Buffer, start: PrimExpr, lanes: int) -> Stmt:
            def read(r: int, s: int) -> Stmt:
                return vectorized(
                    lanes, lambda v: store(tile_in, (r * SIZE + s, v), element(r, s, start + v))
                )

            return seq(*(read(r, s) for r, s in product(range(SIZE), repeat=2)))

        def written(e: int, channel: PrimExpr, value: PrimExpr) -> Stmt:
            return store(wide, (e, tile, channel), value)

        def channels(start: PrimExpr, lanes: int) -> Stmt:
            return transform_vector(data.dtype, (start, lanes), given, written)

        return for_parts(cut(data.shape[3], tiling.lanes), channels, "channel")

    inside = all_of([y >= 0, y + SIZE <= height, x >= 0, x + SIZE <= width])
    return IfStmt(inside, transformed(unchecked), transformed(partly))


def transform_vector(
    dtype: DType,
    channels: tuple[PrimExpr, int],
    given: Callable[[Buffer, PrimExpr, int], Stmt],
    written: Callable[[int, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """Write ``B^T d B`` of one tile and a vector of channels.

    Args:
        dtype: Of what is transformed.
        channels: The first channel, and lanes of the vector.
        given: ``given(d, channel, lanes)``: fills ``d``, ``[16, lanes]``, from that channel on.
        written: ``written(e, channel, value)``: stores element ``e`` of the result.
    """
    start, lanes = channels
    tile_in = Buffer("given", (SIZE * SIZE, lanes), dtype, MemoryScope.REGISTER)
    half = Buffer("half", (SIZE * SIZE, lanes), dtype, MemoryScope.REGISTER)

    def down(r: int, s: int) -> Stmt:
        def one(v: PrimExpr) -> Stmt:
            value = _inner(r, lambda k: load(tile_in, k * SIZE + s, v))
            return store(half, (r * SIZE + s, v), value)

        return vectorized(lanes, one)

    def over(r: int, s: int) -> Stmt:
        def one(v: PrimExpr) -> Stmt:
            value = _inner(s, lambda k: load(half, r * SIZE + k, v))
            return written(r * SIZE + s, start + v, value)

        return vectorized(lanes, one)

    elements = tuple(product(range(SIZE), repeat=2))
    steps = [step(r, s) for step in (down, over) for r, s in elements]
    return Allocate(tile_in, Allocate(half, seq(given(tile_in, start, lanes), *steps)))


def write_results(
    conv: WinogradOperands,
    epilogue: EpilogueStore,
    place: tuple[PrimExpr, PrimExpr, PrimExpr],
    taken: Callable[[int, PrimExpr], PrimExpr],
    channels: tuple[PrimExpr, int],
) -> Stmt:
    """Write ``A^T m A`` of one tile and a vector of channels; not what is behind the edge.

    Args:
        conv: Operands.
        epilogue: What to do with a result.
        place: Image, row and column of the tile's first result.
        taken: ``taken(e, v)``: element ``e`` of the tile in lane ``v``.
        channels: The first channel, and lanes of the vector.
    """
    (image, y, x), (channel, lanes) = place, channels
    half = Buffer("half", (STEP * SIZE, lanes), conv.data.dtype, MemoryScope.REGISTER)

    def down(i: int, s: int) -> Stmt:
        def one(v: PrimExpr) -> Stmt:
            value = _outer(i, lambda k: taken(k * SIZE + s, v))
            return store(half, (i * SIZE + s, v), value)

        return vectorized(lanes, one)

    def over(i: int, j: int) -> Stmt:
        def one(v: PrimExpr) -> Stmt:
            value = _outer(j, lambda k: load(half, i * SIZE + k, v))
            return epilogue(value, (image, y + i, x + j, channel + v))

        rows, columns = conv.window.output
        inside = [y + i < rows] * (i > 0 and _may_be_odd(rows))
        inside += [x + j < columns] * (j > 0 and _may_be_odd(columns))
        written = vectorized(lanes, one)
        return IfStmt(all_of(inside), written) if inside else written

    steps = [down(i, s) for i, s in product(range(STEP), range(SIZE))]
    steps += [over(i, j) for i, j in product(range(STEP), repeat=2)]
    return Allocate(half, seq(*steps))


def _may_be_odd(size: int) -> bool:
    return isinstance(size, Dim) or size % STEP > 0


def _inner(row_of_b: int, element: Callable[[int], PrimExpr]) -> PrimExpr:
    """One row of ``B^T`` times a vector of four."""
    if row_of_b == 1:
        return element(1) + element(2)
    first, second = {0: (0, 2), 2: (2, 1), 3: (1, 3)}[row_of_b]
    return element(first) - element(second)


def _outer(row_of_b: int, element: Callable[[int], PrimExpr]) -> PrimExpr:
    """One row of ``A^T`` times a vector of four."""
    if row_of_b == 0:
        return element(0) + element(1) + element(2)
    return element(1) - element(2) - element(3)
