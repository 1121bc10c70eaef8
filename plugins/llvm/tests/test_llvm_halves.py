# SPDX-License-Identifier: Apache-2.0
"""Functions of float16 one after the other, whose signs LLVM may not narrow by a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, constant
from intarsia_testkit.expressions import apply, expected, function_of, var


@pytest.mark.parametrize("mcpu", ["native", "x86-64-v2"])
@pytest.mark.parametrize("second", ["atan", "asinh", "tanh", "sinh", "trunc_mod"])
def test_a_sign_is_not_taken_from_a_wider_number(runner: Any, second: str, mcpu: str) -> None:
    """The code calls nothing that no library has, which compiling refuses."""
    divisor = constant(np.array(0.3, np.float16))
    first: Expr = apply("sin", var("x", 5, dtype="float16"))
    signed = apply("trunc_mod", first, divisor) if second == "trunc_mod" else apply(second, first)
    function = function_of(apply("multiply", signed, divisor))
    x = np.array([-3, -0.5, -0.0, 0.7, 60], np.float16)
    (want,) = expected(function, [x])
    (got,), _, _ = runner(function, x, mcpu=mcpu)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-7)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
