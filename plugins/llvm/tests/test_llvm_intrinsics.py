# SPDX-License-Identifier: Apache-2.0
"""How far machine functions are from the exact value, in units of the last place."""

from __future__ import annotations

import math
import platform

import mpmath
import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, TirVar, intrinsic
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_llvm.emit.range_reduction import TWO_BY_PI
from intarsia_runtime.dtype import DType

COUNT = 1 << 14
_ERF = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def rsqrt(x):
    return 1 / np.sqrt(x)


EXACT = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _ERF,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "log1p": np.log1p,
    "round": np.rint,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}


def kernel(function, dtype, arity, count, lanes=16):
    buffers = [Buffer(f"x{n}", (count,), dtype) for n in range(arity)]
    out = Buffer("y", (count,), dtype)
    outer, inner = TirVar("o"), TirVar("i")
    at = (outer * lanes + inner,)
    value = intrinsic(function, *(Load(b, at, dtype, 1) for b in buffers))
    loops = For(inner, IntImm(lanes), ForKind.VECTORIZED, Store(out, at, value))
    name = f"k_{function.value}_{dtype}"
    return PrimFunc(
        name, (*buffers, out), 1, For(outer, IntImm(count // lanes), ForKind.SERIAL, loops)
    )


SMALLEST_NORMAL = np.finfo(np.float32).tiny


def inputs():
    """All magnitudes, the interesting range densely, and every special value."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, COUNT // 2, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-1.0, 1.0, COUNT // 4)
    middle = rng.uniform(-100.0, 100.0, COUNT // 4)
    near, middle = near.astype(np.float32), middle.astype(np.float32)
    x = np.concatenate([bits, near, middle])
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        1e-45,
        -1e-45,
        1e-40,
        88.7,
        -87.4,
        0.5,
    ]
    x[: len(special)] = special
    return x


def distance(got, exact):
    """Units in the last place of float32 between ``got`` and the exact value."""
    rounded = exact.astype(np.float32)
    same = (np.isnan(rounded) & np.isnan(got)) | (rounded == got)
    step = np.spacing(np.minimum(np.abs(rounded), np.float32(3e38)))
    far = np.abs(got.astype(np.float64) - exact) / step
    return np.where(same, 0.0, np.where(np.isnan(far), np.inf, far))


@pytest.fixture(scope="module")
def unary():
    return [kernel(Intrinsic(name), DType.FLOAT32, 1, COUNT) for name in EXACT]


def test_float32_is_within_four_units_in_the_last_place(load_module, unary, capsys):
    module, x = load_module(unary), inputs()
    worst = {}
    with np.errstate(all="ignore"):
        for name, exact in EXACT.items():
            got = np.zeros_like(x)
            module.get_function(f"k_{name}_float32")(x, got)
            want = exact(x.astype(np.float64))
            if name == "sigmoid":  # 0 instead of subnormal
                want = np.where((got == 0) & (np.abs(want) < SMALLEST_NORMAL), got, want)
            worst[name] = float(distance(got, want).max())
            zeros = (want == 0) & (got == 0)
            signs = np.signbit(want[zeros]) == np.signbit(got[zeros])
            assert signs.all(), f"{name}: sign of zero"
    with capsys.disabled():
        print("\nulp " + ", ".join(f"{name} {value:.2f}" for name, value in worst.items()))
    assert {name: value for name, value in worst.items() if value > 4.0} == {}


def test_power_follows_ieee(load_module):
    function = kernel(Intrinsic.POW, DType.FLOAT32, 2, 4096)
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-20, 20, 4096)).astype(np.float32) * rng.choice([-1, 1], 4096)
    y = rng.uniform(-4, 4, 4096)
    y[::3] = np.rint(y[::3])
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0, 3.0, 0.5, -0.5]
    pairs = [(a, b) for a in special for b in special]
    x = x.astype(np.float32)
    y = y.astype(np.float32)
    x[: len(pairs)], y[: len(pairs)] = zip(*pairs, strict=True)
    got = np.zeros_like(x)
    load_module([function]).get_function(function.name)(x, y, got)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
        worst = distance(got, want)
    assert worst.max() <= 4.0, (x[worst.argmax()], y[worst.argmax()], got[worst.argmax()])


def test_float64(load_module):
    names = [name for name in EXACT if name not in ("abs", "floor", "ceil", "round", "trunc")]
    module = load_module([kernel(Intrinsic(n), DType.FLOAT64, 1, 1024, 8) for n in names])
    x = np.random.default_rng(0).uniform(-3, 3, 1024)
    x[::4] *= 20
    for name in names:
        got = np.zeros_like(x)
        module.get_function(f"k_{name}_float64")(x, got)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, EXACT[name](x), rtol=4e-15, err_msg=name, atol=1e-300)


CIRCULAR = {"sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan}
CLOSEST = 6381956970095103 * 2.0**797
"""Of all float64 the nearest to a multiple of pi/2 for its size: 61 bits are lost."""


@pytest.mark.parametrize("cpu", ["native", "x86-64"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_angles_are_right_over_the_whole_range(load_module, cpu, dtype, lanes):
    """Near, far and special angles stand side by side in one vector."""
    if cpu != "native" and platform.machine() != "x86_64":
        pytest.skip("the processor is one of x86")
    kind = np.dtype(dtype.value)
    rng = np.random.default_rng(3)
    far = rng.uniform(1, 2, 240) * 2.0 ** rng.uniform(15, np.finfo(kind).maxexp - 1, 240)
    quarters = np.pi / 2 * 2.0 ** np.arange(18, 34)
    edges = [2.0**20, np.nextafter(2.0**20, 0), np.finfo(kind).max, CLOSEST, np.inf, np.nan, -0.0]
    with np.errstate(over="ignore"):
        x = np.array([*far, *quarters, *edges, *[0.5] * 249]).astype(kind)
    x = rng.permutation(np.where(rng.random(512) < 0.5, -x, x)).astype(kind)
    functions = [kernel(Intrinsic(name), dtype, 1, 512, lanes) for name in CIRCULAR]
    module = load_module(functions, mcpu=cpu)
    for name, exact in CIRCULAR.items():
        got = np.zeros_like(x)
        module.get_function(f"k_{name}_{dtype}")(x, got)
        assert np.array_equal(np.isnan(got), ~np.isfinite(x))
        finite = np.isfinite(x)
        with mpmath.workprec(1400):
            want = [exact(mpmath.mpf(float(angle))) for angle in x[finite]]
            apart = [abs(mpmath.mpf(float(g)) - w) for g, w in zip(got[finite], want, strict=True)]
        steps = np.spacing(np.abs(np.array([float(w) for w in want]).astype(kind)))
        units = np.array([float(a) for a in apart]) / steps
        assert units.max() < (0.51 if dtype is DType.FLOAT32 else 4.0), name
        zeros = x == 0
        assert name == "cos" or np.array_equal(np.signbit(got[zeros]), np.signbit(x[zeros]))


def test_the_table_is_two_by_pi():
    with mpmath.workprec(1400):
        bits = int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, 64 * len(TWO_BY_PI))))
    assert [bits >> 64 * place & (2**64 - 1) for place in reversed(range(len(TWO_BY_PI)))] == [
        *TWO_BY_PI
    ]


def test_half_precision_goes_through_float32(load_module):
    module = load_module([kernel(Intrinsic.EXP, DType.FLOAT16, 1, 64)])
    x = np.linspace(-5, 5, 64).astype(np.float16)
    got = np.zeros_like(x)
    module.get_function("k_exp_float16")(x, got)
    np.testing.assert_array_equal(got, np.exp(x.astype(np.float32)).astype(np.float16))


def test_powers_of_integers_are_integers(load_module):
    function = kernel(Intrinsic.POW, DType.FLOAT64, 2, 1024)
    x = np.repeat(np.arange(-16.0, 16.0), 32)
    y = np.tile(np.arange(32.0), 32)
    got = np.zeros_like(x)
    load_module([function]).get_function(function.name)(x, y, got)
    want = np.array([float(int(a) ** int(b)) for a, b in zip(x, y, strict=True)])
    exact = np.abs(want) < 2.0**52
    np.testing.assert_array_equal(got[exact], want[exact])
    np.testing.assert_allclose(got, want, rtol=4e-16)


def test_a_sigmoid_far_below_zero_is_zero_and_no_subnormal_number(load_module):
    """A subnormal result takes some 150 cycles: results between -87.4 and -88.4 do."""
    count = 4096
    x = np.linspace(-2000.0, -88.4, count).astype(np.float32)
    got = np.ones_like(x)
    module = load_module([kernel(Intrinsic.SIGMOID, DType.FLOAT32, 1, count)])
    module.get_function("k_sigmoid_float32")(x, got)
    np.testing.assert_array_equal(got, np.zeros_like(x))
