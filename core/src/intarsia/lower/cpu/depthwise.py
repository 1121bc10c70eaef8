# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions in the model's layout, plane by plane.

Some rows of a plane are copied with zeros around them, so that vectors of results need not ask
where they are. Then tiles of rows, a vector wide, are summed up in registers: a vector of the copy
is loaded once for all results of its column that it is part of.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from ...dtype import DType
from ...ir.expr import Call, tensor_type
from ...ops.nn import Conv
from ...ops.windows import Windows
from ...tir.buffer import Buffer, Scope
from ...tir.expr import Broadcast, Load, PrimExpr, Ramp, const, index, maximum, minimum
from ...tir.stmt import Allocate, Stmt, Store
from ..along import power_of_two
from .loops import Finish, load, parallel, seq, serial, unrolled, vectorized
from .tile import Shape

_COPY_BYTES = 32 * 1024
"""Most memory of a copy, which the first cache holds beside what is read and written."""

_MOST_ROWS = 8
"""Rows of a tile: sums of vectors that are added up at once."""

_MOST_UNROLLED = 9
"""Taps in a row or a column up to which they are written out."""

_MOST_CLEARED = 32
"""Vectors of zeros up to which they are written out."""


def suits_depthwise_planes(node: Call, shape: Shape) -> bool:
    """Whether a convolution is computed so: depthwise, with rows that fill half a vector.

    Args:
        node: A convolution of pictures.
        shape: Register tile of the machine.
    """
    attrs = node.attrs
    data, weight = (tensor_type(arg) for arg in node.args[:2])
    if not isinstance(attrs, Conv.Attrs) or data.rank != 4 or data.dtype is not DType.FLOAT32:
        return False
    outputs, inner, *kernel = weight.static_shape
    if not attrs.groups == outputs > 1 or inner != 1 or attrs.strides[1] > 2:
        return False
    if attrs.strides[1] == 2 and kernel[1] > _MOST_UNROLLED:
        return False
    return shape.lanes > 1 and 2 * tensor_type(node).static_shape[-1] >= shape.lanes


class DepthwisePlanes(Struct, frozen=True):
    """A depthwise convolution.

    Attributes:
        data: ``[N, C, H, W]``.
        weight: ``[C, 1, KH, KW]``.
        windows: The taps.
        output: Rows and columns of results.
        finish: Stores a result.
    """

    data: Buffer
    weight: Buffer
    windows: Windows
    output: tuple[int, int]
    finish: Finish

    def reach(self, axis: int, results: int) -> int:
        """Return how many positions neighbouring results read, from the first one's first tap."""
        return (results - 1) * self.windows.strides[axis] + self.windows.extents[axis]


class _Copy(Struct, frozen=True):
    """Rows of a plane with zeros around them.

    Attributes:
        rows: ``[lines, elements]``.
        lead: Where in a line the first column of the plane is.
        lanes: Elements that are copied at once.
    """

    rows: Buffer
    lead: int
    lanes: int


