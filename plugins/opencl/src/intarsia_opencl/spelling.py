# SPDX-License-Identifier: Apache-2.0
"""OpenCL C's names of types, machine functions, groups and items."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Thread
from intarsia_loops.codegen.c_math import MATH
from intarsia_loops.codegen.spelling import MEMORY_TYPES, VALUE_TYPES, Spelling
from intarsia_loops.gpu.traits import GridTraits
from intarsia_runtime.dtype import DType

from .target import KIND, OpenclOptions

WAVE = 64
"""Items that start together: AMD's wavefront; two of NVIDIA's warps, two to eight sub-groups of
Intel's, four warps of Mali's."""

LOAD_16, STORE_16 = "ix_load_16", "ix_store_16"
"""Macros of ``prelude.cl``: 16 bytes between memory of the device and of an item."""

_MATH = {**MATH, Intrinsic.EXP10: "exp10", Intrinsic.RSQRT: "rsqrt"}
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_ONE = ("acospi", "asinpi", "atanpi", "cospi", "degrees", "lgamma", "logb", "radians", "round")
_ONE_MORE = ("sign", "sinpi", "tanpi", "tgamma")
_TWO = ("atan2pi", "fmod", "maxmag", "minmag", "nextafter", "remainder")
_THREE = ("mad", "mix", "smoothstep")
_NATIVE = ("cos", "exp", "exp10", "exp2", "log", "log10", "log2", "recip", "rsqrt", "sin", "sqrt")

_SIGNATURES: Mapping[str, CodegenSignature] = MappingProxyType(
    {name: CodegenSignature(1, frozenset(_FLOATS)) for name in (*_ONE, *_ONE_MORE)}
    | {name: CodegenSignature(2, frozenset(_FLOATS)) for name in _TWO}
    | {name: CodegenSignature(3, frozenset(_FLOATS)) for name in _THREE}
    | {f"native_{n}": CodegenSignature(1, frozenset({DType.FLOAT32})) for n in _NATIVE}
    | {name: CodegenSignature(2) for name in (LOAD_16, STORE_16)}
)

_WORDS = """
half bool2 image1d_t image2d_t image3d_t sampler_t event_t queue_t pipe reserve_id_t
__global global __local local __constant constant __private private __generic generic
__kernel kernel __read_only read_only __write_only write_only __read_write read_write
uniform complex imaginary vec_step as_type min max clamp abs any all select isequal isgreater isless
isnan isinf isfinite isnormal signbit dot cross distance length normalize step rotate popcount
hadd mul24 mad24 mad_hi mul_hi upsample bitselect shuffle shuffle2 prefetch barrier mem_fence
read_mem_fence write_mem_fence work_group_barrier printf size_t ptrdiff_t intptr_t uintptr_t
fract frexp ilogb ldexp modf nan pown powr remquo rootn sincos linux unix
"""

_VECTORS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double")

RESERVED = frozenset(
    (*_WORDS.split(), *_VECTORS, *(f"{kind}{n}" for kind in _VECTORS for n in (2, 3, 4, 8, 16)))
)
"""Words of OpenCL C that no variable is called, besides those of C."""

HALVES: Mapping[str, str] = MappingProxyType(
    {
        "ix_f16_to_f32": """\
static float ix_f16_to_f32(uint16_t bits)
{
    /* Bytes: a compiler may take it that a half and an integer are never the same memory. */
    uchar memory[2] __attribute__((aligned(2)));
    memory[0] = (uchar)bits;
    memory[1] = (uchar)(bits >> 8);
    return vload_half(0, (__private const half *)memory);
}
""",
        "ix_f32_to_f16": """\
static uint16_t ix_f32_to_f16(float value)
{
    uchar memory[2] __attribute__((aligned(2)));
    vstore_half_rte(value, 0, (__private half *)memory);
    return (uint16_t)(memory[0] | memory[1] << 8);
}
""",
    }
)

"""Conversions of float16, which every device has an instruction for: no extension is needed for
``vload_half`` and ``vstore_half``."""

_THREADS = {
    thread: f"get_{'local' if thread.in_block else 'group'}_id({'xyz'.index(thread.value[-1])})"
    for thread in Thread
}


def target_function(name: str) -> CodegenSignature | None:
    """Return what a function of OpenCL C takes and gives; ``None`` if there is none."""
    return _SIGNATURES.get(name)


def spelling(wide: bool) -> Spelling:
    """Return the table; positions take 64 bits if ``wide``."""
    intrinsics = {(f, dtype): name for f, name in _MATH.items() for dtype in _FLOATS}
    return Spelling(
        kind=KIND,
        values=VALUE_TYPES,
        memory=MEMORY_TYPES,
        intrinsics=MappingProxyType(intrinsics),
        functions=frozenset(_SIGNATURES),
        index="long" if wide else "int",
        size="long",
        inline="static",
        kernel="__kernel void",
        space="__global ",
        local="__attribute__((aligned(16))) ",
        shared="__local __attribute__((aligned(16))) ",
        barrier="barrier(CLK_LOCAL_MEM_FENCE);",
        threads=MappingProxyType(_THREADS),
        unroll="#pragma unroll",
        reserved=RESERVED,
    )


def grid_traits(options: OpenclOptions) -> GridTraits:
    """Return what the schedules for a grid of blocks ask: groups are blocks, items threads."""
    most = options.max_work_group_size
    return GridTraits(KIND, most, min(WAVE, most), LOAD_16, STORE_16)
