# SPDX-License-Identifier: Apache-2.0
"""Loops that C compilers make good code of, for the registers of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, IntImm, Load, PrimExpr, binary, cast
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.passes.stack_to_scratch import SMALL_STACK_BYTES, stack_to_scratch
from intarsia_ir.tir.stmt import Allocate, Stmt
from intarsia_loops.cpu.int8x4 import dot4_by_shifts
from intarsia_loops.cpu.loops import load, seq, store, unrolled, vectorized
from intarsia_loops.cpu.packed_operands import Int8x4
from intarsia_loops.cpu.softmax import softmax_kernel
from intarsia_loops.cpu.table import OnWorkspace, Schedule, Schedules
from intarsia_loops.cpu.tiling import CpuTiling, fit_caches
from intarsia_loops.cpu.transpose import transpose_kernel
from intarsia_loops.targets import LoopTarget
from intarsia_runtime.dtype import DType

from .depthwise_micro_kernels import DEPTHWISE_MICRO_KERNEL
from .dot_micro_kernels import dot_micro_kernel
from .float_micro_kernels import float_micro_kernel
from .row_schedules import RowSchedules
from .target import COptions
from .toolchain import ZMM_BYTES, vector_bytes, vector_type_bytes
from .vector_dot_kernels import vector_dot_kernel

_SQUARE = 4
_SMALL_STRIP = 6 * 1024  # a few rows of an image: such machines have 64 KiB or little more


def cpu_tiling(options: COptions, dtype: DType = DType.FLOAT32) -> CpuTiling:
    """Return the register tile of the machine that the options name.

    A microcontroller's 32 floating-point registers hold 2 x 8 sums, 8 weights and what is
    multiplied with them; its 16 others, 2 x 2 sums.
    """
    if options.is_microcontroller:
        depthwise = DEPTHWISE_MICRO_KERNEL if options.has_mve else None
        # Row kernels take a column after the other, or four of a single row.
        columns = (1, 1 if options.has_mve else 4) if options.has_dsp else (2, 4)
        int8x4 = Int8x4(
            load_word, dot4_by_shifts, micro_kernel=dot_micro_kernel, columns=columns[0],
            one_row_columns=columns[1], depthwise=depthwise,
        )  # fmt: skip
        lanes = 4 if dtype.is_float else 1
        row_kernel = float_micro_kernel if options.has_mve and dtype is DType.FLOAT32 else None
        return CpuTiling(lanes, 2, strip_bytes=_SMALL_STRIP, int8x4=int8x4, row_kernel=row_kernel)
    # C compilers find better instructions for the sum of a single row than four bytes by shifts.
    micro_kernel = vector_dot_kernel if options.is_x86 else None
    int8x4 = Int8x4(load_word, dot4_by_shifts, least_rows=4, micro_kernel=micro_kernel)
    lanes, size = max(1, vector_bytes(options) // dtype.bytes), vector_type_bytes(options)
    return CpuTiling(lanes, 6, int8x4=int8x4, vector_types=0 < size < ZMM_BYTES)


def load_word(first: PrimExpr) -> PrimExpr:
    """Return four bytes as one integer, from the lowest up; compilers make one load of them."""
    if not isinstance(first, Load):
        raise AssertionError("an Int8x4 word begins at a load of a byte")
    *outer, last = first.indices
    word: PrimExpr | None = None
    for byte_number in range(4):
        byte = cast(replace(first, indices=(*outer, last + byte_number)), DType.INT32)
        low = binary(BinaryOp.AND, byte, IntImm(255, DType.INT32))
        moved = (
            binary(BinaryOp.SHL, low, IntImm(8 * byte_number, DType.INT32)) if byte_number else low
        )
        word = moved if word is None else binary(BinaryOp.OR, word, moved)
    assert word is not None  # of four bytes
    return word


def _tiling_of(target: LoopTarget[COptions], dtype: DType) -> CpuTiling:
    return fit_caches(cpu_tiling(target.options, dtype), target.memory)


def _anywhere(_target: LoopTarget[COptions]) -> bool:
    return True  # whoever runs C may have a small stack


def transpose(group: FusedGroup, target: LoopTarget[COptions]) -> PrimFunc | None:
    """``transpose`` alone, where it swaps matrices of up to 32 bits an element."""
    return transpose_kernel(group, _SQUARE, _square)


def softmax(group: FusedGroup, target: LoopTarget[COptions]) -> PrimFunc | None:
    """``nn.softmax`` and ``nn.log_softmax`` along the last dimension, where there are vectors.

    Loops over eight lanes would be written out where a compiler has none: sources for any machine
    keep loops over elements.
    """
    options = target.options
    if options.is_microcontroller or options.sources_only:
        return None
    return softmax_kernel(group, vector_bytes(options) // DType.FLOAT32.bytes)


def _square(
    source: Buffer, result: Buffer, size: int, byte_number: tuple[PrimExpr, PrimExpr, PrimExpr]
) -> Stmt:
    """Copy a square to registers and from there: compilers make vectors of both."""
    image, row, column = byte_number
    square = Buffer("square", (size, size), source.dtype, MemoryScope.REGISTER)

    def read(r: PrimExpr, c: PrimExpr) -> Stmt:
        return store(square, (c, r), load(source, image, row + r, column + c))

    def write(c: PrimExpr, r: PrimExpr) -> Stmt:
        return store(result, (image, column + c, row + r), load(square, c, r))

    rows = unrolled(size, lambda r: vectorized(size, lambda c: read(r, c)))
    columns = unrolled(size, lambda c: vectorized(size, lambda r: write(c, r)))
    return Allocate(square, seq(rows, columns))


def bound_stack(kernel: PrimFunc, _target: LoopTarget[COptions]) -> PrimFunc:
    """Leave on the stack what a small one holds; a loop runs on one thread."""
    return stack_to_scratch(kernel, SMALL_STACK_BYTES)


_LOOPS = Schedules(_tiling_of).table()

SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        **{
            name: OnWorkspace(schedule, _anywhere)
            for name, schedule in {**_LOOPS, **RowSchedules(_LOOPS).table()}.items()
        },
        "transpose": transpose,
        "nn.softmax": softmax,
        "nn.log_softmax": softmax,
    }
)
"""Operator name to its schedule."""