def depthwise_planes(work: DepthwisePlanes, shape: Shape) -> Stmt:
    """Return the loops; blocks of rows of the planes are shared between threads."""
    rows, columns = work.output
    left = work.windows.padding[1][0]
    wide = power_of_two(min(shape.lanes, work.data.shape[3]))
    lead = -(-left // wide) * wide
    width = lead + max(work.data.shape[3], work.reach(1, columns) - left) + 2 * shape.lanes
    width = -(-width // shape.lanes) * shape.lanes
    some = _rows_at_once(work, width, min(shape.strip_bytes, _COPY_BYTES))
    blocks = -(-rows // some)
    lines = Buffer("lines", (work.reach(0, some), width), work.data.dtype, Scope.STACK)
    copy = _Copy(lines, lead, wide)

    def block(p: PrimExpr) -> Stmt:
        plane = (p // blocks // work.data.shape[1], p // blocks % work.data.shape[1])
        # The last rows overlap the ones before, if there is no whole number of them.
        first = minimum((p % blocks) * some, rows - some) if blocks > 1 else index(0)
        summed = _tiles(work, shape, copy, (*plane, first), some)
        return Allocate(lines, seq(_fill(work, copy, plane, first), summed))

    return parallel(prod(work.data.shape[:2]) * blocks, block)


def _rows_at_once(work: DepthwisePlanes, width: int, most: int) -> int:
    """Return how many rows of results a copy serves: all, or equally large blocks of them."""
    rows, (stride, _) = work.output[0], work.windows.strides
    lines = most // (width * work.data.dtype.bytes)
    fitting = (lines - work.windows.extents[0]) // stride + 1
    return -(-rows // -(-rows // max(fitting, _MOST_ROWS)))


def _fill(
    work: DepthwisePlanes, copy: _Copy, plane: tuple[PrimExpr, PrimExpr], first: PrimExpr
) -> Stmt:
    """Copy the rows that the results from ``first`` on read."""
    lines, _ = copy.rows.shape
    size, columns = work.data.shape[2:]
    (top, _), (left, _) = work.windows.padding
    begin = first * work.windows.strides[0] - top
    needed = work.reach(1, work.output[1]) - left - columns
    zero = const(0, work.data.dtype)

    def clear(line: PrimExpr, start: int, end: int) -> list[Stmt]:
        def vector(at: PrimExpr | int) -> Stmt:
            return vectorized(copy.lanes, lambda i: _put(copy, line, i + at, zero))

        places = range(start, end, copy.lanes)
        if len(places) > _MOST_CLEARED:
            return [serial(len(places), lambda v: vector(v * copy.lanes + start), "v")]
        return [vector(at) for at in places]

    def outside(line: PrimExpr) -> Stmt:
        return seq(*clear(line, copy.lead - left, copy.lead + columns + max(needed, 0)))

    def inside(line: PrimExpr) -> Stmt:
        def element(at: PrimExpr, i: PrimExpr) -> Stmt:
            value = load(work.data, *plane, begin + line, at + i)
            return _put(copy, line, at + i + copy.lead, value)

        def piece(at: PrimExpr) -> Stmt:
            return vectorized(copy.lanes, lambda i: element(at, i))

        ends = clear(line, 0, copy.lead) if left else []
        if needed > 0:
            behind = copy.lead + columns
            ends += clear(line, behind, behind + needed)
        return seq(*ends, _spans(columns, copy.lanes, piece))

    if top == 0 and work.reach(0, work.output[0]) <= size:
        return serial(lines, inside, "line")
    low = minimum(maximum(index(0) - begin, 0), lines)
    high = maximum(minimum(index(size) - begin, lines), low)
    return seq(
        serial(low, outside, "line"),
        serial(high - low, lambda line: inside(line + low), "line"),
        serial(index(lines) - high, lambda line: outside(line + high), "line"),
    )


def _put(copy: _Copy, line: PrimExpr, column: PrimExpr, value: PrimExpr) -> Stmt:
    return Store(copy.rows, (line, column), value)


def _spans(extent: int, size: int, body: Callable[[PrimExpr], Stmt], name: str = "x") -> Stmt:
    """Run ``body(start)`` so that pieces of ``size`` cover a range; the last one may overlap."""
    count = -(-extent // size)
    if count == 1:
        return body(index(0))
    return serial(count, lambda i: body(minimum(i * size, extent - size)), name)


def _tiles(
    work: DepthwisePlanes,
    shape: Shape,
    copy: _Copy,
    place: tuple[PrimExpr, PrimExpr, PrimExpr],
    some: int,
) -> Stmt:
    """Sum up ``some`` rows of results, the first of which is at ``place``."""
    n, c, first = place
    columns, lanes = work.output[1], shape.lanes
    used = min(columns, lanes)
    limit = min(some, _MOST_ROWS, shape.rows_for(1))
    rows = -(-some // -(-some // limit))

    def tile(row: PrimExpr, column: PrimExpr) -> Stmt:
        acc = Buffer("acc", (rows, lanes), work.data.dtype, Scope.REGISTER)
        zero = Broadcast(const(0, acc.dtype), lanes, acc.dtype)

        def clear(r: PrimExpr) -> Stmt:
            return Store(acc, (r, Ramp(index(0), 1, lanes)), zero)

        def finish(r: PrimExpr) -> Stmt:
            def one(i: PrimExpr) -> Stmt:
                return work.finish(load(acc, r, i), (n, c, first + row + r, column + i))

            return vectorized(used, one)

        sums = _sums(work, shape, (copy, acc), c, (row, column))
        return Allocate(acc, seq(unrolled(rows, clear), sums, unrolled(rows, finish)))

    def across(row: PrimExpr) -> Stmt:
        return _spans(columns, used, lambda column: tile(row, column))

    return _spans(some, rows, across, "row")


def _sums(
    work: DepthwisePlanes,
    shape: Shape,
    buffers: tuple[_Copy, Buffer],
    channel: PrimExpr,
    place: tuple[PrimExpr, PrimExpr],
) -> Stmt:
    """Add the taps of a tile, column by column of the window."""
    copy, acc = buffers
    rows, lanes = acc.shape
    (sh, sw), (dh, dw) = work.windows.strides, work.windows.dilation
    height, width = work.windows.kernel
    row, column = place
    begin = copy.lead - work.windows.padding[1][0]

    def element(line: PrimExpr, tap: PrimExpr | int) -> PrimExpr:
        at = column * sw + index(tap) * dw + begin

        def read(start: PrimExpr, apart: int = 1) -> PrimExpr:
            return Load(copy.rows, (line, Ramp(start, apart, lanes)), acc.dtype, lanes)

        if sw == 1 or shape.every_second is None or not isinstance(tap, int):
            return read(at, sw)
        # Neighbours in one pair of vectors: an odd tap is the other half of the even one.
        odd = tap * dw % 2
        return shape.every_second(read(at - odd), read(at - odd + lanes), odd)

    def add(kh: PrimExpr, kw: PrimExpr | int) -> Stmt:
        taken = load(work.weight, channel, 0, kh, kw)
        factor = Broadcast(taken, lanes, acc.dtype)

        def one(r: PrimExpr) -> Stmt:
            here = (r, Ramp(index(0), 1, lanes))
            value = element((row + r) * sh + kh * dh, kw)
            return Store(acc, here, Load(acc, here, acc.dtype, lanes) + value * factor)

        return unrolled(rows, one)

    def down(kw: PrimExpr | int) -> Stmt:
        loop = unrolled if height <= _MOST_UNROLLED else serial
        return loop(height, lambda kh: add(kh, kw), "kh")

    if height * width <= _MOST_UNROLLED or sw > 1:
        return seq(*(down(kw) for kw in range(width)))
    return serial(width, down, "kw")
