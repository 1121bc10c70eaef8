# SPDX-License-Identifier: Apache-2.0
"""Schedules of the operators on 8-bit integers: those of float32, on four bytes at a time.

Data is read as 32-bit elements, so loops, strips and tiles are those of the float32 schedules; a
step of a tile adds four products to each sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...dtype import DType
from ...target.target import Target
from ...tir.buffer import Buffer
from ...tir.expr import BinaryOp, IntImm, PrimExpr, binary, cast, const
from ...tir.func import PrimFunc
from ...tir.stmt import Stmt
from ..kernels import FusedGroup
from .channelwise import Channelwise, channelwise_loops
from .conv import Convolution, conv_loops, unit_extents
from .dense import dense_loops
from .group import operands
from .loops import QuadView, load
from .matrix_unit import MatrixUnit, suits_unit
from .panel import flat_rows
from .quantised import QUAD, QuadDense, QuantConvAttrs
from .tile import ChannelSums, Shape, Taps
from .unit_dense import unit_dense_loops
from .window import window_of

Schedule: TypeAlias = Callable[[FusedGroup, Target], PrimFunc | None]

_TOP_BITS = int.from_bytes(b"\x80" * QUAD, "little", signed=True)


def add_products(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Return ``total`` and four products of bytes, by shifts: for machines without instructions."""
    for place in range(QUAD):
        low = binary(BinaryOp.SHR, left, IntImm(8 * place, left.dtype))
        high = binary(BinaryOp.SHL, right, IntImm(24 - 8 * place, right.dtype))
        byte = binary(BinaryOp.SHR, high, IntImm(24, right.dtype))
        total = total + binary(BinaryOp.AND, low, IntImm(255, left.dtype)) * byte
    return total


class _Signed(Struct, frozen=True):
    """Products of signed bytes on the left: they are moved up by 128, which flips a bit each."""

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]

    def __call__(self, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self.add(total, binary(BinaryOp.XOR, left, IntImm(_TOP_BITS, left.dtype)), right)


class _SumTaps(Struct, frozen=True):
    """What :class:`Channelwise` does by a backend's procedure, over weights ``[KH, KW, C]``."""

    within: ChannelSums
    data: Buffer
    weight: Buffer
    dilation: tuple[int, int]
    zero: int

    def __call__(
        self,
        sums: Buffer,
        element: PrimExpr,
        tap: tuple[PrimExpr, PrimExpr, PrimExpr],
        extent: tuple[PrimExpr, int],
    ) -> Stmt:
        _, _, width, channels = self.data.shape
        down, right = self.dilation
        taps = Taps(
            data=element,
            weight=load(self.weight, *tap),
            rows=extent[0],
            columns=extent[1],
            data_steps=(down * width * channels, right * channels),
            weight_steps=(self.weight.shape[1] * channels, channels),
            zero=self.zero,
        )
        return self.within.sum_up(sums, taps)


class QuadSchedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        shape_of: ``shape_of(target, dtype)``: the register tile for elements of a type.
    """

    shape_of: Callable[[Target, DType], Shape]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType(
            {"cpu.qconv": self.conv, "cpu.qdense": self.dense, "cpu.qdepthwise": self.depthwise}
        )

    def _source(self, plain: Shape, data: Buffer) -> tuple[Shape, QuadView] | None:
        """Return the tile, and the data as it is read."""
        if plain.quads is None:
            return None
        quads, signed = plain.quads, data.dtype.is_signed
        add = _Signed(quads.add) if signed else quads.add
        sum_up = None if quads.sum_up is None else partial(quads.sum_up, signed=signed)
        return replace(plain, add=add, sum_up=sum_up), QuadView(data, quads.load)

    def conv(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.qconv``."""
        given = operands(group)
        if given is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        data, weight = given.args
        shape = self.shape_of(target, DType.INT32)
        found = self._source(shape, data)
        if found is None or not isinstance(attrs, QuantConvAttrs):
            return None
        window = window_of(data.shape[1:3], given.fused.output.shape[1:3], attrs)

        def work(source: QuadView, zero: int, *, copied: bool = False) -> Convolution:
            blank = int.from_bytes(bytes([zero] * QUAD), "little", signed=True)
            groups = attrs.groups
            return Convolution(source, weight, attrs.outputs, groups, window, blank, copied)

        by_unit = self._by_unit(shape, data)
        if by_unit is not None:
            unit, moved = by_unit
            conv = work(moved, attrs.zero, copied=data.dtype.is_signed)
            if suits_unit(*unit_extents(conv), unit):
                return given.function(conv_loops(replace(shape, unit=unit), conv, given.finish))
        zero = attrs.zero ^ 0x80 if data.dtype.is_signed else attrs.zero
        shape, source = found
        return given.function(conv_loops(shape, work(source, zero), given.finish))

    def dense(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.qdense``."""
        given = operands(group)
        if given is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        data, weight = given.args
        shape = self.shape_of(target, DType.INT32)
        found = self._source(shape, data)
        if found is None or not isinstance(attrs, QuadDense.Attrs):
            return None
        outer, by_unit = list(data.shape[:-1]), self._by_unit(shape, data)
        if by_unit is not None:
            unit, moved = by_unit
            rows = replace(flat_rows(moved), copied=data.dtype.is_signed)
            if suits_unit(rows.rows, rows.depth, unit):
                outputs = attrs.outputs
                return given.function(
                    unit_dense_loops(shape, unit, rows, weight, outputs, given.finish, outer)
                )
        shape, source = found
        body = dense_loops(shape, flat_rows(source), weight, attrs.outputs, given.finish, outer)
        return given.function(body)

    def _by_unit(self, shape: Shape, data: Buffer) -> tuple[MatrixUnit, QuadView] | None:
        """Return the matrix unit, and the data as it is copied for it: unsigned."""
        quads = shape.quads
        if quads is None or quads.unit is None:
            return None
        if not data.dtype.is_signed:
            return quads.unit, QuadView(data, quads.load)

        def read(first: PrimExpr) -> PrimExpr:
            quad = quads.load(first)
            return binary(BinaryOp.XOR, quad, IntImm(_TOP_BITS, quad.dtype))

        return quads.unit, QuadView(data, read)

    def depthwise(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.qdepthwise``."""
        given = operands(group)
        if given is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        if not isinstance(attrs, QuantConvAttrs):
            return None
        data, weight = given.args
        zero = attrs.zero

        def combine(
            value: PrimExpr, element: PrimExpr, tap: tuple[PrimExpr, PrimExpr], c: PrimExpr
        ) -> PrimExpr:
            whole = cast(element, DType.INT32)
            taken = cast(load(weight, tap[0], tap[1], c), DType.INT32)
            return value + (whole - zero if zero else whole) * taken

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return given.finish(value, indices)

        window = window_of(data.shape[1:3], given.fused.output.shape[1:3], attrs)
        work = Channelwise(data, window, const(0, DType.INT32), combine, finish)
        shape = self.shape_of(target, DType.INT32)
        within = None if shape.quads is None else shape.quads.within
        if within is not None:
            work = replace(work, sum_up=_SumTaps(within, data, weight, window.dilation, zero))
            shape = replace(shape, lanes=within.channels, neighbours=1)
        return given.function(channelwise_loops(work, shape))
