# SPDX-License-Identifier: Apache-2.0
"""Schedules of bfloat16 operators: those of float32 over Bf16x2 words.

A matrix unit has tiles of its own. Where vectors multiply (NEON), tiles are those of 8-bit operands
(``row_pairs.py``), with half as many products in a word and sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .bf16x2 import Bf16ConvAttrs, Bf16DenseAttrs
from .conv import Convolution, conv_loops
from .dense import dense_loops
from .group import anchored
from .int8x4_schedules import Schedule, is_open, is_open_window
from .loops import PackedView
from .matrix_unit import fills_registers
from .matrix_unit_dense import matrix_unit_dense_loops
from .open_conv import open_conv_loops
from .open_dense import open_dense_loops
from .open_matrix_unit import open_matrix_unit_dense_loops
from .operators import ConvAttrs, Dense
from .panel import flat_rows
from .tiling import CpuTiling
from .window import window_of


class Bf16x2Schedules(Struct, frozen=True):
    """Schedules for machines that a backend describes.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType({"cpu.pair_conv": self.conv, "cpu.pair_dense": self.dense})

    def conv(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.pair_conv``."""
        match, tiling = anchored(group, ConvAttrs), self.tiling_of(target, DType.FLOAT32)
        if match is None or tiling.bf16x2 is None:
            return None
        anchor, attrs = match
        data, weight = (PackedView(arg, tiling.bf16x2.load) for arg in anchor.args)
        window = window_of(data.shape[1:3], anchor.fused.output.shape[1:3], attrs)
        conv = Convolution(data, weight, attrs.outputs, attrs.groups, window)
        if tiling.bf16x2.unit is None:
            loops = open_conv_loops if is_open(anchor.args[0]) else conv_loops
            return anchor.function(loops(_of_vectors(tiling, attrs), conv, anchor.epilogue))
        by_unit, unit = replace(tiling, unit=tiling.bf16x2.unit), tiling.bf16x2.unit
        if not fills_registers(conv.inner, unit):  # rows of a copied strip are one loop
            conv = replace(conv, copied=True)
        loops = open_conv_loops if is_open_window(conv) else conv_loops
        return anchor.function(loops(by_unit, conv, anchor.epilogue))

    def dense(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``cpu.pair_dense``."""
        match, tiling = anchored(group, Dense.Attrs), self.tiling_of(target, DType.FLOAT32)
        if match is None or tiling.bf16x2 is None:
            return None
        anchor, attrs = match
        data, weight = (PackedView(arg, tiling.bf16x2.load) for arg in anchor.args)
        outer = list(data.shape[:-1])
        if tiling.bf16x2.unit is None:
            loops = open_dense_loops if is_open(anchor.args[0]) else dense_loops
            operands = (flat_rows(data), weight, attrs.outputs, anchor.epilogue, outer)
            return anchor.function(loops(_of_vectors(tiling, attrs), *operands))
        loops = matrix_unit_dense_loops
        if is_open(anchor.args[0]):
            loops = open_matrix_unit_dense_loops
        body = loops(
            tiling,
            tiling.bf16x2.unit,
            flat_rows(data),
            weight,
            attrs.outputs,
            anchor.epilogue,
            outer,
        )
        return anchor.function(body)


def _of_vectors(tiling: CpuTiling, attrs: ConvAttrs | Dense.Attrs) -> CpuTiling:
    """Return the tile of vectors that multiply words of bfloat16."""
    how = tiling.bf16x2
    assert how is not None  # as of the callers
    assert isinstance(attrs, Bf16ConvAttrs | Bf16DenseAttrs)
    tiling = replace(tiling, add=how.add, sums=DType.FLOAT32)
    if not attrs.is_paired or how.row_pairs is None:
        return tiling
    return replace(tiling, row_pairs=how.row_pairs)
