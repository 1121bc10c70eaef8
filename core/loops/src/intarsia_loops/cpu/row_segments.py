# SPDX-License-Identifier: Apache-2.0
"""Splits long rows: a strip of one row that exceeds the second-level cache becomes segments.

The last segment overlaps the one before, so all have one size and there is no remainder loop. Two
threads may store a result twice, with the same value.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, all_of
from intarsia_ir.tir.stmt import IfStmt, Stmt

from .loops import copy_rows, serial, store
from .window import Window

_LONG = 4
"""A row is cut if its strip is so many times as large as strips may be."""

_LEAST = 64
"""Results of a piece at least: enough tiles, and few elements that two pieces copy."""


def segment_columns(window: Window, element_bytes: int, most: int, tile: int) -> int:
    """Return how many results of a row one strip serves: all, or those of equal pieces.

    A strip of one whole row holds the rows that dilated taps meet, that of a piece those between,
    too: at 128 x 187 pixels and a dilation of 17, 7 rows instead of 103.

    Args:
        window: Geometry.
        element_bytes: What a strip takes for one position of a row.
        most: Bytes that a strip may have.
        tile: Results of a register tile; a piece has whole ones.
    """
    columns, reach = window.output[1], window.span(1, 1)
    line, met = window.span(0, 1) * element_bytes, window.kernel[0] * element_bytes
    if met * window.span(1, columns) <= _LONG * most:
        return columns
    fitting = (most // line - reach) // window.strides[1] + 1
    wanted = max(fitting, reach // window.strides[1], _LEAST)
    segments = -(-columns // wanted)
    even = -(-columns // segments)
    return min(columns, -(-even // tile) * tile)


class SegmentCopy(Struct, frozen=True):
    """The copy of what the results of a piece read; what is outside the input is blank.

    Attributes:
        strip: ``[rows, columns * channels]``, or rows that are longer.
        columns: Of the strip.
        channels: Of a group.
        size: Rows and columns of the input.
        first: Row and column of the input that the strip begins with; they may be outside.
        blank: What padding holds.
        element: ``element(row, column, channel)`` reads the input; where channels of all columns
            lie one behind the other, ``channel`` counts on in the columns behind.
        is_joined: Whether they do.
    """

    strip: Buffer
    columns: int
    channels: int
    size: tuple[int, int]
    first: tuple[PrimExpr, PrimExpr]
    blank: PrimExpr
    element: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    is_joined: bool

    def loops(self, lanes: int) -> Stmt:
        """Return the loops; a row that lies inside the input is copied as a whole."""
        columns, channels, left = self.columns, self.channels, self.first[1]
        rows, width = self.strip.shape[0], columns * channels

        def inside(source: PrimExpr, column: PrimExpr, count: int) -> PrimExpr:
            across = [column >= 0, column + count <= self.size[1]]
            return all_of([source >= 0, source < self.size[0], *across])

        def row(r: PrimExpr) -> Stmt:
            source = self.first[0] + r

            def row_element(c: PrimExpr) -> Stmt:
                return store(self.strip, (r, c), self.element(source, left, c))

            def pixel(w: PrimExpr) -> Stmt:
                def copied(c: PrimExpr) -> Stmt:
                    value = self.element(source, left + w, c)
                    return store(self.strip, (r, w * channels + c), value)

                def cleared(c: PrimExpr) -> Stmt:
                    return store(self.strip, (r, w * channels + c), self.blank)

                there = copy_rows(channels, lanes, copied)
                return IfStmt(
                    inside(source, left + w, 1), there, copy_rows(channels, lanes, cleared)
                )

            by_pixel = serial(columns, pixel, "w")
            if not self.is_joined:
                return by_pixel
            return IfStmt(
                inside(source, left, columns), copy_rows(width, lanes, row_element), by_pixel
            )

        return serial(rows, row, "r")
