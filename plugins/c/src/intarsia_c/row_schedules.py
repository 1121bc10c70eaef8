# SPDX-License-Identifier: Apache-2.0
"""Schedules of 8-bit products for processors with DSP instructions or MVE: by rows.

Loops, outermost first::

    start = what sums start from: the bias          # once
    for up to four neighbouring rows of A (pixels):
        panel = their windows, unpacked and padded  # row_panels.py
        results of all columns                      # row_kernels.py, which has the registers

A microcontroller has no cache that a block of weights would have to stay in, and few registers:
address arithmetic and unpacking cost as much as the products of a tile. So a call goes through all
columns, rows are unpacked once for all of them, and no strip of padded rows is needed. CMSIS-NN
loops in the same order: some columns of im2col, then all output channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from msgspec import Struct

from intarsia_ir.graph.op import OpAttrs
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    CastExpr,
    FloatImm,
    Load,
    PrimExpr,
    TirVar,
    const,
    index,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, Invoke, Stmt
from intarsia_loops.codegen.c_values import rounded_byte
from intarsia_loops.cpu.group import GroupOperands, operands
from intarsia_loops.cpu.int8x4 import INT8_PER_WORD, Int8ConvAttrs, Int8x4Dense
from intarsia_loops.cpu.loops import cut, for_parts, load, seq, serial, store, unflatten
from intarsia_loops.cpu.table import Schedule
from intarsia_loops.cpu.window import Window, window_of
from intarsia_loops.targets import LoopTarget
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .byte_results import Bytes
from .depthwise_kernels import start_of_depthwise
from .depthwise_shape import DepthwiseShape
from .row_kernels import bytes_name, rows_name, start_name
from .row_panels import Geometry, pack_name, panel_words, window_name
from .target import COptions

_PANEL_WORDS = 2048
"""Most words of a panel of four rows: 8 KiB, of the 64 KiB or little more that machines have."""


class Requantization(Struct, frozen=True):
    """An epilogue that makes bytes of sums: ``byte(float(sum + bias) * scale) + zero``.

    Attributes:
        bias: One for each column; ``None`` if there is none.
        scale: One for each column, or the one that all have.
        zero: Zero point of the results.
    """

    bias: Buffer | None
    scale: Buffer | float
    zero: int

    def bytes_of(self, output: Buffer) -> Bytes:
        """Return the bytes that a result has."""
        return Bytes("i" if output.dtype.is_signed else "u", self.zero != 0)


class Products(Struct, frozen=True):
    """Rows of bytes times packed weights.

    Attributes:
        anchor: Buffers and epilogue.
        words: Int8x4 words of a row.
        columns: Results of a row.
        unpack: ``unpack(panel, places, number, rows)``: fills a panel that has ``places`` for rows
            with ``rows`` of them, from ``number`` on.
        place: ``place(number)``: the indices of a row of results, but for the channel.
    """

    anchor: GroupOperands
    words: int
    columns: int
    unpack: Callable[[Buffer, int, PrimExpr, int], Stmt]
    place: Callable[[PrimExpr], tuple[PrimExpr, ...]]

    def loops(self, lines: int, rows: int) -> Stmt:
        """Return the loops over ``lines`` of ``rows`` rows, of which neighbours are together."""
        weight, output = self.anchor.args[1], self.anchor.fused.output
        fitting = 4 if panel_words(4, self.words) <= _PANEL_WORDS else 2
        places = 1 if prod(output.shape[:-1]) == 1 else fitting
        last = requantization(self.anchor, self.place(index(0)))
        stored = weight.shape[0] * weight.shape[2]
        bias = None if last is None else last.bias
        # What a single row lacks is added where it is multiplied: its sums start from the bias.
        given = bias if places == 1 and stored == self.columns else None
        start = _temporary("start", stored, DType.INT32) if given is None else given
        panel = _temporary("panel", panel_words(places, self.words), DType.INT32)
        stores = self._sums(places, start) if last is None else self._bytes(last, places)

        def tile(first: PrimExpr, count: int) -> Stmt:
            shared = (load(start, 0), load(weight, 0, 0, 0), load(panel, 0))
            unpacked = self.unpack(panel, places, first, count)
            return seq(unpacked, stores.rows(shared, first, count))

        def line(y: PrimExpr) -> Stmt:
            return for_parts(cut(rows, places), lambda x, n: tile(y * rows + x, n), "x")

        body = serial(lines, line, "y") if lines > 1 else line(index(0))
        if given is not None:
            return Allocate(panel, stores.around(body))
        begin = self._start(start, places, bias)
        return Allocate(start, Allocate(panel, stores.around(seq(begin, body))))

    def _start(self, start: Buffer, panel: int, bias: Buffer | None) -> Stmt:
        """Write what sums start from."""
        weight = self.anchor.args[1]
        name = start_name(panel, weight.shape[2], has_bias=bias is not None)
        places = [load(start, 0), *([] if bias is None else [load(bias, 0)])]
        return call(name, (*places, load(weight, 0, 0, 0)), (self.words, self.columns))

    def _sums(self, places: int, start: Buffer) -> _RowStores:
        """Return what stores sums, and runs the epilogue on them.

        Sums of a single row take the place of what they start from.
        """
        width, single = self.anchor.args[1].shape[2], places == 1
        sums = start if single else _temporary("sums", places * self.columns, DType.INT32)

        def rows(shared: tuple[PrimExpr, ...], first: PrimExpr, count: int) -> Stmt:
            name = rows_name(count, places, width)
            added = call(name, (load(sums, 0), *shared), (self.words, self.columns))

            def stored(r: int) -> Stmt:
                place = self.place(first + r)
                return serial(
                    self.columns,
                    lambda c: self.anchor.epilogue(load(sums, c + r * self.columns), (*place, c)),
                    "channel",
                )

            return seq(added, *(stored(r) for r in range(count)))

        return _RowStores(rows, lambda body: body if single else Allocate(sums, body))

    def _bytes(self, last: Requantization, places: int) -> _RowStores:
        """Return what stores bytes."""
        width, output = self.anchor.args[1].shape[2], self.anchor.fused.output
        scales = scales_of(last, self.columns)

        def rows(shared: tuple[PrimExpr, ...], first: PrimExpr, count: int) -> Stmt:
            name = bytes_name(count, places, width, last.bytes_of(output), self.words)
            out = load(output, *self.place(first), 0)
            numbers = (self.words, self.columns, last.zero)
            return call(name, (out, load(scales.buffer, 0), *shared), numbers)

        return _RowStores(rows, scales.around)


class _RowStores(Struct, frozen=True):
    """What is done with the sums of rows.

    Attributes:
        rows: ``rows(operands, first, count)``: multiplies the rows of a panel and stores results.
        around: ``around(body)``: ``body`` with the temporaries that it needs.
    """

    rows: Callable[[tuple[PrimExpr, ...], PrimExpr, int], Stmt]
    around: Callable[[Stmt], Stmt]


class Scales(Struct, frozen=True):
    """The scales of all columns, and what has to be around loops that read them."""

    buffer: Buffer
    around: Callable[[Stmt], Stmt]


def scales_of(last: Requantization, columns: int) -> Scales:
    """Return scales in memory, one for each column."""
    scale = last.scale
    if isinstance(scale, Buffer):
        return Scales(scale, lambda body: body)
    buffer = _temporary("scales", columns, DType.FLOAT32)
    value = const(scale, DType.FLOAT32)

    def around(body: Stmt) -> Stmt:
        fill = serial(columns, lambda c: store(buffer, (c,), value), "channel")
        return Allocate(buffer, seq(fill, body))

    return Scales(buffer, around)


def _temporary(name: str, size: int, dtype: DType) -> Buffer:
    return Buffer(name, (size,), dtype, MemoryScope.STACK)


def call(name: str, places: tuple[PrimExpr, ...], values: tuple[PrimExpr | int, ...]) -> Stmt:
    """Return the call of a C function with the addresses of some elements, and integers."""
    loads = tuple(place for place in places if isinstance(place, Load))
    return Invoke("c", name, loads, tuple(index(value) for value in values))


def requantization(anchor: GroupOperands, place: tuple[PrimExpr, ...]) -> Requantization | None:
    """Return what the epilogue is, if it is a requantization along the last axis."""
    columns = anchor.fused.output.shape[-1]
    channel, total = TirVar("c"), TirVar("sum", DType.INT32)
    byte = anchor.fused.apply(total, (*place, channel))
    rounded = rounded_byte(byte) if isinstance(byte, CastExpr) else None
    if rounded is None or rounded.may_be_nan or not isinstance(rounded.value, Binary):
        return None
    value, factor = rounded.value.a, rounded.value.b
    scale = factor.value if isinstance(factor, FloatImm) else _vector(factor, channel, columns)
    if scale is None or not isinstance(value, CastExpr) or value.dtype is not DType.FLOAT32:
        return None
    inner, bias = value.value, None
    if isinstance(inner, Binary) and inner.op is BinaryOp.ADD:
        inner, bias = inner.a, _vector(inner.b, channel, columns)
        if bias is None:
            return None
    return Requantization(bias, scale, rounded.zero) if inner is total else None


def _vector(value: PrimExpr, channel: TirVar, size: int) -> Buffer | None:
    """Return the buffer that a value is an element of, one for each channel."""
    if isinstance(value, Load) and value.indices == (channel,) and value.buffer.shape == (size,):
        return value.buffer
    return None


class RowSchedules(Struct, frozen=True):
    """Schedules by rows, and those that take what has no such loops.

    Attributes:
        others: Operator name to its schedule.
    """

    others: Mapping[str, Schedule]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return {
            "cpu.qconv": self.conv,
            "cpu.qdense": self.dense,
            "cpu.qdepthwise": self.depthwise,
        }

    def conv(self, group: FusedGroup, target: LoopTarget[COptions]) -> PrimFunc | None:
        """``cpu.qconv`` without groups."""
        anchor, attrs = operands(group), _attrs(group)
        if anchor is None or not suits_rows(anchor, target):
            return self.others["cpu.qconv"](group, target)
        if not isinstance(attrs, Int8ConvAttrs) or attrs.groups > 1:
            return self.others["cpu.qconv"](group, target)
        data = anchor.args[0]
        window = window_of(data.shape[1:3], anchor.fused.output.shape[1:3], attrs)
        if window.is_point:
            return _flat(anchor, attrs.outputs)
        batch, height, width, channels = data.shape
        rows, columns = window.output
        shape = Geometry(
            (height, width, channels), window.kernel, window.strides[1], window.dilation, attrs.zero
        )

        def place(number: PrimExpr) -> tuple[PrimExpr, ...]:
            return tuple(unflatten(number, [batch, rows, columns]))

        def unpack(panel: Buffer, places: int, number: PrimExpr, count: int) -> Stmt:
            n, y, x = place(number)
            name = window_name(places, shape, signed=data.dtype.is_signed)
            first = [
                at * step - before
                for at, step, before in zip((y, x), window.strides, window.padding, strict=True)
            ]
            return call(name, (load(panel, 0), load(data, n, 0, 0, 0)), (*first, count))

        work = Products(anchor, shape.words, attrs.outputs, unpack, place)
        return anchor.function(work.loops(batch * rows, columns))

    def dense(self, group: FusedGroup, target: LoopTarget[COptions]) -> PrimFunc | None:
        """``cpu.qdense``."""
        anchor, attrs = operands(group), _attrs(group)
        suits = anchor is not None and suits_rows(anchor, target)
        if anchor is None or not suits or not isinstance(attrs, Int8x4Dense.Attrs):
            return self.others["cpu.qdense"](group, target)
        return _flat(anchor, attrs.outputs)

    def depthwise(self, group: FusedGroup, target: LoopTarget[COptions]) -> PrimFunc | None:
        """``cpu.qdepthwise`` whose results are bytes."""
        anchor, attrs = operands(group), _attrs(group)
        if anchor is None or not isinstance(attrs, Int8ConvAttrs) or not suits_rows(anchor, target):
            return self.others["cpu.qdepthwise"](group, target)
        output = anchor.fused.output
        last = requantization(anchor, (index(0),) * 3)
        window = window_of(anchor.args[0].shape[1:3], output.shape[1:3], attrs)
        shape = None if last is None else _depthwise_shape(anchor, attrs, window, last)
        if last is None or shape is None or not shape.is_supported:
            return self.others["cpu.qdepthwise"](group, target)
        return anchor.function(_depthwise(anchor, shape, last))


def _depthwise_shape(
    anchor: GroupOperands, attrs: Int8ConvAttrs, window: Window, last: Requantization
) -> DepthwiseShape:
    data, output = anchor.args[0], anchor.fused.output
    _, height, width, channels = data.shape
    return DepthwiseShape(
        data.dtype.is_signed, last.bytes_of(output), (height, width, channels), window.output,
        window.kernel, window.strides, window.padding, window.dilation, attrs.zero,
    )  # fmt: skip


def _depthwise(anchor: GroupOperands, shape: DepthwiseShape, last: Requantization) -> Stmt:
    """Return the loop over the images."""
    data, weight = anchor.args
    channels, taps = shape.size[2], prod(shape.kernel)
    start = _temporary("start", channels, DType.INT32)
    strip = _temporary("strip", shape.strip_words, DType.INT32)
    scales = scales_of(last, channels)
    places = [load(start, 0), *([] if last.bias is None else [load(last.bias, 0)])]
    begin = call(
        start_of_depthwise(has_bias=last.bias is not None),
        (*places, load(weight, 0, 0, 0)), (channels, taps, shape.zero),
    )  # fmt: skip

    def image(n: PrimExpr) -> Stmt:
        operands = (load(start, 0), load(weight, 0, 0, 0), load(data, n, 0, 0, 0), load(strip, 0))
        out = load(anchor.fused.output, n, 0, 0, 0)
        return call(shape.name, (out, load(scales.buffer, 0), *operands), (last.zero,))

    body = seq(begin, serial(data.shape[0], image, "image"))
    return Allocate(start, Allocate(strip, scales.around(body)))


def _attrs(group: FusedGroup) -> OpAttrs | None:
    return None if group.anchor is None else group.anchor.attrs


def suits_rows(anchor: GroupOperands, target: LoopTarget[COptions]) -> bool:
    """Whether there are rows of a known size, and instructions for them."""
    sizes = anchor.args[0].shape
    return target.options.has_dsp and not any(isinstance(size, Dim) for size in sizes)


def _flat(anchor: GroupOperands, outputs: int) -> PrimFunc:
    """Return the kernel of rows that lie behind each other."""
    data = anchor.args[0]
    *outer, depth = data.shape
    words = depth // INT8_PER_WORD

    def place(number: PrimExpr) -> tuple[PrimExpr, ...]:
        return tuple(unflatten(number, outer))

    def unpack(panel: Buffer, places: int, number: PrimExpr, count: int) -> Stmt:
        name = pack_name(places, signed=data.dtype.is_signed)
        return call(name, (load(panel, 0), load(data, *place(number), 0)), (words, count))

    work = Products(anchor, words, outputs, unpack, place)
    return anchor.function(work.loops(1, prod(outer)))
