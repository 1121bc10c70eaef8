# SPDX-License-Identifier: Apache-2.0
"""Every operator and cast, in every element type: machine code against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    CallTarget,
    CastExpr,
    IntImm,
    Load,
    Ramp,
    Read,
    ReduceLanes,
    TirVar,
    cast,
    if_then_else,
    index,
    intrinsic,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    IfStmt,
    LetStmt,
    Seq,
    Store,
)
from intarsia_ir.tir.tensor import placeholder
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.target import LlvmOptions
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

INTEGERS = [d for d in DType if d.is_integer]
FLOATS = [d for d in DType if d.is_float]
COUNT = 48
FLOAT_OPS = (
    *COMPARISONS,
    *(BinaryOp(v) for v in ("+", "-", "*", "/", "%", "truncmod", "min", "max")),
)
INT_OPS = tuple(op for op in BinaryOp if op is not BinaryOp.DIV)


def numpy_type(dtype):
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def samples(dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype.is_float:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5, 3e9, -3e9, 255.5]
        values = np.concatenate([special, rng.normal(size=COUNT) * 4])[:COUNT]
        rng.shuffle(values)
        with np.errstate(all="ignore"):
            return values.astype(numpy_type(dtype))
    info = np.iinfo(numpy_type(dtype))
    special = [info.min, info.max, 0, 1, info.max - 1, 2, 3, 7]
    values = rng.integers(info.min, info.max, COUNT, dtype=info.dtype)
    values[: len(special)] = special
    if info.min < 0:
        values[COUNT // 2] = -1
    rng.shuffle(values)
    return values


def element_wise(name, element, inputs, output, lanes):
    """A kernel that applies ``element`` to ``lanes`` elements at a time."""
    buffers = [Buffer(f"x{n}", (COUNT,), dtype) for n, dtype in enumerate(inputs)]
    out = Buffer("y", (COUNT,), output)
    outer, inner = TirVar("o"), TirVar("i")
    at = (outer * lanes + inner,)
    value = element(*(Load(b, at, b.dtype, 1) for b in buffers))
    kind = ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL
    loops = For(inner, IntImm(lanes), kind, Store(out, at, value))
    return PrimFunc(
        name, (*buffers, out), 1, For(outer, IntImm(COUNT // lanes), ForKind.SERIAL, loops)
    )


def check(module, function, arrays, dtype):
    want, got = np.zeros(COUNT, numpy_type(dtype)), np.zeros(COUNT, numpy_type(dtype))
    run(function, *arrays, want)
    module.get_function(function.name)(*arrays, got)
    np.testing.assert_array_equal(got, want, err_msg=function.name)


def binary_kernels(dtype, ops):
    for op in ops:
        for lanes in (1, 16):
            result = DType.BOOL if op in COMPARISONS else dtype

            def element(a, b, op=op, result=result):
                return Binary(op, a, b, result, 1)

            name = f"{op.name}_{lanes}"
            yield element_wise(name, element, (dtype, dtype), result, lanes), result


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operators(load_module, dtype):
    kernels = list(binary_kernels(dtype, INT_OPS))
    module = load_module([function for function, _ in kernels])
    a, b = samples(dtype, 1), samples(dtype, 2)
    for function, result in kernels:
        if "SH" in function.name:
            check(module, function, (a, np.abs(b) % dtype.bits), result)
        else:
            check(module, function, (a, b), result)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32, DType.FLOAT64], ids=str)
def test_float_operators(load_module, dtype):
    kernels = list(binary_kernels(dtype, FLOAT_OPS))
    module = load_module([function for function, _ in kernels])
    for function, result in kernels:
        check(module, function, (samples(dtype, 1), samples(dtype, 2)), result)


def test_bool_operators(load_module):
    ops = [BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR, BinaryOp.EQ, BinaryOp.NE]
    kernels = list(binary_kernels(DType.BOOL, ops))
    module = load_module([function for function, _ in kernels])
    for function, result in kernels:
        check(module, function, (samples(DType.BOOL, 1), samples(DType.BOOL, 2)), result)


@pytest.mark.parametrize("source", [d for d in DType if d is not DType.BFLOAT16], ids=str)
def test_casts(load_module, source):
    targets = [d for d in DType if d is not DType.BFLOAT16 and d is not source]
    kernels = [
        element_wise(
            f"to_{target}_{lanes}", lambda x, t=target: cast(x, t), (source,), target, lanes
        )
        for target in targets
        for lanes in (1, 16)
    ]
    module = load_module(kernels)
    for function in kernels:
        check(module, function, (samples(source, 3),), function.params[-1].dtype)


def test_bfloat16_rounds_to_nearest_even(load_module):
    x, y = Buffer("x", (COUNT,), DType.FLOAT32), Buffer("y", (COUNT,), DType.FLOAT32)
    b = Buffer("b", (COUNT,), DType.BFLOAT16, MemoryScope.STACK)
    i = TirVar("i")
    there = Store(b, (i,), CastExpr(Load(x, (i,), DType.FLOAT32, 1), DType.BFLOAT16, 1))
    doubled = Load(b, (i,), DType.BFLOAT16, 1) + Load(b, (i,), DType.BFLOAT16, 1)
    back = Store(y, (i,), CastExpr(doubled, DType.FLOAT32, 1))
    body = For(i, IntImm(COUNT), ForKind.SERIAL, Seq((there, back)))
    module = load_module([PrimFunc("k", (x, y), 1, Allocate(b, body))])
    data = (np.random.default_rng(0).normal(size=COUNT) * 1e3).astype(np.float32)
    data[:4] = [np.nan, np.inf, 3.3895314e38, 1.00390625]
    got = np.zeros(COUNT, np.float32)
    module.get_function("k")(data, got)
    half = data.astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, (half + half).astype(np.float32))


def test_choices_and_guards(load_module):
    def element(a, b):
        chosen = select(a < b, a, b) + if_then_else(a < 0.0, b * 2.0, a)
        return select(intrinsic(Intrinsic.ISNAN, a), 7.0, chosen)

    kernels = [
        element_wise(f"c{n}", element, (DType.FLOAT32,) * 2, DType.FLOAT32, n) for n in (1, 4)
    ]
    module = load_module(kernels)
    for function in kernels:
        arrays = (samples(DType.FLOAT32, 5), samples(DType.FLOAT32, 6))
        check(module, function, arrays, DType.FLOAT32)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT32, DType.UINT8, DType.BOOL], ids=str)
def test_lanes_combine(load_module, dtype):
    ops = (
        [BinaryOp.AND, BinaryOp.OR]
        if dtype is DType.BOOL
        else [BinaryOp.ADD, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MUL]
    )
    x, y = Buffer("x", (16,), dtype), Buffer("y", (1,), dtype)
    kernels = [
        PrimFunc(
            op.name,
            (x, y),
            1,
            Store(
                y,
                (index(0),),
                ReduceLanes(op, Load(x, (Ramp(index(0), 1, 16),), dtype, 16), dtype),
            ),
        )
        for op in ops
    ]
    module = load_module(kernels)
    data = (np.arange(16) % 3 + 1).astype(numpy_type(dtype))
    for function in kernels:
        want, got = np.zeros(1, data.dtype), np.zeros(1, data.dtype)
        run(function, data, want)
        module.get_function(function.name)(data, got)
        assert got == want, function.name


def test_strides_gather_and_scatter(load_module):
    x, y = Buffer("x", (64,), DType.INT32), Buffer("y", (64,), DType.INT32)
    value = Load(x, (Ramp(index(63), -3, 16),), DType.INT32, 16)
    body = Store(y, (Ramp(index(1), 4, 16),), value)
    function = PrimFunc("k", (x, y), 1, body)
    data = np.arange(64, dtype=np.int32)
    want, got = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run(function, data, want)
    load_module([function]).get_function("k")(data, got)
    np.testing.assert_array_equal(got, want)


def test_statements(load_module):
    """Let, if with both sides, a loop whose extent varies, stack memory in a parallel loop."""
    x, y = Buffer("x", (40, 8), DType.INT64), Buffer("y", (40,), DType.INT64)
    i, j, s = TirVar("i"), TirVar("j"), TirVar("s")
    t = Buffer("t", (), DType.INT64, MemoryScope.STACK)
    summed = For(
        j,
        i % 9,
        ForKind.SERIAL,
        Store(t, (), Load(t, (), DType.INT64, 1) + Load(x, (i, j), DType.INT64, 1)),
    )
    done = IfStmt(
        i % 2 < 1, Store(y, (i,), Load(t, (), DType.INT64, 1) + s), Store(y, (i,), index(0) - s)
    )
    body = Allocate(t, Seq((Store(t, (), index(5)), summed, LetStmt(s, i * 3, done))))
    function = PrimFunc("k", (x, y), 1, For(i, IntImm(40), ForKind.PARALLEL, body))
    data = np.arange(320).reshape(40, 8)
    want, got = np.zeros(40, np.int64), np.zeros(40, np.int64)
    run(function, data, want)
    for threads in (1, 2, 0):
        got[:] = 0
        load_module([function], num_threads=threads).get_function("k")(data, got)
        np.testing.assert_array_equal(got, want)


def test_indices_are_computed_once_where_they_hold(load_module):
    """In both branches and behind them: what one branch computes is not there for the others."""
    x, y = Buffer("x", (60,), DType.INT64), Buffer("y", (60, 2), DType.INT64)
    i, copy = TirVar("i"), TirVar("copy")

    def keep(place):
        value = Load(x, (i * 7 % 60,), DType.INT64, 1)
        return Store(y, (i, index(place)), value + Load(y, (i, index(place)), DType.INT64, 1))

    twice = For(copy, IntImm(2), ForKind.UNROLLED, keep(0))
    body = Seq((IfStmt(i % 2 < 1, twice, keep(1)), For(copy, IntImm(2), ForKind.UNROLLED, keep(1))))
    function = PrimFunc("k", (x, y), 1, For(i, IntImm(60), ForKind.SERIAL, body))
    plan = CallPlan((), (), (), (), 0, ())
    text = llvm_text(TensorModule((function,), plan), LlvmOptions(mcpu="x86-64"))
    assert text.count("urem i64") == 3  # one in each branch, one behind
    data = np.arange(60)
    want, got = np.ones((60, 2), np.int64), np.ones((60, 2), np.int64)
    run(function, data, want)
    load_module([function]).get_function("k")(data, got)
    np.testing.assert_array_equal(got, want)


def refused(value, buffers=(), dtype=DType.FLOAT32):
    y = Buffer("y", (1,), dtype)
    function = PrimFunc("k", (*buffers, y), 1, Store(y, (index(0),), value))
    plan = CallPlan((), (), (), (), 0, ())
    llvm_text(TensorModule((function,), plan), LlvmOptions(mcpu="x86-64"))


def test_what_cannot_be_compiled_is_refused():
    x = Buffer("x", (1,), DType.FLOAT32)
    one = Load(x, (index(0),), DType.FLOAT32, 1)
    with pytest.raises(UnsupportedError, match="no function 'llvm"):
        refused(CallTarget("llvm", "llvm.rm", (one,), DType.FLOAT32, 1), (x,))
    with pytest.raises(UnsupportedError, match="no function 'x' of 'c'"):
        refused(CallTarget("c", "x", (one,), DType.FLOAT32, 1), (x,))
    with pytest.raises(UnsupportedError, match="has no meaning"):
        refused(Binary(BinaryOp.AND, one, one, DType.FLOAT32, 1), (x,))
    with pytest.raises(VerifyError, match="outside its loop"):
        refused(cast(TirVar("lost"), DType.FLOAT32))
    with pytest.raises(VerifyError, match="outside its allocation"):
        refused(one)
    with pytest.raises(VerifyError, match="2 indices"):
        refused(Load(x, (index(0), index(0)), DType.FLOAT32, 1), (x,))
    with pytest.raises(VerifyError, match="never lowered"):
        refused(Read(placeholder("t", (1,), DType.FLOAT32), (index(0),), DType.FLOAT32))
    with pytest.raises(UnsupportedError, match="intrinsic 'sqrt' of int64"):
        refused(cast(intrinsic(Intrinsic.SQRT, index(4)), DType.FLOAT32))


def test_float16_without_instructions_for_it(load_module):
    """Every float16, and floats around every border, on a machine that cannot convert them."""
    half, full = Buffer("h", (65536,), DType.FLOAT16), Buffer("f", (65536,), DType.FLOAT32)
    outer, inner = TirVar("o"), TirVar("i")
    at = (outer * 16 + inner,)

    def kernel(name, source, target):
        value = CastExpr(Load(source, at, source.dtype, 1), target.dtype, 1)
        loops = For(inner, IntImm(16), ForKind.VECTORIZED, Store(target, at, value))
        body = For(outer, IntImm(4096), ForKind.SERIAL, loops)
        return PrimFunc(name, (source, target), 1, body)

    functions = [kernel("widen", half, full), kernel("narrow", full, half)]
    module = load_module(functions, mcpu="x86-64")
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    got = np.zeros(65536, np.float32)
    module.get_function("widen")(every, got)
    np.testing.assert_array_equal(got, every.astype(np.float32))
    rng = np.random.default_rng(0)
    steps = rng.choice([-4097, -4096, -4095, -1, 0, 1, 4095, 4096, 4097], 65536)
    near = (got.view(np.int32) + steps).astype(np.int32).view(np.float32)
    back = np.zeros(65536, np.float16)
    module.get_function("narrow")(near, back)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(back, near.astype(np.float16))


def test_what_is_for_blocks_of_threads_is_refused(load_module):
    body = Barrier()
    inside = For(TirVar("i"), IntImm(1 << 20), ForKind.PARALLEL, body)
    for whole in (body, inside):
        with pytest.raises(UnsupportedError, match="'llvm' has no blocks of threads"):
            load_module([PrimFunc("k", (), 0, whole)])
