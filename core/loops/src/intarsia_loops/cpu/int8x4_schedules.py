# SPDX-License-Identifier: Apache-2.0
"""Schedules of 8-bit operators: those of float32 over words of four bytes.

Data is read as 32-bit words (Int8x4), so strips, panels and register tiles are those of float32,
and a step of a tile adds four products to each accumulator: 6 x 2 accumulators + 2 B + 1 A = 15 of
16 ymm. The backend gives the step: ``vpdpbusd`` (AVX512-VNNI, AVX-VNNI), a dot micro-kernel (MVE,
DSP instructions of Arm's M profile), or shifts (:func:`dot4_by_shifts`). Without VNNI, x86-64
multiplies pairs of 16 bits by ``vpmaddwd`` (:class:`~.packed_operands.Int16x2`): data are widened
where they are copied, weights where they are loaded, and the registers are those of float32. Where
there is a matrix unit and enough rows, its tiles are used instead. XNNPACK's ``qs8-gemm-*c4``
kernels and the VNNI layout pack four values of K in the same way. Where ``vpmaddubsw`` multiplies
bytes, words of weights have an order of their own (``ordered_words.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, cast, const, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import IfStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..targets import LoopTarget
from .conv import Convolution, conv_loops, matrix_unit_extents
from .dense import dense_loops
from .group import operands
from .int8x4 import Int8ConvAttrs, Int8x4Dense
from .loops import PackedView, Source, load
from .matrix_unit import MatrixUnit, is_packed_for, suits_matrix_unit
from .matrix_unit_dense import matrix_unit_dense_loops
from .moved_bytes import MovedDot, moved_by_copies, moved_pair, moved_view
from .nhwc_windows import NhwcWindows, nhwc_window_loops
from .open_conv import open_conv_loops
from .open_dense import one_row_loops, open_dense_loops
from .open_matrix_unit import open_matrix_unit_dense_loops
from .packed_operands import DepthwiseMicroKernel, Int16x2, Taps
from .packing import INT8_PER_WORD
from .panel import flat_rows
from .tiling import CpuTiling
from .window import window_of

Schedule: TypeAlias = Callable[[FusedGroup, LoopTarget], PrimFunc | None]
Int8Attrs: TypeAlias = "Int8ConvAttrs | Int8x4Dense.Attrs"


class _DepthwiseCall(Struct, frozen=True):
    """What :class:`NhwcWindows` does by a backend's procedure, over weights ``[KH, KW, C]``."""

    depthwise: DepthwiseMicroKernel
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
        return self.depthwise.micro_kernel(sums, taps)


