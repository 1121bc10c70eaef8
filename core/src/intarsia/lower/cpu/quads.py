# SPDX-License-Identifier: Apache-2.0
"""Schedules of the operators on 8-bit integers: those of float32, on four bytes at a time.

Data is read as 32-bit elements, so loops, strips and tiles are those of the float32 schedules; a
step of a tile adds four products to each sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from ...dtype import DType
from ...target.target import Target
from ...tir.buffer import Buffer
from ...tir.expr import BinaryOp, IntImm, PrimExpr, binary, cast, const
from ...tir.func import PrimFunc
from ...tir.stmt import Stmt
from ..kernels import FusedGroup
from .channelwise import Channelwise, channelwise_loops
from .conv import Convolution, conv_loops
from .dense import dense_loops, flat_rows
from .group import operands
from .loops import QuadView, load
from .quantised import QUAD, QuadDense, QuantConvAttrs
from .tile import ChannelSums, Shape, Taps
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


@dataclass(frozen=True, slots=True)
class _Signed:
    """Products of signed bytes on the left: they are moved up by 128, which flips a bit each."""

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]

    def __call__(self, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self.add(total, binary(BinaryOp.XOR, left, IntImm(_TOP_BITS, left.dtype)), right)


@dataclass(frozen=True, slots=True)
class _SumTaps:
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


@dataclass(frozen=True, slots=True)
class QuadSchedules:
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

    def _source(self, target: Target, data: Buffer) -> tuple[Shape, QuadView] | None:
        """Return the tile, and the data as it is read."""
        plain = self.shape_of(target, DType.INT32)
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
        found = self._source(target, data)
        if found is None or not isinstance(attrs, QuantConvAttrs):
            return None
        shape, source = found
        zero = attrs.zero ^ 0x80 if data.dtype.is_signed else attrs.zero
        blank = int.from_bytes(bytes([zero] * QUAD), "little", signed=True)
        window = window_of(data.shape[1:3], given.fused.output.shape[1:3], attrs)
        work = Convolution(source, weight, attrs.outputs, attrs.groups, window, blank)
        return given.function(conv_loops(shape, work, given.finish))

    def dense(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.qdense``."""
        given = operands(group)
        if given is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        data, weight = given.args
        found = self._source(target, data)
        if found is None or not isinstance(attrs, QuadDense.Attrs):
            return None
        shape, source = found
        rows, outer = flat_rows(source), list(data.shape[:-1])
        body = dense_loops(shape, rows, weight, attrs.outputs, given.finish, outer)
        return given.function(body)

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
