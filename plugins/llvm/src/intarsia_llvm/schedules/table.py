# SPDX-License-Identifier: Apache-2.0
"""Which loops compute which operator: those for all CPUs, and transposes by LLVM's instructions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.tir.expr import INDEX, CallTarget, PrimExpr, TirVar, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.passes.stack_to_scratch import (
    SMALL_STACK_BYTES,
    STACK_BYTES,
    ThreadSlots,
    stack_to_scratch,
)
from intarsia_ir.tir.stmt import LetStmt, Stmt
from intarsia_loops.cpu.argmax_rows import argmax_kernel
from intarsia_loops.cpu.int8x4 import dot4_by_shifts
from intarsia_loops.cpu.packed_operands import Int8x4
from intarsia_loops.cpu.softmax import softmax_kernel
from intarsia_loops.cpu.table import OnWorkspace, Schedule, Schedules
from intarsia_loops.cpu.tiling import CpuTiling, fit_caches
from intarsia_loops.cpu.top_k_rows import top_k_kernel
from intarsia_loops.cpu.transpose import transpose_kernel
from intarsia_loops.loops import default_loops
from intarsia_loops.targets import LoopTarget
from intarsia_loops.tensors import Stages
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..functions import DEINTERLEAVE, MOST_SLOTS, PREFETCH, THREAD_SLOT
from ..machine import CodegenMachine
from ..target import LlvmOptions, machine
from .neon import left_lanes
from .products import add_in_float16, bf16x2_of, int8x4_of, load_word, multiplies_pairs
from .transpose import square, transpose_registers

_SQUARE = 8  # lanes of a transposed square: of 16, most loads and stores would cross two lines
_SMALL_STRIP = 6 * 1024  # a few rows of an image: such machines have 64 KiB or little more


def cpu_tiling(machine: CodegenMachine, dtype: DType = DType.FLOAT32) -> CpuTiling:
    """Return the tile that fills the registers but for the weights and one broadcast.

    A microcontroller's 32 floating-point registers hold 2 x 8 sums, 8 weights and what is
    multiplied with them; its 16 others, 2 x 2 sums.
    """
    if machine.bare:
        int8x4 = Int8x4(load_word, dot4_by_shifts, columns=2)
        return CpuTiling(4 if dtype.is_float else 1, 2, strip_bytes=_SMALL_STRIP, int8x4=int8x4)
    lanes = max(1, machine.lanes * 4 // dtype.bytes)
    rows = whole = 14 if machine.registers == 32 else 6
    if dtype is DType.INT32 and multiplies_pairs(machine):
        rows -= 2  # weights and data of even and odd bytes take four registers more
    elif dtype is DType.INT32 and machine.signed_pairs and not machine.signed_dot:
        rows -= 3  # products of both halves and a word in all lanes: two rows of sums
    in_float16 = machine.half_sums and dtype is DType.FLOAT16
    if in_float16:  # FMLA takes lanes of float16 from 16 of the registers only
        rows -= 1
    has_float16 = machine.half_sums and dtype is DType.FLOAT32
    # NEON multiplies by a lane of a register, or copies it to all lanes.
    by_lane = _is_neon(machine) and (dtype.is_float or machine.signed_dot or machine.signed_pairs)
    return CpuTiling(
        lanes,
        rows,
        prefetch=prefetch,
        add=add_in_float16 if in_float16 else None,
        float16=cpu_tiling(machine, DType.FLOAT16) if has_float16 else None,
        int8x4=int8x4_of(machine, whole),
        bf16x2=bf16x2_of(machine),
        deinterleave=deinterleave,
        left_lanes=left_lanes if by_lane else None,
        byte_vectors=2 if _is_neon(machine) else 1,
        transpose_registers=transpose_registers if lanes > 1 else None,
        shares_tiles=lanes > 1,
    )


def _is_neon(machine: CodegenMachine) -> bool:
    """Whether vectors are those of AArch64: 32 of 16 bytes."""
    return machine.triple.startswith(("aarch64", "arm64"))


def deinterleave(a: PrimExpr, b: PrimExpr, first: int) -> PrimExpr:
    """Return the even or the odd lanes of two vectors side by side."""
    return CallTarget("llvm", DEINTERLEAVE[first], (a, b), a.dtype, a.lanes)


def prefetch(element: PrimExpr, body: Stmt) -> Stmt:
    """Have the cache line of ``element``, a load, fetched while ``body`` runs."""
    done = CallTarget("llvm", PREFETCH, (element,), DType.BOOL, 1)
    return LetStmt(TirVar("fetched", DType.BOOL), done, body)


def tiling_of(target: LoopTarget[LlvmOptions], dtype: DType) -> CpuTiling:
    """Return the register tile of a target's machine, fit to the caches that its tag gives."""
    return fit_caches(cpu_tiling(machine(target.options), dtype), target.memory)


