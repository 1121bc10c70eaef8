# SPDX-License-Identifier: Apache-2.0
"""The innermost loop of a register tile where instructions multiply by a lane of a register (NEON).

A vector of A holds four steps of a row (eight of float16), so a row takes one load for them instead
of four::

    for k in K by 4:                    # serial
        a[0..rows) = A[r, k..k+4)       # a register for each row
        for lane in 4:                  # unrolled
            b[0..2) = B[k + lane]       # 2 registers
            c[r, 0..2) += a[r][lane] * b[0..2)

Registers: 10 x 2 sums + 10 of A + 2 of B = 32 of 32, and 98 instructions do 320 multiply-adds of
float32. Those of float16 take lanes of 16 registers only: 9 x 2 sums, and 165 instructions do 1152.
Arm Compute Library's ``a64_sgemm_8x12`` multiplies by lanes, too, of interleaved rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    CallTarget,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    index,
)
from intarsia_ir.tir.stmt import Stmt, Store
from intarsia_ir.tir.walk import post_order
from intarsia_runtime.dtype import DType

from .loops import address_of, seq, serial, unrolled
from .prefetch import OpenWeightPrefetch, WeightPrefetch
from .tiling import CpuTiling, MicroKernel

LANES = 4
"""Elements of 32 bits in a vector."""

LeftElement: TypeAlias = Callable[[int | PrimExpr, Sequence[PrimExpr]], PrimExpr]
"""Returns the element of A at a row and a step."""

RightElement: TypeAlias = Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr]
"""Returns the element of packed B at a step and a column."""


class LaneLoop(Struct, frozen=True):
    """The loops over K of a tile by the lanes of vectors of A: as many steps a time as it has.

    Attributes:
        tiling: Tile of the machine.
        acc: Accumulators.
        rows: How many, and what writes them out.
        left: The element of A.
        right: The element of packed B.
        steps: Extents of the loops over K.
        weight_prefetch: The next block of B.
    """

    tiling: CpuTiling
    acc: Buffer
    rows: tuple[int, Callable[[int, Callable[[PrimExpr], Stmt]], Stmt]]
    left: LeftElement
    right: RightElement
    steps: tuple[int | PrimExpr, ...]
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None

    def loops(self) -> Stmt:
        """Return the loops over K, which multiply by one lane after another."""
        return self.nest((), self._lanes)

    def nest(
        self, step: tuple[PrimExpr, ...], body: Callable[[tuple[PrimExpr, ...]], Stmt]
    ) -> Stmt:
        """Return the loops over K within those of ``step``.

        Args:
            step: Variables of the loops outside.
            body: What is done for the steps of a vector, from one on.
        """
        *outer, innermost = self.steps
        if len(step) < len(outer):
            return serial(outer[len(step)], lambda k: self.nest((*step, k), body), "k")
        lanes, prefetch = self.tiling.lanes, self.weight_prefetch
        extents = (*outer, innermost // lanes)

        def some(k: PrimExpr) -> Stmt:
            made = body((*step, k * lanes))
            if prefetch is None:
                return made
            return prefetch.around(made, (*step, k), extents, (self.rows[0], lanes))

        return serial(extents[-1], some, "k")

    def _lanes(self, first: tuple[PrimExpr, ...]) -> Stmt:
        return seq(*(self._lane(first, lane) for lane in range(self.tiling.lanes)))

    def _lane(self, first: tuple[PrimExpr, ...], lane: int) -> Stmt:
        """Multiply by a lane of the vectors of A that begin at a step."""
        tiling, acc, size = self.tiling, self.acc, self.tiling.lanes
        assert tiling.left_lanes is not None  # as of every loop that _lane_loop makes
        read = tiling.left_lanes

        def multiply_add(row: PrimExpr, column: PrimExpr) -> Stmt:
            here = (row, Ramp(column, 1, size))
            total = Load(acc, here, acc.dtype, size)
            weight = self.right((*first[:-1], first[-1] + lane), column)
            b = vector_of(weight, size)
            a = read(self.left(row, first), lane)
            assert a is not None  # as of the sample
            if tiling.add is None:
                return Store(acc, here, total + a * b)
            return Store(acc, here, replace(tiling.add(total, a, b), lanes=size))

        def row_of(row: PrimExpr) -> Stmt:
            vectors = acc.shape[1] // size
            return unrolled(vectors, lambda v: multiply_add(row, v * size), "v")

        rows, rows_of = self.rows
        return rows_of(rows, row_of)


def lane_loop(
    tiling: CpuTiling,
    acc: Buffer,
    rows: tuple[int, Callable[[int, Callable[[PrimExpr], Stmt]], Stmt]],
    operands: tuple[LeftElement, RightElement],
    steps: Sequence[int | PrimExpr],
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None,
) -> LaneLoop | None:
    """Return the loop by lanes; ``None`` if K does not lie contiguous in A, or there is none."""
    read, innermost = tiling.left_lanes, steps[-1]
    if acc.shape[0] > rows[0]:
        return None  # a tile of partial sums
    if read is None or tiling.micro_kernel is not None or not isinstance(innermost, int):
        return None
    lanes = tiling.lanes
    least = 2 * lanes if tiling.row_pairs is None else lanes  # packed for pairs: no other loop
    if innermost % lanes or innermost < least or lanes < LANES:
        return None
    k, (left, right) = TirVar("k"), operands
    sample = left(0, (*(index(0) for _ in steps[:-1]), k))
    if read(sample, 0) is None or not _is_contiguous(address_of(sample), k, sample.dtype):
        return None
    return LaneLoop(tiling, acc, rows, left, right, tuple(steps), weight_prefetch)


def row_kernel(
    tiling: CpuTiling,
    acc: Buffer,
    rows: int,
    operands: tuple[LeftElement, RightElement],
    steps: Sequence[int | PrimExpr],
) -> MicroKernel | None:
    """Return what replaces the innermost loop, if rows of both operands lie side by side in it."""
    if tiling.row_kernel is None or acc.shape[0] > rows or acc.dtype is not DType.FLOAT32:
        return None
    k, (left, right) = TirVar("k"), operands
    step = (*(index(0) for _ in steps[:-1]), k)
    a, b = left(0, step), right(step, index(0))
    if not isinstance(a, Load) or not isinstance(b, Load):
        return None
    if a.dtype is not DType.FLOAT32 or b.dtype is not DType.FLOAT32:
        return None
    *outer, before, last = b.indices
    by_rows = _slope(before, k) == 1 and all(_slope(at, k) == 0 for at in (*outer, last))
    return tiling.row_kernel if by_rows and _is_contiguous(a, k, a.dtype) else None


def vector_of(element: PrimExpr, lanes: int = LANES) -> PrimExpr:
    """Return the vector that begins at an element of packed weights: a load, or a word of one."""
    first = address_of(element)
    *outer, last = first.indices
    apart = element.dtype.bytes // first.buffer.dtype.bytes
    vector = replace(first, indices=(*outer, Ramp(last, apart, lanes)), lanes=lanes)
    if not isinstance(element, CallTarget):
        return vector
    return replace(element, args=(vector,), lanes=lanes)


def _is_contiguous(element: Load, k: TirVar, dtype: DType) -> bool:
    """Whether the elements of a load for neighbouring ``k`` lie side by side."""
    *outer, last = element.indices
    per_step = dtype.bytes // element.buffer.dtype.bytes
    return _slope(last, k) == per_step and all(_slope(at, k) == 0 for at in outer)


def _slope(expr: PrimExpr, var: TirVar) -> int | None:
    """Return what an index grows by with a variable; ``None`` if that is no constant."""
    if expr is var:
        return 1
    if isinstance(expr, Binary) and expr.op in (BinaryOp.ADD, BinaryOp.SUB):
        a, b = _slope(expr.a, var), _slope(expr.b, var)
        if a is None or b is None:
            return None
        return a + b if expr.op is BinaryOp.ADD else a - b
    if isinstance(expr, Binary) and expr.op is BinaryOp.MUL and isinstance(expr.b, IntImm):
        a = _slope(expr.a, var)
        return None if a is None else a * expr.b.value
    return None if any(node is var for node in post_order(expr)) else 0
