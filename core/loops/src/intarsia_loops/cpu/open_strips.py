# SPDX-License-Identifier: Apache-2.0
"""The work item of an open convolution, and the addresses of its tiles (``open_conv.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from intarsia_ir.tir.expr import PrimExpr, TirVar


class StripItem(Struct, frozen=True):
    """What one item computes: rows and columns of an image, for some blocks of channels.

    Attributes:
        image: Number of the image.
        group: Of channels.
        row: First row of results.
        column: First column of results.
        height: Rows.
        width: Columns.
        blocks: First block of channels, and the one behind the last.
        taps: Rows and columns of windows that are read; all if there are none.
    """

    image: PrimExpr
    group: PrimExpr
    row: PrimExpr
    column: PrimExpr
    height: PrimExpr
    width: PrimExpr
    blocks: tuple[PrimExpr, PrimExpr]
    taps: tuple[TapRange, ...] = ()


class TapRange(Struct, frozen=True):
    """The taps of a row or column of windows that are read: the first, and how many."""

    first: TirVar
    count: TirVar


class TilePixel(Struct, frozen=True):
    """A result of a tile: its row and column in the strip, and where what it reads begins."""

    row: PrimExpr
    column: PrimExpr
    place: PrimExpr


class StripReader(Struct, frozen=True):
    """How a result reads what it is computed from.

    Attributes:
        place: ``place(row, column)``: where the first element that a result reads lies.
        element: ``element(place, step)``: an element from there on.
    """

    place: Callable[[PrimExpr, PrimExpr], PrimExpr]
    element: Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]
