# SPDX-License-Identifier: Apache-2.0
"""Which loops compute which operator: those for all CPUs, and transposes by LLVM's instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

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
from intarsia_loops.cpu.ordered_words import OrderedDot
from intarsia_loops.cpu.packed_operands import Bf16x2, Int8x4, Int16x2, RowPairs
from intarsia_loops.cpu.softmax import softmax_kernel
from intarsia_loops.cpu.table import OnWorkspace, Schedule, Schedules
from intarsia_loops.cpu.tiling import CpuTiling, fit_caches
from intarsia_loops.cpu.transpose import transpose_kernel
from intarsia_loops.loops import default_loops
from intarsia_loops.targets import LoopTarget
from intarsia_loops.tensors import Stages
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..amx import Amx
from ..functions import (
    BF16_DOT,
    BF16_MATRIX,
    DEINTERLEAVE,
    DOT,
    DOT_BY_PAIRS,
    DOT_OF_JOINED,
    DOT_OF_MAGNITUDES,
    DOT_OF_NARROW,
    DOT_OF_PAIRS,
    FMA,
    LOAD_SIGNED_PAIR,
    LOAD_UNSIGNED_PAIR,
    LOAD_WORD,
    MAGNITUDES,
    MASKS,
    MOST_SLOTS,
    PREFETCH,
    SIGNED_DOT,
    SIGNED_DOT_BY_PAIRS,
    SIGNED_DOT_OF_NARROW,
    SIGNED_MATRIX,
    THREAD_SLOT,
    UNSIGNED_DOT,
    UNSIGNED_MATRIX,
)
from ..machine import CodegenMachine
from ..target import LlvmOptions, machine
from .neon import left_lanes, words_along
from .transpose import exchange, square, transpose_registers

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
    if dtype is DType.INT32 and _multiplies_pairs(machine):
        rows -= 2  # weights and data of even and odd bytes take four registers more
    elif dtype is DType.INT32 and machine.signed_pairs and not machine.signed_dot:
        rows -= (
            3  # products of both halves, and a word in all lanes, take those of two rows of sums
        )
    in_float16 = machine.half_sums and dtype is DType.FLOAT16
    if in_float16:  # FMLA takes lanes of float16 from 16 of the registers only
        rows -= 1
    has_float16 = machine.half_sums and dtype is DType.FLOAT32
    # NEON multiplies by a lane of a register, or copies it to all lanes.
    is_neon = machine.triple.startswith(("aarch64", "arm64"))
    by_lane = is_neon and (dtype.is_float or machine.signed_dot or machine.signed_pairs)
    return CpuTiling(
        lanes,
        rows,
        prefetch=prefetch,
        add=add_in_float16 if in_float16 else None,
        float16=cpu_tiling(machine, DType.FLOAT16) if has_float16 else None,
        int8x4=_int8x4(machine, whole),
        bf16x2=_bf16x2(machine),
        deinterleave=deinterleave,
        left_lanes=left_lanes if by_lane else None,
        byte_vectors=2 if is_neon else 1,
        transpose_registers=transpose_registers if lanes > 1 else None,
    )


def _multiplies_pairs(machine: CodegenMachine) -> bool:
    """Whether bytes are multiplied in 16 bits, two at a time, for want of an instruction."""
    return machine.pairs and not machine.dot


def _int8x4(machine: CodegenMachine, rows: int) -> Int8x4:
    """Return how vectors multiply bytes, on a machine whose tiles of float32 have so many rows."""
    if machine.signed_dot:
        int8x4 = Int8x4(load_word, partial(add_products, SIGNED_DOT), signed=True)
        if not machine.signed_matrix:
            return int8x4
        # Its processors multiply unsigned bytes by signed ones, too.
        by_rows, of_unsigned, rows_of_unsigned = (
            partial(add_products, name) for name in (SIGNED_MATRIX, UNSIGNED_DOT, UNSIGNED_MATRIX)
        )
        pairs = RowPairs(by_rows, exchange, words_along, rows_of_unsigned)
        return replace(int8x4, add_unsigned=of_unsigned, row_pairs=pairs)
    if machine.signed_pairs:
        add, narrow = (
            partial(add_products, name) for name in (SIGNED_DOT_BY_PAIRS, SIGNED_DOT_OF_NARROW)
        )
        return Int8x4(load_word, add, signed=True, add_narrow=narrow, narrow_rows=rows - 3)
    unit = Amx() if machine.amx else None
    by_pairs, add = _multiplies_pairs(machine), dot4_by_shifts
    if by_pairs or machine.dot:
        add = partial(add_products, DOT_BY_PAIRS if by_pairs else DOT)
    # Ones, and the pairs that they multiply, take two registers: a row of sums.
    narrow = partial(add_products, DOT_OF_NARROW) if by_pairs and machine.byte_pairs else None
    of_pairs = partial(add_products, DOT_OF_PAIRS)
    halves = Int16x2(load_unsigned_pair, load_signed_pair, of_pairs, rows) if by_pairs else None
    # Eight sums, two magnitudes, their masks, two products and ones: 15 of 16 registers. Of
    # fourteen sums, weights, masks and ones are operands in memory, as often as they are read.
    splits = (partial(split_word, signed=False), partial(split_word, signed=True))
    ordered = OrderedDot(dot_of_joined, dot_of_magnitudes, *splits, 8, 14) if narrow else None
    return Int8x4(
        load_word, add, unit=unit, add_narrow=narrow, narrow_rows=rows - 1, ordered=ordered,
        int16x2=halves,
    )  # fmt: skip


def _bf16x2(machine: CodegenMachine) -> Bf16x2 | None:
    """Return how bfloat16 is multiplied, if it may be."""
    if machine.amx_bf16:
        return Bf16x2(load_word, Amx(sums=DType.FLOAT32))
    if not machine.bf16_matrix:
        return None
    dot, matrix = (partial(add_products, name) for name in (BF16_DOT, BF16_MATRIX))
    return Bf16x2(load_word, None, dot, RowPairs(matrix, exchange, words_along))


def load_word(first: PrimExpr) -> PrimExpr:
    """Return the 32 bits at the place of ``first``, a load of a byte or of bfloat16."""
    return CallTarget("llvm", LOAD_WORD, (first,), DType.INT32, 1)


def load_unsigned_pair(first: PrimExpr) -> PrimExpr:
    """Return two bytes of data, from ``first``, a load of a byte, on, as halves of 32 bits."""
    return CallTarget("llvm", LOAD_UNSIGNED_PAIR, (first,), DType.INT32, 1)


def load_signed_pair(pair: PrimExpr) -> PrimExpr:
    """Return the bytes of ``pair``, a load of 16 bits, with their signs as halves of 32 bits."""
    return CallTarget("llvm", LOAD_SIGNED_PAIR, (pair,), DType.INT32, 1)


def add_products(function: str, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add the products of two words, or of vectors of them, by one of LLVM's functions."""
    return CallTarget("llvm", function, (total, left, right), total.dtype, total.lanes)


