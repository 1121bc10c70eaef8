# SPDX-License-Identifier: Apache-2.0
"""Transposes of squares in registers."""

from __future__ import annotations

from intarsia.dtype import DType
from intarsia.tir.buffer import Buffer
from intarsia.tir.expr import CallTarget, Load, PrimExpr, Ramp, TirVar
from intarsia.tir.stmt import LetStmt, Seq, Stmt, Store


def square(
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
