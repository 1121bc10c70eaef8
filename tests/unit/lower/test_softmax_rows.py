# SPDX-License-Identifier: Apache-2.0
"""Softmax by rows side by side, and by rows in lanes, on the interpreter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Function
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Binary, BinaryOp, Load, Ramp, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, Store
from intarsia_ir.tir.walk import post_order, statements
from intarsia_loops.cpu.exponential import softmax_exp
from intarsia_loops.cpu.softmax import softmax_kernel
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, function_of, var

from .conftest import carry_out, lower, make_target


def _schedule(group: FusedGroup, _target: Target) -> PrimFunc | None:
    return softmax_kernel(group, lanes=4)


def _agree(name: str, x: np.ndarray, axis: int) -> bool:
    """Compare with the reference; return whether the loops of this file's subject computed it."""
    function = function_of(apply(name, var("x", *x.shape, dtype=x.dtype.name), axis=axis))
    target = make_target(nn__softmax=_schedule, nn__log_softmax=_schedule)
    lowered = lower(function, (), target=target)
    (got,), (want,) = carry_out(lowered, [x], compiled=True), expected(function, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    (kernel,) = lowered.module.functions
    return [buffer.name for buffer in kernel.params] == ["x", "out"]


def _drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 4).astype(dtype)


@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
@pytest.mark.parametrize(
    "shape",
    [(9, 3), (4, 7), (5, 4), (1, 4), (2, 21), (3, 40), (5, 32), (7, 2, 9), (1, 50), (6, 1)],
    ids=str,
)
def test_rows_of_any_length(name: str, shape: tuple[int, ...]) -> None:
    assert _agree(name, _drawn(*shape), len(shape) - 1)


def test_long_rows_run_alone() -> None:
    assert _agree("nn.softmax", _drawn(2, 1500), 1)
    assert _agree("nn.softmax", _drawn(3, 1001, dtype=np.float64), 1)


@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_rows_too_long_for_the_stack_are_kept_in_the_result(name: str) -> None:
    assert _agree(name, _drawn(1, 4099), 1)


def test_what_follows_the_axis_may_have_one_element() -> None:
    assert _agree("nn.softmax", _drawn(2, 9, 1, 1), 1)


@pytest.mark.parametrize(
    ("shape", "dtype", "axis"),
    [
        ((2, 3), np.float32, 1),
        ((2, 8, 3), np.float32, 1),
        ((4, 9), np.float16, 1),
    ],
    ids=["too few", "another axis", "half precision"],
)
def test_others_have_other_loops(shape: tuple[int, ...], dtype: type, axis: int) -> None:
    x = _drawn(*shape, dtype=dtype)
    group = function_of(apply("nn.softmax", var("x", *shape, dtype=x.dtype.name), axis=axis))
    target = make_target(nn__softmax=_schedule)
    (kernel,) = lower(group, (), target=target).module.functions
    assert [buffer.name for buffer in kernel.params] != ["x", "out"]


@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 9, 1), (5, 3)], ids=str)
def test_what_follows_is_fused(shape: tuple[int, ...]) -> None:
    x, y = (var(name, *shape) for name in "xy")
    soft = apply("nn.softmax", x, axis=len(shape) - 1 - (shape[-1] == 1))
    function = Function((x, y), apply("nn.relu", apply("subtract", soft, y)))
    values = [_drawn(*shape), _drawn(*shape) / 20]
    lowered = lower(function, (), target=make_target(nn__softmax=_schedule))
    (got,), (want,) = carry_out(lowered, values, compiled=True), expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(lowered.module.functions) == 1


@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
@pytest.mark.parametrize("columns", [5, 13])
def test_nan_and_infinities(name: str, columns: int) -> None:
    x = _drawn(8, columns)
    x[1, 2], x[2, 0], x[3, 4] = np.nan, np.inf, -np.inf
    x[4] = -np.inf
    x[5] = np.nan
    x[6] = 1e30
    _agree(name, x, 1)


