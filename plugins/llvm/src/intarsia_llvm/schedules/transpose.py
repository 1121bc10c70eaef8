# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices, square by square in registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from intarsia.dtype import DType
from intarsia.lower.cpu.loops import cut, load, parallel, seq, serial, store
from intarsia.tir.buffer import Buffer
from intarsia.tir.expr import CallTarget, Load, PrimExpr, Ramp, TirVar
from intarsia.tir.stmt import LetStmt, Seq, Stmt, Store


def as_matrices(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return ``(batch, rows, columns)`` if a transpose swaps the last two of three dimensions.

    Dimensions of size 1 are left out, and those that stay neighbours are one.
    """
    kept = [axis for axis in axes if shape[axis] != 1]
    groups: list[list[int]] = []
    rank = {axis: number for number, axis in enumerate(sorted(kept))}
    for axis in kept:
        if groups and rank[axis] == rank[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [prod(shape[axis] for axis in group) for group in groups]
    order = sorted(range(len(groups)), key=lambda n: groups[n][0])
    if order == [1, 0]:
        return 1, sizes[1], sizes[0]
    if order == [0, 2, 1]:
        return sizes[0], sizes[2], sizes[1]
    return None


def transpose_loops(source: Buffer, result: Buffer, lanes: int) -> Stmt:
    """Return loops for ``result[b, j, i] = source[b, i, j]``.

    Args:
        source: ``[batch, rows, columns]``, rows and columns at least ``lanes``.
        result: ``[batch, columns, rows]``.
        lanes: Elements in a vector.
    """
    batch, rows, columns = source.shape
    stmts: list[Stmt] = []
    for part in cut(columns, lanes):

        def item(p: PrimExpr, start: int = part.start, size: int = part.size) -> Stmt:
            block, image = p // batch, p % batch
            return _strip(source, result, lanes, (image, block * size + start, size))

        stmts.append(parallel(part.count * batch, item))
    return seq(*stmts) if rows else seq()


def _strip(
    source: Buffer, result: Buffer, lanes: int, place: tuple[PrimExpr, PrimExpr, int]
) -> Stmt:
    """Transpose ``size`` neighbouring columns."""
    image, column, size = place
    stmts: list[Stmt] = []
    for part in cut(source.shape[1], lanes):

        def body(i: PrimExpr, start: int = part.start, height: int = part.size) -> Stmt:
            row = i * height + start
            if size == lanes == height:
                return _square(source, result, lanes, (image, row, column))
            return serial(
                size,
                lambda c: serial(
                    height,
                    lambda r: store(
                        result,
                        (image, column + c, row + r),
                        load(source, image, row + r, column + c),
                    ),
                ),
            )

        stmts.append(serial(part.count, body))
    return seq(*stmts)


def _square(
    source: Buffer, result: Buffer, lanes: int, place: tuple[PrimExpr, PrimExpr, PrimExpr]
) -> Stmt:
    """Transpose ``lanes`` rows of ``lanes`` elements: in each round, vectors trade blocks."""
    image, row, column = place
    dtype = source.dtype
    lets: list[tuple[TirVar, PrimExpr]] = []

    def let(value: PrimExpr) -> TirVar:
        var = TirVar(f"t{len(lets)}", dtype, lanes)
        lets.append((var, value))
        return var

    vectors = [
        let(Load(source, (image, row + i, Ramp(column, 1, lanes)), dtype, lanes))
        for i in range(lanes)
    ]
    block = lanes // 2
    while block:
        for i in range(lanes):
            if i & block == 0:
                pair = (vectors[i], vectors[i + block])
                vectors[i] = let(_exchange("low", block, pair, dtype))
                vectors[i + block] = let(_exchange("high", block, pair, dtype))
        block //= 2
    stores = (
        Store(result, (image, column + i, Ramp(row, 1, lanes)), vector)
        for i, vector in enumerate(vectors)
    )
    body: Stmt = Seq(tuple(stores))
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return body


def _exchange(half: str, block: int, pair: tuple[TirVar, TirVar], dtype: DType) -> PrimExpr:
    return CallTarget("llvm", f"llvm.exchange.{half}.{block}", pair, dtype, pair[0].lanes)
