# SPDX-License-Identifier: Apache-2.0
"""Schedules of pools: channels last, or in the model's layout plane by plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from msgspec import Struct

from ...dtype import DType
from ...ir.expr import Call, tensor_type
from ...ops.pooling import AvgPool, PoolAttrs
from ...target.target import Target
from ...tir.expr import PrimExpr, cast, const, index, maximum
from ...tir.func import PrimFunc
from ...tir.stmt import Stmt
from ...tir.tensor import lowest
from ..kernels import FusedGroup
from .channelwise import Channelwise, channelwise_loops
from .group import anchored
from .planes import Planes, pool_planes
from .quads import Schedule
from .tile import Shape
from .window import window_of


def suits_planes(node: Call) -> bool:
    """Whether a pool is computed so: not of half precision, which is computed in float32, and not
    where what ceil_mode adds would have to be told from padding.
    """
    dtype, attrs = tensor_type(node.args[0]).dtype, node.attrs
    told_apart = isinstance(attrs, AvgPool.Attrs) and _tells_padding(attrs)
    return not told_apart and not (dtype.is_float and dtype.bits < 32)


def _tells_padding(attrs: AvgPool.Attrs) -> bool:
    """Whether what ceil_mode adds has to be told from padding."""
    return attrs.ceil_mode and attrs.count_include_pad


class PoolSchedules(Struct, frozen=True):
    """Schedules of pools for machines that a backend describes.

    Attributes:
        shape_of: ``shape_of(target, dtype)``: the register tile for elements of a type.
    """

    shape_of: Callable[[Target, DType], Shape]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType(
            {
                "cpu.avg_pool": self.avg_pool,
                "cpu.max_pool": self.max_pool,
                "cpu.plane_avg_pool": self.plane_avg_pool,
                "cpu.plane_max_pool": self.plane_max_pool,
            }
        )

    def max_pool(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.max_pool``."""
        found = anchored(group, PoolAttrs)
        if found is None:
            return None
        given, attrs = found
        (data,) = given.args
        short = data.dtype.is_float and data.dtype.bits < 32
        wide = DType.FLOAT32 if short else data.dtype  # which has all of their numbers

        def combine(
            value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
        ) -> PrimExpr:
            return maximum(value, cast(element, wide))

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return given.finish(cast(value, data.dtype), indices)

        sizes = (data.shape[1:3], given.fused.output.shape[1:3])
        window = window_of(*sizes, attrs)
        work = Channelwise(data, window, const(lowest(wide), wide), combine, finish)
        return given.function(channelwise_loops(work, self.shape_of(target, wide)))

    def avg_pool(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.avg_pool``; not where what ceil_mode adds would have to be told from padding."""
        found = anchored(group, AvgPool.Attrs)
        if found is None:
            return None
        given, attrs = found
        (data,) = given.args
        if data.dtype.bits < 32 or _tells_padding(attrs):
            return None
        every = attrs.kernel[0] * attrs.kernel[1]

        def combine(
            value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
        ) -> PrimExpr:
            return value + element

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], taps: PrimExpr) -> Stmt:
            count = const(every, data.dtype) if attrs.count_include_pad else cast(taps, data.dtype)
            return given.finish(value / count, indices)

        window = window_of(data.shape[1:3], given.fused.output.shape[1:3], attrs)
        work = Channelwise(data, window, const(0, data.dtype), combine, finish)
        return given.function(channelwise_loops(work, self.shape_of(target, data.dtype)))

    def plane_max_pool(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.plane_max_pool``."""
        found = anchored(group, PoolAttrs)
        if found is None:
            return None
        given, attrs = found
        (data,) = given.args

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return given.finish(value, indices)

        start = const(lowest(data.dtype), data.dtype)
        output = given.fused.output.shape[2:]
        work = Planes(data, attrs, output, start, maximum, finish, counts=False)
        return given.function(pool_planes(work, self.shape_of(target, data.dtype)))

    def plane_avg_pool(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.plane_avg_pool``."""
        found = anchored(group, AvgPool.Attrs)
        if found is None:
            return None
        given, attrs = found
        (data,) = given.args
        every = prod(attrs.kernel)

        def combine(value: PrimExpr, element: PrimExpr) -> PrimExpr:
            return value + element

        def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], taps: PrimExpr) -> Stmt:
            counted = index(every) if attrs.count_include_pad else maximum(taps, 1)
            return given.finish(value / cast(counted, data.dtype), indices)

        work = Planes(
            data,
            attrs,
            given.fused.output.shape[2:],
            const(0, data.dtype),
            combine,
            finish,
            counts=not attrs.count_include_pad,
        )
        return given.function(pool_planes(work, self.shape_of(target, data.dtype)))
