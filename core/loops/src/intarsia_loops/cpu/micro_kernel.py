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

Where instructions multiply by a lane of a register (NEON), ``lane_loop.py`` has the loop over K;
where they multiply two rows at a time, ``row_pairs.py``.

Two multiply-add units with a latency of four cycles need 8 independent accumulators. A tile with
fewer keeps several partial sums for each result, over interleaved steps of K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Load,
    PrimExpr,
    TirVar,
    const,
    index,
)
from intarsia_ir.tir.stmt import Allocate, Seq, Stmt
from intarsia_ir.tir.walk import expr_nodes, statements, substitute
from intarsia_runtime.dtype import DType

from ..typical import typical
from .lane_loop import LeftElement, RightElement, lane_loop, row_kernel
from .loops import load, seq, serial, store, unrolled, vectorized
from .ordered_tiles import OrderedWords
from .prefetch import OpenWeightPrefetch, WeightPrefetch, with_prefetch
from .row_pairs import lane_loops
from .tile_stores import stored_lanes, stored_rows, tile_stores
from .tiling import CpuTiling

MIN_ACCUMULATORS = 8
"""Accumulators that hide the latency of multiply-adds: two units, four cycles each."""

_DISTANT_BYTES = 64 * 1024
"""Operands of an epilogue from this size on are prefetched: the first-level cache lost them."""


def register_tile(
    tiling: CpuTiling,
    *,
    rows: int,
    columns: int,
    largest: tuple[int, int],
    steps: Sequence[int | PrimExpr],
    left: LeftElement,
    right: RightElement,
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    dtype: DType = DType.FLOAT32,
    weight_prefetch: WeightPrefetch | OpenWeightPrefetch | None = None,
    initial: Callable[[PrimExpr, PrimExpr], PrimExpr] | None = None,
    words: OrderedWords | None = None,
    is_one_of_several: bool = False,
    divisor: int = 1,
) -> Stmt:
    """Return the loops of one tile.

    Args:
        tiling: Tile of the machine.
        rows, columns: Of this tile; lanes behind the columns are not stored.
        largest: Rows and columns of the kernel's largest tile, whose order of sums all tiles have.
        steps: Extents of the loops over K, outermost first; ``divisor`` divides an open last one.
        left: ``left(row, step)``: the element of A to broadcast.
        right: ``right(step, column)``: the element of packed B.
        epilogue: ``epilogue(row, column, sum)`` stores a result.
        dtype: Element type, unless the tiling gives sums one of their own.
        weight_prefetch: The next block of B; each step prefetches a share.
        initial: ``initial(row, column)``: what a sum starts from, not zero.
        words: Of B, in an order of their own: ``steps`` and ``right`` are not used then.
        is_one_of_several: Whether the kernel has tiles of several sizes (``tile_stores.py``).
    """
    lanes, fetched, dtype = tiling.lanes, weight_prefetch, tiling.sums or dtype
    partial_sums, extents = _partial_sums(tiling, largest, steps, initial or words, divisor)
    acc = _accumulators(partial_sums * rows, columns, lanes, dtype)
    by_lanes = lane_loop(tiling, acc, (rows, _unrolled_rows), (left, right), steps, fetched)
    innermost = tiling.micro_kernel or row_kernel(tiling, acc, rows, (left, right), steps)

    def nest(step: tuple[PrimExpr, ...]) -> Stmt:
        if by_lanes is not None:
            return lane_loops(by_lanes)
        if innermost is not None and len(step) == len(steps) - 1:
            return innermost(acc, *_first_elements(left, right, step, rows), steps[-1])
        if len(step) < len(steps):
            return serial(extents[len(step)], lambda k: nest((*step, k)), "k")

        def multiply_add(acc_row: PrimExpr, column: PrimExpr) -> Stmt:
            row, own_step = _row_and_step(acc_row, step, rows, partial_sums)
            total, a, b = load(acc, acc_row, column), left(row, own_step), right(own_step, column)
            return store(acc, (acc_row, column), _added(tiling, total, a, b))

        body = _each_accumulator(acc, lanes, multiply_add)
        return fetched.around(body, step, extents, (rows, lanes)) if fetched else body

    start, body = (initial, nest(())) if words is None else words.tile(acc, rows, lanes, fetched)
    stored = (rows, columns, stored_lanes(tiling, epilogue, dtype))
    last = _stored(tiling, acc, stored, epilogue, is_looped=is_one_of_several)
    near = operands_fetched(tiling, epilogue, (rows, columns, lanes), dtype)
    return Allocate(acc, seq(*near, _cleared(tiling, acc, start), body, last))


def _has_sums_in_memory(tiling: CpuTiling) -> bool:
    """Whether a procedure reads and writes vectors of sums: loops over rows cost no more then."""
    return tiling.micro_kernel is not None and tiling.lanes > 1


