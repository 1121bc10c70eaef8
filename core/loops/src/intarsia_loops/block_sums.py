# SPDX-License-Identifier: Apache-2.0
"""Long sums as sums of blocks.

A sum of ``n`` numbers, added one after the other, is wrong by up to ``n`` roundings; a sum of
blocks of ``b`` numbers by ``b + n / b``. Networks that take a variance as
``mean(x * x) - mean(x) ** 2`` lose all digits that sums do not have. The sum of a block stays in
registers beside the total: 4 + 4 vectors of 16 ymm. NumPy's pairwise sums have blocks of 128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import BinaryOp, IntImm, PrimExpr, TirVar, index
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Seq, Stmt
from intarsia_ir.tir.tensor import Axis, Reduction
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .row_reductions import serial_loops

BLOCK = 32
"""Elements of a block."""

Step: TypeAlias = "Callable[[Buffer, Mapping[TirVar, PrimExpr]], Stmt]"
"""``step(register, place)``: add the element at a place of some variables to a register."""


def is_long_sum(body: Reduction, dtype: DType) -> bool:
    """Whether the innermost axis of a reduction is added up by blocks."""
    extent = body.axes[-1].extent
    is_long = isinstance(extent, Dim) or extent >= 4 * BLOCK
    return is_long and body.combine is BinaryOp.ADD and dtype.is_float


def sum_by_blocks(
    axes: Sequence[Axis], total: Buffer, part: Buffer, step: Step, ends: tuple[Stmt, Stmt]
) -> Stmt:
    """Return loops that add to ``total``, block by block of the innermost axis.

    Args:
        axes: What is added up; the last one is split.
        total: Takes the sum.
        part: Takes the sum of a block.
        step: Adds an element to one of them.
        ends: Sets ``part`` to 0, and adds it to ``total``.
    """
    inner = axes[-1]
    block, within, tail = (TirVar(name) for name in ("block", inner.var.name, inner.var.name))
    blocks = inner.extent // BLOCK
    elements = step(part, {inner.var: block * BLOCK + within})
    clear, add = ends
    whole = Seq((clear, For(within, IntImm(BLOCK), ForKind.SERIAL, elements), add))
    loops: list[Stmt] = [For(block, index(blocks), ForKind.SERIAL, Allocate(part, whole))]
    rest = inner.extent - blocks * BLOCK
    if rest != 0:
        last = step(total, {inner.var: tail + index(blocks * BLOCK)})
        loops.append(For(tail, index(rest), ForKind.SERIAL, last))
    return serial_loops(axes[:-1], loops[0] if len(loops) == 1 else Seq(tuple(loops)))
