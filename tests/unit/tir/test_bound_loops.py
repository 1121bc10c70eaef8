# SPDX-License-Identifier: Apache-2.0
"""Loops bound to blocks and threads, memory that threads share, barriers, and procedures."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import IntImm, Load, TirVar, const
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.split_registers import split_registers
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    IfStmt,
    Invoke,
    LetStmt,
    Seq,
    Store,
    Thread,
)
from intarsia_ir.tir.target_call import CodegenSignature, verify_target_calls
from intarsia_ir.tir.text.print import print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_ir.tir.walk import rewrite_stmt, statements, substitute_stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

F32 = DType.FLOAT32
COUNT = 8


def bound(thread, var, extent, body):
    return For(var, IntImm(extent), ForKind.BOUND, body, thread)


def at(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype, 1)


def reverse(barriers=(True, True), rounds=2):
    """Every block reverses its part of the input through shared memory, ``rounds`` times."""
    source, target = Buffer("x", (2, COUNT), F32), Buffer("out", (2, COUNT), F32)
    shared = Buffer("shared", (COUNT,), F32, MemoryScope.SHARED)
    block, thread, turn = TirVar("block"), TirVar("thread"), TirVar("turn")
    first = Store(target, (block, thread), at(source, block, thread))
    parts = [
        Store(shared, (thread,), at(target, block, thread)),
        *([Barrier()] if barriers[0] else []),
        Store(target, (block, thread), at(shared, (COUNT - 1) - thread)),
        *([Barrier()] if barriers[1] else []),
    ]
    loop = For(turn, IntImm(rounds), ForKind.SERIAL, Seq(tuple(parts)))
    body = bound(Thread.THREAD_X, thread, COUNT, Seq((first, loop)))
    body = bound(Thread.BLOCK_X, block, 2, Allocate(shared, body))
    return PrimFunc("reverse", (source, target), 1, body)


def result(function):
    x = np.arange(2 * COUNT, dtype=np.float32).reshape(2, COUNT)
    out = np.zeros_like(x)
    run(function, x, out)
    return x, out


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_threads_meet_at_barriers(rounds):
    function = reverse(rounds=rounds)
    verify_func(function)
    x, out = result(function)
    np.testing.assert_array_equal(out, x[:, ::-1] if rounds % 2 else x)


@pytest.mark.parametrize("barriers", [(False, True), (True, False)])
def test_a_missing_barrier_shows(barriers):
    x, out = result(reverse(barriers))
    assert not np.array_equal(out, x)


def test_barriers_in_every_kind_of_statement():
    """A barrier may stand in a branch and under a variable that all threads agree on."""
    target = Buffer("out", (COUNT,), F32)
    shared = Buffer("shared", (COUNT,), F32, MemoryScope.SHARED)
    own = Buffer("own", (1,), F32, MemoryScope.REGISTER)
    x, y, half = TirVar("x"), TirVar("y"), TirVar("half")
    number = y * (COUNT // 2) + x
    zero = IntImm(0)
    inner = Seq(
        (
            Store(shared, (number,), const(1.0, F32)),
            Barrier(),
            Store(own, (zero,), at(shared, half + zero)),
        )
    )
    chosen = IfStmt(half > 0, inner, Store(shared, (number,), const(3.0, F32)))
    other = IfStmt(half < 0, inner, Seq(()))
    skipped = IfStmt(half < 0, inner)
    end = Store(target, (number,), at(own, zero))
    body = LetStmt(half, IntImm(1), Allocate(own, Seq((chosen, other, skipped, end))))
    body = bound(Thread.THREAD_Y, y, 2, bound(Thread.THREAD_X, x, COUNT // 2, body))
    function = PrimFunc("f", (target,), 1, Allocate(shared, body))
    verify_func(function)
    out = np.zeros(COUNT, np.float32)
    run(function, out)
    assert set(out.tolist()) == {1.0}


def test_threads_that_disagree_about_a_barrier():
    target, thread = Buffer("out", (COUNT,), F32), TirVar("thread")
    body = IfStmt(thread < 3, Barrier())
    function = PrimFunc("f", (target,), 1, bound(Thread.THREAD_X, thread, COUNT, body))
    with pytest.raises(VerifyError, match="some threads of a block wait"):
        run(function, np.zeros(COUNT, np.float32))


def test_a_barrier_of_nobody():
    function = PrimFunc("f", (), 0, Barrier())
    for check in (run, verify_func):
        with pytest.raises(VerifyError, match="a barrier is outside the threads of a block"):
            check(function)


def test_text():
    text = print_func(reverse())
    assert "for block in block.x(2):" in text
    assert "shared: float32[8] shared" in text
    assert "for thread in thread.x(8):" in text
    assert text.count("barrier") == 2


def test_passes_keep_blocks_and_barriers():
    for function in (reverse(), simplify(reverse()), vectorize(reverse())):
        x, out = result(function)
        np.testing.assert_array_equal(out, x)


def test_a_vector_loop_around_a_barrier_stays_a_loop():
    inner = For(TirVar("v"), IntImm(4), ForKind.VECTORIZED, Barrier())
    body = bound(Thread.THREAD_X, TirVar("t"), 4, inner)
    done = vectorize(PrimFunc("f", (), 0, body))
    assert done.body.body.kind is ForKind.SERIAL


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda v: For(v, IntImm(4), ForKind.BOUND, Seq(())),
            "the bound loop 'v' is bound to None",
        ),
        (
            lambda v: For(v, IntImm(4), ForKind.SERIAL, Seq(()), Thread.BLOCK_X),
            "the serial loop 'v' is bound to Thread.BLOCK_X",
        ),
        (
            lambda v: bound(Thread.THREAD_X, TirVar("a"), 4, bound(Thread.THREAD_X, v, 4, Seq(()))),
            "'v' is bound to thread.x inside threads",
        ),
        (
            lambda v: bound(Thread.THREAD_X, TirVar("a"), 4, bound(Thread.BLOCK_Y, v, 4, Seq(()))),
            "'v' is bound to block.y inside threads",
        ),
        (
            lambda v: bound(
                Thread.THREAD_X, v, 4, Allocate(Buffer("s", (4,), F32, MemoryScope.SHARED), Seq(()))
            ),
            "'s' is shared, and allocated by a single thread",
        ),
        (
            lambda v: For(
                TirVar("n"),
                IntImm(2),
                ForKind.SERIAL,
                For(v, TirVar("n"), ForKind.BOUND, Seq(()), Thread.BLOCK_X),
            ),
            "is not defined here|has no constant extent",
        ),
    ],
)
def test_rules(make, message):
    with pytest.raises(VerifyError, match=message):
        verify_func(PrimFunc("f", (), 0, make(TirVar("v"))))


def invoking(**changes):
    source, target, thread = Buffer("x", (16,), F32), Buffer("out", (16,), F32), TirVar("i")
    given = {
        "kind": "npu",
        "function": "npu.move",
        "places": (at(target, thread * 4), at(source, thread * 4)),
        "values": (thread + 1,),
    }
    body = For(thread, IntImm(4), ForKind.SERIAL, Invoke(**(given | changes)))
    return PrimFunc("f", (source, target), 1, body)


def find(name):
    return CodegenSignature(3) if name == "npu.move" else None


def test_procedures_print_verify_and_are_rewritten():
    function = invoking()
    verify_func(function)
    verify_target_calls(function, "npu", find)
    assert "npu::npu.move(&out[i * 4], &x[i * 4], i + 1)" in print_func(function)
    assert "npu.move" in print_func(simplify(function))
    moved = substitute_stmt(function.body.body, {function.body.var: IntImm(2)})
    assert [place.indices[0].value for place in moved.places] == [8, 8]
    assert moved.values[0].value == 3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"values": ()}, VerifyError, "'npu.move' takes 3 arguments, not 2"),
        ({"function": "npu.jump"}, UnsupportedError, "has no function 'npu.jump'"),
        ({"kind": "gpu"}, UnsupportedError, "of the code generator 'gpu'"),
    ],
)
def test_procedures_that_the_generator_has_not(changes, error, message):
    with pytest.raises(error, match=message):
        verify_target_calls(invoking(**changes), "npu", find)


def test_a_place_stays_in_memory():
    def away(expr):
        return const(0.0, F32) if isinstance(expr, Load) else None

    with pytest.raises(VerifyError, match="is no element of a buffer"):
        rewrite_stmt(invoking().body, away)


def test_the_interpreter_has_no_procedures():
    with pytest.raises(UnsupportedError, match="which the interpreter does not have"):
        run(invoking(), np.zeros(16, np.float32), np.zeros(16, np.float32))


def test_a_thread_may_call_a_procedure_between_barriers():
    body = Seq((Barrier(), invoking().body.body))
    loop = bound(Thread.THREAD_X, TirVar("t"), 2, body)
    with pytest.raises(UnsupportedError, match="interpreter does not have"):
        run(PrimFunc("f", (), 0, loop))


def test_registers_whose_address_a_procedure_takes_stay_whole():
    sums, target = Buffer("sums", (2, 4), F32, MemoryScope.REGISTER), Buffer("out", (8,), F32)
    lane = TirVar("lane")
    store = Store(sums, (IntImm(1), lane), const(1.0, F32))
    call = Invoke("npu", "npu.move", (at(sums, IntImm(0), IntImm(0)),))
    parts = (For(lane, IntImm(4), ForKind.VECTORIZED, store), call)
    done = split_registers(PrimFunc("f", (target,), 1, Allocate(sums, Seq(parts))))
    kept = [s.buffer for s in statements(done.body) if isinstance(s, Allocate)]
    assert kept == [sums]