def _stored(
    tiling: CpuTiling,
    acc: Buffer,
    stored: tuple[int, int, int],
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    *,
    is_looped: bool,
) -> Stmt:
    """Run the epilogue on all sums; ``stored``: rows, columns and lanes."""
    if _has_sums_in_memory(tiling):
        return stored_rows(acc, stored, epilogue)
    return tile_stores(acc, stored, epilogue, is_looped=is_looped)


def _accumulators(rows: int, columns: int, lanes: int, dtype: DType) -> Buffer:
    """Return the registers of sums: whole vectors of columns."""
    return Buffer("acc", (rows, -(-columns // lanes) * lanes), dtype, MemoryScope.REGISTER)


def _first_elements(
    left: LeftElement, right: RightElement, outer: Sequence[PrimExpr], rows: int
) -> tuple[list[PrimExpr], PrimExpr]:
    """Return where the innermost loop begins: an element of each row of A, and one of B."""
    first = (*outer, index(0))
    return [left(row, first) for row in range(rows)], right(first, index(0))


def _added(tiling: CpuTiling, total: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return total + a * b if tiling.add is None else tiling.add(total, a, b)


def _cleared(
    tiling: CpuTiling,
    acc: Buffer,
    initial: Callable[[PrimExpr, PrimExpr], PrimExpr] | None,
) -> Stmt:
    """Set all accumulators to zero, or to what their sums start from."""
    zero, lanes = const(0, acc.dtype), tiling.lanes

    def clear(r: PrimExpr, c: PrimExpr) -> Stmt:
        return store(acc, (r, c), zero if initial is None else initial(r, c))

    if _has_sums_in_memory(tiling):
        rows, columns = acc.shape
        return stored_rows(acc, (rows, columns, lanes), lambda r, c, _: clear(r, c))
    return _each_accumulator(acc, lanes, clear)


def operands_fetched(
    tiling: CpuTiling,
    epilogue: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    tile: tuple[int | PrimExpr, int, int],
    dtype: DType,
) -> list[Stmt]:
    """Return what fetches the large arrays that the epilogue of a tile reads, if it reads any.

    Args:
        tiling: Tile of the machine.
        epilogue: Of the tile.
        tile: Rows, which the run may know, columns and lanes.
        dtype: Of the sums.
    """
    rows, columns, lanes = tile
    row, column = TirVar("r"), TirVar("v")
    stored = epilogue(row, column, const(0, dtype))
    distant = [
        node
        for node in expr_nodes(statements(stored))
        if isinstance(node, Load) and typical(node.buffer.bytes) >= _DISTANT_BYTES
    ]
    if tiling.prefetch is None or not distant:
        return []

    def fetch_row(r: PrimExpr) -> Stmt:
        vectors = (index(first) for first in range(0, columns, lanes))
        reads = (substitute(read, {row: r, column: v}) for v in vectors for read in distant)
        return with_prefetch(tiling.prefetch, reads, Seq(()))

    return [unrolled(rows, fetch_row, "r") if isinstance(rows, int) else serial(rows, fetch_row)]


def _unrolled_rows(rows: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return unrolled(rows, body, "r")


def _each_accumulator(
    acc: Buffer,
    lanes: int,
    body: Callable[[PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """Do ``body(row, column)`` for all accumulators of a tile, a vector at a time."""
    rows, columns = acc.shape

    def row(r: PrimExpr) -> Stmt:
        return unrolled(
            columns // lanes, lambda v: vectorized(lanes, lambda i: body(r, v * lanes + i)), "v"
        )

    return _unrolled_rows(rows, row)


def _partial_sums(
    tiling: CpuTiling,
    largest: tuple[int, int],
    steps: Sequence[int | PrimExpr],
    start: object | None,
    divisor: int,
) -> tuple[int, Sequence[int | PrimExpr]]:
    """Return the partial sums of each result, and ``steps`` where a step adds to all of them.

    They are doubled until there are :data:`MIN_ACCUMULATORS`, as long as they divide K and fit the
    registers; sums that have a ``start`` of their own are not.
    """
    rows, vectors = largest[0], -(-largest[1] // tiling.lanes)
    partial_sums, innermost = 1, steps[-1]
    if start is not None or tiling.micro_kernel is not None:
        return partial_sums, steps
    known = innermost if isinstance(innermost, int) else divisor
    if tiling.row_pairs is not None:
        return partial_sums, steps
    while (
        known % (2 * partial_sums) == 0
        and 2 * partial_sums * rows <= tiling.rows_for(vectors)
        and partial_sums * rows * vectors < MIN_ACCUMULATORS
    ):
        partial_sums *= 2
    if partial_sums == 1:
        return partial_sums, steps
    return partial_sums, (*steps[:-1], innermost // partial_sums)


def _row_and_step(
    acc_row: PrimExpr, step: tuple[PrimExpr, ...], rows: int, partial_sums: int
) -> tuple[PrimExpr, tuple[PrimExpr, ...]]:
    """Return the row of the tile and the step of K that a row of accumulators is of."""
    if partial_sums == 1:
        return acc_row, step
    return acc_row % rows, (*step[:-1], step[-1] * partial_sums + acc_row // rows)
