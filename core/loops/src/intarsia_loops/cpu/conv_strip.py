# SPDX-License-Identifier: Apache-2.0
"""The strip of a convolution: input rows copied with their padding, and how a tile reads them.

A strip holds the neighbouring rows that its results read. One row of results with a dilated window
reads rows that are ``dilation`` apart: its strip holds those ``KH`` alone. (3x3 with a dilation of
18 over 33 rows: 3 rows, not 37.) Its tiles then leave out the taps that only meet padding: of 9
with a dilation of 18 over 33 x 33, 4 on average.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, const, index, maximum, minimum
from intarsia_ir.tir.stmt import Stmt

from .loops import Source, copy_rows, load, seq, serial, store
from .row_segments import SegmentCopy
from .tiling import CpuTiling
from .window import Window

_MOSTLY_INSIDE = 0.85
"""Part of the taps inside the input from which on leaving out the others gains nothing."""


class Convolution(Struct, frozen=True):
    """Operands of one convolution.

    Attributes:
        data: ``[N, H, W, C]``; ``N`` may be open where a window has several taps.
        weight: Packed ``[groups * blocks, KH * KW * C / groups, width]``.
        outputs: Channels of the result.
        groups: Groups of channels.
        window: Geometry.
        padding_value: What padding holds.
        copied: Whether rows are copied though no window leaves the image.
        is_ordered: Whether words of weights are (``ordered_words.py``).
        padding_adds: Whether padding adds to sums though it holds zeros: bytes may count as others.
    """

    data: Source
    weight: Source
    outputs: int
    groups: int
    window: Window
    padding_value: int = 0
    copied: bool = False
    is_ordered: bool = False
    padding_adds: bool = False

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


class ConvWorkItem(Struct, frozen=True):
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


def strip_rows(window: Window, height: int, *, is_segment: bool) -> tuple[int, int]:
    """Return how many input rows the strip of ``height`` rows of results holds, and their distance.

    Segments of rows are copied from neighbouring rows.
    """
    if height == 1 and not is_segment:
        return window.kernel[0], window.dilation[0]
    return window.span(0, height), 1


def fill_strip(
    tiling: CpuTiling,
    conv: Convolution,
    work_item: ConvWorkItem,
    strip: Buffer,
    size: tuple[tuple[int, int], int],
) -> Stmt:
    """Copy the rows that a strip reads; what is outside the input is blank.

    ``size`` is of the strip, rows and columns, with the distance of rows in the input.
    """
    span, distance = size
    window, inner = conv.window, conv.inner
    rows, columns = window.size
    if work_item.column is not None:
        return _segment_copy(conv, work_item, strip).loops(tiling.lanes)
    before = min(window.padding[1], span[1])
    inside = max(0, min(columns, span[1] - before))
    after = span[1] - before - inside
    first = work_item.row * window.strides[0] - window.padding[0]
    channel = work_item.group * inner

    def blank(row: PrimExpr, start: int, count: int) -> Stmt:
        zero, begin, width = const(conv.padding_value, strip.dtype), start * inner, count * inner
        return copy_rows(width, tiling.lanes, lambda c: store(strip, (row, c + begin), zero))

    def copied(row: PrimExpr) -> Stmt:
        source = first + row * distance

        def pixel(w: PrimExpr) -> Stmt:
            return copy_rows(
                inner,
                tiling.copied_lanes,
                lambda c: store(
                    strip,
                    (row, (w + before) * inner + c),
                    load(conv.data, work_item.image, source, w, channel + c),
                ),
            )

        def full_tiles(c: PrimExpr) -> Stmt:
            value = load(conv.data, work_item.image, source, *((c, 0) if inner == 1 else (0, c)))
            return store(strip, (row, c + before * inner), value)

        if conv.groups == 1:
            body = copy_rows(inside * inner, tiling.copied_lanes, full_tiles)
        else:
            body = serial(inside, pixel, "w")
        return seq(
            blank(row, 0, before),
            body,
            blank(row, before + inside, after),
        )

    low, high = taps_inside((first, first), rows, span[0], distance)
    return seq(
        serial(low, lambda r: blank(r, 0, span[1]), "r"),
        serial(high - low, lambda r: copied(low + r), "r"),
        serial(index(span[0]) - high, lambda r: blank(high + r, 0, span[1]), "r"),
    )


def taps_inside(
    first: tuple[PrimExpr, PrimExpr], size: int, taps: int, distance: int
) -> tuple[PrimExpr, PrimExpr]:
    """Return the range of taps that some neighbouring windows have inside the input.

    Args:
        first: Where the first tap of the first window lies, and that of the last window.
        size: Of the input.
        taps: Of a window.
        distance: Of taps.
    """
    low = minimum(maximum((index(distance - 1) - first[1]) // distance, 0), taps)
    high = (index(size + distance - 1) - first[0]) // distance
    return low, maximum(minimum(high, taps), low)


def taps_computed(conv: Convolution, height: int) -> float:
    """Return the part of the taps that tiles compute: less than 1 if many meet padding alone.

    Tiles leave those out where windows are dilated and strips have one row of results, of
    ``height`` rows.
    """
    window = conv.window
    if height > 1 or len(conv.steps) < 3 or conv.is_ordered:
        return 1.0
    if conv.padding_value or conv.padding_adds:
        return 1.0
    inside = [
        sum(len(window.taps(axis, result)) for result in range(window.output[axis]))
        for axis in (0, 1)
    ]
    part = prod(inside) / (prod(window.output) * prod(window.kernel))
    return part if part < _MOSTLY_INSIDE else 1.0


def _segment_copy(conv: Convolution, work_item: ConvWorkItem, strip: Buffer) -> SegmentCopy:
    """Return the copy of what a piece of a row reads."""
    window, channel = conv.window, work_item.group * conv.inner
    assert work_item.column is not None  # of a row that is cut
    first = (
        work_item.row * window.strides[0] - window.padding[0],
        work_item.column * window.strides[1] - window.padding[1],
    )

    def element(row: PrimExpr, column: PrimExpr, c: PrimExpr) -> PrimExpr:
        return load(conv.data, work_item.image, row, column, channel + c)

    padding_value = const(conv.padding_value, strip.dtype)
    joined = conv.groups == 1
    columns = window.span(1, window.output[1])
    return SegmentCopy(
        strip, columns, conv.inner, window.size, first, padding_value, element, joined
    )


Read = Callable[[PrimExpr, PrimExpr, "tuple[PrimExpr, ...]"], PrimExpr]


def read_directly(conv: Convolution, work_item: ConvWorkItem) -> Read:
    """Read windows from the input itself; steps are rows, columns and channels of the kernel."""
    window, inner = conv.window, conv.inner
    (sh, sw), (dh, dw) = window.strides, window.dilation

    def read(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(
            conv.data,
            work_item.image,
            (work_item.row + row) * sh + k[0] * dh,
            column * sw + k[1] * dw,
            work_item.group * inner + k[2],
        )

    return read


def direct_strides(conv: Convolution) -> tuple[int, ...]:
    """Return the elements of the input from one step of each loop over K to the next."""
    _, _, columns, channels = conv.data.shape
    down, right = conv.window.dilation
    return (down * columns * channels, right * channels, 1)


def strip_strides(conv: Convolution, strip: Buffer, distance: int) -> tuple[int, ...]:
    """Return the same of a padded strip."""
    down, right = conv.window.dilation
    row = down // distance * strip.shape[1]
    return (row, 1) if len(conv.steps) == 2 else (row, right * conv.inner, 1)


def read_strip(conv: Convolution, strip: Buffer, distance: int) -> Read:
    """Read windows from the padded strip, whose rows are so far apart in the input."""
    window, inner = conv.window, conv.inner
    (sh, sw), (dh, dw) = window.strides, window.dilation
    dh = dh // distance

    def joined(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(strip, row * sh + k[0] * dh, column * (sw * inner) + k[1])

    def apart(row: PrimExpr, column: PrimExpr, k: tuple[PrimExpr, ...]) -> PrimExpr:
        return load(strip, row * sh + k[0] * dh, (column * sw + k[1] * dw) * inner + k[2])

    return joined if len(conv.steps) == 2 else apart
