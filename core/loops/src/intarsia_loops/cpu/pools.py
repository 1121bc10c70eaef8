# SPDX-License-Identifier: Apache-2.0
"""Schedules of pools: channels last, or in the model's layout plane by plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.pooling import AvgPool, PoolAttrs
from intarsia_ir.tir.expr import PrimExpr, cast, const, index, maximum
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Stmt
from intarsia_ir.tir.tensor import lowest
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..targets import LoopTarget
from ..typical import has_open_size
from .group import A, GroupOperands, anchored
from .int8x4_schedules import Schedule
from .nchw_pools import Planes, nchw_pool_loops
from .nhwc_windows import NhwcWindows, nhwc_window_loops
from .open_nchw_pools import open_plane_loops, suits_open_planes
from .tiling import CpuTiling
from .window import window_of


def suits_nchw_pool(node: Call, tiling: CpuTiling) -> bool:
    """Whether a pool is computed so: not of half precision, which is computed in float32, and not
    where what ceil_mode adds would have to be told from padding, nor by long windows of open sizes.
    """
    dtype, attrs = tensor_type(node.args[0]).dtype, node.attrs
    if not isinstance(attrs, PoolAttrs) or (
        has_open_size(node) and not suits_open_planes(attrs, tiling, dtype)
    ):
        return False
    told_apart = isinstance(attrs, AvgPool.Attrs) and _tells_padding(attrs)
    return not told_apart and not (dtype.is_float and dtype.bits < 32)


def _tells_padding(attrs: AvgPool.Attrs) -> bool:
    """Whether what ceil_mode adds has to be told from padding."""
    return attrs.ceil_mode and attrs.count_include_pad


def _pooled(group: FusedGroup, kind: type[A]) -> tuple[GroupOperands, A] | None:
    """Return operands and attributes of a pool; ``None`` if it is none, or has no positions."""
    match = anchored(group, kind)
    return None if match is None or 0 in match[0].fused.output.shape else match


def _plane_loops(work: Planes, tiling: CpuTiling) -> Stmt:
    """Return the loops of a pool in the model's layout."""
    is_open = any(isinstance(size, Dim) for size in work.data.shape)
    return (open_plane_loops if is_open else nchw_pool_loops)(work, tiling)


class PoolSchedules(Struct, frozen=True):
    """Schedules of pools for machines that a backend describes.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

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

    def max_pool(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.max_pool``."""
        match = _pooled(group, PoolAttrs)
        if match is None:
            return None
        anchor, attrs = match
        (data,) = anchor.args
        short = data.dtype.is_float and data.dtype.bits < 32
        wide = DType.FLOAT32 if short else data.dtype  # which has all of their numbers

        def combine(
            value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
        ) -> PrimExpr:
            return maximum(value, cast(element, wide))

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return anchor.epilogue(cast(value, data.dtype), indices)

        sizes = (data.shape[1:3], anchor.fused.output.shape[1:3])
        window = window_of(*sizes, attrs)
        work = NhwcWindows(data, window, const(lowest(wide), wide), combine, epilogue)
        return anchor.function(nhwc_window_loops(work, self.tiling_of(target, wide)))

    def avg_pool(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.avg_pool``; not where what ceil_mode adds would have to be told from padding."""
        match = _pooled(group, AvgPool.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        (data,) = anchor.args
        if data.dtype.bits < 32 or _tells_padding(attrs):
            return None
        every = attrs.kernel[0] * attrs.kernel[1]

        def combine(
            value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
        ) -> PrimExpr:
            return value + element

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], taps: PrimExpr) -> Stmt:
            count = const(every, data.dtype) if attrs.count_include_pad else cast(taps, data.dtype)
            return anchor.epilogue(value / count, indices)

        window = window_of(data.shape[1:3], anchor.fused.output.shape[1:3], attrs)
        work = NhwcWindows(data, window, const(0, data.dtype), combine, epilogue)
        return anchor.function(nhwc_window_loops(work, self.tiling_of(target, data.dtype)))

    def plane_max_pool(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.plane_max_pool``."""
        match = _pooled(group, PoolAttrs)
        if match is None:
            return None
        anchor, attrs = match
        (data,) = anchor.args

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
            return anchor.epilogue(value, indices)

        start = const(lowest(data.dtype), data.dtype)
        output = anchor.fused.output.shape[2:]
        work = Planes(data, attrs, output, start, maximum, epilogue, counts=False)
        return anchor.function(_plane_loops(work, self.tiling_of(target, data.dtype)))

    def plane_avg_pool(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.plane_avg_pool``."""
        match = _pooled(group, AvgPool.Attrs)
        if match is None:
            return None
        anchor, attrs = match
        (data,) = anchor.args
        every = prod(attrs.kernel)

        def combine(value: PrimExpr, element: PrimExpr) -> PrimExpr:
            return value + element

        def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...], taps: PrimExpr) -> Stmt:
            counted = index(every) if attrs.count_include_pad else maximum(taps, 1)
            return anchor.epilogue(value / cast(counted, data.dtype), indices)

        work = Planes(
            data,
            attrs,
            anchor.fused.output.shape[2:],
            const(0, data.dtype),
            combine,
            epilogue,
            counts=not attrs.count_include_pad,
        )
        return anchor.function(_plane_loops(work, self.tiling_of(target, data.dtype)))
