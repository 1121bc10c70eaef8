# SPDX-License-Identifier: Apache-2.0
"""Searches of short rows in the lanes of vectors, on the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.target.target import Target
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_loops.cpu.argmax_rows import argmax_kernel
from intarsia_testkit.expressions import apply, expected, function_of, var

from .conftest import carry_out, lower, make_target


def _schedule(group: FusedGroup, _target: Target) -> PrimFunc | None:
    return argmax_kernel(group, lanes=4)


def _agree(name: str, x: np.ndarray, *, keepdims: bool = False, last: bool = False) -> bool:
    """Compare with the reference; return whether lanes searched."""
    given = var("x", *x.shape, dtype=x.dtype.name)
    body = apply(name, given, axis=x.ndim - 1, keepdims=keepdims, last=last)
    function, target = function_of(body), make_target(argmax=_schedule, argmin=_schedule)
    lowered = lower(function, (), target=target)
    (got,), (want,) = carry_out(lowered, [x], compiled=True), expected(function, [x])
    np.testing.assert_array_equal(got, want)
    (kernel,) = lowered.module.functions
    return [buffer.name for buffer in kernel.params] == ["x", "out"]


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.uint32])
def test_the_place_of_an_extreme(name: str, last: bool, dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 4, (2, 9, 6)).astype(dtype)
    assert _agree(name, x, keepdims=last, last=last)


@pytest.mark.parametrize("last", [False, True])
def test_nan_beats_every_number(last: bool) -> None:
    x = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)
    x[1, 2], x[2, 0], x[3] = np.nan, np.nan, np.nan
    x[4, 1], x[4, 3], x[5] = np.nan, np.nan, np.inf
    assert _agree("argmax", x, last=last)
    assert _agree("argmin", x, last=last)


@pytest.mark.parametrize(
    "x",
    [np.ones((3, 5), np.float32), np.ones((9, 5), np.int8), np.ones((9, 1), np.float32)],
    ids=["few rows", "bytes", "one element"],
)
def test_other_rows(x: np.ndarray) -> None:
    assert _agree("argmax", x) == (x.shape[1] == 1)


def test_what_is_fused_has_other_loops() -> None:
    x = var("x", 9, 5)
    function = function_of(apply("argmax", apply("abs", x), axis=1))
    values = np.random.default_rng(2).standard_normal((9, 5)).astype(np.float32)
    lowered = lower(function, (), target=make_target(argmax=_schedule))
    (got,), (want,) = carry_out(lowered, [values], compiled=True), expected(function, [values])
    np.testing.assert_array_equal(got, want)
