# SPDX-License-Identifier: Apache-2.0
"""Powers of two by an instruction or by products, and extremes of lanes of which some are NaN."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import BinaryOp, CallTarget, IntImm, Load, Ramp, ReduceLanes, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_runtime.dtype import DType

LANES = (1, 2, 3, 4, 8, 16, 20, 64)
WIDTHS = {DType.FLOAT32: DType.INT32, DType.FLOAT64: DType.INT64}


def scaling(dtype, lanes):
    """A kernel ``out[i] = x[i] * 2**n[i]`` of one vector."""
    x, n = Buffer("x", (lanes,), dtype), Buffer("n", (lanes,), dtype)
    m, out = Buffer("m", (lanes,), WIDTHS[dtype]), Buffer("out", (lanes,), dtype)
    i = TirVar("i")
    args = tuple(Load(buffer, (i,), buffer.dtype, 1) for buffer in (x, n, m))
    body = Store(out, (i,), CallTarget("llvm", "llvm.scale", args, dtype, 1))
    if lanes > 1:
        body = For(i, IntImm(lanes), ForKind.VECTORIZED, body)
    else:
        body = For(i, IntImm(1), ForKind.SERIAL, body)
    return PrimFunc(f"scale_{dtype.value}_{lanes}", (x, n, m, out), 1, body)


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
def test_powers_of_two_of_any_width(load_module, options):
    kernels = [scaling(dtype, lanes) for dtype in WIDTHS for lanes in LANES]
    module = load_module(kernels, **options)
    rng = np.random.default_rng(0)
    for dtype in WIDTHS:
        reach = 150 if dtype is DType.FLOAT32 else 1070
        for lanes in LANES:
            x = rng.uniform(0.7, 1.4, lanes).astype(dtype.value)
            m = rng.integers(-reach, reach // 1.2, lanes).astype(WIDTHS[dtype].value)
            m[0] = -reach + lanes  # a subnormal
            got = np.zeros(lanes, dtype.value)
            kernel = module.get_function(f"scale_{dtype.value}_{lanes}")
            kernel(x, m.astype(dtype.value), m, got)
            np.testing.assert_array_equal(got, np.ldexp(x, m))


def extreme(op, lanes):
    """A kernel that stores the extreme of one vector."""
    x, out = Buffer("x", (lanes,), DType.FLOAT32), Buffer("out", (1,), DType.FLOAT32)
    vector = Load(x, (Ramp(IntImm(0), 1, lanes),), DType.FLOAT32, lanes)
    value = ReduceLanes(op, vector, DType.FLOAT32)
    name = f"{'most' if op is BinaryOp.MAX else 'least'}_{lanes}"
    return PrimFunc(name, (x, out), 1, Store(out, (IntImm(0),), value))


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
def test_extremes_of_lanes_are_nan_if_one_is(load_module, options):
    lanes = (2, 3, 4, 8, 16, 32, 64)
    ops = (BinaryOp.MIN, BinaryOp.MAX)
    module = load_module([extreme(op, width) for op in ops for width in lanes], **options)
    for name, function in (("most", np.max), ("least", np.min)):
        for width in lanes:
            kernel = module.get_function(f"{name}_{width}")
            x = np.random.default_rng(width).standard_normal(width).astype(np.float32)
            for place in (None, *range(width)):
                given = x.copy()
                if place is not None:
                    given[place] = np.nan
                got = np.zeros(1, np.float32)
                kernel(given, got)
                np.testing.assert_array_equal(got[0], function(given))
