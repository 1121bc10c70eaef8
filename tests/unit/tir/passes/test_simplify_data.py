# SPDX-License-Identifier: Apache-2.0
"""Elements of type int64 are no indices: they reach to the ends of the type, and wrap there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    INDEX,
    Binary,
    BinaryOp,
    IntImm,
    Load,
    PrimExpr,
    TirVar,
    cast,
    maximum,
    minimum,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_runtime.dtype import DType

LOW, HIGH = -(2**63), 2**63 - 1
DATA = np.array([LOW, LOW + 1, LOW + 2, -1, 0, 2**62, HIGH - 2, HIGH - 1, HIGH])
BOUNDS = [LOW, LOW + 1, -(2**62) - 1, 2**62 + 1, HIGH - 1, HIGH]
COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def check(element: Callable[[PrimExpr], PrimExpr]) -> None:
    """A loop over the data gives the same simplified."""
    x, y = (Buffer(name, DATA.shape, DType.INT64) for name in "xy")
    i = TirVar("i", INDEX)
    value = cast(element(Load(x, (i,), DType.INT64, 1)), DType.INT64)
    body = For(i, IntImm(len(DATA)), ForKind.SERIAL, Store(y, (i,), value))
    function = PrimFunc("k", (x, y), 1, body)
    want, got = np.zeros_like(DATA), np.zeros_like(DATA)
    with np.errstate(over="ignore"):
        run(function, DATA, want)
        run(simplify(function), DATA, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_with_any_number(op: str, bound: int) -> None:
    check(lambda x: Binary(BinaryOp[op], x, IntImm(bound), DType.BOOL, 1))


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_larger_and_the_smaller_number(bound: int) -> None:
    check(lambda x: maximum(x, IntImm(bound)))
    check(lambda x: minimum(IntImm(bound), x))
    check(lambda x: maximum(minimum(x + 2, IntImm(bound)), IntImm(bound)))


@pytest.mark.parametrize("op", COMPARISONS)
def test_a_sum_beyond_the_type(op: str) -> None:
    check(lambda x: Binary(BinaryOp[op], x + 1, x, DType.BOOL, 1))


def test_quotients_of_what_wraps() -> None:
    check(lambda x: x * 4 // 4)
    check(lambda x: (x * 4 + 1) % 4)
