# SPDX-License-Identifier: Apache-2.0
"""What a kernel may keep on a stack, and where the rest goes."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import INDEX, CallTarget, PrimExpr, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.passes.stack_to_scratch import (
    ThreadSlots,
    frame_bytes,
    stack_to_scratch,
    verify_frame,
)
from intarsia_ir.tir.stmt import Allocate, For, ForKind, LetStmt, Stmt
from intarsia_ir.tir.text.print import print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.loops import load, parallel, seq, store, unrolled
from intarsia_runtime.artifact.plan import THREADS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Size, minimum, variable

F32 = DType.FLOAT32


def slot(count: Size) -> PrimExpr:
    return CallTarget("loops", "slot", (index(count),), INDEX, 1)


def copying(rows: Size, *sizes: int) -> PrimFunc:
    """Return ``y[i] = x[i] + 1`` with temporaries of these sizes for each row."""
    shape = cast("tuple[int, ...]", (rows,))
    x, y = Buffer("x", shape, F32), Buffer("y", shape, F32)
    buffers = [Buffer(f"copy{n}", (size,), F32, MemoryScope.STACK) for n, size in enumerate(sizes)]

    def row(i: PrimExpr) -> Stmt:
        body = seq(
            *(store(b, (0,), load(x, i) + 1.0) for b in buffers),
            store(y, (i,), load(buffers[0], 0)),
        )
        for buffer in buffers:
            body = Allocate(buffer, body)
        return body

    return PrimFunc("copying", (x, y), 1, parallel(index(rows), row))


def kinds(function: PrimFunc) -> list[ForKind]:
    return [s.kind for s in statements(function.body) if isinstance(s, For)]


def test_the_largest_temporaries_move() -> None:
    function = copying(3, 100, 10, 1)
    moved = stack_to_scratch(function, 44)
    assert [b.shape for b in moved.scratch_params] == [(100,)]
    assert frame_bytes(function) == 444
    assert frame_bytes(moved) == 44
    verify_func(moved)
    y = np.zeros(3, np.float32)
    run(moved, np.arange(3, dtype=np.float32), y, np.zeros(100, np.float32))
    np.testing.assert_array_equal(y, [1, 2, 3])


def test_one_thread_runs_a_loop_whose_memory_it_shares() -> None:
    assert kinds(stack_to_scratch(copying(3, 100))) == [ForKind.SERIAL]
    small = copying(3, 100)
    assert stack_to_scratch(small, 400) is small


def test_threads_have_a_slot_each() -> None:
    moved = stack_to_scratch(copying(3, 100), 0, ThreadSlots(8, slot))
    assert kinds(moved) == [ForKind.PARALLEL]
    assert [b.shape for b in moved.scratch_params] == [(3, 112)]  # as many as there are rows
    assert any(isinstance(s, LetStmt) for s in statements(moved.body))
    verify_func(moved)
    assert "slot" in print_func(moved)
    many = stack_to_scratch(copying(30, 128), 0, ThreadSlots(8, slot))
    assert [b.shape for b in many.scratch_params] == [(8, 128)]


def test_loops_of_open_sizes_have_a_copy_for_each_thread_of_the_run() -> None:
    function = copying(variable("N"), 128)
    moved = stack_to_scratch(function, 0, ThreadSlots(8, slot))
    (param,) = moved.scratch_params
    assert param.shape == (minimum(variable(THREADS), 8), 128)
    flat = flatten_open(moved)
    assert {size.name for size in flat.sizes} == {"N", THREADS}
    fixed = stack_to_scratch(function, 0, ThreadSlots(8, slot, is_fixed=True))
    assert [b.shape for b in fixed.scratch_params] == [(8, 128)]


def copying_first(size: Size) -> PrimFunc:
    """Return ``y[i] = x[i] + 1`` for three rows, with a fixed and an open temporary for each."""
    open_size = cast("int", size)
    x, y = (Buffer(name, (3,), F32) for name in "xy")
    fixed = Buffer("fixed", (8,), F32, MemoryScope.STACK)
    copy = Buffer("copy", (open_size,), F32, MemoryScope.STACK)

    def row(i: PrimExpr) -> Stmt:
        body = seq(
            store(copy, (0,), load(x, i)),
            store(fixed, (0,), load(copy, 0) + 1.0),
            store(y, (i,), load(fixed, 0)),
        )
        return Allocate(fixed, Allocate(copy, body))

    return PrimFunc("f", (x, y), 1, parallel(3, row))


@pytest.mark.parametrize(
    ("size", "most"),
    [(minimum(variable("N"), 16), 95), (variable("N"), 1 << 20)],
    ids=["no room", "any size"],
)
def test_a_temporary_of_an_open_size_moves(size: Size, most: int) -> None:
    moved = stack_to_scratch(copying_first(size), most)
    assert [b.shape for b in moved.scratch_params] == [(size,)]
    assert frame_bytes(moved) == 32
    verify_func(moved)


def test_a_temporary_of_an_open_size_stays_where_its_largest_has_room() -> None:
    kept = stack_to_scratch(copying_first(minimum(variable("N"), 16)), 96, ThreadSlots(8, slot))
    assert not kept.scratch_params
    assert frame_bytes(kept) == 96  # 16 elements, and 8 of the other one
    assert kinds(kept) == [ForKind.PARALLEL]
    verify_func(kept)
    y = np.zeros(3, np.float32)
    run(kept, np.arange(3, dtype=np.float32), y)
    np.testing.assert_array_equal(y, [1, 2, 3])


def test_copies_take_bounded_memory() -> None:
    moved = stack_to_scratch(copying(30, 16 << 20), 0, ThreadSlots(8, slot))
    assert [b.shape for b in moved.scratch_params] == [(4, 16 << 20)]


def test_copies_of_unrolled_loops_count() -> None:
    y = Buffer("y", (4,), F32)
    copy = Buffer("copy", (100,), F32, MemoryScope.STACK)
    body = unrolled(4, lambda i: Allocate(copy, store(y, (i,), load(copy, 0))))
    function = PrimFunc("f", (y,), 1, body)
    assert frame_bytes(function) == 1600
    assert stack_to_scratch(function, 1600) is function
    assert frame_bytes(stack_to_scratch(function, 1599)) == 0


def test_a_temporary_of_two_loops_is_one_parameter() -> None:
    y = Buffer("y", (8,), F32)
    copy = Buffer("copy", (16,), F32, MemoryScope.STACK)

    def row(i: PrimExpr) -> Stmt:
        return Allocate(copy, seq(store(copy, (0,), load(y, i)), store(y, (i,), load(copy, 0))))

    function = PrimFunc("f", (y,), 1, seq(parallel(8, row), parallel(8, row)))
    moved = stack_to_scratch(function, 0, ThreadSlots(4, slot))
    assert [b.shape for b in moved.scratch_params] == [(4, 16)]
    verify_func(moved)


def test_the_verifier_names_the_bytes() -> None:
    with pytest.raises(VerifyError, match=r"copying.* 444 bytes .* may keep 443"):
        verify_frame(copying(3, 100, 10, 1), 443)
    verify_frame(copying(3, 100, 10, 1), 444)
