# SPDX-License-Identifier: Apache-2.0
"""Loops that C compilers make good code of, for the registers of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from intarsia.dtype import DType
from intarsia.lower.cpu.loops import load, seq, store, unrolled, vectorized
from intarsia.lower.cpu.quads import add_products
from intarsia.lower.cpu.table import OnWorkspace, Schedule, Schedules
from intarsia.lower.cpu.tile import Quads, Shape, fit_caches
from intarsia.lower.cpu.transpose import transpose_kernel
from intarsia.lower.kernels import FusedGroup
from intarsia.plugin import Target
from intarsia.tir.buffer import Buffer, Scope
from intarsia.tir.expr import BinaryOp, IntImm, Load, PrimExpr, binary, cast
from intarsia.tir.func import PrimFunc
from intarsia.tir.passes.stack_to_scratch import SMALL_STACK_BYTES, stack_to_scratch
from intarsia.tir.stmt import Allocate, Stmt

from .dots import add_dots
from .taps import CHANNEL_SUMS
from .target import COptions
from .toolchain import vector_bytes

_SQUARE = 4
_SMALL_STRIP = 6 * 1024  # a few rows of a picture: such machines have 64 KiB or little more


def tile_shape(options: COptions, dtype: DType = DType.FLOAT32) -> Shape:
    """Return the register tile of the machine that the options name.

    A microcontroller's 32 floating-point registers hold 2 x 8 sums, 8 weights and what is
    multiplied with them; its 16 others, 2 x 2 sums.
    """
    if options.is_microcontroller:
        within = CHANNEL_SUMS if options.has_mve else None
        quads = Quads(load_quad, add_products, sum_up=add_dots, columns=2, within=within)
        lanes = 4 if dtype.is_float else 1
        return Shape(lanes, 2, strip_bytes=_SMALL_STRIP, quads=quads)
    # C compilers find better instructions for the sum of a single row than four bytes by shifts.
    quads = Quads(load_quad, add_products, least_rows=4)
    return Shape(max(1, vector_bytes(options) // dtype.bytes), 6, quads=quads)


def load_quad(first: PrimExpr) -> PrimExpr:
    """Return four bytes as one integer, from the lowest up; compilers make one load of them."""
    if not isinstance(first, Load):
        raise AssertionError("a quad begins at a load of a byte")
    *outer, last = first.indices
    whole: PrimExpr | None = None
    for place in range(4):
        byte = cast(replace(first, indices=(*outer, last + place)), DType.INT32)
        low = binary(BinaryOp.AND, byte, IntImm(255, DType.INT32))
        moved = binary(BinaryOp.SHL, low, IntImm(8 * place, DType.INT32)) if place else low
        whole = moved if whole is None else binary(BinaryOp.OR, whole, moved)
    assert whole is not None  # of four bytes
    return whole


def _shape_of(target: Target, dtype: DType) -> Shape:
    return fit_caches(tile_shape(target.options, dtype), target.memory)


def _anywhere(_target: Target) -> bool:
    return True  # whoever runs C may have a small stack


def transpose(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``transpose`` alone, where it swaps matrices of up to 32 bits an element."""
    return transpose_kernel(group, _SQUARE, _square)


def _square(
    source: Buffer, result: Buffer, size: int, place: tuple[PrimExpr, PrimExpr, PrimExpr]
) -> Stmt:
    """Copy a square to registers and from there: compilers make vectors of both."""
    image, row, column = place
    square = Buffer("square", (size, size), source.dtype, Scope.REGISTER)

    def read(r: PrimExpr, c: PrimExpr) -> Stmt:
        return store(square, (c, r), load(source, image, row + r, column + c))

    def write(c: PrimExpr, r: PrimExpr) -> Stmt:
        return store(result, (image, column + c, row + r), load(square, c, r))

    rows = unrolled(size, lambda r: vectorized(size, lambda c: read(r, c)))
    columns = unrolled(size, lambda c: vectorized(size, lambda r: write(c, r)))
    return Allocate(square, seq(rows, columns))


def bound_stack(kernel: PrimFunc, _target: Target) -> PrimFunc:
    """Leave on the stack what a small one holds; a loop runs on one thread."""
    return stack_to_scratch(kernel, SMALL_STACK_BYTES)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        **{
            name: OnWorkspace(schedule, _anywhere)
            for name, schedule in Schedules(_shape_of).table().items()
        },
        "transpose": transpose,
    }
)
"""Operator name to its schedule."""
