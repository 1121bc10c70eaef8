# SPDX-License-Identifier: Apache-2.0
"""Which loops compute which operator: ``schedule(group, target) -> PrimFunc | None``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from msgspec import Struct

from ...dtype import DType
from ...ops.nn import Conv, Matmul
from ...ops.pooling import PoolAttrs
from ...ops.windows import Windows
from ...target.target import Target
from ...tir.expr import PrimExpr, cast, const
from ...tir.func import PrimFunc
from ...tir.passes.stack_to_scratch import stack_to_scratch
from ...tir.stmt import Stmt
from ..kernels import FusedGroup
from .channelwise import Channelwise, channelwise_loops
from .conv import Convolution, conv_loops
from .dense import dense_loops
from .depthwise import DepthwisePlanes, depthwise_planes
from .group import Operands, anchored
from .loops import load
from .matmul import Product, matmul_loops
from .operators import ConvAttrs, Dense
from .pair_schedules import PairSchedules
from .panel import flat_rows
from .pools import PoolSchedules
from .quads import QuadSchedules, Schedule
from .tile import Shape
from .window import Window, window_of
from .winograd import Winograd, winograd_loops


def _window(given: Operands, attrs: ConvAttrs | PoolAttrs) -> Window:
    return window_of(given.args[0].shape[1:3], given.fused.output.shape[1:3], attrs)


class OnWorkspace(Struct, frozen=True):
    """A schedule whose temporaries lie in the workspace, not on the stack.

    Attributes:
        schedule: Makes the kernel.
        applies: For which targets; others get the kernel as it is.
    """

    schedule: Schedule
    applies: Callable[[Target], bool]

    def __call__(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        kernel = self.schedule(group, target)
        return stack_to_scratch(kernel) if kernel is not None and self.applies(target) else kernel


class Schedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        shape_of: ``shape_of(target, dtype)``: the register tile for elements of a type.
    """

    shape_of: Callable[[Target, DType], Shape]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType(
            {
                "cpu.conv": self.conv,
                "cpu.dense": self.dense,
                "cpu.depthwise": self.depthwise,
                "cpu.plane_depthwise": self.plane_depthwise,
                **PoolSchedules(self.shape_of).table(),
                **PairSchedules(self.shape_of).table(),
                **QuadSchedules(self.shape_of).table(),
                "cpu.winograd": self.winograd,
                "matmul": self.matmul,
            }
        )

    def _shape(self, target: Target, given: Operands) -> Shape:
        return self.shape_of(target, given.args[0].dtype)

    def conv(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.conv``."""
        found = anchored(group, ConvAttrs)
        if found is None:
            return None
        given, attrs = found
        data, weight = given.args
        work = Convolution(data, weight, attrs.outputs, attrs.groups, _window(given, attrs))
        return given.function(conv_loops(self._shape(target, given), work, given.finish))

    def winograd(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.winograd``."""
        found = anchored(group, ConvAttrs)
        if found is None:
            return None
        given, attrs = found
        data, weight = given.args
        work = Winograd(data, weight, attrs.outputs, _window(given, attrs))
        body, scratch = winograd_loops(self._shape(target, given), work, given.finish)
        kernel = given.function(body)
        return replace(kernel, params=(*kernel.params, scratch), scratch=1)

    def dense(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.dense``."""
        found = anchored(group, Dense.Attrs)
        if found is None:
            return None
        given, attrs = found
        a, weight = given.args
        outer = list(a.shape[:-1])
        outputs = attrs.outputs
        shape = self._shape(target, given)
        return given.function(
            dense_loops(shape, flat_rows(a), weight, outputs, given.finish, outer)
        )

    def matmul(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``matmul`` of two values known at run time."""
        found = anchored(group, Matmul.Attrs)
        if found is None:
            return None
        given, attrs = found
        a, b = given.args
        if not a.dtype.is_float or a.dtype.bits < 32:
            return None
        *batch, rows, columns = given.fused.output.shape
        depth = a.shape[-2 if attrs.transpose_a else -1]
        product = Product(
            a, b, tuple(batch), rows, columns, depth, attrs.transpose_a, attrs.transpose_b
        )
        body = matmul_loops(self._shape(target, given), product, given.finish)
        return None if body is None else given.function(body)

    def depthwise(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.depthwise``."""
        found = anchored(group, ConvAttrs)
        if found is None:
            return None
        given, attrs = found
        data, weight = given.args

        def combine(
            value: PrimExpr, element: PrimExpr, tap: tuple[PrimExpr, PrimExpr], c: PrimExpr
        ) -> PrimExpr:
            taken = load(weight, tap[0], tap[1], c)
            return value + cast(element, weight.dtype) * taken

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return given.finish(value, indices)

        window = _window(given, attrs)
        work = Channelwise(data, window, const(0, weight.dtype), combine, finish)
        return given.function(channelwise_loops(work, self.shape_of(target, weight.dtype)))

    def plane_depthwise(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.plane_depthwise``."""
        found = anchored(group, Conv.Attrs)
        if found is None:
            return None
        given, attrs = found
        data, weight = given.args
        windows = Windows(weight.shape[2:], attrs.strides, attrs.padding, attrs.dilation)
        rows, columns = given.fused.output.shape[2:]
        work = DepthwisePlanes(data, weight, windows, (rows, columns), given.finish)
        return given.function(depthwise_planes(work, self._shape(target, given)))
