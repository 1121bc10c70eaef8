# SPDX-License-Identifier: Apache-2.0
"""Transposes of squares in vector registers, by log2(lanes) rounds of exchanges.

With ``lanes`` vectors and two temporaries: 8 + 2 of 16 ymm, 16 + 2 of 32 zmm. This is Eklundh's
algorithm ("A fast computer method for matrix transposing", 1972) on registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import CallTarget, Load, PrimExpr, Ramp, TirVar
from intarsia_ir.tir.stmt import LetStmt, Seq, Stmt, Store


def square(
    source: Buffer, result: Buffer, lanes: int, place: tuple[PrimExpr, PrimExpr, PrimExpr]
) -> Stmt:
    """Transpose ``lanes`` rows of ``lanes`` elements from one buffer to another."""
    image, row, column = place
    rows = [
        Load(source, (image, row + i, Ramp(column, 1, lanes)), source.dtype, lanes)
        for i in range(lanes)
    ]

    def write(number: int, value: PrimExpr) -> Stmt:
        return Store(result, (image, column + number, Ramp(row, 1, lanes)), value)

    return transpose_registers(rows, write)


def transpose_registers(rows: Sequence[PrimExpr], write: Callable[[int, PrimExpr], Stmt]) -> Stmt:
    """Transpose a square of vectors: in each round, they trade blocks of lanes.

    Args:
        rows: As many vectors as one has lanes.
        write: ``write(i, column)`` stores column ``i``.
    """
    lanes, dtype = len(rows), rows[0].dtype
    lets: list[tuple[TirVar, PrimExpr]] = []

    def let(value: PrimExpr) -> TirVar:
        var = TirVar(f"t{len(lets)}", dtype, lanes)
        lets.append((var, value))
        return var

    vectors = [let(row) for row in rows]
    block = lanes // 2
    while block:
        for i in range(lanes):
            if i & block == 0:
                a, b = vectors[i], vectors[i + block]
                vectors[i] = let(exchange(a, b, "low", block))
                vectors[i + block] = let(exchange(a, b, "high", block))
        block //= 2
    body: Stmt = Seq(tuple([write(i, vector) for i, vector in enumerate(vectors)]))
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return body


def exchange(a: PrimExpr, b: PrimExpr, half: str, block: int) -> PrimExpr:
    """Return the even (``low``) or the odd (``high``) blocks of lanes of two vectors."""
    return CallTarget("llvm", f"llvm.exchange.{half}.{block}", (a, b), a.dtype, a.lanes)
