# SPDX-License-Identifier: Apache-2.0
"""Every rule of the loop IR is checked."""

from __future__ import annotations

import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    Binary,
    BinaryOp,
    Broadcast,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    Ramp,
    Read,
    ReduceLanes,
    Select,
    TirVar,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, For, ForKind, IfStmt, LetStmt, Seq, Store
from intarsia_ir.tir.tensor import placeholder
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError

F32, BOOL = DType.FLOAT32, DType.BOOL
X, Y = Buffer("x", (8,), F32), Buffer("y", (8,), F32)
T = Buffer("t", (4,), F32, MemoryScope.STACK)
ROW, N = TirVar("i"), IntImm
ZERO = FloatImm(0.0)
WIDE = Ramp(N(0), 1, 4)


def store(value, at=IntImm(0)):  # noqa: B008 - frozen
    """Write to the output."""
    return Store(Y, (at,), value)


def loop(body, extent=IntImm(8), kind=ForKind.SERIAL):  # noqa: B008 - frozen
    """Eight iterations."""
    return For(ROW, extent, kind, body)


BROKEN = [
    (loop(store(ZERO), FloatImm(8.0)), "the extent of 'i' is not a scalar int64"),
    (loop(loop(store(ZERO))), "'i' is defined inside its own scope"),
    (
        For(TirVar("j"), N(4), ForKind.SERIAL, store(ZERO, ROW)),
        "the variable 'i' is not defined here",
    ),
    (store(FloatImm(0.0, DType.FLOAT64)), "float64 is stored into 'y' of float32"),
    (store(ZERO, N(8)), r"index 8 of dimension 0 of 'y' is outside 0\.\.7"),
    (store(FloatImm(0.0, F32, 4), Ramp(N(6), 1, 4)), "index 6 of dimension 0 of 'y'"),
    (store(ZERO, WIDE), "1 lanes go to 4 of 'y'"),
    (store(ZERO, FloatImm(0.0)), "an index of 'y' is float32"),
    (Store(X, (N(0),), ZERO), "the input 'x' is written"),
    (Store(Y, (N(0), N(0)), ZERO), "2 indices for 'y' of rank 1"),
    (Store(T, (N(0),), ZERO), "'t' is accessed outside its scope"),
    (Allocate(Buffer("g", (1,), F32), Seq(())), "'g' allocates global memory"),
    (Allocate(T, Allocate(T, Seq(()))), "'t' is allocated twice"),
    (IfStmt(ZERO, store(ZERO)), "a condition is not a scalar bool"),
    (LetStmt(ROW, ZERO, Seq(())), "'i' stands for a value of another type"),
    (store(Binary(BinaryOp.ADD, ZERO, N(0), F32, 1)), r"operands of '\+' are float32, int64"),
    (store(Binary(BinaryOp.ADD, ZERO, FloatImm(0.0, F32, 4), F32, 1)), r"lanes of '\+' differ"),
    (store(Select(ZERO, ZERO, ZERO, F32, 1)), "the sides of a choice differ in type"),
    (store(IfThenElse(N(1, BOOL), ZERO, ZERO, F32, 4)), "lanes of a choice differ"),
    (store(CastExpr(ZERO, F32, 4)), "lanes of an operand and its result differ"),
    (store(Load(X, (WIDE,), F32, 1)), "a load of 'x' has another type or width"),
    (store(Load(X, (Broadcast(N(0), 4, INDEX),), F32, 4)), "index 0 of 'x' is a vector"),
    (store(Read(placeholder("z", (), F32), (), F32)), "the tensor 'z' was never lowered"),
    (store(Broadcast(ZERO, 1, F32)), "a vector is made of a scalar"),
    (store(ReduceLanes(BinaryOp.ADD, FloatImm(0.0, F32, 4), F32, 2)), "lanes reduce to one"),
    (
        LetStmt(TirVar("n"), N(4), For(ROW, TirVar("m"), ForKind.SERIAL, Seq(()))),
        "the variable 'm' is not defined here",
    ),
]


@pytest.mark.parametrize(("body", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_finds_what_is_wrong(body, message):
    with pytest.raises(VerifyError, match=message) as caught:
        verify_func(PrimFunc("f", (X, Y), 1, body))
    assert caught.value.where == "f"


def test_vector_loops_need_a_constant_extent():
    n = TirVar("n")
    body = LetStmt(n, N(4), loop(store(ZERO), n, ForKind.VECTORIZED))
    with pytest.raises(VerifyError, match="the vectorized loop 'i' has no constant extent"):
        verify_func(PrimFunc("f", (X, Y), 1, body))


@pytest.mark.parametrize(("params", "message"), [((X, X), "not distinct"), ((T,), "not global")])
def test_parameters(params, message):
    with pytest.raises(VerifyError, match=message):
        verify_func(PrimFunc("f", params, 1, Seq(())))


def test_accepts_what_is_right():
    vector = Load(X, (Ramp(ROW * 4, 1, 4),), F32, 4)
    body = Seq(
        (
            Allocate(T, Seq((Store(T, (WIDE,), vector), store(Load(T, (N(3),), F32, 1), ROW)))),
            IfStmt(ROW < 1, store(ZERO, ROW), store(Load(X, (ROW,), F32, 1), ROW)),
        )
    )
    verify_func(PrimFunc("f", (X, Y), 1, loop(body, N(2))))
