# SPDX-License-Identifier: Apache-2.0
"""GEMM with 4-bit weights on CPUs: chooses the register tile; ``ops/int4.py`` of the IR has loops.

Registers: 4 rows and 16 accumulators of 16 lanes; machines with fewer lanes take default loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.int4 import Int4Matmul, Int4Tile
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .int8x4_schedules import Schedule
from .tiling import CpuTiling


class Int4Schedules(Struct, frozen=True):
    """Schedules of products with weights of 4 bits.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType({"nn.int4_matmul": self.product})

    def product(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``nn.int4_matmul``; ``None`` where vectors have fewer than 16 elements."""
        call = group.function.body
        if not isinstance(call, Call) or self.tiling_of(target, DType.FLOAT32).lanes < 16:
            return None
        return Int4Matmul.tiled(Int4Tile(4, 16), *(tensor_type(each) for each in call.args))
