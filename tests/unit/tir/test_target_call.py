# SPDX-License-Identifier: Apache-2.0
"""Calls of a code generator's own functions are verified against the generator."""

from __future__ import annotations

import re

import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Broadcast, Load, PrimExpr, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Store
from intarsia_ir.tir.target_call import CodegenSignature, call_target_intrinsic, verify_target_calls
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, UnsupportedError, VerifyError

F32 = frozenset({DType.FLOAT32})
FUNCTIONS = {
    "g.fma": CodegenSignature(3, F32),
    "g.bits": CodegenSignature(1, F32, frozenset({DType.INT32})),
}
X = Buffer("x", (1,), DType.FLOAT32)
N = Buffer("n", (1,), DType.INT32)
ONE = Load(X, (index(0),), DType.FLOAT32, 1)
COUNT = Load(N, (index(0),), DType.INT32, 1)


def verify(value: PrimExpr, kind: str = "g") -> None:
    out = Buffer("y", (1,), value.dtype)
    function = PrimFunc("k", (X, N, out), 1, Store(out, (index(0),), value))
    verify_target_calls(function, kind, FUNCTIONS.get)


def test_a_call_that_fits_passes() -> None:
    call = call_target_intrinsic("g", "g.fma", ONE, ONE, ONE)
    assert (call.dtype, call.lanes) == (DType.FLOAT32, 1)
    verify(call)
    wide = call_target_intrinsic("g", "g.bits", Broadcast(ONE, 4, DType.FLOAT32), dtype=DType.INT32)
    assert (wide.dtype, wide.lanes) == (DType.INT32, 4)
    verify(call_target_intrinsic("g", "g.bits", call, dtype=DType.INT32))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (call_target_intrinsic("g", "g.rm", ONE), UnsupportedError, "'g' has no function 'g.rm'"),
        (call_target_intrinsic("h", "h.fma", ONE), UnsupportedError,
         "calls 'h.fma' of the code generator 'h', and is compiled by 'g'"),
        (call_target_intrinsic("g", "g.fma", ONE), VerifyError, "takes 3 arguments, not 1"),
        (call_target_intrinsic("g", "g.bits", COUNT), VerifyError, "does not take int32"),
        (call_target_intrinsic("g", "g.bits", ONE), VerifyError,
         "'g.bits' of float32 does not give float32"),
        (ONE + call_target_intrinsic("g", "g.rm", ONE), UnsupportedError, "no function 'g.rm'"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_names_the_kernel(
    call: PrimExpr, error: type[IntarsiaError], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        verify(call)
    assert caught.value.where == "k"


def test_a_generator_without_functions_has_none() -> None:
    out = Buffer("y", (1,), DType.FLOAT32)
    call = call_target_intrinsic("g", "g.fma", ONE, ONE, ONE)
    function = PrimFunc("k", (X, out), 1, Store(out, (index(0),), call))
    with pytest.raises(UnsupportedError, match=r"'g' has no function 'g\.fma'"):
        verify_target_calls(function, "g", None)


def test_a_call_needs_arguments_of_one_width() -> None:
    with pytest.raises(VerifyError, match="'f' of 'g' is called without arguments"):
        call_target_intrinsic("g", "f")
    with pytest.raises(VerifyError, match="the arguments of 'f' of 'g' differ in lanes"):
        call_target_intrinsic("g", "f", ONE, Broadcast(ONE, 4, DType.FLOAT32))
