# SPDX-License-Identifier: Apache-2.0
"""Every operator and cast, in every element type: compiled C against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_c.codegen import c_sources
from intarsia_c.target import COptions
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    COMPARISONS,
    INDEX,
    Binary,
    BinaryOp,
    Broadcast,
    CallTarget,
    CastExpr,
    FloatImm,
    IntImm,
    Load,
    Ramp,
    ReduceLanes,
    TirVar,
    cast,
    if_then_else,
    index,
    intrinsic,
    maximum,
    minimum,
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
    Invoke,
    LetStmt,
    Seq,
    Store,
    Thread,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .calling import numpy_type
from .conftest import NO_PLAN

COUNT = 64
FLOAT_OPS = (
    *COMPARISONS,
    *(BinaryOp(v) for v in ("+", "-", "*", "/", "%", "truncdiv", "truncmod", "min", "max")),
)
INT_OPS = tuple(op for op in BinaryOp if op is not BinaryOp.DIV)
BOOL_OPS = (*COMPARISONS, *(BinaryOp(v) for v in ("+", "*", "min", "max", "&", "|", "^")))


def ops_of(dtype):
    return BOOL_OPS if dtype is DType.BOOL else FLOAT_OPS if dtype.is_float else INT_OPS


def samples(dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype.is_float:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5, 3e9, -3e9]
        limits = [s * 2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
        values = np.concatenate([special, limits, rng.normal(size=COUNT) * 4])[:COUNT]
        rng.shuffle(values)
        with np.errstate(all="ignore"):
            return values.astype(numpy_type(dtype))
    info = np.iinfo(numpy_type(dtype))
    special = [info.min, info.max, 0, 1, info.max - 1, 2, 3, 7]
    values = rng.integers(info.min, info.max, COUNT, dtype=info.dtype)
    values[: len(special)] = special
    if info.min < 0:
        values[COUNT // 2] = -1
        values[COUNT // 2 + 1] = info.min
    rng.shuffle(values)
    return values


def element_wise(name, element, inputs, output, kind=ForKind.SERIAL):
    buffers = [Buffer(f"x{n}", (COUNT,), dtype) for n, dtype in enumerate(inputs)]
    out, at = Buffer("y", (COUNT,), output), TirVar("i")
    value = element(*(Load(b, (at,), b.dtype, 1) for b in buffers))
    body = For(at, IntImm(COUNT), kind, Store(out, (at,), value))
    return PrimFunc(name, (*buffers, out), 1, body)


def assert_same(got, want, what=""):
    """Equal values; NaN equals NaN, also where NumPy does not know the type."""
    if want.dtype == ml_dtypes.bfloat16:
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want, err_msg=what)


def check(library, function, *arrays):
    buffer = function.params[-1]
    want, got = (np.zeros(buffer.shape, numpy_type(buffer.dtype)) for _ in range(2))
    run(function, *arrays, want)
    assert library.call(function.name, *arrays, got) == 0
    assert_same(got, want, function.name)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_operators(load_module, dtype):
    kernels = []
    for op in ops_of(dtype):
        result = DType.BOOL if op in COMPARISONS else dtype

        def element(a, b, op=op, result=result):
            return Binary(op, a, b, result, 1)

        kernels.append(element_wise(op.name, element, (dtype, dtype), result))
    library = load_module(kernels, opt_level=2)
    for function in kernels:
        for seed in range(3):
            a, b = samples(dtype, seed), samples(dtype, seed + 9)
            if function.name in ("SHL", "SHR"):
                b = (np.abs(b.astype(np.int64)) % dtype.bits).astype(b.dtype)
            check(library, function, a, b)


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integer], ids=str)
def test_shifts_by_too_much(load_module, dtype):
    kernels = [
        element_wise(op.name, lambda a, b, op=op: Binary(op, a, b, dtype, 1), (dtype, dtype), dtype)
        for op in (BinaryOp.SHL, BinaryOp.SHR)
    ]
    library = load_module(kernels)
    a, far = samples(dtype, 0), np.full(COUNT, dtype.bits, numpy_type(dtype))
    got = np.ones_like(a)
    library.call("SHL", a, far, got)
    assert not got.any()
    library.call("SHR", a, far, got)
    np.testing.assert_array_equal(got, np.where(a < 0, -1, 0).astype(a.dtype))


@pytest.mark.parametrize("source", list(DType), ids=str)
def test_casts(load_module, source):
    targets = [d for d in DType if d is not source]
    kernels = [
        element_wise(f"to_{target}", lambda x, t=target: cast(x, t), (source,), target)
        for target in targets
    ]
    library = load_module(kernels, opt_level=2)
    for function in kernels:
        for seed in range(3):
            check(library, function, samples(source, seed))


def test_16_bit_floats_are_converted_exactly(load_module):
    """Every float16 and bfloat16, and floats around every border between two of them."""
    shape = (65536,)
    kernels, i = [], TirVar("i")
    for dtype in (DType.FLOAT16, DType.BFLOAT16):
        for source, target in ((dtype, DType.FLOAT32), (DType.FLOAT32, dtype)):
            x, y = Buffer("x", shape, source), Buffer("y", shape, target)
            value = CastExpr(Load(x, (i,), source, 1), target, 1)
            body = For(i, IntImm(65536), ForKind.SERIAL, Store(y, (i,), value))
            kernels.append(PrimFunc(f"{source}_{target}", (x, y), 1, body))
    library = load_module(kernels, opt_level=2)
    rng = np.random.default_rng(0)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        every = np.arange(65536, dtype=np.uint16).view(dtype)
        wide = np.zeros(65536, np.float32)
        library.call(f"{dtype}_float32", every, wide)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(wide, every.astype(np.float32))
        half = 4096 if dtype == np.float16 else 32768
        steps = rng.choice([-half - 1, -half, 1 - half, 0, half - 1, half, half + 1], 65536)
        near = (wide.view(np.int32) + steps).astype(np.int32).view(np.float32)
        back = np.zeros(65536, dtype)
        library.call(f"float32_{dtype}", near, back)
        with np.errstate(all="ignore"):
            assert_same(back, near.astype(dtype), str(dtype))


def test_double_to_float16_rounds_once(load_module):
    halves = np.arange(COUNT, dtype=np.float64) * 2.0**-10 + 1.0 + 2.0**-11
    tiny = np.where(np.arange(COUNT) % 3 == 0, 0.0, np.where(np.arange(COUNT) % 3 == 1, 1, -1))
    x = (halves + tiny * 2.0**-40) * np.where(np.arange(COUNT) % 2, 1, -1)
    function = element_wise("k", lambda v: cast(v, DType.FLOAT16), (DType.FLOAT64,), DType.FLOAT16)
    check(load_module([function]), function, x)


def test_choices_and_guards(load_module):
    def element(a, b):
        shared = a * b
        chosen = select(a < b, a, b) + if_then_else(a < 0.0, shared * shared + shared, a)
        return select(intrinsic(Intrinsic.ISNAN, a), 7.0, chosen)

    for dtype in (DType.FLOAT32, DType.FLOAT16):
        function = element_wise("k", element, (dtype, dtype), dtype)
        check(load_module([function]), function, samples(dtype, 5), samples(dtype, 6))

    def small(a, b):
        return if_then_else(a < b, a, 5) + select(a < b, b, 3)

    function = element_wise("k", small, (DType.UINT8, DType.UINT8), DType.UINT8)
    check(load_module([function]), function, samples(DType.UINT8, 5), samples(DType.UINT8, 6))


def test_constants_read_back_exactly(load_module):
    rng = np.random.default_rng(3)
    singles = rng.integers(0, 2**32, COUNT, dtype=np.uint32).view(np.float32).astype(np.float64)
    singles[:6] = [1e-45, 3.4028235e38, np.inf, -np.inf, np.nan, -0.0]
    doubles = rng.integers(0, 2**63, COUNT, dtype=np.int64).view(np.float64)
    kernels, wanted = [], []
    for dtype, numbers in ((DType.FLOAT32, singles), (DType.FLOAT64, doubles)):
        y = Buffer("y", (COUNT,), dtype)
        stores = [Store(y, (index(n),), FloatImm(float(v), dtype)) for n, v in enumerate(numbers)]
        kernels.append(PrimFunc(str(dtype), (y,), 1, Seq(tuple(stores))))
        wanted.append(numbers.astype(numpy_type(dtype)))
    for dtype in (d for d in DType if d.is_integer):
        numbers = samples(dtype, 1)
        y = Buffer("y", (COUNT,), dtype)
        stores = [Store(y, (index(n),), IntImm(int(v), dtype)) for n, v in enumerate(numbers)]
        kernels.append(PrimFunc(str(dtype), (y,), 1, Seq(tuple(stores))))
        wanted.append(numbers)
    library = load_module(kernels)
    for function, numbers in zip(kernels, wanted, strict=True):
        got = np.zeros_like(numbers)
        library.call(function.name, got)
        np.testing.assert_array_equal(got, numbers, err_msg=function.name)


def reduced(op, x, y, vector):
    value = ReduceLanes(op, vector, x.dtype)
    return PrimFunc(op.name, (x, y), 1, Store(y, (index(3),), value))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT32, DType.UINT8, DType.BOOL], ids=str)
def test_lanes(load_module, dtype):
    """Reductions of vectors, strided reads and writes, one written over itself, one with a name."""
    names = ("&", "|") if dtype is DType.BOOL else ("+", "*", "min", "max")
    x, y = Buffer("x", (16,), dtype), Buffer("y", (16,), dtype)
    whole = Load(x, (Ramp(index(0), 1, 16),), dtype, 16)
    kernels = [
        PrimFunc(
            BinaryOp(n).name,
            (x, y),
            1,
            Store(y, (index(3),), ReduceLanes(BinaryOp(n), whole, dtype)),
        )
        for n in names
    ]
    turned = Load(x, (Ramp(index(15), -2, 8),), dtype, 8)
    twice = Broadcast(Load(x, (index(2),), dtype, 1), 8, dtype)
    mixed = select(turned < twice, turned, twice)
    kernels.append(PrimFunc("mixed", (x, y), 1, Store(y, (Ramp(index(0), 2, 8),), mixed)))
    itself = Load(y, (Ramp(index(15), -1, 16),), dtype, 16)
    body = Seq(
        (Store(y, (Ramp(index(0), 1, 16),), whole), Store(y, (Ramp(index(0), 1, 16),), itself))
    )
    kernels.append(PrimFunc("itself", (x, y), 1, body))
    named = TirVar("int", dtype, 16)
    least = ReduceLanes(BinaryOp(names[0]), named, dtype)
    uses = Seq((Store(y, (Ramp(index(15), -1, 16),), named), Store(y, (index(3),), least)))
    kernels.append(PrimFunc("named", (x, y), 1, LetStmt(named, whole, uses)))
    library = load_module(kernels)
    data = (np.arange(16) % 3 + 1).astype(numpy_type(dtype))
    for function in kernels:
        check(library, function, data)


def test_statements(load_module):
    """Let, if with both sides, a loop whose extent varies, stack memory, loops of every kind."""
    x, y = Buffer("x", (40, 8), INDEX), Buffer("y", (40,), INDEX)
    i, j, s, unread = TirVar("i"), TirVar("j"), TirVar("int"), TirVar("i")
    t, never = (
        Buffer("t", (), INDEX, MemoryScope.STACK),
        Buffer("t", (4,), INDEX, MemoryScope.REGISTER),
    )
    item, first = (Load(x, (i, at), INDEX, 1) for at in (j, index(0)))
    for kind in set(ForKind) - {ForKind.BOUND}:
        summed = For(j, i % 9, ForKind.SERIAL, Store(t, (), Load(t, (), INDEX, 1) + item))
        total = Load(t, (), INDEX, 1)
        done = IfStmt(i % 2 < 1, Store(y, (i,), total + s), Store(y, (i,), index(0) - s))
        inner = Seq((Store(t, (), index(5)), summed, LetStmt(s, i * 3 - 50, done)))
        body = Allocate(t, Allocate(never, LetStmt(unread, first, inner)))
        function = PrimFunc("k", (x, y), 1, For(i, IntImm(40), kind, body))
        check(load_module([function], opt_level=3), function, np.arange(320).reshape(40, 8))


def test_positions_divide_downwards(load_module):
    x, y = Buffer("x", (64,), DType.INT32), Buffer("y", (64,), DType.INT32)
    i = TirVar("i")
    low = (i - 40) // 7 + (i - 40) % 7
    at = minimum(maximum(low + 6, 0), 63)
    value = Load(x, (at,), DType.INT32, 1) + cast((i - 40) // 7, DType.INT32)
    function = PrimFunc("k", (x, y), 1, For(i, IntImm(64), ForKind.SERIAL, Store(y, (i,), value)))
    check(load_module([function]), function, np.arange(64, dtype=np.int32))


def test_a_long_sum(load_module):
    function = element_wise("k", long_sum, (DType.INT32,), DType.INT32)
    check(load_module([function]), function, samples(DType.INT32, 0))


def long_sum(x):
    total = x
    for number in range(250):
        total = total + x * IntImm(number, DType.INT32)
    return total


def test_what_is_shared_is_written_once():
    x, y = Buffer("x", (1,), DType.FLOAT32), Buffer("y", (1,), DType.FLOAT32)
    value = Load(x, (index(0),), DType.FLOAT32, 1)
    for _ in range(40):
        value = value * value
    text = source(PrimFunc("k", (x, y), 1, Store(y, (index(0),), value)))
    assert len(text) < 4000


def source(function):
    return c_sources(TensorModule((function,), NO_PLAN), COptions())["model.c"]


def test_functions_of_c_by_name(load_module):
    function = element_wise(
        "k",
        lambda x: CallTarget("c", "cbrtf", (x,), DType.FLOAT32, 1),
        (DType.FLOAT32,),
        DType.FLOAT32,
    )
    x = np.arange(COUNT, dtype=np.float32)
    got = np.zeros_like(x)
    load_module([function]).call("k", x, got)
    np.testing.assert_allclose(got, np.cbrt(x), rtol=1e-6)


DOMAINS = {"acosh": (1, 9), "atanh": (-0.9, 0.9), "acos": (-1, 1), "asin": (-1, 1)}
POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "pow")


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float], ids=str)
def test_machine_functions(load_module, dtype):
    """Every one, over the range where it is smooth and at the special values."""
    kernels = []
    for function in (f for f in Intrinsic if not f.keeps_bits):

        def element(*args, function=function):
            return intrinsic(function, *args)

        inputs = (dtype,) * function.operands
        result = DType.BOOL if function.is_predicate else dtype
        kernels.append(element_wise(function.value, element, inputs, result))
    library = load_module(kernels)
    tolerance = {16: 0.02, 32: 1e-5, 64: 1e-12}[dtype.bits]
    for function in kernels:
        low, high = DOMAINS.get(function.name, (0.1, 4) if function.name in POSITIVE else (-4, 4))
        count = len(function.params) - 1
        points = np.linspace(low, high, COUNT)
        points[-4:] = [np.nan, np.inf, -np.inf, 0.0]
        arrays = [np.roll(points, n).astype(numpy_type(dtype)) for n in range(count)]
        buffer = function.params[-1]
        want, got = (np.zeros(COUNT, numpy_type(buffer.dtype)) for _ in range(2))
        run(function, *arrays, want)
        library.call(function.name, *arrays, got)
        np.testing.assert_allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
            err_msg=function.name,
        )


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT32, DType.INT64, DType.UINT16], ids=str)
def test_machine_functions_of_integers(load_module, dtype):
    power = element_wise("pow", lambda a, b: intrinsic(Intrinsic.POW, a, b), (dtype, dtype), dtype)
    size = element_wise("abs", lambda a: intrinsic(Intrinsic.ABS, a), (dtype,), dtype)
    library = load_module([power, size])
    a = samples(dtype, 0)
    check(library, size, a)
    exponents = (np.arange(COUNT) % 9 - (2 if dtype.is_signed else 0)).astype(a.dtype)
    check(library, power, a, exponents)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Barrier(), "'c' has no barriers"),
        (
            For(TirVar("i"), IntImm(4), ForKind.BOUND, Barrier(), Thread.BLOCK_X),
            "'c' has no blocks of threads",
        ),
        (
            Allocate(Buffer("s", (4,), DType.FLOAT32, MemoryScope.SHARED), Barrier()),
            "'c' has no memory that threads share",
        ),
        (Invoke("c", "move", ()), "no function 'move' of 'c'"),
    ],
)
def test_blocks_of_threads_are_refused(body, message):
    with pytest.raises(UnsupportedError, match=message):
        source(PrimFunc("k", (), 0, body))
