# SPDX-License-Identifier: Apache-2.0
"""The interpreter follows the documented rules of the loop IR."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    CallTarget,
    Load,
    Ramp,
    ReduceLanes,
    TirVar,
    binary,
    cast,
    const,
    if_then_else,
    intrinsic,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import evaluate, run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Allocate, For, ForKind, IfStmt, LetStmt, Seq, Store
from intarsia_ir.tir.tensor import (
    ArgReduction,
    Tensor,
    compute,
    max_over,
    placeholder,
    reduce_axis,
    sum_over,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

F32 = DType.FLOAT32


def test_operands_that_do_not_combine():
    i, wide = TirVar("i", DType.INT64), Ramp(const(0, DType.INT64), 1, 4)
    with pytest.raises(VerifyError, match="two Python numbers has no element type"):
        binary(BinaryOp.ADD, 1, 2)
    with pytest.raises(VerifyError, match="vectors of 4 and 8 lanes do not combine"):
        binary(BinaryOp.ADD, wide, Ramp(const(0, DType.INT64), 1, 8))
    with pytest.raises(VerifyError, match=r"operands of '\+' are int64 and float32"):
        binary(BinaryOp.ADD, i, const(1.0, F32))


def elementwise(op, a, b, dtype):
    """Apply one binary operator to two lists of numbers."""
    x, y = (placeholder(name, (len(a),), dtype) for name in "xy")
    result = compute((len(a),), lambda i: binary(op, x[i], y[i]))
    return evaluate(result, {x: np.array(a, dtype.value), y: np.array(b, dtype.value)}).tolist()


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        (BinaryOp.ADD, [2**31 - 1], [1], [-(2**31)]),
        (BinaryOp.FLOOR_DIV, [7, -7, 7, 5], [2, 2, -2, 0], [3, -4, -4, 0]),
        (BinaryOp.FLOOR_MOD, [7, -7, 7, 5], [2, 2, -2, 0], [1, 1, -1, 0]),
        (BinaryOp.TRUNC_DIV, [7, -7, -(2**31), 5], [2, 2, -1, 0], [3, -3, -(2**31), 0]),
        (BinaryOp.TRUNC_MOD, [7, -7, -(2**31)], [2, 2, -1], [1, -1, 0]),
        (BinaryOp.SHL, [1, 3], [4, 1], [16, 6]),
    ],
)
def test_integers_wrap_and_never_trap(op, a, b, expected):
    assert elementwise(op, a, b, DType.INT32) == expected


def test_float_minimum_propagates_nan():
    got = elementwise(BinaryOp.MIN, [1.0, np.nan, 2.0], [np.nan, 1.0, 3.0], F32)
    assert np.isnan(got[:2]).all()
    assert got[2] == 2.0


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (DType.INT8, [127, -128, 0, -1, 127]),
        (DType.UINT8, [255, 0, 0, 0, 255]),
        (DType.INT64, [300, -300, 0, -1, 2**63 - 1]),
        (DType.BOOL, [True, True, True, True, True]),
    ],
)
def test_float_to_integer_casts_saturate(dtype, expected):
    x = placeholder("x", (5,), F32)
    values = np.array([300.5, -300.5, np.nan, -1.9, np.inf], np.float32)
    assert evaluate(compute((5,), lambda i: cast(x[i], dtype)), {x: values}).tolist() == expected


def test_guarded_reads_stay_in_bounds():
    x = placeholder("x", (3,), F32)
    padded = compute((5,), lambda i: if_then_else((i >= 1) & (i < 4), x[i - 1], const(0.0, F32)))
    values = np.array([1, 2, 3], np.float32)
    assert evaluate(padded, {x: values}).tolist() == [0, 1, 2, 3, 0]
    unguarded = compute((5,), lambda i: select((i >= 1) & (i < 4), x[i - 1], const(0.0, F32)))
    with pytest.raises(VerifyError, match="index -1 of dimension 0 of 'x'"):
        evaluate(unguarded, {x: values})


def test_matmul_softmax_and_argmax():
    rng = np.random.default_rng(0)
    a, b = placeholder("a", (4, 7), F32), placeholder("b", (7, 5), F32)
    k, n, m = reduce_axis(7), reduce_axis(5), reduce_axis(5)
    product = compute((4, 5), lambda i, j: sum_over(a[i, k.var] * b[k.var, j], [k]))
    top = compute((4,), lambda i: max_over(product[i, n.var], [n]))
    exp = compute((4, 5), lambda i, j: intrinsic(Intrinsic.EXP, product[i, j] - top[i]))
    total = compute((4,), lambda i: sum_over(exp[i, m.var], [m]))
    soft = compute((4, 5), lambda i, j: exp[i, j] / total[i])
    left, right = (rng.standard_normal(t.shape).astype(np.float32) for t in (a, b))
    want = np.exp(left @ right)
    want /= want.sum(1, keepdims=True)
    got = evaluate(soft, {a: left, b: right})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5)
    at = reduce_axis(5)
    arg = compute((4,), lambda i: ArgReduction(True, soft[i, at.var], at))
    assert evaluate(arg, {a: left, b: right}).tolist() == want.argmax(1).tolist()


@pytest.mark.parametrize(("last", "expected"), [(False, 1), (True, 3)])
def test_argmax_ties(last, expected):
    x, at = placeholder("x", (5,), DType.INT32), reduce_axis(5)
    arg = compute((), lambda: ArgReduction(True, x[at.var], at, last))
    assert evaluate(arg, {x: np.array([0, 9, 1, 9, 2], np.int32)}) == expected


def test_large_reductions_go_slice_by_slice(monkeypatch):
    monkeypatch.setattr("intarsia_ir.tir.interp.GRID_LIMIT", 8)
    x, k, n = placeholder("x", (3, 4, 5), DType.INT64), reduce_axis(4), reduce_axis(5)
    total = compute((3,), lambda i: sum_over(x[i, k.var, n.var], [k, n]))
    values = np.arange(60).reshape(3, 4, 5)
    assert evaluate(total, {x: values}).tolist() == values.sum((1, 2)).tolist()


def test_long_sums_and_shared_nodes():
    x = placeholder("x", (2,), DType.INT64)

    def long_sum(i):
        value = x[i]
        for _ in range(3000):
            value = value + 1
        for _ in range(60):
            value = value + value
        return value

    got = evaluate(compute((2,), long_sum), {x: np.array([0, 1], np.int64)})
    wrapped = [(v << 60) & (2**64 - 1) for v in (3000, 3001)]
    assert got.view(np.uint64).tolist() == wrapped


def vector_sum() -> PrimFunc:
    """Sum eight numbers with four lanes."""
    x, y = Buffer("x", (8,), F32), Buffer("y", (), F32)
    lanes = Buffer("lanes", (4,), F32, MemoryScope.REGISTER)
    i, zero = TirVar("i"), Ramp(const(0, DType.INT64), 1, 4)
    partial = Load(lanes, (zero,), F32, 4) + Load(x, (Ramp(i * 4, 1, 4),), F32, 4)
    total = ReduceLanes(BinaryOp.ADD, Load(lanes, (zero,), F32, 4), F32)
    body = Seq(
        (
            Store(lanes, (zero,), Broadcast(const(0.0, F32), 4, F32)),
            For(i, const(2, DType.INT64), ForKind.SERIAL, Store(lanes, (zero,), partial)),
            Store(y, (), total),
        )
    )
    return PrimFunc("total", (x, y), 1, Allocate(lanes, body))


def test_runs_vector_statements():
    result = np.zeros((), np.float32)
    run(vector_sum(), np.arange(8, dtype=np.float32), result)
    assert result == 28.0


def test_runs_branches_and_lets():
    y = Buffer("y", (4,), DType.INT64)
    i, twice = TirVar("i"), TirVar("twice")
    branch = IfStmt(i < 2, Store(y, (i,), twice), Store(y, (i,), twice + 100))
    loop = For(i, const(4, DType.INT64), ForKind.SERIAL, LetStmt(twice, i * 2, branch))
    result = np.zeros(4, np.int64)
    run(PrimFunc("f", (y,), 1, loop), result)
    assert result.tolist() == [0, 2, 104, 106]


def test_scratch_may_be_left_out_and_starts_poisoned():
    y, s = Buffer("y", (1,), F32), Buffer("s", (1,), F32)
    zero = const(0, DType.INT64)
    func = PrimFunc("f", (y, s), 1, Store(y, (zero,), Load(s, (zero,), F32, 1)), scratch=1)
    result = np.zeros(1, np.float32)
    run(func, result)
    assert np.isnan(result).all()


def test_says_what_does_not_fit():
    x = placeholder("x", (2,), F32)
    with pytest.raises(VerifyError, match="no value for the tensor 'x'"):
        evaluate(compute((2,), lambda i: x[i]), {})
    with pytest.raises(VerifyError, match="no value for the tensor"):
        evaluate(Tensor("t", (1,), F32), {})
    with pytest.raises(VerifyError, match="takes 2 arrays, 1 given"):
        run(vector_sum(), np.zeros(8, np.float32))
    with pytest.raises(VerifyError, match=r"'x' is float32\[8\], the array given is float32\[7\]"):
        run(vector_sum(), np.zeros(7, np.float32), np.zeros((), np.float32))
    with pytest.raises(VerifyError, match="the variable 'i' has no value"):
        evaluate(compute((2,), lambda _: x[TirVar("i")]), {x: np.zeros(2, np.float32)})
    with pytest.raises(VerifyError, match="2 indices for 'x' of rank 1"):
        evaluate(compute((2,), lambda i: x[i, i]), {x: np.zeros(2, np.float32)})
    with pytest.raises(UnsupportedError, match=r"'avx\.thing' is a function of the code generator"):
        evaluate(
            compute((2,), lambda i: CallTarget("k", "avx.thing", (x[i],), F32, 1)),
            {x: np.zeros(2, np.float32)},
        )


def test_stores_are_checked():
    y, z = Buffer("y", (2,), F32), Buffer("z", (2,), F32)
    two, zero = const(2, DType.INT64), const(0, DType.INT64)
    result = np.zeros(2, np.float32)
    with pytest.raises(VerifyError, match="index 2 of dimension 0 of 'y' is outside 0"):
        run(PrimFunc("f", (y,), 1, Store(y, (two,), const(0.0, F32))), result)
    with pytest.raises(VerifyError, match="'z' is accessed where it does not exist"):
        run(PrimFunc("f", (y,), 1, Store(z, (zero,), const(0.0, F32))), result)
    with pytest.raises(VerifyError, match="stores float64 into 'y'"):
        run(PrimFunc("f", (y,), 1, Store(y, (zero,), const(0.0, DType.FLOAT64))), result)


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (Intrinsic.ERF, 0.5, 0.5204999),
        (Intrinsic.ROUND, 2.5, 2.0),
        (Intrinsic.RSQRT, 4.0, 0.5),
        (Intrinsic.SIGMOID, 0.0, 0.5),
        (Intrinsic.TRUNC, -1.5, -1.0),
    ],
)
@pytest.mark.parametrize("dtype", [F32, DType.FLOAT16, DType.BFLOAT16])
def test_intrinsics(function, value, expected, dtype):
    element = intrinsic(function, const(value, dtype))
    got = evaluate(compute((1,), lambda _: element), {})
    assert got.dtype.name == dtype.value
    assert float(got[0]) == pytest.approx(expected, rel=1e-2)


def test_power_of_integers_and_fma():
    assert elementwise_power([2, -1, 3, 1, 5], [10, -3, -1, -2, 0]) == [1024, -1, 0, 1, 1]
    fma = intrinsic(Intrinsic.FMA, const(2.0, F32), const(3.0, F32), const(1.0, F32))
    assert evaluate(compute((1,), lambda _: fma), {}).tolist() == [7.0]


def elementwise_power(a, b):
    """Integer powers of two lists."""
    x, y = (placeholder(name, (len(a),), DType.INT32) for name in "xy")
    power = compute((len(a),), lambda i: intrinsic(Intrinsic.POW, x[i], y[i]))
    return evaluate(power, {x: np.array(a, np.int32), y: np.array(b, np.int32)}).tolist()
