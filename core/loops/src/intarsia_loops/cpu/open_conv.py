# SPDX-License-Identifier: Apache-2.0
"""Convolution of images of open sizes, channels last: tiles that continue across rows.

A 1x1 convolution is a product with one row for each pixel (``open_dense.py``). Others are computed
by strips, as in ``conv.py``, with strip sizes computed at run time (with tiles of a matrix unit in
``open_matrix_unit_conv.py``)::

    parallel: batch x groups x strips x pieces of a row x blocks of channels
      copy the rows that the strip reads, padded, into ``strip``    (not for 1x1 with strides)
      for block of output channels:                # weights [KH * KW * C, width] of a block
        for tile of results of the strip:          # register tile, micro_kernel.py
          for kh, (kw x c):                        # K; contiguous in strip and weights

- Strip: a buffer of ``strip_bytes`` (of sound, 24 KiB, on the stack), or of a whole padded image if
  that is less. Its rows have the length of a piece of an image row, and it has as many as fit. Long
  rows are cut into pieces; the last strip may have fewer, the last piece overlaps the one before.
- Registers: as in ``conv.py``. A tile takes consecutive results of a strip and continues in the
  next row, so no width leaves a remainder. Only the end of a strip has smaller tiles of 4 results
  (``open_dense.py``). A loop over the results of a tile writes two positions of each to the stack:
  that of what it reads, and its own. A division gives the first one; the others step on from the
  one before, with a comparison. Written out, these steps were half of the code of a kernel. Results
  of a single row, as of sound, are neighbours, and need no positions: they share the tiles of
  products (``shared_tiles.py``).
  A tile of one vector of channels has 12 results: each has an address of its own, and 28 of these
  would come from the stack for every product.
- Caches: the strip stays in the second-level cache while the blocks of channels pass. Of dilated
  windows it has few rows, so that those that taps meet stay in the first-level one.
- Dilation: only window rows and columns with at least one tap inside the image are computed, and
  only the image rows that they read are copied. At 12x14 pixels and a dilation of 36 that is one
  tap of nine, and one row instead of 73.

The tile over results of several rows is that of XNNPACK's indirect GEMM (Dukhan, "The indirect
convolution algorithm", 2019), with addresses computed instead of looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, PrimExpr, TirVar, cast, index, maximum, minimum
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .conv import Convolution, conv_loops
from .loops import EpilogueStore, counted, let_all, load, parallel, seq, serial
from .micro_kernel import register_tile
from .open_conv_plan import ITEMS, LEAST_ROWS, is_float, open_conv_plan
from .open_dense import open_dense_loops
from .open_matrix_unit_conv import OpenUnitStrip
from .open_strips import (
    StripItem,
    StripReader,
    StripTile,
    TapRange,
    TilePlaces,
    may_leave_rows,
    shifted,
    strip_span,
    taps_of_item,
    with_places,
    with_row_places,
)
from .ordered_tiles import OrderedWords, offsets_of
from .panel import flat_rows
from .prefetch import prefetch_next_open_block
from .row_tiles import EvenTiles, RowTiles
from .shared_tiles import SharedTiles, TileOperands, even_tiles, shares_tiles
from .strip_fill import fill_strip
from .tile_stores import TileEpilogue
from .tiling import CpuTiling, column_parts, for_width

_SMALL = 4
"""Results of a small tile."""

_NEAR = 8192
"""Elements of the rows of a strip that taps of a dilated window meet: 32 KiB of the first cache."""

_SHARED_DEPTH = 96
"""K from which on the tiles of a row are procedures: a vocoder of K from 96 to 560 takes 1.00 to
1.04 of the time, which is still that of fixed sizes, and 0.8 to 0.9 of it to compile."""


def open_conv_loops(tiling: CpuTiling, conv: Convolution, epilogue: EpilogueStore) -> Stmt:
    """Return the loops; ``epilogue`` gets indices ``(n, row, column, channel)``.

    Where only the batch is open, windows have the loops of fixed sizes for each image.
    """
    tiling = for_width(tiling, conv.weight.shape[2])
    point = conv.window.is_point and conv.groups == 1
    if not point and not any(isinstance(size, Dim) for size in conv.data.shape[1:3]):
        return conv_loops(tiling, conv, epilogue)
    if point:
        outer = list(conv.data.shape[:-1])
        rows = flat_rows(conv.data)
        is_image = any(isinstance(size, Dim) for size in conv.data.shape[1:3])
        few = conv.data.shape[1:3] == (1, 1)
        return open_dense_loops(
            tiling,
            rows,
            conv.weight,
            conv.outputs,
            epilogue,
            outer,
            many=is_image,
            few=few,
            is_ordered=conv.is_ordered,
        )
    return open_window_loops(tiling, conv, epilogue)


def open_window_loops(tiling: CpuTiling, conv: Convolution, epilogue: EpilogueStore) -> Stmt:
    """Return the loops of windows over images whose height or width may be open."""
    return _OpenConv(tiling, conv, epilogue).loops()


class _OpenConv:
    """The loops of one convolution."""

    def __init__(self, tiling: CpuTiling, conv: Convolution, epilogue: EpilogueStore) -> None:
        self._tiling = tiling
        self._conv = conv
        self._epilogue = epilogue
        self._plan = open_conv_plan(tiling, conv)

    def loops(self) -> Stmt:
        """Share strips and blocks of channels between threads."""
        conv, window = self._conv, self._conv.window
        batch = index(conv.data.shape[0])
        bound: list[tuple[TirVar, PrimExpr]] = []

        def let(name: str, value: PrimExpr) -> PrimExpr:
            var = TirVar(name)
            bound.append((var, value))
            return var

        # Sizes of results are never negative, which only the guards say.
        rows, columns = (
            let(name, maximum(index(size), 0))
            for name, size in zip(("rows", "columns"), window.output, strict=True)
        )
        pieces = let("pieces", _parts(columns, self._plan.piece))
        width = let("wide", _parts(columns, maximum(pieces, 1)))
        alone = let("alone", maximum(batch * conv.groups * pieces, 1))
        strips = height = index(1)
        if not self._plan.is_row:
            pitch = strip_span(window, 1, width) * conv.inner
            tallest = self._tallest(let, pitch)
            wanted = minimum((index(ITEMS - 1) + alone) // alone, rows // self._least_rows(width))
            height = let("high", _parts(rows, maximum(maximum(_parts(rows, tallest), wanted), 1)))
            strips = let("strips", _parts(rows, maximum(height, 1)))
        shares = let(
            "shares",
            minimum(
                (index(ITEMS - 1) + alone * strips) // maximum(alone * strips, 1), self._plan.blocks
            ),
        )
        above = counted(BinaryOp.ADD, shares, self._plan.blocks) - 1
        share = let("share", above // maximum(shares, 1))

        def item(p: PrimExpr) -> Stmt:
            part, place = p % shares, p // shares
            piece, place = place % pieces, place // pieces
            strip, place = place % strips, place // strips
            words = ("image", "group", "row", "column", "first", "behind", "tall")
            names = [TirVar(name) for name in words]
            values = (
                place // conv.groups,
                place % conv.groups,
                strip * height,
                minimum(piece * width, columns - width),
                minimum(part * share, self._plan.blocks),
                minimum(part * share + share, self._plan.blocks),
                minimum(height, rows - strip * height),
            )
            image, group, top, column, first, behind, tall = names
            work = StripItem(image, group, top, column, tall, width, (first, behind))
            if self._plan.is_row:
                work = replace(work, row=index(0), height=index(1))
            if conv.groups == 1:
                work = replace(work, group=index(0))
            return let_all(list(zip(names, values, strict=True)), self._item(work))

        body = parallel(batch * conv.groups * strips * pieces * shares, item)
        return let_all(bound, body)

    def _least_rows(self, width: PrimExpr) -> PrimExpr:
        """Return how many rows of results strips of some width have at least."""
        if not self._plan.results:
            return index(LEAST_ROWS)
        return maximum(index(self._plan.results) // maximum(width, 1), LEAST_ROWS)

    def _tallest(self, let: Callable[[str, PrimExpr], PrimExpr], pitch: PrimExpr) -> PrimExpr:
        """Return how many rows of results a strip has at most, by the elements of its rows."""
        window = self._conv.window
        rows = index(self._plan.capacity) // maximum(pitch, 1)
        fitting = let("fitting", rows - window.span(0, 1))
        tallest = maximum(fitting // window.strides[0] + 1, 1)
        if window.dilation[0] == 1:
            return tallest
        # Only rows that taps meet are copied: these stay near.
        near = index(_NEAR) // maximum(pitch * window.kernel[0], 1)
        return minimum(tallest, maximum(near, 1))

    def _item(self, work: StripItem) -> Stmt:
        if not self._plan.is_copied:
            return self._by_blocks(work, self._direct(work))
        conv = self._conv
        strip = Buffer("strip", (self._plan.strip_size(conv),), conv.data.dtype, MemoryScope.STACK)
        across, pitch = TirVar("across"), TirVar("pitch")
        bound = [(across, strip_span(conv.window, 1, work.width)), (pitch, across * conv.inner)]
        if self._plan.skips:
            first = 0 if may_leave_rows(conv.window) else 1
            taps = [TapRange(index(0), index(1))] * first
            for axis in range(first, 2):
                names = TirVar(f"tap{axis}"), TirVar(f"taps{axis}")
                bound += taps_of_item(conv.window, work, axis, names)
                taps.append(TapRange(*names))
            work = replace(work, taps=tuple(taps))
        filled = fill_strip(conv, self._tiling.lanes, work, strip, (across, pitch))
        body = seq(filled, self._by_blocks(work, self._from_strip(strip, pitch)))
        return let_all(bound, Allocate(strip, body))

    def _direct(self, work: StripItem) -> StripReader:
        """Read single taps from the input itself."""
        conv = self._conv
        down, across = conv.window.strides
        channel = work.group * conv.inner

        def place(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            row, column = (work.row + y) * down, (work.column + x) * across
            rows, columns = (index(size) for size in conv.window.size)
            return (work.image * rows + row) * columns + column

        def read(at: PrimExpr, k: Sequence[PrimExpr]) -> PrimExpr:
            # Rows and columns are numbered together: what is of size 1 has no stride.
            return load(conv.data, 0, 0, at, channel + k[0])

        return StripReader(place, read)

    def _from_strip(self, strip: Buffer, pitch: PrimExpr) -> StripReader:
        """Read windows from the padded strip."""
        conv, window = self._conv, self._conv.window
        (down, across), (apart_y, apart_x) = window.strides, window.dilation

        def place(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            return y * (pitch * down) + x * (across * conv.inner)

        def read(at: PrimExpr, k: Sequence[PrimExpr]) -> PrimExpr:
            within = k[1] if len(k) == 2 else k[1] * (apart_x * conv.inner) + k[2]
            return load(strip, at + k[0] * (pitch * apart_y) + within)

        return StripReader(place, read)

    @property
    def _steps(self) -> tuple[int, ...]:
        conv = self._conv
        (kh, kw), inner = conv.window.kernel, conv.inner
        if not self._plan.is_copied:
            return (inner,)
        joined = conv.window.dilation[1] == 1 or kw == 1
        return (kh, kw * inner) if joined else (kh, kw, inner)

    def _steps_inside(self, work: StripItem) -> tuple[int | PrimExpr, ...]:
        """Return the extents of the loops over K, of which taps that are outside are left away."""
        steps = self._steps
        if not work.taps:
            return steps
        down, across = (taps.count for taps in work.taps)
        return (down, across, steps[2]) if len(steps) == 3 else (down, *steps[1:])

    def _by_blocks(self, work: StripItem, read: StripReader) -> Stmt:
        """Compute the blocks of channels of an item one after the other."""
        conv, (first, behind) = self._conv, work.blocks
        if self._tiling.unit is not None:
            pixel = conv.inner if self._plan.is_copied else conv.data.shape[3]
            stride = conv.window.strides[1] * pixel * conv.data.dtype.bytes
            down, across = conv.window.strides
            follows = self._plan.is_copied and down == across
            pitch = strip_span(conv.window, 1, work.width) if follows else None
            unit, steps = self._tiling.unit, self._steps
            prefetch = self._tiling.prefetch
            strip = OpenUnitStrip(unit, conv, self._epilogue, steps, stride, pitch, prefetch)
            return strip.blocks(work, read)
        if self._is_shared:
            even = even_tiles(work.width, self._plan.tile)
            bound = even.bound()
            one = partial(self._shared_block, work, read, even)
        else:
            small = self._plan.tile if conv.is_ordered else min(_SMALL, self._plan.tile)
            sizes = tuple(dict.fromkeys((self._plan.tile, small)))
            tiles = RowTiles(work.height * work.width, sizes, (small,))
            counts, bound = tiles.counts("tiles")
            one = partial(self._with_words, work, partial(self._tiles, work, read, tiles, counts))
        stmts: list[Stmt] = []
        for start, count, used in column_parts(conv.columns, conv.weight.shape[2]):
            low, high = maximum(first, start), minimum(behind, start + count)

            def block(n: PrimExpr, low: PrimExpr = low, used: int = used) -> Stmt:
                number = TirVar("block")
                return LetStmt(number, low + n, one((number, used)))

            stmts.append(serial(maximum(high - low, 0), block, "n"))
        return let_all(bound, seq(*stmts))

    def _with_words(
        self,
        work: StripItem,
        tiles: Callable[[tuple[PrimExpr, int], OrderedWords | None], Stmt],
        part: tuple[PrimExpr, int],
    ) -> Stmt:
        """Return the tiles of a block, with its words if they are in an order of their own."""
        conv, steps, dot = self._conv, self._steps, self._tiling.ordered
        if not conv.is_ordered or dot is None:
            return tiles(part, None)
        block = work.group * self._plan.blocks + part[0]
        words = OrderedWords(dot, conv.weight, block, prod(steps))
        if len(steps) == 1:
            return tiles(part, words)
        apart = conv.window.dilation
        pitch = cast(strip_span(conv.window, 1, work.width) * conv.inner, DType.INT32)
        strides = (pitch * apart[0], *[apart[1] * conv.inner] * (len(steps) - 2), 1)
        return offsets_of(words, steps, strides, self._tiling.lanes, partial(tiles, part))

    @property
    def _is_shared(self) -> bool:
        """Whether tiles are procedures: those of a row, whose results are as far apart as it is."""
        conv, tiling = self._conv, self._tiling
        is_row = self._plan.is_row and self._plan.is_copied and not may_leave_rows(conv.window)
        is_plain = is_float(conv) and conv.weight.dtype is conv.data.dtype
        is_deep = prod(self._steps) >= _SHARED_DEPTH
        return is_row and is_plain and is_deep and shares_tiles(tiling)

    def _shared_block(
        self, work: StripItem, read: StripReader, even: EvenTiles, part: tuple[PrimExpr, int]
    ) -> Stmt:
        """Compute a block of channels of a row by procedures; arguments as of :meth:`_tiles`."""
        conv, (number, used) = self._conv, part
        window, weight = conv.window, conv.weight
        width, steps, lanes = weight.shape[2], self._steps_inside(work), self._tiling.lanes
        block = work.group * self._plan.blocks + number
        tiles = SharedTiles(self._tiling, even, (used, -(-used // lanes) * lanes), weight.dtype)
        begin = shifted(work, [index(0)] * len(steps))
        taps = None
        if len(steps) == 3:
            taps = index(steps[1]), index(window.dilation[1] * conv.inner)
        row = begin[1] * conv.inner if len(steps) == 3 else index(0)

        def tile(m: PrimExpr) -> Stmt:
            prefetch = None if work.taps else self._tiling.prefetch
            shared = m, even.large + even.small
            fetched = prefetch_next_open_block(prefetch, weight, (block + 1, 0), shared)

            def multiply(start: PrimExpr, call: Callable[[TileOperands], Stmt]) -> Stmt:
                left = read.element(read.place(index(0), start), begin)
                strides = index(window.strides[1] * conv.inner), index(width)
                operands = (left, load(weight, block, row, 0), strides, index(steps[-1]))
                made = call(TileOperands(*operands, fetched, taps))
                return made if fetched is None else fetched.bind(prod(self._steps), made)

            def stored(start: PrimExpr) -> TileEpilogue:
                def store_one(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
                    channel = work.group * conv.columns + number * width + c
                    column = work.column + (start + r)
                    return self._epilogue(value, (work.image, work.row, column, channel))

                return store_one

            return tiles.tile((index(0), even.large), m, multiply, stored)

        return serial(even.large + even.small, tile, "m")

    def _tiles(
        self,
        work: StripItem,
        read: StripReader,
        tiles: RowTiles,
        counts: Sequence[PrimExpr],
        block: tuple[PrimExpr, int],
        words: OrderedWords | None,
    ) -> Stmt:
        """Compute one block of channels of a strip, tile by tile.

        Args:
            work: What is computed.
            read: How a result reads what it is computed from.
            tiles: How tiles cover the results.
            counts: How many there are of each size.
            block: Number of the block in its group, and columns of it that are there.
            words: Of the block, if they are in an order of their own.
        """
        stmts: list[Stmt] = []
        output = (self._conv.data.shape[0], *self._conv.window.output)
        before, done, total = index(0), index(0), sum(counts, index(0))
        for size, count in zip(tiles.sizes, counts, strict=True):

            def one(
                t: PrimExpr, size: int = size, before: PrimExpr = before, done: PrimExpr = done
            ) -> Stmt:
                start = TirVar("start")
                tile = StripTile(start, size, size in tiles.clamped)

                def at(places: TilePlaces) -> Stmt:
                    return self._tile_of(work, read, block, places, (done + t, total), words)

                if self._plan.is_row:
                    body = with_row_places(work, read, tile, at)
                else:
                    body = with_places(work, read, tile, output, at)
                return LetStmt(start, tiles.start(size, t, before), body)

            stmts.append(serial(count, one, "m"))
            before, done = before + count * size, done + count
        return seq(*stmts)

    def _tile_of(
        self,
        work: StripItem,
        read: StripReader,
        part: tuple[PrimExpr, int],
        places: TilePlaces,
        shared: tuple[PrimExpr, PrimExpr],
        words: OrderedWords | None,
    ) -> Stmt:
        """Compute a tile; ``shared`` is its number, and how many there are in the strip."""
        tiling, conv = self._tiling, self._conv
        sizes, steps = self._steps, self._steps_inside(work)
        weight, (number, used) = conv.weight, part
        width = weight.shape[2]
        block = work.group * self._plan.blocks + number

        def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
            row = index(0)
            for axis, position in enumerate(shifted(work, k)):
                row = row + position * prod(sizes[axis + 1 :])
            return load(weight, block, row, c)

        def stored(r: PrimExpr | int, c: PrimExpr, value: PrimExpr) -> Stmt:
            channel = work.group * conv.columns + number * width + c
            return self._epilogue(value, (*places.result(index(r)), channel))

        def word_at(r: PrimExpr | int, offset: PrimExpr) -> PrimExpr:
            return read.element(places.read(index(r)), (*[index(0)] * (len(steps) - 1), offset))

        prefetch = None if work.taps else tiling.prefetch  # steps are counted when compiling
        ordered = 0 if words is None else words.steps
        fetched = prefetch_next_open_block(prefetch, weight, (block + 1, 0), shared, ordered)
        loops = register_tile(
            tiling,
            rows=places.count,
            columns=used,
            largest=(self._plan.tile, width),
            steps=steps,
            left=lambda r, k: read.element(places.read(index(r)), shifted(work, k)),
            right=right,
            epilogue=stored,
            dtype=weight.dtype,
            weight_prefetch=fetched,
            words=None if words is None else replace(words, left=word_at),
            is_one_of_several=True,
        )
        return loops if fetched is None else fetched.bind(ordered or prod(sizes), loops)


def _parts(extent: PrimExpr, size: PrimExpr | int) -> PrimExpr:
    return (extent + (size - 1)) // size
