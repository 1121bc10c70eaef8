# SPDX-License-Identifier: Apache-2.0
"""The schedules for CPUs by operator: ``schedule(group, target) -> PrimFunc | None``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.pooling import PoolAttrs
from intarsia_ir.ops.windows import Windows
from intarsia_ir.tir.expr import PrimExpr, cast, const
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.passes.stack_to_scratch import stack_to_scratch
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..targets import LoopTarget
from .bf16x2_schedules import Bf16x2Schedules
from .block_matmul import BlockSchedules
from .column_dense import ColumnDense, ColumnProduct, column_dense_loops
from .conv import Convolution, conv_loops
from .dense import dense_loops
from .group import GroupOperands, anchored
from .int4_bytes import Int4ByteSchedules
from .int8x4_schedules import Int8x4Schedules, Schedule
from .loops import load
from .matmul import matmul_loops
from .nchw_conv import NchwConv, NchwGeometry, nchw_conv_loops
from .nchw_depthwise import NchwDepthwiseConv, nchw_depthwise_loops
from .nhwc_windows import NhwcWindows, nhwc_window_loops
from .open_conv import open_conv_loops
from .open_dense import open_dense_loops
from .open_matmul import open_matmul_loops
from .open_winograd import open_winograd_loops
from .operators import ConvAttrs, Dense
from .panel import flat_rows
from .pools import PoolSchedules
from .product_panels import Product
from .recurrent import RecurrentSchedules
from .tiling import CpuTiling
from .window import Window, window_of
from .winograd import WinogradOperands, winograd_loops


def _window(anchor: GroupOperands, attrs: ConvAttrs | PoolAttrs) -> Window:
    return window_of(anchor.args[0].shape[1:3], anchor.fused.output.shape[1:3], attrs)


class OnWorkspace(Struct, frozen=True):
    """A schedule whose temporaries lie in the workspace, not on the stack.

    Attributes:
        schedule: Makes the kernel.
        applies: For which targets; others get the kernel as it is.
    """

    schedule: Schedule
    applies: Callable[[LoopTarget], bool]

    def __call__(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        kernel = self.schedule(group, target)
        return stack_to_scratch(kernel) if kernel is not None and self.applies(target) else kernel


class Schedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType(
            {
                "cpu.column_dense": self.column_dense,
                "cpu.conv": self.conv,
                "cpu.dense": self.dense,
                "cpu.depthwise": self.depthwise,
                "cpu.plane_conv": self.plane_conv,
                "cpu.plane_depthwise": self.plane_depthwise,
                **PoolSchedules(self.tiling_of).table(),
                **BlockSchedules(self.tiling_of).table(),
                **Int4ByteSchedules(self.tiling_of).table(),
                **RecurrentSchedules(self.tiling_of).table(),
                **Bf16x2Schedules(self.tiling_of).table(),
                **Int8x4Schedules(self.tiling_of).table(),
                "cpu.winograd": self.winograd,
                "matmul": self.matmul,
            }
        )

    def _shape(self, target: LoopTarget, anchor: GroupOperands) -> CpuTiling:
        return self.tiling_of(target, anchor.args[0].dtype)

    def conv(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.conv``."""
        match = anchored(group, ConvAttrs)
        if match is None:
            return None
        anchor, attrs = match
        data, weight = anchor.args
        work = Convolution(data, weight, attrs.outputs, attrs.groups, _window(anchor, attrs))
        is_open = any(isinstance(size, Dim) for size in data.shape)
        loops = open_conv_loops if is_open else conv_loops
        return anchor.function(loops(self._shape(target, anchor), work, anchor.epilogue))

    def winograd(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.winograd``."""
        match = anchored(group, ConvAttrs)
        if match is None:
            return None
        anchor, attrs = match
        data, weight = anchor.args
        work = WinogradOperands(data, weight, attrs.outputs, _window(anchor, attrs))
        is_open = any(isinstance(size, Dim) for size in data.shape)
        loops = open_winograd_loops if is_open else winograd_loops
        body, scratch = loops(self._shape(target, anchor), work, anchor.epilogue)
        kernel = anchor.function(body)
        return replace(kernel, params=(*kernel.params, scratch), scratch=1)

    def dense(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.dense``."""
        match = anchored(group, Dense.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        a, weight = anchor.args
        outer = list(a.shape[:-1])
        outputs = attrs.outputs
        tiling = self._shape(target, anchor)
        args = (tiling, flat_rows(a), weight, outputs, anchor.epilogue, outer)
        if not isinstance(prod(outer), Dim):
            return anchor.function(dense_loops(*args))
        # Two open axes behind the batch are the pixels of an image.
        is_image = sum(isinstance(size, Dim) for size in outer[1:]) > 1
        return anchor.function(open_dense_loops(*args, many=is_image, few=attrs.few))

    def column_dense(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.column_dense``."""
        match = anchored(group, ColumnDense.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        b, weight = anchor.args
        work = ColumnProduct(b, weight, attrs.outputs, anchor.epilogue)
        return anchor.function(column_dense_loops(self._shape(target, anchor), work))

    def matmul(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``matmul`` of two values known at run time."""
        match = anchored(group, Matmul.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        a, b = anchor.args
        if not a.dtype.is_float or a.dtype.bits < 32:
            return None
        *batch, rows, columns = anchor.fused.output.shape
        depth = a.shape[-2 if attrs.transpose_a else -1]
        product = Product(
            a, b, tuple(batch), rows, columns, depth, attrs.transpose_a, attrs.transpose_b
        )
        # The loops of known sizes write rows in order, and need not know how many products.
        sizes = (*(batch if attrs.transpose_b else ()), rows, columns, depth)
        is_open = any(isinstance(size, Dim) for size in sizes)
        loops = open_matmul_loops if is_open else matmul_loops
        body = loops(self._shape(target, anchor), product, anchor.epilogue)
        return None if body is None else anchor.function(body)

    def depthwise(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.depthwise``."""
        match = anchored(group, ConvAttrs)
        if match is None:
            return None
        anchor, attrs = match
        data, weight = anchor.args

        def combine(
            value: PrimExpr, element: PrimExpr, tap: tuple[PrimExpr, PrimExpr], c: PrimExpr
        ) -> PrimExpr:
            taken = load(weight, tap[0], tap[1], c)
            return value + cast(element, weight.dtype) * taken

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return anchor.epilogue(value, indices)

        window = _window(anchor, attrs)
        work = NhwcWindows(data, window, const(0, weight.dtype), combine, epilogue)
        return anchor.function(nhwc_window_loops(work, self.tiling_of(target, weight.dtype)))

    def plane_depthwise(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.plane_depthwise``."""
        match = anchored(group, Conv.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        data, weight = anchor.args
        windows = Windows(weight.shape[2:], attrs.strides, attrs.padding, attrs.dilation)
        rows, columns = anchor.fused.output.shape[2:]
        work = NchwDepthwiseConv(data, weight, windows, (rows, columns), anchor.epilogue)
        return anchor.function(nchw_depthwise_loops(work, self._shape(target, anchor)))

    def plane_conv(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.plane_conv``."""
        match = anchored(group, ConvAttrs)
        if match is None:
            return None
        anchor, attrs = match
        data, weight = anchor.args
        rows, columns = anchor.fused.output.shape[2:]
        inner, own = data.shape[1] // attrs.groups, attrs.outputs // attrs.groups
        geometry = NchwGeometry(inner, own, attrs.windows, (rows, columns))
        work = NchwConv(data, weight, attrs.groups, geometry, anchor.epilogue)
        return anchor.function(nchw_conv_loops(self._shape(target, anchor), work))