class Int8x4Schedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType(
            {"cpu.qconv": self.conv, "cpu.qdense": self.dense, "cpu.qdepthwise": self.depthwise}
        )

    def _source(
        self, plain: CpuTiling, data: Buffer, weight: Buffer, attrs: Int8Attrs
    ) -> tuple[CpuTiling, PackedView, Source] | None:
        """Return the tile, and data and weights as they are read."""
        if plain.int8x4 is None:
            return None
        int8x4, signed = plain.int8x4, data.dtype.is_signed
        if attrs.is_ordered:  # masks of weights make up for signs of data
            if int8x4.ordered is None:
                return None
            rows = int8x4.ordered.rows_for(4 * prod(weight.shape[1:]))
            ordered = replace(int8x4, ordered=int8x4.ordered.of(signed=signed))
            tiling = replace(plain, rows=-(-rows // 2), int8x4=ordered)
            return tiling, PackedView(data, int8x4.load), weight
        if weight.dtype is DType.INT16:
            return None if int8x4.int16x2 is None else _widened(plain, int8x4.int16x2, data, weight)
        plain_add = int8x4.add
        if attrs.is_narrow and int8x4.add_narrow is not None:
            plain_add, plain = int8x4.add_narrow, replace(plain, rows=int8x4.narrow_rows)
        pairs, add = int8x4.row_pairs if attrs.is_paired else None, plain_add
        if int8x4.add_unsigned is not None and not signed and not attrs.signed:
            add = int8x4.add_unsigned
            if pairs is not None and pairs.add_unsigned is not None:
                pairs = replace(pairs, add=pairs.add_unsigned)
        elif signed is not int8x4.signed:
            add = MovedDot(plain_add)
            pairs = None if pairs is None else replace(pairs, add=MovedDot(pairs.add))
        micro_kernel = (
            None if int8x4.micro_kernel is None else partial(int8x4.micro_kernel, signed=signed)
        )
        tiling = replace(plain, add=add, micro_kernel=micro_kernel, row_pairs=pairs)
        return tiling, PackedView(data, int8x4.load), weight

    def conv(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.qconv``."""
        anchor = operands(group)
        if anchor is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        data, weight = anchor.args
        tiling = self.tiling_of(target, DType.INT32)
        if not isinstance(attrs, Int8ConvAttrs):
            return None
        source = self._source(tiling, data, weight, attrs)
        if source is None:
            return None
        window = window_of(data.shape[1:3], anchor.fused.output.shape[1:3], attrs)
        if weight.dtype is DType.INT16:
            tiling, words, pairs = source
            blank, groups = attrs.zero | attrs.zero << 16, attrs.groups
            conv = Convolution(words, pairs, attrs.outputs, groups, window, blank, copied=True)
            return anchor.function(conv_loops(tiling, conv, anchor.epilogue))

        def work(source: PackedView, zero: int, *, copied: bool = False) -> Convolution:
            blank = int.from_bytes(bytes([zero] * INT8_PER_WORD), "little", signed=True)
            groups = attrs.groups
            operands = (source, weight, attrs.outputs, groups, window, blank, copied)
            return Convolution(*operands, attrs.is_ordered, padding_adds=attrs.zero != 0)

        zero = (attrs.zero & 255) ^ (0x80 if data.dtype.is_signed is not attrs.signed else 0)
        by_unit = self._by_unit(tiling, data)
        if by_unit is not None:
            unit, moved = by_unit
            conv = work(moved, attrs.zero, copied=data.dtype.is_signed)
            suits = suits_matrix_unit(*matrix_unit_extents(conv), unit)
            if is_packed_for(weight, unit) and suits:
                loops = open_conv_loops if is_open_window(conv) else conv_loops
                return anchor.function(loops(replace(tiling, unit=unit), conv, anchor.epilogue))
        tiling, source, _ = source
        if is_open(data):
            body = open_conv_loops(tiling, work(source, zero), anchor.epilogue)
            return anchor.function(body)
        conv = work(source, zero)
        copied = moved_by_copies(tiling, prod(attrs.kernel) * -(-conv.columns // weight.shape[2]))
        if copied is not None:
            tiling, conv = copied, work(moved_view(source), attrs.zero & 255, copied=True)
        return anchor.function(conv_loops(tiling, conv, anchor.epilogue))

    def dense(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.qdense``."""
        anchor = operands(group)
        if anchor is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        data, weight = anchor.args
        tiling = self.tiling_of(target, DType.INT32)
        if not isinstance(attrs, Int8x4Dense.Attrs):
            return None
        source = self._source(tiling, data, weight, attrs)
        if source is None:
            return None
        outer = list(data.shape[:-1])
        if weight.dtype is DType.INT16:
            tiling, words, pairs = source
            rows = replace(flat_rows(words), copied=True)
            body = dense_loops(tiling, rows, pairs, attrs.outputs, anchor.epilogue, outer)
            return anchor.function(body)
        by_unit = self._by_unit(tiling, data)
        if by_unit is not None:
            unit, moved = by_unit
            rows = replace(flat_rows(moved), copied=data.dtype.is_signed)
            if is_packed_for(weight, unit) and suits_matrix_unit(rows.m, rows.k, unit):
                outputs = attrs.outputs
                loops = open_matrix_unit_dense_loops if is_open(data) else matrix_unit_dense_loops
                body = loops(tiling, unit, rows, weight, outputs, anchor.epilogue, outer)
                if is_open(data):
                    alone = one_row_loops(
                        source[0], flat_rows(source[1]), weight, outputs, anchor.epilogue, outer
                    )
                    body = IfStmt(index(rows.m) > 1, body, alone)
                return anchor.function(body)
        tiling, source, _ = source
        product = open_dense_loops if is_open(data) else dense_loops
        rows, rest = flat_rows(source), (attrs.outputs, anchor.epilogue, outer)
        copied = None if is_open(data) else moved_by_copies(tiling, weight.shape[0])
        if copied is not None:
            tiling, rows = copied, replace(flat_rows(moved_view(source)), copied=True)
        body = product(tiling, rows, weight, *rest, is_ordered=attrs.is_ordered)
        return anchor.function(body)

    def _by_unit(self, tiling: CpuTiling, data: Buffer) -> tuple[MatrixUnit, PackedView] | None:
        """Return the matrix unit, and the data as it is copied for it: unsigned."""
        int8x4 = tiling.int8x4
        if int8x4 is None or int8x4.unit is None:
            return None
        words = PackedView(data, int8x4.load)
        return int8x4.unit, moved_view(words) if data.dtype.is_signed else words

    def depthwise(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.qdepthwise``."""
        anchor = operands(group)
        if anchor is None or group.anchor is None:
            return None
        attrs = group.anchor.attrs
        if not isinstance(attrs, Int8ConvAttrs):
            return None
        data, weight = anchor.args
        zero = attrs.zero

        def combine(
            value: PrimExpr, element: PrimExpr, tap: tuple[PrimExpr, PrimExpr], c: PrimExpr
        ) -> PrimExpr:
            value_int32 = cast(element, DType.INT32)
            taken = cast(load(weight, tap[0], tap[1], c), DType.INT32)
            return value + (value_int32 - zero if zero else value_int32) * taken

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return anchor.epilogue(value, indices)

        window = window_of(data.shape[1:3], anchor.fused.output.shape[1:3], attrs)
        work = NhwcWindows(data, window, const(0, DType.INT32), combine, epilogue)
        tiling = self.tiling_of(target, DType.INT32)
        depthwise = None if tiling.int8x4 is None else tiling.int8x4.depthwise
        if depthwise is not None:
            work = replace(
                work, micro_kernel=_DepthwiseCall(depthwise, data, weight, window.dilation, zero)
            )
            tiling = replace(tiling, lanes=depthwise.channels, neighbours=1)
        return anchor.function(nhwc_window_loops(work, tiling))


def _widened(
    plain: CpuTiling, int16x2: Int16x2, data: Buffer, weight: Buffer
) -> tuple[CpuTiling, PackedView, PackedView]:
    """Return the tile, and data and weights as pairs of 16 bits; signed data moved up by 128."""

    def read(first: PrimExpr) -> PrimExpr:
        pair = int16x2.load(first)
        return moved_pair(pair) if data.dtype.is_signed else pair

    tiling = replace(plain, add=int16x2.add, rows=int16x2.rows)
    words = PackedView(data, read, widened=2)
    return tiling, words, PackedView(weight, int16x2.load_weight, widened=1)


def is_open_window(conv: Convolution) -> bool:
    """Whether windows of several taps, or with strides, pass over an image of open sizes."""
    is_point = conv.window.is_point and conv.groups == 1
    return not is_point and any(isinstance(size, Dim) for size in conv.data.shape[1:3])


def is_open(data: Buffer) -> bool:
    """Whether a size is only known at run time."""
    return any(isinstance(size, Dim) for size in data.shape)
