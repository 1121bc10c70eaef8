# SPDX-License-Identifier: Apache-2.0
"""Schedules of the operators on bfloat16: those of float32, on two numbers at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from ...dtype import DType
from ...target.target import Target
from ...tir.func import PrimFunc
from ..kernels import FusedGroup
from .conv import Convolution, conv_loops
from .group import anchored
from .loops import QuadView
from .matrix_unit import fills_registers
from .operators import ConvAttrs, Dense
from .panel import flat_rows
from .quads import Schedule
from .tile import Shape
from .unit_dense import unit_dense_loops
from .window import window_of


class PairSchedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        shape_of: ``shape_of(target, dtype)``: the register tile for elements of a type.
    """

    shape_of: Callable[[Target, DType], Shape]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType({"cpu.pair_conv": self.conv, "cpu.pair_dense": self.dense})

    def conv(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.pair_conv``."""
        found, shape = anchored(group, ConvAttrs), self.shape_of(target, DType.FLOAT32)
        if found is None or shape.pairs is None:
            return None
        given, attrs = found
        data, weight = (QuadView(arg, shape.pairs.load) for arg in given.args)
        window = window_of(data.shape[1:3], given.fused.output.shape[1:3], attrs)
        conv = Convolution(data, weight, attrs.outputs, attrs.groups, window)
        by_unit, unit = replace(shape, unit=shape.pairs.unit), shape.pairs.unit
        if not fills_registers(conv.inner, unit):  # rows of a copied strip are one loop
            conv = replace(conv, copied=True)
        return given.function(conv_loops(by_unit, conv, given.finish))

    def dense(self, group: FusedGroup, target: Target) -> PrimFunc | None:
        """``cpu.pair_dense``."""
        found, shape = anchored(group, Dense.Attrs), self.shape_of(target, DType.FLOAT32)
        if found is None or shape.pairs is None:
            return None
        given, attrs = found
        data, weight = (QuadView(arg, shape.pairs.load) for arg in given.args)
        outer = list(data.shape[:-1])
        body = unit_dense_loops(
            shape,
            shape.pairs.unit,
            flat_rows(data),
            weight,
            attrs.outputs,
            given.finish,
            outer,
        )
        return given.function(body)
