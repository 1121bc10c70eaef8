# SPDX-License-Identifier: Apache-2.0
"""Convolution of channels-last data with packed weights.

Results are cut into strips of rows. The input of a strip is copied once into a padded scratch
strip, which makes every window whole, and stays in the second-level cache while all channels are
computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ...tir.buffer import Buffer, Scope
from ...tir.expr import PrimExpr, const, index, maximum, minimum
from ...tir.stmt import Allocate, Stmt
from .ahead import is_large, next_block
from .dense import dense_loops, stays_with_data
from .loops import (
    Finish,
    Part,
    Source,
    copy_rows,
    cut,
    for_parts,
    load,
    parallel,
    seq,
    serial,
    store,
)
from .matrix_unit import SEGMENTS, configured, segment_rows
from .panel import Matrix
from .pieces import PieceCopy, columns_of_pieces
from .tile import Shape, best_rows, column_parts, register_tile
from .unit_conv import UnitStrip, unit_tiles
from .unit_dense import unit_dense_loops
from .window import Window

_ITEMS = 8
_WIDER = 2.25


class Convolution(Struct, frozen=True):
    """Operands of one convolution.

    Attributes:
        data: ``[N, H, W, C]``.
        weight: Packed ``[groups * blocks, KH * KW * C / groups, width]``.
        outputs: Channels of the result.
        groups: Groups of channels.
        window: Geometry.
        blank: What padding holds.
        copied: Whether rows are copied though no window leaves the picture.
    """

    data: Source
    weight: Source
    outputs: int
    groups: int
    window: Window
    blank: int = 0
    copied: bool = False

    @property
    def inner(self) -> int:
        """Input channels of a group."""
        return self.data.shape[3] // self.groups

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.outputs // self.groups

    @property
    def is_copied(self) -> bool:
        """Whether strips are copied before they are multiplied."""
        return self.copied or self.window.is_padded

    @property
    def steps(self) -> tuple[int, ...]:
        """Extents of the loops to sum over; without dilation, a row of a copied strip is one."""
        (kh, kw), inner = self.window.kernel, self.inner
        joined = self.is_copied and (self.window.dilation[1] == 1 or kw == 1)
        return (kh, kw * inner) if joined else (kh, kw, inner)


def unit_extents(conv: Convolution) -> tuple[int, int]:
    """Return how many neighbouring results a matrix unit computes, and the depth of its loop."""
    if conv.window.is_point and conv.groups == 1:
        return conv.data.shape[0] * prod(conv.window.output), conv.inner
    return conv.window.output[1], conv.steps[-1]


def conv_loops(shape: Shape, conv: Convolution, finish: Finish) -> Stmt:
    """Return the loops; ``finish`` gets indices ``(n, row, column, channel)``."""
    if conv.window.is_point and conv.groups == 1:
        return _as_matrix(shape, conv, finish)
    batch = conv.data.shape[0]
    written = batch * conv.outputs * prod(conv.window.output)
    with_data = stays_with_data(prod(conv.data.shape), written, conv.weight)
    columns = conv.window.output[1]
    conv, pieces = _in_pieces(shape, conv)
    plan = _plan(shape, conv, pieces)
    stmts: list[Stmt] = []
    for chunk in cut(plan.blocks, plan.blocks_at_once):

        def item(p: PrimExpr, chunk: Part = chunk) -> Stmt:
            strips = plan.strips * pieces
            pictures, parts = strips * batch, conv.groups * chunk.count
            rows, blocks = (p // parts, p % parts) if with_data else (p % pictures, p // pictures)
            image, strip = rows // strips, rows % strips
            group, part = blocks % conv.groups, blocks // conv.groups
            block = part * chunk.size + chunk.start
            column = None
            if pieces > 1:
                width = conv.window.output[1]
                column = minimum(strip % pieces * width, columns - width)
                strip = strip // pieces
            place = _Place(image, strip * plan.height, group, block, chunk.size, column)
            return _strip(shape, conv, plan, place, finish)

        stmts.append(parallel(chunk.count * conv.groups * batch * plan.strips * pieces, item))
    return seq(*stmts)


def _in_pieces(shape: Shape, conv: Convolution) -> tuple[Convolution, int]:
    """Return what computes a piece of each row, all of it unless it is long, and how many."""
    window = conv.window
    if not conv.is_copied or shape.unit is not None:
        return conv, 1
    rows, columns = window.output
    tile = shape.rows_for(conv.weight.shape[2] // shape.lanes)
    wide = columns_of_pieces(window, conv.inner * 4, int(_most_bytes(shape, conv)), tile)
    if wide == columns:
        return conv, 1
    piece = replace(conv, copied=True, window=replace(window, output=(rows, wide)))
    return piece, -(-columns // wide)


def _most_bytes(shape: Shape, conv: Convolution) -> float:
    """Return how many bytes a strip may have.

    Each strip reads all weights anew: many of them come from memory again for each.
    """
    return shape.strip_bytes * (_WIDER if is_large(conv.weight) else 1)


def _as_matrix(shape: Shape, conv: Convolution, finish: Finish) -> Stmt:
    batch, height, width, depth = conv.data.shape

    def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        return load(conv.data, row // (height * width), row // width % height, row % width, k)

    stride = depth * conv.data.dtype.bytes
    matrix = Matrix(batch * height * width, depth, element, stride, conv.copied)
    outer = [batch, height, width]
    if shape.unit is not None:
        weight, outputs = conv.weight, conv.outputs
        return unit_dense_loops(shape, shape.unit, matrix, weight, outputs, finish, outer)
    assert isinstance(conv.weight, Buffer)  # as of all but pairs, which a unit multiplies
    return dense_loops(shape, matrix, conv.weight, conv.outputs, finish, outer)


class _Plan(Struct, frozen=True):
    """How a convolution is cut: strips of ``height`` rows, tiles of ``tile`` results."""

    height: int
    strips: int
    tile: tuple[int, int]
    blocks: int
    blocks_at_once: int


class _Place(Struct, frozen=True):
    """One item of work."""

    image: PrimExpr
    row: PrimExpr
    group: PrimExpr
    block: PrimExpr
    blocks: int
    column: PrimExpr | None = None  # of the first result, where rows are cut

    def across(self, x: PrimExpr) -> PrimExpr:
        """Return the column of result number ``x`` of a row."""
        return x if self.column is None else self.column + x


def _plan(shape: Shape, conv: Convolution, pieces: int) -> _Plan:
    window = conv.window
    rows, columns = window.output
    width = conv.weight.shape[2]
    blocks = -(-conv.columns // width)
    tile_height, tile_width = _tile_of(shape, window, width)
    padded = window.span(1, columns)
    items = conv.groups * conv.data.shape[0] * pieces
    most = _most_bytes(shape, conv)

    def fits(height: int) -> bool:
        if conv.is_copied:
            return window.span(0, height) * padded * conv.inner * 4 <= most
        (kh, kw), read = window.kernel, window.span(0, height)
        return min(read, height * kh) * min(padded, columns * kw) * conv.inner * 4 <= most

    heights = [h for h in range(rows, 0, -1) if rows % h == 0 and fits(h)] or [1]

    def cost(height: int) -> float:
        strips = rows // height * items
        whole, rest = divmod(height, tile_height)
        tiles = whole + (0.75 if rest else 0.0)
        ideal = height / tile_height
        halo = window.span(0, height) / height / window.strides[0]
        copy = halo * 4.0 / (window.kernel[0] * window.kernel[1] * conv.columns)
        uneven = max(-(-strips // t) * t / strips for t in (2, 4))
        return tiles / ideal * min(uneven, 1.3) + copy

    height = min(heights, key=cost)
    strips = rows // height
    at_once = blocks
    while at_once > 1 and strips * items * -(-blocks // at_once) < _ITEMS:
        at_once = -(-at_once // 2)
    return _Plan(height, strips, (tile_height, tile_width), blocks, at_once)


def _tile_of(shape: Shape, window: Window, width: int) -> tuple[int, int]:
    """Return height and width of the neighbours that a tile computes."""
    rows, columns = window.output
    if shape.unit is not None:
        count, size = segment_rows(columns, shape.unit)
        return (min(rows, SEGMENTS), columns) if count == 1 else (1, min(columns, SEGMENTS * size))
    limit = shape.rows_for(width // shape.lanes)
    tile_width = best_rows(columns, limit)
    if shape.tile_columns:
        tile_width = min(shape.tile_columns, columns, limit)
    return max(1, min(rows, limit // tile_width)), tile_width


def _strip(shape: Shape, conv: Convolution, plan: _Plan, place: _Place, finish: Finish) -> Stmt:
    """Compute a strip of rows for some blocks of channels."""
    window = conv.window

    def blocks(read: _Read) -> Stmt:
        body = _blocks(shape, conv, plan, place, finish, read)
        if shape.unit is None:
            return body
        _, rows = segment_rows(window.output[1], shape.unit)
        return configured(shape.unit, rows, conv.steps[-1], body)

    if not conv.is_copied:
        return blocks(_direct(conv, place))
    span = (window.span(0, plan.height), window.span(1, window.output[1]))
    strip = Buffer("strip", (span[0], span[1] * conv.inner), conv.data.dtype, Scope.STACK)
    fill = _fill(shape, conv, place, strip, span)
    return Allocate(strip, seq(fill, blocks(_from_strip(conv, strip))))


def _fill(
    shape: Shape, conv: Convolution, place: _Place, strip: Buffer, span: tuple[int, int]
) -> Stmt:
    """Copy the rows that a strip reads; what is outside the input is blank."""
    window, inner = conv.window, conv.inner
    rows, columns = window.size
    zero = const(conv.blank, strip.dtype)
    if place.column is not None:
        return _piece(conv, place, strip).loops(shape.lanes)
    before = min(window.padding[1], span[1])
    inside = max(0, min(columns, span[1] - before))
    after = span[1] - before - inside
    first = place.row * window.strides[0] - window.padding[0]
    channel = place.group * inner

    def blank(row: PrimExpr, start: int, count: int) -> Stmt:
        return copy_rows(
            count * inner, shape.lanes, lambda c: store(strip, (row, c + start * inner), zero)
        )

    def copied(row: PrimExpr) -> Stmt:
        source = first + row

        def pixel(w: PrimExpr) -> Stmt:
            return copy_rows(
                inner,
                shape.lanes,
                lambda c: store(
                    strip,
                    (row, (w + before) * inner + c),
                    load(conv.data, place.image, source, w, channel + c),
                ),
            )

        def whole(c: PrimExpr) -> Stmt:
            value = load(conv.data, place.image, source, index(0), c)
            return store(strip, (row, c + before * inner), value)

        if conv.groups == 1:
            body = copy_rows(inside * inner, shape.lanes, whole)
        else:
            body = serial(inside, pixel, "w")
        return seq(blank(row, 0, before), body, blank(row, before + inside, after))

    low = minimum(maximum(index(0) - first, 0), span[0])
    high = maximum(minimum(index(rows) - first, span[0]), low)
    return seq(
        serial(low, lambda r: blank(r, 0, span[1]), "r"),
        serial(high - low, lambda r: copied(low + r), "r"),
        serial(index(span[0]) - high, lambda r: blank(high + r, 0, span[1]), "r"),
    )


def _piece(conv: Convolution, place: _Place, strip: Buffer) -> PieceCopy:
    """Return the copy of what a piece of a row reads."""
    window, channel = conv.window, place.group * conv.inner
    assert place.column is not None  # of a row that is cut
    first = (
        place.row * window.strides[0] - window.padding[0],
        place.column * window.strides[1] - window.padding[1],
    )

    def element(row: PrimExpr, column: PrimExpr, c: PrimExpr) -> PrimExpr:
        return load(conv.data, place.image, row, column, channel + c)

    blank = const(conv.blank, strip.dtype)
    joined = conv.groups == 1
    return PieceCopy(strip, conv.inner, window.size, first, blank, element, joined)


_Read = Callable[[PrimExpr, PrimExpr, "tuple[PrimExpr, ...]"], PrimExpr]


def _direct(conv: Convolution, place: _Place) -> _Read:
    """Read windows from the input itself; steps are rows, columns and channels of the kernel."""
    window, inner = conv.window, conv.inner
    (sh, sw), (dh, dw) = window.strides, window.dilation

    def read(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(
            conv.data,
            place.image,
            (place.row + row) * sh + k[0] * dh,
            column * sw + k[1] * dw,
            place.group * inner + k[2],
        )

    return read


def _from_strip(conv: Convolution, strip: Buffer) -> _Read:
    """Read windows from the padded strip."""
    window, inner = conv.window, conv.inner
    (sh, sw), (dh, dw) = window.strides, window.dilation

    def joined(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(strip, row * sh + k[0] * dh, column * (sw * inner) + k[1])

    def apart(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(strip, row * sh + k[0] * dh, (column * sw + k[1] * dw) * inner + k[2])

    return joined if len(conv.steps) == 2 else apart


def _blocks(
    shape: Shape,
    conv: Convolution,
    plan: _Plan,
    place: _Place,
    finish: Finish,
    read: _Read,
) -> Stmt:
    """Compute the blocks of channels of an item one after the other."""
    width = conv.weight.shape[2]
    blocks = plan.blocks

    def body(number: PrimExpr, used: int) -> Stmt:
        return _tiles(shape, conv, plan, place, finish, read, number, used)

    stmts: list[Stmt] = []
    for first, count, used in column_parts(conv.columns, width):
        if count == blocks or place.blocks == blocks:
            stmts.append(serial(count, lambda n, f=first, u=used: body(n + f, u), "n"))
        else:
            low = maximum(index(first), place.block)
            high = minimum(index(first + count), place.block + place.blocks)
            stmts.append(serial(high - low, lambda n, b=low, u=used: body(n + b, u), "n"))
    if len(stmts) == 1 and place.blocks != blocks:
        return serial(
            place.blocks,
            lambda n: body(place.block + n, column_parts(conv.columns, width)[0][2]),
            "n",
        )
    return seq(*stmts)


def _tiles(
    shape: Shape,
    conv: Convolution,
    plan: _Plan,
    place: _Place,
    finish: Finish,
    read: _Read,
    number: PrimExpr,
    used: int,
) -> Stmt:
    """Compute one block of channels of a strip, tile by tile."""
    steps, weight, width = conv.steps, conv.weight, conv.weight.shape[2]
    block = place.group * plan.blocks + number
    following, depth = (block + 1, 0), prod(steps)
    wide = conv.window.output[1]
    tallest, results = min(plan.tile[0], plan.height), plan.height * wide

    def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
        row = index(0)
        for axis, position in enumerate(k):
            row = row + position * prod(steps[axis + 1 :])
        return load(weight, block, row, c)

    def done(y: PrimExpr, x: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
        channel = place.group * conv.columns + number * width + c
        return finish(value, (place.image, place.row + y, place.across(x), channel))

    if shape.unit is not None:
        pixel = conv.inner if conv.is_copied else conv.data.shape[3]
        stride = conv.window.strides[1] * pixel * conv.data.dtype.bytes
        strip = UnitStrip((plan.height, wide), stride, steps, weight, block, (used, width))
        return unit_tiles(shape, shape.unit, strip, (read, right, done))

    def tile(row: PrimExpr, height: int, column: PrimExpr, columns: int) -> Stmt:
        count, before = height * columns, row * wide + column * height

        def at(r: PrimExpr | int) -> tuple[PrimExpr, PrimExpr]:
            position = index(r)
            return row + position // columns, column + position % columns

        return register_tile(
            shape,
            rows=count,
            columns=used,
            largest=(tallest * plan.tile[1], width),
            steps=steps,
            left=lambda r, k: read(*at(r), tuple(k)),
            right=right,
            finish=lambda r, c, value: done(*at(r), c, value),
            dtype=weight.dtype,
            ahead=next_block(shape.prefetch, weight, following, depth, (before, results), count),
        )

    down = cut(plan.height, tallest)
    across = cut(wide, plan.tile[1])
    return for_parts(
        down,
        lambda y, h: for_parts(across, lambda x, w: tile(y, h, x, w), "x"),
        "y",
    )
