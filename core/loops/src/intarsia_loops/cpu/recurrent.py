# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on CPUs: the tile is a few rows of the batch times the 4 gates.

Registers: 4 rows x 4 gates = 16 accumulators + 4 vectors of the weight + 1 broadcast element = 21
of 32. The rows share each load of the weight, and hide the latency of the multiply-adds, for which
the 4 accumulators of a single row would wait. 16 registers hold the sums of 2 rows, whose loads are
as many as their multiply-adds; 4 rows take one gate after the other, two vectors wide: 8 + 2 + 1 =
11 of 16, as the tile of a product (with AVX2 1.3 to 1.7 times as fast for 2 to 16 rows).

NEON multiplies by a lane of a register that holds four elements of a state (``lane_loop.py``): 4
rows take one gate after the other, four vectors wide, 16 accumulators + 4 of the states + 4 of the
weight = 24 of 32, and 80 instructions do 256 multiply-adds. 27 did 64 with all gates at a time,
whose columns lie too far apart for loads of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.recurrent import Gru, Lstm
from intarsia_ir.ops.recurrent_plain import Rnn
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .byte_lstm import ByteDot, ByteLstm
from .int8x4_schedules import Schedule
from .packed_layers import PackedLayer, byte_row_tile, row_tile
from .paired_layers import PackedPair
from .tiling import CpuTiling


class RecurrentSchedules(Struct, frozen=True):
    """Schedules of recurrent layers.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        names = ("nn.gru", "nn.lstm", "nn.rnn", "cpu.qlstm", "cpu.recurrent", "cpu.recurrent_pair")
        return MappingProxyType(dict.fromkeys(names, self.layer))

    def layer(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """Recurrent layers; ``None`` where vectors are alone or odd."""
        call = group.function.body
        tiling = self.tiling_of(target, DType.FLOAT32)
        tile = row_tile(tiling)
        if not isinstance(call, Call) or tile is None:
            return None
        types = [tensor_type(argument) for argument in call.args]
        match call.attrs:
            case Lstm.Attrs(quantize_state=True):
                return Lstm.tiled(byte_row_tile(tiling) or tile, call.attrs, *types)
            case Lstm.Attrs():
                return Lstm.tiled(tile, call.attrs, *types)
            case Gru.Attrs():
                return Gru.tiled(tile, call.attrs, *types)
            case PackedLayer.Attrs():
                return PackedLayer.tiled(tile, call.attrs, *types)
            case PackedPair.Attrs():
                return PackedPair.tiled(tile, call.attrs, *types)
            case Rnn.Attrs():
                return Rnn.tiled(tile, call.attrs, *types)
            case ByteLstm.Attrs() if tiling.int8x4 is not None:
                dot = ByteDot(tiling.int8x4.load, tiling.int8x4.add, tiling.lanes)
                return ByteLstm.tiled(byte_row_tile(tiling) or tile, dot, call.attrs, *types)
            case _:
                return None
