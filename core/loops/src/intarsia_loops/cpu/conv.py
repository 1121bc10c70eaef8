# SPDX-License-Identifier: Apache-2.0
"""Convolution of channels-last (NHWC) data with packed weights: a direct convolution by strips.

The output is cut into strips of rows, and the output channels into blocks of ``width`` (two
vectors). Loops, outermost first::

    parallel: batch x strips x blocks of channels
      copy the input rows of the strip, padded, into a strip buffer    (skipped if not padded)
      for block of output channels:                    # weights [KH * KW * C, width] of a block
        for tile of output pixels in the strip:        # register tile, micro_kernel.py
          for kh, (kw x c):                            # K; contiguous in strip and weights

- Registers: a tile is ``rows_for(2)`` output pixels x 2 vectors of channels: 6 x 2 accumulators + 2
  B + 1 A = 15 of 16 ymm, 14 x 2 + 2 + 1 = 31 of 32 zmm.
- Caches: a strip is at most ``strip_bytes`` (224 KiB, 7/8 of a second-level cache of 256 KiB) and
  stays there while all blocks of channels are computed from it. One block of weights streams
  through the first-level cache and is reused by all tiles of the strip. Each strip reads all
  weights again, so strips may be 2.25 times as large where weights come from memory.
- Prefetch: tiles share the prefetch of the next block of weights (``prefetch.py``).
- Padding is materialized once in the strip, so the inner loops have no bounds checks.
- Threads take strips of the same data one after the other if data are larger than weights
  (activation stationary), else blocks of weights (:func:`~.dense.is_data_stationary`).

Sources: direct convolution over blocked layouts, Georganas et al., "Anatomy of high-performance
deep learning convolutions on SIMD architectures" (SC 2018); the strip buffer replaces im2col and is
shared by all output channels. 1x1 ones are products (``dense.py``), those with strides of a copy
without the pixels between; 3x3 may use ``winograd.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, maximum, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt
from intarsia_runtime.size import Dim, Size

from ..typical import typical
from .conv_plan import ConvPlan, conv_plan, most_bytes, tile_channels
from .conv_strip import (
    Convolution,
    ConvWorkItem,
    Read,
    direct_strides,
    fill_strip,
    read_directly,
    read_strip,
    strip_rows,
    strip_strides,
    taps_computed,
    taps_inside,
)
from .dense import dense_loops, is_data_stationary
from .loops import (
    EpilogueStore,
    RangePart,
    cut,
    for_parts,
    let_all,
    load,
    parallel,
    seq,
    serial,
)
from .matrix_unit import configured, segment_rows
from .matrix_unit_conv import MatrixUnitStrip, matrix_unit_conv_tiles
from .matrix_unit_dense import matrix_unit_dense_loops
from .micro_kernel import register_tile
from .open_matrix_unit import open_matrix_unit_dense_loops
from .ordered_tiles import OrderedWords, offsets_of
from .panel import LINE, Matrix
from .prefetch import WeightPrefetch, prefetch_next_block
from .row_segments import segment_columns
from .tiling import CpuTiling, column_parts, for_width

_LINE_WORDS = LINE // 4
_FEW_WEIGHTS = 64 * 1024
"""Bytes of weights that stay near the first-level cache while a strip is computed."""


def matrix_unit_extents(conv: Convolution) -> tuple[Size, int]:
    """Return how many neighbouring results a matrix unit computes, and the depth of its loop."""
    if conv.window.is_point and conv.groups == 1:
        return conv.data.shape[0] * prod(conv.window.output), conv.inner
    (_, kw), columns = conv.window.kernel, conv.window.output[1]
    if isinstance(columns, Dim):  # in strips that are always copied (``open_conv.py``)
        joined = conv.window.dilation[1] == 1 or kw == 1
        return columns, kw * conv.inner if joined else conv.inner
    return conv.window.output[0] if columns == 1 else columns, conv.steps[-1]


def conv_loops(tiling: CpuTiling, conv: Convolution, epilogue: EpilogueStore) -> Stmt:
    """Return the loops; ``epilogue`` gets indices ``(n, row, column, channel)``."""
    if conv.window.is_point and conv.groups == 1:
        return _as_matrix(tiling, conv, epilogue)
    tiling = for_width(tiling, conv.weight.shape[2])
    batch, *image_shape = conv.data.shape
    written = typical(batch) * conv.outputs * prod(conv.window.output)
    read = typical(batch) * prod(image_shape)
    data_stationary = is_data_stationary(read, written, conv.weight)
    columns = conv.window.output[1]
    conv, row_segments = _segmented(tiling, conv)
    plan = conv_plan(tiling, conv, row_segments)
    if plan.strips > 1 and _gathers_pixels(tiling, conv):
        return _as_matrix(tiling, conv, epilogue)
    stmts: list[Stmt] = []
    for chunk in cut(plan.blocks, plan.blocks_per_item):

        def item(p: PrimExpr, chunk: RangePart = chunk) -> Stmt:
            strips = plan.strips * row_segments
            image_strips, parts = strips * batch, conv.groups * chunk.count
            rows, blocks = (
                (p // parts, p % parts)
                if data_stationary
                else (p % image_strips, p // image_strips)
            )
            image, strip = rows // strips, rows % strips
            group, part = blocks % conv.groups, blocks // conv.groups
            block = part * chunk.size + chunk.start
            column = None
            if row_segments > 1:
                width = conv.window.output[1]
                column = minimum(strip % row_segments * width, columns - width)
                strip = strip // row_segments
            work_item = ConvWorkItem(image, strip * plan.height, group, block, chunk.size, column)
            return _strip(tiling, conv, plan, work_item, epilogue)

        items = chunk.count * conv.groups * batch * plan.strips * row_segments
        stmts.append(parallel(items, item))
    return seq(*stmts)


def _segmented(tiling: CpuTiling, conv: Convolution) -> tuple[Convolution, int]:
    """Return what computes a piece of each row, all of it unless it is long, and how many."""
    window = conv.window
    if not conv.is_copied or tiling.unit is not None:
        return conv, 1
    rows, columns = window.output
    tile = tiling.rows_for(conv.weight.shape[2] // tiling.lanes)
    wide = segment_columns(window, conv.inner * 4, int(most_bytes(tiling, conv)), tile)
    if wide == columns:
        return conv, 1
    segment = replace(conv, copied=True, window=replace(window, output=(rows, wide)))
    return segment, -(-columns // wide)


def _gathers_pixels(tiling: CpuTiling, conv: Convolution) -> bool:
    """Whether the pixels that a 1x1 convolution with strides reads are copied side by side first.

    Rows of results are short where strides are, and a strip of some of them reads all weights: 1024
    to 2048 channels, 7 x 7 results, fp32 in 0.65 of the time (AVX2). The copy costs little beside
    weights that the first-level cache does not hold.
    """
    if isinstance(conv.data.shape[0], Dim) or tiling.unit is not None or conv.groups > 1:
        return False
    return conv.window.picks_points and conv.weight.bytes >= _FEW_WEIGHTS


def _as_matrix(tiling: CpuTiling, conv: Convolution, epilogue: EpilogueStore) -> Stmt:
    """Return the loops of a product of pixels; those between strides are left out of the copy."""
    (batch, *_, depth), (height, width) = conv.data.shape, conv.window.output
    down, right = conv.window.strides

    def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        pixel = row // width % height * down, row % width * right
        return load(conv.data, row // (height * width), *pixel, k)

    stride, rows = right * depth * conv.data.dtype.bytes, batch * height * width
    matrix = Matrix(rows, depth, element, stride, conv.copied or conv.window.picks_points)
    outer = [batch, height, width]
    if tiling.unit is not None:
        loops = open_matrix_unit_dense_loops if isinstance(rows, Dim) else matrix_unit_dense_loops
        weight, outputs = conv.weight, conv.outputs
        return loops(tiling, tiling.unit, matrix, weight, outputs, epilogue, outer)
    return dense_loops(
        tiling, matrix, conv.weight, conv.outputs, epilogue, outer, is_ordered=conv.is_ordered
    )


def _strip(
    tiling: CpuTiling,
    conv: Convolution,
    plan: ConvPlan,
    work_item: ConvWorkItem,
    epilogue: EpilogueStore,
) -> Stmt:
    """Compute a strip of rows for some blocks of channels."""
    window = conv.window

    def blocks(read: Read, strides: Sequence[int]) -> Stmt:
        body = _blocks(tiling, conv, plan, work_item, epilogue, read, strides)
        if tiling.unit is None:
            return body
        made = _unit_strip(conv, plan, index(0), 0)
        _, rows = segment_rows(made.rows(tiling.unit)[1], tiling.unit)
        return configured(tiling.unit, rows, conv.steps[-1], body)

    if not conv.is_copied:
        return blocks(read_directly(conv, work_item), direct_strides(conv))
    segment = work_item.column is not None
    rows, distance = strip_rows(window, plan.height, is_segment=segment)
    span = (rows, window.span(1, window.output[1]))
    pitch = span[1] * conv.inner
    if conv.is_ordered:  # whose offsets are of this pitch: copies of whole lines keep it
        pitch = -(-pitch // _LINE_WORDS) * _LINE_WORDS
    strip = Buffer("strip", (span[0], pitch), conv.data.dtype, MemoryScope.STACK)
    fill = fill_strip(tiling, conv, work_item, strip, (span, distance))
    strides = strip_strides(conv, strip, distance)
    return Allocate(strip, seq(fill, blocks(read_strip(conv, strip, distance), strides)))


def _blocks(
    tiling: CpuTiling,
    conv: Convolution,
    plan: ConvPlan,
    work_item: ConvWorkItem,
    epilogue: EpilogueStore,
    read: Read,
    strides: Sequence[int],
) -> Stmt:
    """Compute the blocks of channels of an item one after the other."""
    width = tile_channels(tiling, conv)
    blocks = plan.blocks

    def body(number: PrimExpr, used: int) -> Stmt:
        block = _Block(tiling, conv, plan, work_item, epilogue, read, number, used)
        return block.ordered(strides) if conv.is_ordered else block.loops()

    stmts: list[Stmt] = []
    for first, count, used in column_parts(conv.columns, width):
        if count == blocks or work_item.blocks == blocks:
            stmts.append(serial(count, lambda n, f=first, u=used: body(n + f, u), "n"))
        else:
            low = maximum(index(first), work_item.block)
            high = minimum(index(first + count), work_item.block + work_item.blocks)
            stmts.append(serial(high - low, lambda n, b=low, u=used: body(n + b, u), "n"))
    if len(stmts) == 1 and work_item.blocks != blocks:
        return serial(
            work_item.blocks,
            lambda n: body(work_item.block + n, column_parts(conv.columns, width)[0][2]),
            "n",
        )
    return seq(*stmts)


class _Block(Struct, frozen=True):
    """One block of channels of a strip, computed tile by tile.

    Attributes:
        tiling: Of the machine.
        conv: The convolution.
        plan: How it is cut.
        work_item: The strip.
        epilogue: Stores results.
        read: Reads data.
        number: Of the block in its group.
        used: Columns of its weights.
        words: Of its weights, if they are in an order of their own.
    """

    tiling: CpuTiling
    conv: Convolution
    plan: ConvPlan
    work_item: ConvWorkItem
    epilogue: EpilogueStore
    read: Read
    number: PrimExpr
    used: int
    words: OrderedWords | None = None

    @property
    def block(self) -> PrimExpr:
        """Number of the block in the weights; of a matrix unit, that of the first of its tile."""
        width = self.conv.weight.shape[2]
        first = self.number * (tile_channels(self.tiling, self.conv) // width)
        return self.work_item.group * -(-self.conv.columns // width) + first

    def first_of(self, k: Sequence[PrimExpr], number: int) -> PrimExpr:
        """Read the first weight of a block of a tile of a matrix unit."""
        return self.right(k, index(0), number)

    def right(self, k: Sequence[PrimExpr], c: PrimExpr, behind: int = 0) -> PrimExpr:
        """Read a weight of the block, or of one behind it."""
        row, steps = index(0), self.conv.steps
        for axis, position in enumerate(k):
            row = row + position * prod(steps[axis + 1 :])
        return load(self.conv.weight, self.block + behind, row, c)

    def store_result(self, y: PrimExpr, x: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
        """Store the result of row ``y`` and column ``x`` of the strip."""
        conv, item = self.conv, self.work_item
        channel = item.group * conv.columns + self.number * tile_channels(self.tiling, conv) + c
        return self.epilogue(value, (item.image, item.row + y, item.across(x), channel))

    def ordered(self, strides: Sequence[int]) -> Stmt:
        """Return the loops over tiles of words in an order of their own.

        Args:
            strides: Words of data from one step of each loop over K to the next.
        """
        steps, dot = self.conv.steps, self.tiling.ordered
        assert dot is not None  # the weights are packed for it
        words = OrderedWords(dot, self.conv.weight, self.block, prod(steps))
        if prod(steps) == steps[-1]:
            return replace(self, words=words).loops()
        lanes = self.tiling.lanes
        return offsets_of(
            words, steps, strides, lanes, lambda words: replace(self, words=words).loops()
        )

    def loops(self) -> Stmt:
        """Return the loops over the tiles."""
        tiling, conv, plan = self.tiling, self.conv, self.plan
        wide = conv.window.output[1]
        if tiling.unit is not None:
            strip = _unit_strip(conv, plan, self.block, self.used)
            how = (self.read, self.first_of, self.store_result)
            return matrix_unit_conv_tiles(tiling, tiling.unit, strip, how)
        skips = taps_computed(conv, plan.height) < 1.0

        def tile(row: PrimExpr, height: int, column: PrimExpr, columns: int) -> Stmt:
            place, size = (row, column), (height, columns)
            if skips:
                return _inside(self, place, size)
            before, results = row * wide + column * height, plan.height * wide
            weight_prefetch = prefetch_next_block(
                tiling.prefetch,
                conv.weight,
                (self.block + 1, 0),
                conv.weight.shape[1],
                (before, results),
                height * columns,
                is_ordered=conv.is_ordered,
            )
            return self.tile(
                place, size, ([index(0)] * len(conv.steps), conv.steps), weight_prefetch
            )

        down, across = cut(plan.height, min(plan.tile[0], plan.height)), cut(wide, plan.tile[1])
        return for_parts(
            down, lambda y, h: for_parts(across, lambda x, w: tile(y, h, x, w), "x"), "y"
        )

    def tile(
        self,
        place: tuple[PrimExpr, PrimExpr],
        size: tuple[int, int],
        taps: tuple[Sequence[PrimExpr], Sequence[int | PrimExpr]],
        weight_prefetch: WeightPrefetch | None = None,
    ) -> Stmt:
        """Return a register tile.

        Args:
            place: Row and column of its first result in the strip.
            size: Rows and columns of results.
            taps: The first steps along K, and how many.
            weight_prefetch: The next block of weights, of which it fetches a share.
        """
        plan, weight, steps = self.plan, self.conv.weight, self.conv.steps
        first, extents = taps

        def pixel_of(r: PrimExpr | int) -> tuple[PrimExpr, PrimExpr]:
            position = index(r)
            return place[0] + position // size[1], place[1] + position % size[1]

        def word_at(r: PrimExpr | int, offset: PrimExpr) -> PrimExpr:
            return self.read(*pixel_of(r), (*[index(0)] * (len(steps) - 1), offset))

        def at(k: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
            return tuple(step + start for step, start in zip(k, first, strict=True))

        return register_tile(
            self.tiling,
            rows=prod(size),
            columns=self.used,
            largest=(min(plan.tile[0], plan.height) * plan.tile[1], weight.shape[2]),
            steps=extents,
            left=lambda r, k: self.read(*pixel_of(r), at(k)),
            right=lambda k, c: self.right(at(k), c),
            epilogue=lambda r, c, value: self.store_result(*pixel_of(r), c, value),
            dtype=weight.dtype,
            weight_prefetch=weight_prefetch,
            words=None if self.words is None else replace(self.words, left=word_at),
        )


def _unit_strip(conv: Convolution, plan: ConvPlan, block: PrimExpr, used: int) -> MatrixUnitStrip:
    """Return what a matrix unit computes some blocks of channels of a strip from."""
    window, (down, right) = conv.window, conv.window.strides
    pixel = conv.inner if conv.is_copied else conv.data.shape[3]
    size = (plan.height, window.output[1])
    columns = window.span(1, size[1]) if conv.is_copied else conv.data.shape[2]
    stride, pitch = right * pixel, columns if down == right else None
    if size[1] == 1:  # its neighbours are above and below
        stride, pitch = down * columns * pixel, 1
    stride *= conv.data.dtype.bytes
    return MatrixUnitStrip(size, stride, conv.steps, conv.weight, block, used, pitch)


def _inside(block: _Block, place: tuple[PrimExpr, PrimExpr], size: tuple[int, int]) -> Stmt:
    """Return a tile of one row over the taps that any of its windows has inside the input."""
    conv, item = block.conv, block.work_item
    window = conv.window
    start = item.across(place[1]) * window.strides[1] - window.padding[1]
    last = start + (size[1] - 1) * window.strides[1]
    row = item.row * window.strides[0] - window.padding[0]
    bounds: list[tuple[TirVar, PrimExpr]] = []
    first: list[PrimExpr] = []
    extents: list[int | PrimExpr] = []
    for axis, places in enumerate(((row, row), (start, last))):
        extent, taps, distance = window.size[axis], window.kernel[axis], window.dilation[axis]
        variables = [TirVar(f"{name}{axis}") for name in ("low", "high")]
        bounds += zip(variables, taps_inside(places, extent, taps, distance), strict=True)
        first.append(variables[0])
        extents.append(variables[1] - variables[0])
    body = block.tile(place, size, ([*first, index(0)], [*extents, conv.inner]))
    return let_all(bounds, body)
