# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution in the model's layout, NCHW: one plane (image, channel) after the other.

Rows of a plane are copied with zeros around them (at most 32 KiB: the first-level cache), so that
vectors of results have no bounds checks. Then tiles of up to 8 output rows x 1 vector of columns
slide over the copy::

    parallel: planes x blocks of rows
      copy rows, padded
      for tile of rows, for vector of columns:      # accumulators in registers
        for kw, for kh: acc[r] += copy[r * s + kh, x + kw] * w[kh, kw]

Registers: 8 accumulators + 1 vector of the copy + 1 broadcast weight = 10 of 16. For stride 1, a
vector of the copy is used by the results of KH rows and is loaded once (the code generator merges
equal loads). Of taller windows 8 taps of a column are written out, which read 15 vectors for 64
multiply-adds: 31 x 31 taps take 0.59 of the time of taps one by one (AMD Zen 4). With stride 2, two
adjacent vectors are deinterleaved in registers. XNNPACK's ``dwconv2d-chw`` kernels, for networks
that stay in NCHW, use the same scheme; the channels-last form is ``nhwc_windows.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Expr, call, tensor_type
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.windows import Windows
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Broadcast, Load, PrimExpr, Ramp, const, index, maximum, minimum
from intarsia_ir.tir.stmt import Allocate, Stmt, Store
from intarsia_runtime.dtype import DType

from ..row_reductions import power_of_two
from .loops import EpilogueStore, cut, for_parts, load, parallel, seq, serial, unrolled, vectorized
from .operators import NchwDepthwise
from .relayout import reshaped
from .tiling import CpuTiling

_COPY_BYTES = 32 * 1024
"""Most memory of a copy, which the first cache holds beside what is read and written."""

_MOST_ROWS = 8
"""Rows of a tile: sums of vectors that are added up at once."""

_MOST_UNROLLED = 9
"""Taps in a row or a column up to which all are written out."""

_TAPS = 8
"""Of a taller column, taps that are written out."""

_MOST_CLEARED = 32
"""Vectors of zeros up to which they are written out."""


