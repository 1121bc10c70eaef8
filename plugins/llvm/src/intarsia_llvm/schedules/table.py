# SPDX-License-Identifier: Apache-2.0
"""Which loops compute which operator: those for all CPUs, and transposes by LLVM's instructions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia.dtype import DType
from intarsia.ir.expr import tensor_type
from intarsia.lower.cpu.quads import add_products
from intarsia.lower.cpu.row_searches import search_kernel
from intarsia.lower.cpu.softmax import softmax_kernel
from intarsia.lower.cpu.table import OnWorkspace, Schedule, Schedules
from intarsia.lower.cpu.tile import Pairs, Quads, Shape, fit_caches
from intarsia.lower.cpu.transpose import transpose_kernel
from intarsia.lower.kernels import FusedGroup
from intarsia.lower.loops import default_loops
from intarsia.lower.tensors import Stages
from intarsia.target.target import Target
from intarsia.tir.expr import INDEX, CallTarget, PrimExpr, TirVar, index
from intarsia.tir.func import PrimFunc
from intarsia.tir.passes.stack_to_scratch import (
    SMALL_STACK_BYTES,
    STACK_BYTES,
    ThreadSlots,
    stack_to_scratch,
)
from intarsia.tir.stmt import LetStmt, Stmt

from ..amx import Amx
from ..functions import DOT, HALVES, MOST_SLOTS, PREFETCH, QUAD, THREAD_SLOT
from ..machine import Machine
from ..target import machine
from .transpose import square, turn

_SMALL_STRIP = 6 * 1024  # a few rows of a picture: such machines have 64 KiB or little more


def tile_shape(machine: Machine, dtype: DType = DType.FLOAT32) -> Shape:
    """Return the tile that fills the registers but for the weights and one broadcast.

    A microcontroller's 32 floating-point registers hold 2 x 8 sums, 8 weights and what is
    multiplied with them; its 16 others, 2 x 2 sums.
    """
    if machine.bare:
        quads = Quads(load_quad, add_products, columns=2)
        return Shape(4 if dtype.is_float else 1, 2, strip_bytes=_SMALL_STRIP, quads=quads)
    lanes = max(1, machine.lanes * 4 // dtype.bytes)
    unit = Amx() if machine.amx else None
    quads = Quads(load_quad, dot if machine.dot else add_products, unit=unit)
    rows = 14 if machine.registers == 32 else 6
    return Shape(
        lanes,
        rows,
        prefetch=prefetch,
        quads=quads,
        pairs=Pairs(load_quad, Amx(sums=DType.FLOAT32)) if machine.pairs else None,
        every_second=every_second,
        turn=turn if lanes > 1 else None,
    )


def load_quad(first: PrimExpr) -> PrimExpr:
    """Return the 32 bits at the place of ``first``, a load of a byte or of bfloat16."""
    return CallTarget("llvm", QUAD, (first,), DType.INT32, 1)


def dot(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add four products of bytes by the instruction of VNNI."""
    return CallTarget("llvm", DOT, (total, left, right), DType.INT32, 1)


def every_second(a: PrimExpr, b: PrimExpr, first: int) -> PrimExpr:
    """Return every second lane of two vectors side by side."""
    return CallTarget("llvm", HALVES[first], (a, b), a.dtype, a.lanes)


def prefetch(element: PrimExpr, body: Stmt) -> Stmt:
    """Have the cache line of ``element``, a load, fetched while ``body`` runs."""
    done = CallTarget("llvm", PREFETCH, (element,), DType.BOOL, 1)
    return LetStmt(TirVar("fetched", DType.BOOL), done, body)


def shape_of(target: Target, dtype: DType) -> Shape:
    """Return the register tile of a target's machine, fit to the caches that its tag gives."""
    return fit_caches(tile_shape(machine(target.options), dtype), target.memory)


def transpose(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``transpose`` alone, where it swaps matrices; without vectors only of 32-bit elements."""
    model = machine(target.options)
    if model.bare and group.anchor is not None and tensor_type(group.anchor).dtype.bits != 32:
        return None
    if group.anchor is not None and tensor_type(group.anchor).dtype.bits == 8:
        # Vectors of bytes half as wide as the machine's trade blocks as fast as shorter ones.
        large = transpose_kernel(group, 2 * model.lanes, square)
        if large is not None:
            return large
    return transpose_kernel(group, model.lanes, square, turn=None if model.bare else turn)


def softmax(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``nn.softmax`` and ``nn.log_softmax`` along the last dimension, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else softmax_kernel(group, model.lanes)


def search(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``argmax`` and ``argmin`` of short rows, where there are vectors."""
    model = machine(target.options)
    return None if model.bare else search_kernel(group, model.lanes)


def has_small_stack(target: Target) -> bool:
    """Whether temporaries of kernels shall lie in the workspace."""
    return machine(target.options).bare


def loops(name: str, stages: Stages, target: Target) -> PrimFunc:
    """Default loops; vectors overlap where the machine has some."""
    return default_loops(name, stages, overlap=not machine(target.options).bare)


def thread_slot(count: int) -> PrimExpr:
    """Return the number of the slot, below ``count``, that the thread holds."""
    return CallTarget("llvm", THREAD_SLOT, (index(count),), INDEX, 1)


def bound_stack(kernel: PrimFunc, target: Target) -> PrimFunc:
    """Leave on the stack what its smallest kind holds: of threads, or of a microcontroller."""
    if machine(target.options).bare:
        return stack_to_scratch(kernel, SMALL_STACK_BYTES)
    threads = min(target.options.num_threads or MOST_SLOTS, MOST_SLOTS)
    return stack_to_scratch(kernel, STACK_BYTES, ThreadSlots(threads, thread_slot))


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        **{
            name: OnWorkspace(schedule, has_small_stack)
            for name, schedule in Schedules(shape_of).table().items()
        },
        "argmax": search,
        "argmin": search,
        "nn.log_softmax": softmax,
        "nn.softmax": softmax,
        "transpose": transpose,
    }
)
"""Operator name to its schedule."""
