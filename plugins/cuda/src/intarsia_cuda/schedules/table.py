# SPDX-License-Identifier: Apache-2.0
"""Which operators have a schedule: ``schedule(group, target) -> PrimFunc | None``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_loops.gpu.gemm import BatchedGemm, ProductKernel, product_loops, register_tile
from intarsia_loops.gpu.pipeline import PipelinedGemm
from intarsia_loops.gpu.products import GroupProduct, ProductTypes, conv_product, matmul_product
from intarsia_loops.targets import LoopTarget
from intarsia_runtime.dtype import DType

from ..spelling import grid_traits
from ..target import CudaOptions
from .tensor_cores import OnTensorCores, tensor_core_tiles

Schedule: TypeAlias = Callable[[FusedGroup, LoopTarget[CudaOptions]], PrimFunc | None]


def matmul(group: FusedGroup, target: LoopTarget[CudaOptions]) -> PrimFunc | None:
    """``matmul``: a batch of products, whose leading dimensions broadcast."""
    return _kernel(matmul_product(group, partial(_types, options=target.options)), target.options)


def conv(group: FusedGroup, target: LoopTarget[CudaOptions]) -> PrimFunc | None:
    """``nn.conv`` as a product of the weights and the windows, which are read where they lie."""
    return _kernel(conv_product(group, partial(_types, options=target.options)), target.options)


def _types(dtype: DType, options: CudaOptions) -> ProductTypes:
    """Return the types of elements and sums, and which tensor cores to use, if any."""
    if dtype is DType.FLOAT16:
        return ProductTypes(dtype, DType.FLOAT32, "f16")
    if dtype is DType.BFLOAT16:
        return ProductTypes(dtype, DType.FLOAT32, "bf16" if options.capability >= 80 else "")
    if dtype is DType.FLOAT32 and options.fpmath_mode == "tf32":
        return ProductTypes(dtype, dtype, "tf32")
    if dtype is DType.FLOAT32 and options.fpmath_mode == "bf16":
        return ProductTypes(DType.BFLOAT16, dtype, "bf16")
    return ProductTypes(dtype, dtype)


def _kernel(product: GroupProduct | None, options: CudaOptions) -> PrimFunc | None:
    return None if product is None else product.kernel(partial(_loops, options=options))


def _loops(product: BatchedGemm, options: CudaOptions) -> ProductKernel | None:
    traits = grid_traits(options)
    if not product.mode:
        tile = register_tile(product, options.max_threads_per_block)
        return None if tile is None else product_loops(product, tile, None, traits)
    chosen = tensor_core_tiles(product, options)
    if chosen is None:
        return None
    loops = PipelinedGemm if chosen.pipelined else None
    return product_loops(product, chosen.tile, OnTensorCores, traits, loops, chosen.small)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType({"matmul": matmul, "nn.conv": conv})
"""Operator name to its schedule."""
