# SPDX-License-Identifier: Apache-2.0
"""CUDA C++'s names of types, machine functions, blocks and threads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Thread
from intarsia_loops.codegen.c_math import MATH, by_type, of_both_types
from intarsia_loops.codegen.spelling import MEMORY_TYPES, VALUE_TYPES, Spelling
from intarsia_loops.gpu.traits import AsyncCopies, GridTraits
from intarsia_runtime.dtype import DType

from .target import WARP, CudaOptions

KIND = "cuda"
FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})

_MATH = {**MATH, Intrinsic.EXP10: "exp10", Intrinsic.RSQRT: "rsqrt"}
_ONE = ("cbrt", "erfc", "exp10", "exp2", "expm1", "lgamma", "log10", "log2", "tgamma", "normcdf")
_TWO = ("atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "remainder")

SHUFFLE = "ix_shuffle_down"
"""``ix_shuffle_down(value, n)``: the value of the thread ``n`` further on in the warp."""

COPY_16 = "ix_copy_16"
"""``ix_copy_16(to, from)``: 16 bytes in one instruction; both addresses are multiples of 16."""

PRODUCT = "ix_product"
"""``ix_product(a, b)``: the rounded product of two floats, which no sum is joined to."""

MMA: Mapping[str, str] = MappingProxyType(
    {mode: f"ix_mma_{mode}" for mode in ("f16", "bf16", "tf32")}
)
"""``ix_mma_*(c, a, b)``: adds a product that a warp holds in registers to 16 x 8 sums; the depth is
16 for 16-bit floats and 8 for tf32."""

LDMATRIX, LDMATRIX_TRANSPOSED = "ix_ldmatrix", "ix_ldmatrix_trans"
"""``ix_ldmatrix(to, row)``: four matrices of 8 rows of 16 bytes from shared memory to the registers
of a warp, as ``mma`` takes them; each thread names a row. ``_trans`` turns each, of halves."""

COPIES = AsyncCopies("ix_async_16", "ix_async_4", "ix_async_commit", "ix_async_wait")
"""``cp.async``, which sm_80 and later have."""

_OWN: Mapping[str, CodegenSignature] = MappingProxyType(
    {name: CodegenSignature(2) for name in (SHUFFLE, COPY_16, PRODUCT)}
    | {name: CodegenSignature(3) for name in MMA.values()}
    | {name: CodegenSignature(2) for name in (LDMATRIX, LDMATRIX_TRANSPOSED)}
    | {name: CodegenSignature(3) for name in (COPIES.copy_16, COPIES.copy_4)}
    | {COPIES.commit: CodegenSignature(0), COPIES.wait: CodegenSignature(1)}
)


def target_function(name: str) -> CodegenSignature | None:
    """Return what a function of CUDA's mathematics takes and gives; ``None`` if there is none."""
    if name in _OWN:
        return _OWN[name]
    for names, count in ((_ONE, 1), (_TWO, 2)):
        if name in names:
            return CodegenSignature(count, frozenset({DType.FLOAT64}))
        if name.endswith("f") and name[:-1] in names:
            return CodegenSignature(count, frozenset({DType.FLOAT32}))
    return None


_THREADS = {
    thread: f"{'threadIdx' if thread.in_block else 'blockIdx'}.{thread.value[-1]}"
    for thread in Thread
}


def spelling(*, index: str) -> Spelling:
    """Return the table; ``index`` is ``int32_t``, or ``int64_t`` where that is too small."""
    return Spelling(
        kind=KIND,
        values=VALUE_TYPES,
        memory=MEMORY_TYPES,
        intrinsics=by_type(_MATH),
        functions=of_both_types((*_MATH.values(), *_ONE, *_TWO)) | frozenset(_OWN),
        index=index,
        size="int64_t",
        inline="static __device__ __forceinline__",
        kernel='extern "C" __global__ void',
        restrict="__restrict__",
        local="alignas(16) ",
        shared="alignas(16) __shared__ ",
        barrier="__syncthreads();",
        threads=MappingProxyType(_THREADS),
        unroll="#pragma unroll",
    )


DECLARED_BYTES = 48 * 1024
"""Shared memory that a kernel may declare; more is taken from ``extern __shared__``."""


def grid_traits(options: CudaOptions) -> GridTraits:
    """Return what the schedules for a grid of blocks ask."""
    threads = options.max_threads_per_block
    copies = COPIES if options.capability >= 80 else None
    return GridTraits(KIND, threads, WARP, COPY_16, COPY_16, SHUFFLE, copies, DECLARED_BYTES)