@pytest.mark.parametrize("shape", [(8, 9), (3, 21), (2, 40), (2, 60)], ids=str)
@pytest.mark.parametrize("taken_out", [-1e4, -3e38, -np.inf])
def test_what_a_mask_takes_out_is_exactly_zero(shape: tuple[int, int], taken_out: float) -> None:
    x = _drawn(*shape)
    x[:, 2::3] = taken_out
    assert _agree("nn.softmax", x, 1)
    function = function_of(apply("nn.softmax", var("x", *shape), axis=1))
    lowered = lower(function, (), target=make_target(nn__softmax=_schedule))
    (got,) = carry_out(lowered, [x], compiled=True)
    assert (got[:, 2::3] == 0.0).all()
    assert (got[:, 0] > 0.0).all()


def test_a_nan_makes_its_row_nan_and_no_other() -> None:
    x = _drawn(3, 21)
    x[1, 5] = np.nan
    assert _agree("nn.softmax", x, 1)


def test_the_exponential_is_as_good_as_a_rounded_difference_or_zero() -> None:
    drawn = -np.concatenate([np.linspace(0, 87, 4000), np.geomspace(1e-30, 87, 4000)])
    x = np.concatenate([drawn, [-88.1, -103.0, -1e38, -np.inf, np.nan]]).astype(np.float32)
    got = np.empty_like(x)
    data, out = (Buffer(name, x.shape, DType.FLOAT32) for name in ("x", "out"))
    whole = (Ramp(index(0), 1, x.size),)
    value = softmax_exp(Load(data, whole, DType.FLOAT32, x.size))
    run(PrimFunc("exp", (data, out), 1, Store(out, whole, value)), x, got)
    want = np.exp(x[: drawn.size].astype(np.float64))
    rounded = 1.05 * 2.0**-24 * np.abs(x[: drawn.size]) * want
    apart = (np.abs(got[: drawn.size] - want) - rounded) / np.spacing(want.astype(np.float32))
    assert apart.max() < 2.0
    assert (got[drawn.size : -1] == 0.0).all()
    assert np.isnan(got[-1])


def test_an_exponential_takes_nine_products() -> None:
    """Each of which adds, but for one, where a processor multiplies and adds at once."""
    x = Load(Buffer("x", (8,), DType.FLOAT32), (Ramp(index(0), 1, 8),), DType.FLOAT32, 8)
    done = Counter(node.op for node in post_order(softmax_exp(x)) if isinstance(node, Binary))
    sums = done[BinaryOp.ADD] + done[BinaryOp.SUB]
    assert (done[BinaryOp.MUL], sums) == (9, 9)


def _kernel(rows: int, columns: int) -> PrimFunc:
    function = function_of(apply("nn.softmax", var("x", rows, columns), axis=1))
    (kernel,) = lower(function, (), target=make_target(nn__softmax=_schedule)).module.functions
    return kernel


def _kept(kernel: PrimFunc) -> list[str]:
    made = (stmt.buffer for stmt in statements(kernel.body) if isinstance(stmt, Allocate))
    return [buffer.name for buffer in made if buffer.scope is MemoryScope.STACK]


def test_rows_from_a_kibibyte_on_keep_their_exponentials_in_the_result() -> None:
    assert _kept(_kernel(8, 255)) == ["kept"]
    assert _kept(_kernel(8, 256)) == []


@pytest.mark.parametrize(("columns", "sums"), [(8, 4), (16, 2), (64, 2)])
def test_no_more_than_two_exponentials_of_long_rows_are_side_by_side(
    columns: int, sums: int
) -> None:
    made = (s.buffer for s in statements(_kernel(8, columns).body) if isinstance(s, Allocate))
    (total,) = (buffer for buffer in made if buffer.name == "total")
    assert total.shape[0] == sums
