# SPDX-License-Identifier: Apache-2.0
"""The loop compiler with the schedules of this backend: those for a grid, sized for the device.

Products have tiles in local memory. 256 items have a tile of 64 x 64 results, 16 of K: 16
accumulators + 8 operands for each item, 9.25 KiB for float32. Groups of less than 256 items, and
local memory that is too small for that, have 64 items and a tile of 32 x 32 results, 16 of K: 4.75
KiB for float32. Sums of 16-bit floats are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_loops.gpu.device_plan import lower_for_device
from intarsia_loops.gpu.gemm import (
    BatchedGemm,
    GemmLoops,
    ProductKernel,
    Tile,
    product_loops,
    register_tile,
)
from intarsia_loops.gpu.products import GroupProduct, ProductTypes, conv_product, matmul_product
from intarsia_loops.gpu.stages import device_loops
from intarsia_loops.targets import LoopTarget
from intarsia_loops.tensors import Stages
from intarsia_runtime.dtype import DType

from .spelling import grid_traits
from .target import OpenclOptions

Schedule: TypeAlias = Callable[[FusedGroup, LoopTarget[OpenclOptions]], PrimFunc | None]

_SMALL, _SHALLOW = Tile(32, 32, 16, 64), Tile(32, 32, 8, 64)
"""For groups of few items, and for little local memory."""


def matmul(group: FusedGroup, target: LoopTarget[OpenclOptions]) -> PrimFunc | None:
    """``matmul``: a batch of products, whose leading dimensions broadcast."""
    return _kernel(matmul_product(group, _types), target.options)


def conv(group: FusedGroup, target: LoopTarget[OpenclOptions]) -> PrimFunc | None:
    """``nn.conv`` as a product of the weights and the windows, which are read where they lie."""
    return _kernel(conv_product(group, _types), target.options)


def _types(dtype: DType) -> ProductTypes:
    is_half = dtype in (DType.FLOAT16, DType.BFLOAT16)
    return ProductTypes(dtype, DType.FLOAT32 if is_half else dtype)


def _kernel(product: GroupProduct | None, options: OpenclOptions) -> PrimFunc | None:
    return None if product is None else product.kernel(partial(_loops, options=options))


def _loops(product: BatchedGemm, options: OpenclOptions) -> ProductKernel | None:
    for tile in (register_tile(product, options.max_work_group_size), _SMALL, _SHALLOW):
        if tile is None or tile.threads > options.max_work_group_size:
            continue
        loops = GemmLoops(product, tile)  # its tiles in local memory
        if loops.a.bytes + loops.b.bytes <= options.local_memory:
            return product_loops(product, tile, None, grid_traits(options))
    return None


def _default_loops(name: str, stages: Stages, target: LoopTarget[OpenclOptions]) -> PrimFunc:
    return device_loops(name, stages, grid_traits(target.options))


SCHEDULES: Mapping[str, Schedule] = MappingProxyType({"matmul": matmul, "nn.conv": conv})
"""Operator name to its schedule."""

lower_function = partial(lower_for_device, schedules=SCHEDULES, loops=_default_loops)
"""Lowers a graph function; see :func:`intarsia_loops.lower.lower` for arguments and errors."""