def suits_nchw_depthwise(node: Call, tiling: CpuTiling) -> bool:
    """Whether a convolution is computed so: depthwise, with rows that fill half a vector.

    Args:
        node: A convolution of images.
        tiling: Register tile of the machine.
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
    width = tensor_type(node).static_shape[-1]
    # Rows of half a vector as they are, times one number: LLVM 22 aborts on the shuffles of these.
    fills = width >= tiling.lanes if prod(kernel) == 1 else 2 * width >= tiling.lanes
    return tiling.lanes > 1 and fills


def suits_line(data: Expr, wide: Call, tiling: CpuTiling) -> bool:
    """Whether a one-dimensional convolution is computed so: short windows, lines that a copy holds.

    Behind another convolution its result would have to be turned round for it. (Conv-TasNet's, 512
    channels of 1600 elements, AVX2: 1.9 to 2.0 of ONNX Runtime's time with two transposes around.)

    Args:
        data: Its data.
        wide: The same convolution, of images of height 1.
        tiling: Register tile of the machine.
    """
    kind, taps = tensor_type(wide.args[0]), tensor_type(wide.args[1]).static_shape[-1]
    if isinstance(data, Call) and data.op is Conv:
        return False
    if not suits_nchw_depthwise(wide, tiling) or taps > _MOST_UNROLLED:
        return False
    assert isinstance(wide.attrs, Conv.Attrs)  # as of every convolution
    before, behind = wide.attrs.padding[1]
    width = kind.static_shape[-1] + before + behind + 4 * tiling.lanes
    return width * kind.dtype.bytes <= _COPY_BYTES


def depthwise_planes(node: Call, args: Sequence[Expr]) -> Expr:
    """Return a depthwise convolution of images in the model's layout, of ``args``."""
    data, weight, *bias = args
    result = call(NchwDepthwise, data, weight, attrs=node.attrs, span=node.span)
    for term in bias:
        column = reshaped(term, (*tensor_type(term).shape, 1, 1))
        result = call(Add, result, column, span=node.span)
    return result


class NchwDepthwiseConv(Struct, frozen=True):
    """A depthwise convolution.

    Attributes:
        data: ``[N, C, H, W]``.
        weight: ``[C, 1, KH, KW]``.
        windows: The taps.
        output: Rows and columns of results.
        epilogue: Stores a result.
    """

    data: Buffer
    weight: Buffer
    windows: Windows
    output: tuple[int, int]
    epilogue: EpilogueStore

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


def nchw_depthwise_loops(work: NchwDepthwiseConv, tiling: CpuTiling) -> Stmt:
    """Return the loops; blocks of rows of the planes are shared between threads."""
    rows, columns = work.output
    left = work.windows.padding[1][0]
    wide = power_of_two(min(tiling.lanes, work.data.shape[3]))
    lead = -(-left // wide) * wide
    width = lead + max(work.data.shape[3], work.reach(1, columns) - left) + 2 * tiling.lanes
    width = -(-width // tiling.lanes) * tiling.lanes
    block_rows = _rows_per_block(work, width, min(tiling.strip_bytes, _COPY_BYTES))
    blocks = -(-rows // block_rows)
    lines = Buffer("lines", (work.reach(0, block_rows), width), work.data.dtype, MemoryScope.STACK)
    copy = _Copy(lines, lead, wide)

    def block(p: PrimExpr) -> Stmt:
        plane = (p // blocks // work.data.shape[1], p // blocks % work.data.shape[1])
        # The last rows overlap the ones before, if there is no whole number of them.
        first = minimum((p % blocks) * block_rows, rows - block_rows) if blocks > 1 else index(0)
        summed = _tiles(work, tiling, copy, (*plane, first), block_rows)
        return Allocate(lines, seq(_fill(work, copy, plane, first, tiling.lanes), summed))

    return parallel(prod(work.data.shape[:2]) * blocks, block)


def _rows_per_block(work: NchwDepthwiseConv, width: int, most: int) -> int:
    """Return how many rows of results a copy serves: all, or equally large blocks of them."""
    rows, (stride, _) = work.output[0], work.windows.strides
    lines = most // (width * work.data.dtype.bytes)
    fitting = (lines - work.windows.extents[0]) // stride + 1
    return -(-rows // -(-rows // max(fitting, _MOST_ROWS)))


def _fill(
    work: NchwDepthwiseConv,
    copy: _Copy,
    plane: tuple[PrimExpr, PrimExpr],
    first: PrimExpr,
    lanes: int,
) -> Stmt:
    """Copy the rows that the results from ``first`` on read, ``lanes`` at once."""
    lines, _ = copy.rows.shape
    size, columns = work.data.shape[2:]
    (top, _), (left, _) = work.windows.padding
    begin = first * work.windows.strides[0] - top
    # Lanes behind the last column are not stored, and still multiplied: what the stack holds may be
    # subnormal numbers, each of which takes a hundred cycles.
    lanes = max(work.output[1], lanes) + work.windows.strides[1] - 1
    needed = min(work.reach(1, lanes) - left, copy.rows.shape[1] - copy.lead) - columns
    zero = const(0, work.data.dtype)

    def clear(line: PrimExpr, start: int, end: int) -> list[Stmt]:
        def vector(start: PrimExpr | int) -> Stmt:
            return vectorized(copy.lanes, lambda i: _put(copy, line, i + start, zero))

        starts = range(start, end, copy.lanes)
        if len(starts) > _MOST_CLEARED:
            return [serial(len(starts), lambda v: vector(v * copy.lanes + start), "v")]
        return [vector(start) for start in starts]

    def outside(line: PrimExpr) -> Stmt:
        return seq(*clear(line, copy.lead - left, copy.lead + columns + max(needed, 0)))

    def inside(line: PrimExpr) -> Stmt:
        def element(start: PrimExpr, i: PrimExpr) -> Stmt:
            value = load(work.data, *plane, begin + line, start + i)
            return _put(copy, line, start + i + copy.lead, value)

        def piece(start: PrimExpr) -> Stmt:
            return vectorized(copy.lanes, lambda i: element(start, i))

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
    work: NchwDepthwiseConv,
    tiling: CpuTiling,
    copy: _Copy,
    position: tuple[PrimExpr, PrimExpr, PrimExpr],
    block_rows: int,
) -> Stmt:
    """Compute ``block_rows`` rows of results, the first of which is start ``position``."""
    n, c, first = position
    columns, lanes = work.output[1], tiling.lanes
    used = min(columns, lanes)
    limit = min(block_rows, _MOST_ROWS, tiling.rows_for(1))
    rows = -(-block_rows // -(-block_rows // limit))

    def tile(row: PrimExpr, column: PrimExpr) -> Stmt:
        acc = Buffer("acc", (rows, lanes), work.data.dtype, MemoryScope.REGISTER)
        zero = Broadcast(const(0, acc.dtype), lanes, acc.dtype)

        def clear(r: PrimExpr) -> Stmt:
            return Store(acc, (r, Ramp(index(0), 1, lanes)), zero)

        def epilogue(r: PrimExpr) -> Stmt:
            def one(i: PrimExpr) -> Stmt:
                return work.epilogue(load(acc, r, i), (n, c, first + row + r, column + i))

            return vectorized(used, one)

        sums = _sums(work, tiling, (copy, acc), c, (row, column))
        return Allocate(acc, seq(unrolled(rows, clear), sums, unrolled(rows, epilogue)))

    def across(row: PrimExpr) -> Stmt:
        return _spans(columns, used, lambda column: tile(row, column))

    return _spans(block_rows, rows, across, "row")


def _sums(
    work: NchwDepthwiseConv,
    tiling: CpuTiling,
    buffers: tuple[_Copy, Buffer],
    channel: PrimExpr,
    position: tuple[PrimExpr, PrimExpr],
) -> Stmt:
    """Add the taps of a tile, column by column of the window."""
    copy, acc = buffers
    rows, lanes = acc.shape
    (sh, sw), (dh, dw) = work.windows.strides, work.windows.dilation
    height, width = work.windows.kernel
    row, column = position
    begin = copy.lead - work.windows.padding[1][0]

    def element(line: PrimExpr, tap: PrimExpr | int) -> PrimExpr:
        start = column * sw + index(tap) * dw + begin

        def read(start: PrimExpr, apart: int = 1) -> PrimExpr:
            return Load(copy.rows, (line, Ramp(start, apart, lanes)), acc.dtype, lanes)

        if sw == 1 or tiling.deinterleave is None or not isinstance(tap, int):
            return read(start, sw)
        # Neighbours in one pair of vectors: an odd tap is the other half of the even one.
        odd = tap * dw % 2
        return tiling.deinterleave(read(start - odd), read(start - odd + lanes), odd)

    def add(kh: PrimExpr, kw: PrimExpr | int) -> Stmt:
        taken = load(work.weight, channel, 0, kh, kw)
        factor = Broadcast(taken, lanes, acc.dtype)

        def one(r: PrimExpr) -> Stmt:
            here = (r, Ramp(index(0), 1, lanes))
            value = element((row + r) * sh + kh * dh, kw)
            return Store(acc, here, Load(acc, here, acc.dtype, lanes) + value * factor)

        return unrolled(rows, one)

    def down(kw: PrimExpr | int) -> Stmt:
        def some(start: PrimExpr, count: int) -> Stmt:
            return unrolled(count, lambda kh: add(start + kh, kw), "kh")

        size = height if height <= _MOST_UNROLLED else _TAPS
        return for_parts(cut(height, size), some, "part")

    if height * width <= _MOST_UNROLLED or sw > 1:
        return seq(*(down(kw) for kw in range(width)))
    return serial(width, down, "kw")