def add_in_float16(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add a product of float16, rounded once to it."""
    return CallTarget("llvm", FMA, (left, right, total), DType.FLOAT16, total.lanes)


def dot_of_joined(total: PrimExpr, left: Sequence[PrimExpr], right: Sequence[PrimExpr]) -> PrimExpr:
    """Add the products of one or two words, of which all of a pair of lanes fit 16 bits."""
    function = DOT_OF_NARROW if len(left) == 1 else DOT_OF_JOINED
    return CallTarget("llvm", function, (total, *left, *right), DType.INT32, total.lanes)


def dot_of_magnitudes(
    total: PrimExpr, left: Sequence[PrimExpr], right: Sequence[PrimExpr]
) -> PrimExpr:
    """Add the products of one or two words of magnitudes, behind each of which is its mask."""
    function = DOT_OF_MAGNITUDES[len(left) - 1]
    return CallTarget("llvm", function, (total, *left, *right), DType.INT32, total.lanes)


def split_word(word: PrimExpr, *, signed: bool) -> tuple[PrimExpr, PrimExpr]:
    """Return the magnitudes of a word, and the mask for data, which are ``signed`` or not."""
    size, mask = (
        CallTarget("llvm", function, (word,), DType.INT32, word.lanes)
        for function in (MAGNITUDES, MASKS[signed])
    )
    return size, mask


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
    if group.anchor is not None and tensor_type(group.anchor).dtype.bits == 8:
        # Vectors of bytes half as wide as the machine's trade blocks as fast as shorter ones.
        large = transpose_kernel(group, 2 * model.lanes, square)
        if large is not None:
            return large
    registers = None if model.bare else transpose_registers
    size = min(model.lanes, _SQUARE)
    return transpose_kernel(group, size, square, transpose_registers=registers, few=model.lanes - 1)


def softmax(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``nn.softmax`` and ``nn.log_softmax`` along the last dimension, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else softmax_kernel(group, model.lanes)


def search(group: FusedGroup, target: LoopTarget[LlvmOptions]) -> PrimFunc | None:
    """``argmax`` and ``argmin`` of short rows, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else argmax_kernel(group, model.lanes)


def has_small_stack(target: LoopTarget[LlvmOptions]) -> bool:
    """Whether temporaries of kernels shall lie in the workspace."""
    return machine(target.options).bare


def loops(name: str, stages: Stages, target: LoopTarget[LlvmOptions]) -> PrimFunc:
    """Default loops; vectors overlap where the machine has some."""
    return default_loops(name, stages, overlap=not machine(target.options).bare)


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
        "transpose": transpose,
    }
)
"""Operator name to its schedule."""
