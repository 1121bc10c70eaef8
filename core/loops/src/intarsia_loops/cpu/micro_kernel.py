# SPDX-License-Identifier: Apache-2.0
"""The register tile: the micro-kernel of every convolution and matrix product.

C[rows, columns] += A[rows, K] * B[K, columns], all of C in registers. A step of K loads one row of
B (packed weights, ``vectors`` vectors), and for each row broadcasts one element of A and does
``vectors`` multiply-adds::

    for k in K:                     # serial; weights are contiguous along it
        b[0..vectors) = B[k]        # vectors registers
        for r in rows:              # unrolled
            a = A[r, k]             # one register: broadcast
            c[r, 0..vectors) += a * b[0..vectors)

Registers (:func:`~.tiling.registers_of`): ``rows * vectors`` sums, ``vectors`` of B, 1 of A:
6 x 2 + 2 + 1 = 15 of 16 (AVX2), 14 x 2 + 2 + 1 = 31 of 32 (AVX-512, NEON). The tile follows Goto
and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS 2008), and BLIS
(Van Zee and van de Geijn, ACM TOMS 2015). The loops around it are in ``dense.py``, ``panel.py`` and
``conv.py``.

Where instructions multiply by a lane of a register (``CpuTiling.left_lanes``: NEON), a vector of A
holds four steps of a row, so a row takes one load for them instead of four. Each row then has a
register: 10 x 2 sums + 10 of A + 2 of B = 32 of 32, and 98 instructions do 320 multiply-adds of
float32. Arm Compute Library's ``a64_sgemm_8x12`` multiplies by lanes, too, of interleaved rows.

Two multiply-add units with a latency of four cycles need 8 independent accumulators. A tile with
fewer keeps several partial sums for each result, over interleaved steps of K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    const,
    index,
)
from intarsia_ir.tir.stmt import Allocate, Stmt, Store
from intarsia_ir.tir.walk import expr_nodes, post_order, statements, substitute
from intarsia_runtime.dtype import DType

from ..typical import typical
from .corrections import Corrections
from .loops import address_of, load, seq, serial, store, unrolled, vectorized
from .prefetch import OpenWeightPrefetch, WeightPrefetch, with_prefetch
from .tiling import CpuTiling

_A_LANES = 4
"""Elements of a vector of A where each lane is multiplied with."""

_MIN_ACCUMULATORS = 8
"""Accumulators that hide the latency of multiply-adds: two units, four cycles each."""

_DISTANT_BYTES = 64 * 1024
"""Operands of an epilogue from this size on are prefetched: the first-level cache lost them."""


_Left: TypeAlias = Callable[[int | PrimExpr, Sequence[PrimExpr]], PrimExpr]
_Right: TypeAlias = Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr]


def register_tile(
    tiling: CpuTiling,
    *,
    rows: int,
    columns: int,
    largest: tuple[int, int],
    steps: Sequence[int | PrimExpr],
    left: _Left,
    right: _Right,
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    dtype: DType = DType.FLOAT32,
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None = None,
    initial: Callable[[PrimExpr, PrimExpr], PrimExpr] | None = None,
    numbers_rows: bool = False,
    corrections: Corrections | None = None,
) -> Stmt:
    """Return the loops of one tile.

    Args:
        tiling: Tile of the machine.
        rows: Rows of this tile.
        columns: Columns of this tile; lanes behind them are not stored.
        largest: Rows and columns of the kernel's largest tile, whose order of sums all tiles have.
        steps: Extents of the loops over K, outermost first.
        left: ``left(row, step)``: the element of A to broadcast.
        right: ``right(step, column)``: the element of packed B.
        epilogue: ``epilogue(row, column, sum)`` stores a result.
        dtype: Element type.
        weight_prefetch: The next block of B, of which each step prefetches a share.
        initial: ``initial(row, column)``: what a sum starts from; zero if ``None``.
        numbers_rows: Whether ``left`` and ``epilogue`` get rows as numbers: rows lie anywhere.
        corrections: Of B, added behind the last step.
    """
    lanes, vectors = tiling.lanes, -(-columns // tiling.lanes)
    partial_sums, extents = _partial_sums(tiling, largest, steps) if initial is None else (1, steps)
    acc = Buffer("acc", (partial_sums * rows, vectors * lanes), dtype, MemoryScope.REGISTER)
    rows_of = _numbered if numbers_rows else _unrolled_rows

    by_lanes = _lane_loop(tiling, acc, (rows, rows_of), (left, right), steps, weight_prefetch)

    def nest(step: tuple[PrimExpr, ...]) -> Stmt:
        if tiling.micro_kernel is not None and len(step) == len(steps) - 1:
            first_step = (*step, index(0))
            left_rows = [left(row, first_step) for row in range(rows)]
            return tiling.micro_kernel(acc, left_rows, right(first_step, index(0)), steps[-1])
        if by_lanes is not None and len(step) == len(steps) - 1:
            return by_lanes.loop(step)
        if len(step) < len(steps):
            return serial(extents[len(step)], lambda k: nest((*step, k)), "k")

        def multiply_add(acc_row: PrimExpr, column: PrimExpr) -> Stmt:
            row, own_step = _row_and_step(acc_row, step, rows, partial_sums)
            total, a, b = load(acc, acc_row, column), left(row, own_step), right(own_step, column)
            added = total + a * b if tiling.add is None else tiling.add(total, a, b)
            return store(acc, (acc_row, column), added)

        body, prefetch = _each_accumulator(acc, lanes, multiply_add, rows_of), weight_prefetch
        return body if prefetch is None else prefetch.around(body, step, extents, (rows, lanes))

    stores = rows_of(rows, lambda r: _store_row(acc, (r, rows), columns, lanes, epilogue))
    operands = _distant_operands(epilogue, rows, columns, lanes, dtype, numbers_rows=numbers_rows)
    sums = seq(_cleared(acc, lanes, initial), nest(()), *_corrected(tiling, acc, rows, corrections))
    return Allocate(acc, with_prefetch(tiling.prefetch, operands, seq(sums, stores)))


def _corrected(
    tiling: CpuTiling, acc: Buffer, rows: int, corrections: Corrections | None
) -> Iterator[Stmt]:
    """Yield what adds products of corrections; of partial sums of a result, to the first."""
    if corrections is None:
        return
    assert tiling.add is not None  # products of words have a step of their own
    add, lanes, columns = tiling.add, tiling.lanes, acc.shape[1]

    def step(number: PrimExpr, place: PrimExpr) -> Stmt:
        def multiply_add(row: PrimExpr, column: PrimExpr) -> Stmt:
            total = load(acc, row, column)
            a, b = corrections.left(row, place), corrections.right(number, column)
            return store(acc, (row, column), add(total, a, b))

        def row(r: PrimExpr) -> Stmt:
            def vector(v: PrimExpr) -> Stmt:
                return vectorized(lanes, lambda i: multiply_add(r, v * lanes + i))

            return unrolled(columns // lanes, vector, "v")

        return _unrolled_rows(rows, row)

    yield corrections.loop(step)


class _LaneLoop(Struct, frozen=True):
    """The innermost loop of a tile by the lanes of vectors of A: ``_A_LANES`` steps a time.

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
    left: _Left
    right: _Right
    steps: tuple[int | PrimExpr, ...]
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None

    def loop(self, step: tuple[PrimExpr, ...]) -> Stmt:
        """Return the loop within those of ``step``."""
        extents = (*self.steps[:-1], self.steps[-1] // _A_LANES)

        def lanes(k: PrimExpr) -> Stmt:
            body = seq(*(self._lane((*step, k * _A_LANES), lane) for lane in range(_A_LANES)))
            if self.weight_prefetch is None:
                return body
            tile = (self.rows[0], self.tiling.lanes)
            return self.weight_prefetch.around(body, (*step, k), extents, tile)

        return serial(extents[-1], lanes, "k")

    def _lane(self, first: tuple[PrimExpr, ...], lane: int) -> Stmt:
        """Multiply by a lane of the vectors of A that begin at a step."""
        tiling, acc, size = self.tiling, self.acc, self.tiling.lanes
        assert tiling.left_lanes is not None  # as of every loop that _lane_loop makes
        read = tiling.left_lanes

        def multiply_add(row: PrimExpr, column: PrimExpr) -> Stmt:
            here = (row, Ramp(column, 1, size))
            total = Load(acc, here, acc.dtype, size)
            weight = self.right((*first[:-1], first[-1] + lane), column)
            b = Load(*_vector_of(weight), acc.dtype, size)
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


def _lane_loop(
    tiling: CpuTiling,
    acc: Buffer,
    rows: tuple[int, Callable[[int, Callable[[PrimExpr], Stmt]], Stmt]],
    operands: tuple[_Left, _Right],
    steps: Sequence[int | PrimExpr],
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None,
) -> _LaneLoop | None:
    """Return the loop by lanes; ``None`` if K does not lie contiguous in A, or there is none."""
    read, innermost = tiling.left_lanes, steps[-1]
    if acc.shape[0] > rows[0]:
        return None  # a tile of partial sums
    if read is None or tiling.micro_kernel is not None or not isinstance(innermost, int):
        return None
    if innermost % _A_LANES or innermost < 2 * _A_LANES or tiling.lanes != _A_LANES:
        return None
    k, (left, right) = TirVar("k"), operands
    sample = left(0, (*(index(0) for _ in steps[:-1]), k))
    if read(sample, 0) is None or not _is_contiguous(address_of(sample), k, sample.dtype):
        return None
    return _LaneLoop(tiling, acc, rows, left, right, tuple(steps), weight_prefetch)


def _vector_of(element: PrimExpr) -> tuple[Buffer, tuple[PrimExpr, ...]]:
    """Return where the vector is that begins at an element of packed weights."""
    first = address_of(element)
    *outer, last = first.indices
    return first.buffer, (*outer, Ramp(last, 1, _A_LANES))


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


def _cleared(
    acc: Buffer, lanes: int, initial: Callable[[PrimExpr, PrimExpr], PrimExpr] | None
) -> Stmt:
    """Set all accumulators to zero, or to what their sums start from."""
    zero = const(0, acc.dtype)
    return _each_accumulator(
        acc, lanes, lambda r, c: store(acc, (r, c), zero if initial is None else initial(r, c))
    )


def _distant_operands(
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    rows: int,
    columns: int,
    lanes: int,
    dtype: DType,
    *,
    numbers_rows: bool = False,
) -> Iterator[PrimExpr]:
    """Yield the loads of large arrays in the epilogue of a tile, one a vector."""
    row, column = TirVar("r"), TirVar("v")
    for r in range(rows):
        stored = epilogue(index(r) if numbers_rows else row, column, const(0, dtype))
        distant = [
            node
            for node in expr_nodes(statements(stored))
            if isinstance(node, Load) and typical(node.buffer.bytes) >= _DISTANT_BYTES
        ]
        if not distant:
            return
        for first in range(0, columns, lanes):
            for read in distant:
                yield substitute(read, {row: index(r), column: index(first)})


def _unrolled_rows(rows: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return unrolled(rows, body, "r")


def _numbered(rows: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return seq(*(body(index(row)) for row in range(rows)))


def _each_accumulator(
    acc: Buffer,
    lanes: int,
    body: Callable[[PrimExpr, PrimExpr], Stmt],
    rows_of: Callable[[int, Callable[[PrimExpr], Stmt]], Stmt] = _unrolled_rows,
) -> Stmt:
    """Do ``body(row, column)`` for all accumulators of a tile, a vector at a time."""
    rows, columns = acc.shape

    def row(r: PrimExpr) -> Stmt:
        return unrolled(
            columns // lanes, lambda v: vectorized(lanes, lambda i: body(r, v * lanes + i)), "v"
        )

    return rows_of(rows, row)


def _partial_sums(
    tiling: CpuTiling, largest: tuple[int, int], steps: Sequence[int | PrimExpr]
) -> tuple[int, Sequence[int | PrimExpr]]:
    """Return the partial sums of each result, and ``steps`` where a step adds to all of them.

    They are doubled until there are :data:`_MIN_ACCUMULATORS`, as long as they divide K and fit the
    registers.
    """
    rows, vectors = largest[0], -(-largest[1] // tiling.lanes)
    partial_sums, innermost = 1, steps[-1]
    if not isinstance(innermost, int) or tiling.micro_kernel is not None:
        return partial_sums, steps
    while (
        innermost % (2 * partial_sums) == 0
        and 2 * partial_sums * rows <= tiling.rows_for(vectors)
        and partial_sums * rows * vectors < _MIN_ACCUMULATORS
    ):
        partial_sums *= 2
    return partial_sums, (*steps[:-1], innermost // partial_sums)


def _row_and_step(
    acc_row: PrimExpr, step: tuple[PrimExpr, ...], rows: int, partial_sums: int
) -> tuple[PrimExpr, tuple[PrimExpr, ...]]:
    """Return the row of the tile and the step of K that a row of accumulators is of."""
    if partial_sums == 1:
        return acc_row, step
    return acc_row % rows, (*step[:-1], step[-1] * partial_sums + acc_row // rows)


def _store_row(
    acc: Buffer,
    row_of: tuple[PrimExpr, int],
    columns: int,
    lanes: int,
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """Run the epilogue on a row, vector by vector; the last vector has the columns that remain."""
    row, rows = row_of
    stmts: list[Stmt] = []

    def total(column: PrimExpr) -> PrimExpr:
        value = load(acc, row, column)
        for first in range(rows, acc.shape[0], rows):
            value = value + load(acc, row + first, column)
        return value

    for start in range(0, columns, lanes):
        used = min(lanes, columns - start)
        stmts.append(vectorized(used, lambda i, s=start: epilogue(row, i + s, total(i + s))))
    return seq(*stmts)