def transpose(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``transpose`` alone, where it swaps matrices; without vectors only of 32-bit elements."""
    model = machine(target.options)
    if model.bare and group.anchor is not None and tensor_type(group.anchor).dtype.bits != 32:
        return None
    bits = 32 if group.anchor is None else tensor_type(group.anchor).dtype.bits
    for size in _large_squares(model, bits):
        large = transpose_kernel(group, size, square)
        if large is not None:
            return large
    registers = None if model.bare else transpose_registers
    size = min(model.lanes, _SQUARE)
    return transpose_kernel(group, size, square, transpose_registers=registers, few=model.lanes - 1)


def _large_squares(model: CodegenMachine, bits: int) -> tuple[int, ...]:
    """Return the sizes of squares of short elements, the most profitable first; none of 32 bits."""
    if _is_neon(model) and bits < 32:  # a square of whole vectors takes half of the registers
        return (128 // bits, 64 // bits)
    # Vectors of bytes half as wide as the machine's trade blocks as fast as shorter ones.
    return (2 * model.lanes,) if bits == 8 else ()


def softmax(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``nn.softmax`` and ``nn.log_softmax`` along the last dimension, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else softmax_kernel(group, model.lanes)


def search(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``argmax`` and ``argmin`` of short rows, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else argmax_kernel(group, model.lanes)


def top_k(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``top_k`` of short rows, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else top_k_kernel(group, model.lanes)


def has_small_stack(target: LoopTarget[LlvmOptions]) -> bool:
    """Whether temporaries of kernels shall lie in the workspace."""
    return machine(target.options).bare


def loops(name: str, stages: Stages, target: LoopTarget[LlvmOptions]) -> PrimFunc:
    """Default loops; vectors overlap where the machine has some."""
    model = machine(target.options)
    tables = model.byte_tables > 0
    return default_loops(name, stages, overlap=not model.bare, byte_tables=tables)


def thread_slot(count: Size) -> PrimExpr:
    """Return the number of the slot, below ``count``, that the thread holds."""
    return CallTarget("llvm", THREAD_SLOT, (index(count),), INDEX, 1)


def bound_stack(kernel: PrimFunc, target: LoopTarget[LlvmOptions]) -> PrimFunc:
    """Leave on the stack what its smallest kind holds: of threads, or of a microcontroller."""
    if machine(target.options).bare:
        return stack_to_scratch(kernel, SMALL_STACK_BYTES)
    fixed = target.options.num_threads
    slots = ThreadSlots(min(fixed or MOST_SLOTS, MOST_SLOTS), thread_slot, is_fixed=fixed > 0)
    return stack_to_scratch(kernel, STACK_BYTES, slots)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        **{
            name: OnWorkspace(schedule, has_small_stack)
            for name, schedule in Schedules(tiling_of).table().items()
        },
        "argmax": search,
        "argmin": search,
        "nn.log_softmax": softmax,
        "nn.softmax": softmax,
        "top_k": top_k,
        "transpose": transpose,
    }
)
"""Operator name to its schedule."""
