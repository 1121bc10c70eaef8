# SPDX-License-Identifier: Apache-2.0
"""The copy of the rows that a strip of an open convolution reads, with what pads them.

``open_conv.py`` says what a strip is. Rows of whole vectors, as nearly all have, need no remainder.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    PrimExpr,
    TirVar,
    all_of,
    const,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt

from .conv import Convolution
from .loops import copy_rows, let_all, load, seq, serial, store, vectorized
from .open_strips import StripItem, may_leave_rows, strip_span


def fill_strip(
    conv: Convolution,
    lanes: int,
    work: StripItem,
    strip: Buffer,
    sizes: tuple[PrimExpr, PrimExpr],
) -> Stmt:
    """Copy the rows that a strip reads; what is outside the input is blank.

    Args:
        conv: Operands.
        lanes: Elements of a vector.
        work: What is computed from the strip.
        strip: Padded rows.
        sizes: Columns of a row of the strip, and its elements.
    """
    fill = _Fill(conv, lanes, work, strip, sizes)
    window, left = conv.window, fill.left
    inside = [
        (fill.low, minimum(maximum(index(0) - left, 0), sizes[0])),
        (fill.high, maximum(minimum(index(window.size[1]) - left, sizes[0]), fill.low)),
    ]
    if not work.taps:
        rows = serial(strip_span(window, 0, work.height), fill.row, "r")
        return let_all(inside, rows)
    taps, (down, apart) = work.taps[0], (window.strides[0], window.dilation[0])

    def tap(number: PrimExpr) -> Stmt:
        start = (taps.first + number) * apart
        return serial(work.height, lambda y: fill.row(start + y * down), "y")

    return let_all(inside, serial(taps.count, tap, "tap"))


class _Fill:
    """The copy of one row.

    Attributes:
        low: The first column of the strip that is inside of the image.
        high: The column behind the last one.
        left: Column of the image that the first column of the strip would be.
    """

    def __init__(
        self,
        conv: Convolution,
        lanes: int,
        work: StripItem,
        strip: Buffer,
        sizes: tuple[PrimExpr, PrimExpr],
    ) -> None:
        self._conv, self._lanes, self._work, self._strip = conv, lanes, work, strip
        self._across, self._pitch = sizes
        self.low, self.high = TirVar("low"), TirVar("high")
        self.left = work.column * conv.window.strides[1] - conv.window.padding[1]

    def row(self, r: PrimExpr) -> Stmt:
        """Copy a row of the strip: blanks on either side, of rows outside of the image alone.

        Both sides are rounds of one loop, for the code of one.
        """
        conv, window = self._conv, self._conv.window
        low, high = self.low, self.high
        source = self._work.row * window.strides[0] - window.padding[0] + r
        bound: list[tuple[TirVar, PrimExpr]] = []
        if may_leave_rows(window):
            inside = all_of([source >= 0, source < index(window.size[0])])
            low, high = TirVar("start"), TirVar("end")
            bound += [(low, select(inside, self.low, self._across))]
            bound += [(high, select(inside, self.high, self._across))]
        begin, inner, channel = r * self._pitch, conv.inner, self._work.group * conv.inner

        def joined(c: PrimExpr) -> Stmt:
            value = load(conv.data, self._work.image, source, self.left + low, c)
            return store(self._strip, (begin + low * inner + c,), value)

        def pixel(w: PrimExpr) -> Stmt:
            at = low + w

            def element(c: PrimExpr) -> Stmt:
                value = load(conv.data, self._work.image, source, self.left + at, channel + c)
                return store(self._strip, (begin + at * inner + c,), value)

            return copy_rows(inner, self._lanes, element)

        def side(number: PrimExpr) -> Stmt:
            is_right, first = number > 0, TirVar("first")
            count = select(is_right, self._across - high, low) * inner
            blank = const(conv.padding_value, self._strip.dtype)
            cleared = self._elements(count, lambda c: store(self._strip, (first + c,), blank))
            return LetStmt(first, begin + select(is_right, high * inner, index(0)), cleared)

        if conv.groups == 1:
            middle = self._elements((high - low) * inner, joined)
        else:
            middle = serial(high - low, pixel, "w")
        return let_all(bound, seq(serial(2, side, "side"), middle))

    def _elements(self, count: PrimExpr, element: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Run ``element(i)`` for an open number of elements of whole pixels, by vectors.

        Where pixels are no whole vectors, the last one overlaps the one before, and fewer elements
        than a vector has are run one by one.
        """
        lanes = self._lanes

        def vector(start: PrimExpr) -> Stmt:
            return vectorized(lanes, lambda v: element(start + v))

        if lanes == 1:
            return serial(count, element)
        full = serial(count // lanes, lambda o: vector(o * lanes), "part")
        if self._conv.inner % lanes == 0:
            return full
        few = serial(minimum(count, lanes - 1), element)
        return IfStmt(count < lanes, few, seq(full, vector(count - lanes)))
