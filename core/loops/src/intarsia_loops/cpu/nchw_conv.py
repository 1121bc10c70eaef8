# SPDX-License-Identifier: Apache-2.0
"""Convolution in the model's layout, NCHW, in and out: vectors along the rows of the image.

A product with weights as A and the image as B, which is not unrolled to columns: a tile is some
output channels x some vectors of neighbouring results, and multiplies by each tap where the image
has it. No transpose is needed on either side, so that layers with few channels, whose results are
what costs, write them once::

    parallel: batch x groups x strips of rows x pieces of a row
      copy the input rows of the strip, padded, column by column of a stride, into ``strip``
      for block of output channels:                # weights [KH * KW * C, rows] of a block
        for row of results, for tile of columns:
          for c, for kh:                           # serial
            for kw:                                # written out
              b[0..vectors) = strip[c, row * s + kh, kw % s][column + kw / s ...]
              for r in rows: acc[r, 0..vectors) += weight[kh, kw, c, r] * b

- Registers: ``rows`` x ``vectors`` sums, ``vectors`` of the strip, 1 broadcast weight: 4 x 3 + 3 +
  1 = 16 ymm, 14 x 2 + 2 + 1 = 31 of 32 zmm (:func:`nchw_tile` takes what suits the channels).
- Strides: elements ``s * q + p`` of a row lie together for each ``p``, so that neighbouring results
  read neighbouring elements for any stride (``nchw_strip.py``), once for all channels.
- Caches: a strip is at most ``strip_bytes`` (``tiling.py``), as of other convolutions; a block of
  weights stays in the first-level cache. Each of a tile's rows is a stream of stores.
- Windows that never leave the image, with stride 1, read the image itself.

Where the number of columns is open, images narrower than a tile are computed by tiles that store
through the stack. Source: the implicit product of Chetlur et al., "cuDNN: Efficient primitives for
deep learning" (2014), where columns of the image are never stored, either.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.ops.windows import Windows
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    const,
    index,
    maximum,
    minimum,
)
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt, Store
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .loops import (
    EpilogueStore,
    cut,
    for_parts,
    let_all,
    load,
    parallel,
    seq,
    serial,
    unrolled,
    vectorized,
)
from .nchw_strip import fill_nchw_strip, vector_elements
from .tiling import STACKED_STRIP, CpuTiling, registers_of

_MOST_VECTORS = 8
_MOST_UNROLLED = 16
"""Taps in a row up to which they are written out."""

_FEW_CHANNELS = 4
"""Channels up to which taps in a row are written out."""

_ITEMS, _LEAST_TILES = 8, 4
"""Pieces that threads share evenly, and tiles that one has at least."""

_OPEN_ROWS, _OPEN_COLUMNS = 8, 512
"""Of a strip of an image of open size."""

Offset: TypeAlias = "tuple[PrimExpr | int, PrimExpr | int]"
"""Of a tap: whole strides along a row, and the column of a stride."""

Read: TypeAlias = Callable[[PrimExpr, PrimExpr, PrimExpr, Offset], PrimExpr]
"""``read(channel, row, column, offset)``: a vector of taps, of the result at ``column`` first."""


def nchw_tile(tiling: CpuTiling, outputs: int, columns: Size) -> tuple[int, int]:
    """Return channels and vectors of a tile: those that take least for all results of a row.

    A step of a tile takes as long as its multiply-adds, two at once, the latency of four cycles
    that 8 sums hide, or its loads, two at once, of which those of vectors cross cache lines.
    """
    best: tuple[float, int, int] | None = None
    for vectors in range(1, _MOST_VECTORS + 1):
        width, limit = vectors * tiling.lanes, tiling.rows_for(vectors)
        blocks = -(-outputs // limit)
        rows = -(-outputs // blocks)
        is_wider = isinstance(columns, int) and width > columns
        if is_wider or registers_of(rows, vectors) > registers_of(tiling.rows, 2) + 1:
            continue
        tiles = ceil(columns / width) if isinstance(columns, int) else 1024 / width
        cost = tiles * blocks * (max(rows * vectors, 10, rows + 1.5 * vectors) + 1)
        if best is None or cost < best[0]:
            best = (cost, rows, vectors)
    return (1, 1) if best is None else best[1:]


class NchwGeometry(Struct, frozen=True):
    """What decides how a convolution is cut.

    Attributes:
        inner: Input channels of a group.
        outputs: Output channels of a group.
        windows: The taps.
        output: Rows and columns of results.
    """

    inner: int
    outputs: int
    windows: Windows
    output: tuple[Size, Size]

    @property
    def is_copied(self) -> bool:
        """Whether windows leave the image, or have a stride along rows."""
        return any(map(any, self.windows.padding)) or self.windows.strides[1] > 1

    def lines(self, height: int) -> int:
        """Return how many rows of the image some rows of results read."""
        return (height - 1) * self.windows.strides[0] + self.windows.extents[0]

    def line(self, width: int) -> int:
        """Return the elements of a row for each of the columns of a stride."""
        return -(-(width + (self.windows.extents[1] - 1) // self.windows.strides[1]) // 16) * 16

    def strip_elements(self, height: int, width: int) -> int:
        """Return the size of a strip."""
        return self.inner * self.lines(height) * self.windows.strides[1] * self.line(width)

    def strip_size(self, tiling: CpuTiling) -> tuple[int, int]:
        """Return rows and columns of results of a strip; no columns if no tile has room."""
        rows, columns = self.output
        tile = nchw_tile(tiling, self.outputs, columns)[1] * tiling.lanes
        most = tiling.strip_bytes // DType.FLOAT32.bytes
        width = columns if isinstance(columns, int) else max(tile, _OPEN_COLUMNS // tile * tile)
        if rows == 1 and isinstance(columns, int):
            tiles = -(-columns // tile)
            pieces = max(1, min(_ITEMS, tiles // _LEAST_TILES))
            width = min(columns, -(-tiles // pieces) * tile)
        stacked = STACKED_STRIP // DType.FLOAT32.bytes
        if rows == 1 and not isinstance(columns, int):
            while width > tile and self.strip_elements(1, width) > stacked:
                width -= tile
        while width > tile and self.strip_elements(1, width) > most:
            width = max(tile, width // 2 // tile * tile)
        if self.strip_elements(1, width) > most:
            return 1, 0
        highest = -(-rows // _ITEMS) if isinstance(rows, int) else _OPEN_ROWS
        fitting = [h for h in range(1, highest + 1) if self.strip_elements(h, width) <= most]
        return fitting[-1], width


class NchwConv(Struct, frozen=True):
    """A convolution.

    Attributes:
        data: ``[N, C, H, W]``.
        weight: Packed ``[groups * blocks, KH * KW * C / groups, rows]``.
        groups: Groups of channels.
        geometry: Of each group.
        epilogue: Stores a result.
    """

    data: Buffer
    weight: Buffer
    groups: int
    geometry: NchwGeometry
    epilogue: EpilogueStore


def nchw_conv_loops(tiling: CpuTiling, work: NchwConv) -> Stmt:
    """Return the loops; strips of rows and pieces of rows are shared between threads."""
    return _Loops(tiling, work).loops()


class _Loops:
    """The loops of one convolution."""

    def __init__(self, tiling: CpuTiling, work: NchwConv) -> None:
        geometry = work.geometry
        self._tiling, self._work = tiling, work
        _, vectors = nchw_tile(tiling, geometry.outputs, geometry.output[1])
        self._tile = vectors * tiling.lanes
        self._height, self._width = geometry.strip_size(tiling)
        self._rows, self._columns = (index(size) for size in geometry.output)

    def loops(self) -> Stmt:
        """Share pieces between threads; the last one of a row or a column overlaps."""
        if isinstance(self._work.geometry.output[1], int):
            return self._pieces(self._width)
        narrow, wide = self._pieces(self._tile, is_narrow=True), self._pieces(self._width)
        return IfStmt(self._columns < self._tile, narrow, wide)

    def _pieces(self, width: int, *, is_narrow: bool = False) -> Stmt:
        work = self._work
        down = (self._rows + (self._height - 1)) // self._height
        across = (self._columns + (width - 1)) // width
        per_image = down * across * work.groups

        def item(p: PrimExpr) -> Stmt:
            image, group, row, column = (TirVar(n) for n in ("image", "group", "row", "column"))
            place = p % per_image
            first_row = (place // across) % down * self._height
            last_row = maximum(self._rows - self._height, 0)
            last = maximum(self._columns - width, 0)
            bound = [
                (image, p // per_image),
                (group, place // (down * across)),
                (row, minimum(first_row, last_row)),
                (column, minimum(place % across * width, last)),
            ]
            count = minimum(self._columns, width)
            body = self._piece((image, group, row, column), width, None if is_narrow else count)
            return let_all(bound, body)

        return parallel(index(work.data.shape[0]) * per_image, item)

    def _piece(
        self,
        place: tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr],
        width: int,
        count: PrimExpr | None,
    ) -> Stmt:
        """Compute ``count`` columns of some rows; fewer than a tile has if it is ``None``."""
        work, (image, group, row, column) = self._work, place
        geometry = work.geometry
        stride, line = geometry.windows.strides[1], geometry.line(width)
        if not geometry.is_copied and count is not None:

            def direct(c: PrimExpr, y: PrimExpr, x: PrimExpr, offset: Offset) -> PrimExpr:
                here = column + x + offset[0]
                line = row * geometry.windows.strides[0] + y
                indices = (image, group * geometry.inner + c, line, Ramp(here, 1, self._lanes))
                return Load(work.data, indices, work.data.dtype, self._lanes)

            return self._blocks(place, direct, count)
        shape = (geometry.inner, geometry.lines(self._height), stride * line)
        strip = Buffer("strip", shape, work.data.dtype, MemoryScope.STACK)

        def copied(c: PrimExpr, y: PrimExpr, x: PrimExpr, offset: Offset) -> PrimExpr:
            here = x + (index(offset[1]) * line + offset[0])
            indices = (c, y, Ramp(here, 1, self._lanes))
            return Load(strip, indices, strip.dtype, self._lanes)

        lines = (self._results(row) - 1) * geometry.windows.strides[0] + geometry.windows.extents[0]
        corner = (image, group * geometry.inner, row, column)
        fill = fill_nchw_strip(self._tiling, (work.data, strip), geometry.windows, corner, lines)
        return Allocate(strip, seq(fill, self._blocks(place, copied, count)))

    @property
    def _lanes(self) -> int:
        return self._tiling.lanes

    def _results(self, row: PrimExpr) -> PrimExpr:
        """Return how many rows of results a strip from ``row`` on has."""
        if isinstance(self._work.geometry.output[0], int):
            return index(min(self._height, self._work.geometry.output[0]))
        return minimum(self._rows - row, self._height)

    def _blocks(
        self,
        place: tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr],
        read: Read,
        count: PrimExpr | None,
    ) -> Stmt:
        """Compute all channels of a strip, block by block."""
        geometry, tile = self._work.geometry, self._tile
        packed = self._work.weight.shape[2]
        blocks = -(-geometry.outputs // packed)
        tiles = index(1) if count is None else (count + (tile - 1)) // tile

        def block(first: PrimExpr, used: int) -> Stmt:
            number = place[1] * blocks + first // packed

            def one(y: PrimExpr, t: PrimExpr) -> Stmt:
                x = TirVar("x")
                start = index(0) if count is None else minimum(t * tile, count - tile)
                body = self._register_tile(place, (number, first, used), (y, x), read, count)
                return LetStmt(x, start, body)

            return serial(
                self._results(place[2]), lambda y: serial(tiles, lambda t: one(y, t), "t"), "y"
            )

        return for_parts(cut(geometry.outputs, packed), block, "block")

    def _register_tile(
        self,
        place: tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr],
        block: tuple[PrimExpr, PrimExpr, int],
        position: tuple[PrimExpr, PrimExpr],
        read: Read,
        count: PrimExpr | None,
    ) -> Stmt:
        work, lanes, (number, first, used), (y, x) = self._work, self._lanes, block, position
        image, group, row, column = place
        geometry = work.geometry
        acc = Buffer("acc", (used, self._tile), work.weight.dtype, MemoryScope.REGISTER)
        vectors, channel = self._tile // lanes, group * geometry.outputs + first

        def lanes_of(r: PrimExpr, v: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            return r, Ramp(v * lanes, 1, lanes)

        def each(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
            return unrolled(used, lambda r: unrolled(vectors, lambda v: body(r, v), "v"), "r")

        zero = Broadcast(const(0, acc.dtype), lanes, acc.dtype)
        clear = each(lambda r, v: Store(acc, lanes_of(r, v), zero))

        def stored(r: PrimExpr, v: PrimExpr) -> Stmt:
            def one(i: PrimExpr) -> Stmt:
                indices = (image, channel + r, row + y, column + x + v * lanes + i)
                return work.epilogue(load(acc, r, v * lanes + i), indices)

            return vectorized(lanes, one)

        sums = seq(clear, self._sums(acc, number, position, read))
        if count is not None:
            return Allocate(acc, seq(sums, each(stored)))
        kept = Buffer("kept", acc.shape, acc.dtype, MemoryScope.STACK)

        def keep(r: PrimExpr, v: PrimExpr) -> Stmt:
            return Store(kept, lanes_of(r, v), Load(acc, lanes_of(r, v), acc.dtype, lanes))

        def element(r: PrimExpr, i: PrimExpr) -> Stmt:
            return work.epilogue(load(kept, r, i), (image, channel + r, row + y, i))

        few = minimum(self._columns, self._tile - 1)
        rest = serial(
            used, lambda r: vector_elements(self._lanes, few, lambda i: element(r, i)), "r"
        )
        return Allocate(acc, Allocate(kept, seq(sums, each(keep), rest)))

    def _sums(
        self, acc: Buffer, number: PrimExpr, position: tuple[PrimExpr, PrimExpr], read: Read
    ) -> Stmt:
        """Add up the products of all taps of a tile."""
        work, lanes, (y, x) = self._work, self._lanes, position
        geometry = work.geometry
        (height, breadth), (sh, sw) = geometry.windows.kernel, geometry.windows.strides
        inner, (dh, dw) = geometry.inner, geometry.windows.dilation
        used, columns = acc.shape

        def tap(c: PrimExpr, kh: PrimExpr, kw: PrimExpr | int, offset: Offset) -> Stmt:
            depth = (kh * breadth + kw) * inner + c

            def one(r: PrimExpr, v: PrimExpr) -> Stmt:
                here = (r, Ramp(v * lanes, 1, lanes))
                factor = Broadcast(load(work.weight, number, depth, r), lanes, acc.dtype)
                value = read(c, y * sh + kh * dh, x + v * lanes, offset)
                return Store(acc, here, Load(acc, here, acc.dtype, lanes) + value * factor)

            return unrolled(
                used, lambda r: unrolled(columns // lanes, lambda v: one(r, v), "v"), "r"
            )

        if inner * height > 1 and inner <= _FEW_CHANNELS and breadth <= _MOST_UNROLLED:
            offsets = [divmod(kw * dw, sw) for kw in range(breadth)]

            def row(c: PrimExpr, kh: PrimExpr) -> Stmt:
                return seq(*(tap(c, kh, kw, offset) for kw, offset in enumerate(offsets)))

            return serial(inner, lambda c: serial(height, lambda kh: row(c, kh), "kh"), "channel")

        def channels(kh: PrimExpr, q: PrimExpr, p: PrimExpr) -> Stmt:
            return serial(inner, lambda c: tap(c, kh, q * sw + p, (q * dw, p)), "channel")

        def taps(kh: PrimExpr) -> Stmt:
            full, rest = divmod(breadth, sw)

            def strides(q: PrimExpr, count: int) -> Stmt:
                return serial(count, lambda p: channels(kh, q, p), "kw")

            parts = [serial(full, lambda q: strides(q, sw), "kq")] if full else []
            return seq(*parts, *([strides(index(full), rest)] if rest else []))

        return serial(height, taps, "kh")
