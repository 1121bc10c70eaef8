# SPDX-License-Identifier: Apache-2.0
"""Remainders of floats: to the bit what C's ``fmod`` gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, Load, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_llvm.codegen import tir_codegen
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType

COUNT = 64
PAIRS = st.tuples(st.floats(width=32), st.floats(width=32))


@pytest.fixture(scope="module")
def modules(tmp_path_factory, make_target):
    """``y = x % d`` as C does, one element and sixteen at a time."""
    tvm_ffi = pytest.importorskip("tvm_ffi")
    functions = []
    for lanes in (1, 16):
        a, b, y = (Buffer(name, (COUNT,), DType.FLOAT32) for name in "aby")
        outer, inner = TirVar("o"), TirVar("i")
        at = (outer * lanes + inner,)
        left, right = (Load(buffer, at, DType.FLOAT32, 1) for buffer in (a, b))
        rest = Binary(BinaryOp.TRUNC_MOD, left, right, DType.FLOAT32, 1)
        kind = ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL
        body = For(inner, IntImm(lanes), kind, Store(y, at, rest))
        loop = For(outer, IntImm(COUNT // lanes), ForKind.SERIAL, body)
        functions.append(PrimFunc(f"by_{lanes}", (a, b, y), 1, loop))
    plan = CallPlan((), (), (), (), 0, ())
    unit = tir_codegen(TensorModule(tuple(functions), plan), make_target())
    path = tmp_path_factory.mktemp("remainder") / "lib.so"
    path.write_bytes(unit.files["lib.so"])
    library = tvm_ffi.load_module(str(path))
    return [library.get_function(function.name) for function in functions]


def agree(modules, a: np.ndarray, b: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    for module in modules:
        got = np.zeros(COUNT, np.float32)
        module(a, b, got)
        np.testing.assert_array_equal(got, want)
        known = ~np.isnan(want)  # the sign of a NaN means nothing
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


@given(st.lists(PAIRS, min_size=1, max_size=COUNT))
@settings(deadline=None)
def test_any_floats(modules, pairs) -> None:
    a, b = (np.resize(np.array(side, np.float32), COUNT) for side in zip(*pairs, strict=True))
    agree(modules, a, b)


@pytest.mark.parametrize("exponent", [0, 1, 10, 23, 24, 28, 29, 30, 60])
def test_whole_quotients_and_their_neighbours(modules, exponent: int) -> None:
    drawn = np.random.default_rng(exponent)
    b = drawn.uniform(-2, 2, COUNT).astype(np.float32)
    quotient = drawn.integers(2**exponent, 2 ** (exponent + 1), COUNT)
    a = (b.astype(np.float64) * quotient).astype(np.float32)
    for near in (a, np.nextafter(a, np.float32(np.inf)), np.nextafter(a, np.float32(-np.inf))):
        agree(modules, near, b)
        agree(modules, -near, b)


def test_one_lane_that_is_not_small_changes_no_other(modules) -> None:
    a, b = np.full(COUNT, 7.5, np.float32), np.full(COUNT, 2, np.float32)
    a[[3, 20, 40]] = 3e38, np.inf, np.nan
    b[[5, 41, 50]] = 0, np.inf, 1e-45
    agree(modules, a, b)
