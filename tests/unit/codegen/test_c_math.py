# SPDX-License-Identifier: Apache-2.0
"""Names of <math.h>, and the rule of sigmoid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Store
from intarsia_loops.codegen.c_math import MATH, by_type, of_both_types, sigmoid
from intarsia_runtime.dtype import DType


def test_each_function_has_a_name_for_both_types() -> None:
    names = by_type(MATH)
    assert names[Intrinsic.ROUND, DType.FLOAT32] == "rintf"
    assert names[Intrinsic.ABS, DType.FLOAT64] == "fabs"
    assert set(names.values()) == of_both_types(MATH.values())


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("x", [-1000.0, -2.0, 0.0, 2.0, 1000.0])
def test_sigmoid_does_not_overflow(dtype: DType, x: float) -> None:
    given, result = Buffer("x", (1,), dtype), Buffer("y", (1,), dtype)
    zero = IntImm(0)
    body = Store(result, (zero,), sigmoid(Load(given, (zero,), dtype, 1)))
    arrays = np.array([x], dtype.value), np.zeros(1, dtype.value)
    with np.errstate(all="raise", under="ignore"):
        run(PrimFunc("f", (given, result), 1, body), *arrays)
    want = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    assert arrays[1][0] == pytest.approx(want, rel=1e-3 if dtype is DType.FLOAT16 else 1e-6)
