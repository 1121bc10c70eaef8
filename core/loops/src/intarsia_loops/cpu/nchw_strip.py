# SPDX-License-Identifier: Apache-2.0
"""The strip of a convolution in NCHW: rows of the image, padded, column by column of a stride.

Elements ``s * q + p`` of a row lie together for each ``p``, a phase, so that neighbouring results
read neighbouring elements. Of strides that are powers of two, phases are parted in registers: ``s``
vectors side by side, whose even and odd elements are parted log2(s) times, become a vector of each
phase, 8 shuffles for 64 elements of stride 4. What no whole vector has, and rows of other strides,
are copied by elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from intarsia_ir.ops.windows import Windows
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    all_of,
    const,
    index,
    maximum,
    minimum,
)
from intarsia_ir.tir.stmt import IfStmt, LetStmt, Stmt, Store

from .loops import let_all, load, seq, serial, store, unrolled, vectorized
from .tiling import CpuTiling

_MOST_PARTED = 8
"""Stride up to which phases are parted in registers."""

Line = tuple[PrimExpr, PrimExpr]
Source = tuple[PrimExpr, PrimExpr, PrimExpr]


def fill_nchw_strip(
    tiling: CpuTiling,
    buffers: tuple[Buffer, Buffer],
    windows: Windows,
    corner: tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr],
    lines: PrimExpr,
) -> Stmt:
    """Return the copy of what some rows of results read; what is outside of the image is zero.

    Args:
        tiling: Register tile of the machine.
        buffers: The data ``[N, C, H, W]``, and the strip ``[channels, lines, phases * columns]``.
        windows: The taps.
        corner: Image, first channel, and row and column of the first result.
        lines: Rows to copy.
    """
    (data, strip), (image, channel, row, column) = buffers, corner
    (sh, sw), (top, left) = windows.strides, (before for before, _ in windows.padding)
    copy = _LineCopy(tiling, data, strip, sw, column * sw, left)

    def one(c: PrimExpr, y: PrimExpr) -> Stmt:
        source = TirVar("source")
        inside = all_of([source >= 0, source < index(data.shape[2])])
        outside = copy.cleared((c, y), index(0), index(strip.shape[2]))
        body = IfStmt(inside, copy.loops((image, channel + c, source), (c, y)), outside)
        return LetStmt(source, row * sh - top + y, body)

    return serial(lines, lambda y: serial(strip.shape[0], lambda c: one(c, y), "channel"), "y")


class _LineCopy(Struct, frozen=True):
    """The copy of a row of a channel.

    Attributes:
        tiling: Register tile of the machine.
        data: ``[N, C, H, W]``.
        strip: ``[channels, lines, phases * columns]``.
        stride: How many phases there are.
        column: Of the data, where the first window would begin without padding.
        left: Padding in front of it.
    """

    tiling: CpuTiling
    data: Buffer
    strip: Buffer
    stride: int
    column: PrimExpr
    left: int

    def cleared(self, line: Line, start: PrimExpr, count: PrimExpr) -> Stmt:
        """Set elements of a line to zero."""
        zero = const(0, self.strip.dtype)
        lanes = self.tiling.lanes
        return vector_elements(lanes, count, lambda i: store(self.strip, (*line, start + i), zero))

    def loops(self, source: Source, line: Line) -> Stmt:
        """Copy a row: image, channel and row of the data to channel and row of the strip."""
        is_parted = 1 < self.stride <= _MOST_PARTED and self.stride & (self.stride - 1) == 0
        if self.tiling.deinterleave is None or not is_parted:
            return serial(self.stride, lambda p: self._phase(source, line, p), "phase")
        # Elements that all phases have inside the image: the first one begins first.
        lanes, low, high = self.tiling.lanes, TirVar("first"), TirVar("last")
        bound = [(low, self._inside(index(0))[0]), (high, self._inside(index(self.stride - 1))[1])]

        def part(v: PrimExpr) -> Stmt:
            start = TirVar("start")
            place = minimum(low + v * lanes, high - lanes)
            return LetStmt(start, place, self._parted(source, line, start))

        vectors = serial((high - low + (lanes - 1)) // lanes, part, "part")
        rest = serial(self.stride, lambda p: self._phase(source, line, p, (low, high)), "phase")
        single = serial(self.stride, lambda p: self._phase(source, line, p), "phase")
        return let_all(bound, IfStmt(high - low >= lanes, seq(vectors, rest), single))

    @property
    def _columns(self) -> int:
        """Elements of a phase."""
        return self.strip.shape[2] // self.stride

    def _begin(self, p: PrimExpr) -> PrimExpr:
        """Return the column of the data that a phase begins with, or would begin with."""
        return self.column + (p - self.left)

    def _inside(self, p: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Return the first element of a phase inside the image, and the one behind the last."""
        begin, width = self._begin(p), index(self.data.shape[3])
        behind = minimum((width + (self.stride - 1) - begin) // self.stride, self._columns)
        low = minimum(maximum((index(self.stride - 1) - begin) // self.stride, 0), self._columns)
        return low, behind

    def _phase(
        self, source: Source, line: Line, p: PrimExpr, but: tuple[PrimExpr, PrimExpr] | None = None
    ) -> Stmt:
        """Copy a phase element by element, ``but`` those in a range."""
        stride, columns = self.stride, self._columns
        low, high, (first, behind) = TirVar("low"), TirVar("high"), self._inside(p)

        def copied(start: PrimExpr, i: PrimExpr) -> Stmt:
            taken = load(self.data, *source, self._begin(p) + (start + i) * stride)
            return store(self.strip, (*line, start + i + p * columns), taken)

        if but is not None:
            ends = ((low, but[0]), (but[1], high))
            middle = seq(*(serial(b - a, lambda i, a=a: copied(a, i)) for a, b in ends))
        elif stride == 1:
            middle = vector_elements(self.tiling.lanes, high - low, lambda i: copied(low, i))
        else:
            middle = _eight(high - low, lambda i: copied(low, i))
        before = self.cleared(line, p * columns, low)
        after = self.cleared(line, high + p * columns, index(columns) - high)
        return let_all([(low, first), (high, maximum(behind, low))], seq(before, middle, after))

    def _parted(self, source: Source, line: Line, start: PrimExpr) -> Stmt:
        """Copy a vector of each phase from element ``start`` on."""
        lanes, stride, dtype = self.tiling.lanes, self.stride, self.data.dtype
        deinterleave, lets = self.tiling.deinterleave, list[tuple[TirVar, PrimExpr]]()
        assert deinterleave is not None  # as of who has vectors

        def let(value: PrimExpr) -> TirVar:
            lets.append((TirVar(f"d{len(lets)}", dtype, lanes), value))
            return lets[-1][0]

        def phases(vectors: Sequence[PrimExpr]) -> list[PrimExpr]:
            if len(vectors) == 1:
                return list(vectors)
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            even, odd = (
                phases([let(deinterleave(a, b, first)) for a, b in pairs]) for first in (0, 1)
            )
            return [vector for both in zip(even, odd, strict=True) for vector in both]

        def vector(number: int) -> PrimExpr:
            column = self._begin(index(number * lanes)) + start * stride
            return let(Load(self.data, (*source, Ramp(column, 1, lanes)), dtype, lanes))

        def stored(p: int, value: PrimExpr) -> Stmt:
            return Store(self.strip, (*line, Ramp(start + p * self._columns, 1, lanes)), value)

        parted = phases([vector(number) for number in range(stride)])
        return let_all(lets, seq(*(stored(p, value) for p, value in enumerate(parted))))


def vector_elements(lanes: int, count: PrimExpr, element: Callable[[PrimExpr], Stmt]) -> Stmt:
    """Run ``element(i)`` for a number of elements by vectors, the last of which overlaps."""

    def vector(start: PrimExpr) -> Stmt:
        return vectorized(lanes, lambda v: element(start + v))

    full = serial(count // lanes, lambda o: vector(o * lanes), "part")
    few = serial(minimum(count, lanes - 1), element)
    return IfStmt(count < lanes, few, seq(full, vector(count - lanes)))


def _eight(count: PrimExpr, element: Callable[[PrimExpr], Stmt]) -> Stmt:
    """Run ``element(i)`` for a number of elements, eight written out."""
    full = serial(count // 8, lambda o: unrolled(8, lambda i: element(o * 8 + i)), "part")
    return seq(full, serial(count % 8, lambda i: element(count // 8 * 8 + i)))
