# SPDX-License-Identifier: Apache-2.0
"""Which innermost loops of tiles a backend's procedure replaces: rows of both operands in a row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Seq, Stmt
from intarsia_loops.cpu.lane_loop import LeftElement, RightElement, row_kernel
from intarsia_loops.cpu.loops import load
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType

A = Buffer("a", (9, 16), DType.FLOAT32)
B = Buffer("b", (3, 16, 8), DType.FLOAT32)
HALF = Buffer("half", (9, 16), DType.FLOAT16)
ACC = Buffer("acc", (2, 8), DType.FLOAT32, MemoryScope.REGISTER)


def kernel(
    _sums: Buffer, _left: Sequence[PrimExpr], _right: PrimExpr, _steps: PrimExpr | int
) -> Stmt:
    return Seq(())


TILING = CpuTiling(lanes=4, rows=2, row_kernel=kernel)


@pytest.mark.parametrize(
    ("left", "right", "is_taken"),
    [
        (lambda r, k: load(A, r, k[0]), lambda k, c: load(B, 1, k[0], c), True),
        (lambda r, k: load(A, k[0], r), lambda k, c: load(B, 1, k[0], c), False),
        (lambda r, k: load(A, r, k[0] * 2), lambda k, c: load(B, 1, k[0], c), False),
        (lambda r, k: load(A, r, k[0]), lambda k, c: load(B, k[0], 1, c), False),
        (lambda r, k: load(A, r, k[0]) + 1.0, lambda k, c: load(B, 1, k[0], c), False),
        (lambda r, k: load(HALF, r, k[0]), lambda k, c: load(B, 1, k[0], c), False),
    ],
)
def test_rows_must_lie_side_by_side(left: LeftElement, right: RightElement, is_taken: bool) -> None:
    assert (row_kernel(TILING, ACC, 2, (left, right), (16,)) is kernel) == is_taken


def test_no_tile_of_partial_sums_is_replaced() -> None:
    operands = (lambda r, k: load(A, r, k[0]), lambda k, c: load(B, 1, k[0], c))
    assert row_kernel(TILING, ACC, 1, operands, (16,)) is None
    assert row_kernel(CpuTiling(lanes=4, rows=2), ACC, 2, operands, (16,)) is None
