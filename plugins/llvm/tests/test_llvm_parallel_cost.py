# SPDX-License-Identifier: Apache-2.0
"""Which loops are shared between threads."""

from __future__ import annotations

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr, TirVar, index
from intarsia_ir.tir.stmt import Allocate, For, IfStmt, Seq, Stmt
from intarsia_llvm.emit.parallel_cost import effort, is_parallel_profitable, is_wakeup_profitable
from intarsia_loops.cpu.loops import load, parallel, serial, store
from intarsia_runtime.dtype import DType

A = Buffer("a", (4096, 4096), DType.FLOAT32)
SUM = Buffer("sum", (1,), DType.FLOAT32, MemoryScope.REGISTER)


def written(row: PrimExpr, column: PrimExpr) -> Stmt:
    return store(A, (row, column), load(A, index(0), index(0)))


def shared(loop: Stmt) -> bool:
    assert isinstance(loop, For)
    return is_parallel_profitable(loop)


def test_writing_memory_takes_longer_than_adding_in_a_register() -> None:
    add = store(SUM, (index(0),), load(SUM, index(0)))
    assert (effort(add), effort(written(index(0), index(0)))) == (1, 8)
    assert effort(Allocate(SUM, Seq((add, serial(10, lambda i: written(i, i)))))) == 81


def test_the_longer_branch_counts_and_loops_of_unknown_length_run_a_few_times() -> None:
    n = TirVar("n")
    short, long = written(index(0), n), serial(3, lambda i: written(i, i))
    assert effort(IfStmt(n, short, long)) == effort(IfStmt(n, long)) == 24
    assert effort(serial(n, lambda i: written(i, i))) == 32


def test_threads_share_what_takes_a_microsecond_and_wake_for_more() -> None:
    def rows(count: int) -> tuple[bool, bool]:
        loop = parallel(count, lambda i: serial(375, lambda j: written(i, j)))
        assert isinstance(loop, For)
        return is_parallel_profitable(loop), is_wakeup_profitable(loop)

    assert [rows(n) for n in (1, 2, 66, 67)] == [
        (False, False),
        (True, False),
        (True, False),
        (True, True),
    ]


def test_one_round_is_not_shared_and_an_unknown_number_is() -> None:
    assert not shared(parallel(1, lambda i: serial(100_000, lambda j: written(i, j))))
    assert shared(parallel(TirVar("n"), lambda i: written(i, i)))
