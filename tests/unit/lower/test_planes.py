# SPDX-License-Identifier: Apache-2.0
"""Pools in the model's layout: any window over any number of dimensions, and what is fused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Call, Expr, Var, call, tensor_type
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.pooling import AvgPool, MaxPool, PoolAttrs
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.text.print import print_func
from intarsia_loops.cpu.ceil_pools import round_down_pools
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.pools import PoolSchedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of

from .conftest import carry_out, lower, make_target
from .test_open_sizes import check


def _tiling_of(_target: Target, _dtype: DType) -> CpuTiling:
    return CpuTiling(lanes=4, rows=4)


SCHEDULES = {
    name.replace(".", "__"): schedule
    for name, schedule in PoolSchedules(_tiling_of).table().items()
}


def _averaging(attrs: PoolAttrs, *, counts: bool = False) -> AvgPool.Attrs:
    return AvgPool.Attrs(
        kernel=attrs.kernel,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        ceil_mode=attrs.ceil_mode,
        count_include_pad=counts,
    )


@st.composite
def pools(draw: st.DrawFn) -> Call:
    """Pools of lines, images and volumes, padded or not, by windows up to 3 wide."""
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    ends = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank)]
    attrs = PoolAttrs(
        kernel=tuple(kernel),
        strides=tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        padding=tuple(ends),
        dilation=tuple(dilation),
        ceil_mode=draw(st.booleans()),
    )
    sizes = [draw(st.integers(5, 7)) for _ in range(rank - 1)] + [draw(st.integers(5, 19))]
    x = Var("x", TensorType((draw(st.integers(1, 2)), 2, *sizes), DType.FLOAT32))
    if draw(st.booleans()):
        return call(MaxPool, x, attrs=attrs)
    return call(AvgPool, x, attrs=_averaging(attrs, counts=draw(st.booleans())))


def _agree(body: Expr, x: np.ndarray) -> list[str]:
    """Compare what the loops compute with the reference; return the names of the operators."""
    function = use_channels_last(function_of(body), CpuTiling(lanes=4, rows=4))
    lowered = lower(function, (), target=make_target(**SCHEDULES))
    (got,), (want,) = carry_out(lowered, [x], compiled=True), expected(function_of(body), [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return [node.name for node in calls(function)]


@given(pools(), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_any_window(body: Call, seed: int) -> None:
    shape = tensor_type(body.args[0]).static_shape
    names = _agree(body, np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
    attrs = body.attrs
    added = isinstance(attrs, AvgPool.Attrs) and attrs.ceil_mode and attrs.count_include_pad
    assert names[0].startswith("nn." if added else "cpu.plane_")


WINDOW = PoolAttrs(kernel=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT64, DType.FLOAT64])
def test_of_other_types(dtype: DType) -> None:
    x = Var("x", TensorType((1, 2, 9, 21), dtype))
    values = np.random.default_rng(0).integers(0, 100, (1, 2, 9, 21)).astype(dtype.value)
    assert _agree(call(MaxPool, x, attrs=WINDOW), values) == ["cpu.plane_max_pool"]


def test_half_precision_keeps_its_loops() -> None:
    x = Var("x", TensorType((1, 2, 9, 21), DType.FLOAT16))
    values = np.random.default_rng(0).standard_normal((1, 2, 9, 21)).astype(np.float16)
    assert _agree(call(MaxPool, x, attrs=WINDOW), values) == ["nn.max_pool"]


def test_a_window_wider_than_is_written_out() -> None:
    attrs = PoolAttrs(kernel=(12,), strides=(2,), padding=((3, 4),), dilation=(1,))
    x = Var("x", TensorType((1, 3, 40), DType.FLOAT32))
    values = np.random.default_rng(0).standard_normal((1, 3, 40)).astype(np.float32)
    _agree(call(MaxPool, x, attrs=attrs), values)
    _agree(call(AvgPool, x, attrs=_averaging(attrs)), values)


def test_nan_and_infinities_come_through() -> None:
    x = Var("x", TensorType((1, 1, 12, 12), DType.FLOAT32))
    values = np.random.default_rng(0).standard_normal((1, 1, 12, 12)).astype(np.float32)
    values[0, 0, 3, 4], values[0, 0, 8, 8], values[0, 0, 10] = np.nan, np.inf, -np.inf
    _agree(call(MaxPool, x, attrs=WINDOW), values)


def test_what_stands_before_and_behind() -> None:
    """Nothing before a pool is computed once for every window; what is behind it is fused."""
    x = Var("x", TensorType((1, 2, 9, 21), DType.FLOAT32))
    values = np.random.default_rng(0).standard_normal((1, 2, 9, 21)).astype(np.float32)
    body = call(Relu, call(AvgPool, call(Relu, x), attrs=_averaging(WINDOW)))
    assert _agree(body, values) == ["nn.relu", "cpu.plane_avg_pool", "nn.relu"]
    function = use_channels_last(function_of(body), CpuTiling(lanes=4, rows=4))
    assert len(lower(function, (), target=make_target(**SCHEDULES)).module.functions) == 2


def test_every_second_element_by_the_backend() -> None:
    """A backend's own instruction is asked for both halves of a pair of vectors."""
    asked: list[int] = []

    def second(a: PrimExpr, b: PrimExpr, first: int) -> PrimExpr:
        assert a.lanes == b.lanes == 4
        asked.append(first)
        return a

    def shape(_target: Target, _dtype: DType) -> CpuTiling:
        return CpuTiling(lanes=4, rows=4, deinterleave=second)

    x = Var("x", TensorType((1, 2, 9, 21), DType.FLOAT32))
    function = use_channels_last(
        function_of(call(MaxPool, x, attrs=WINDOW)), shape(make_target(), DType.FLOAT32)
    )
    schedule = PoolSchedules(shape).plane_max_pool
    lower(function, (), target=make_target(cpu__plane_max_pool=schedule))
    assert asked[:3] == [0, 1, 0]


@st.composite
def open_pools(draw: st.DrawFn) -> Call:
    """As :func:`pools`, of open sizes: some windows are wider than a tile of results."""
    body = draw(pools())
    names = [variable(name) for name in "NDHW"]
    batch, *sizes = [names[0], *names[4 - len(tensor_type(body).shape[2:]) :]]
    x = Var("x", TensorType((batch, 3, *sizes), DType.FLOAT32))
    return call(body.op, x, attrs=body.attrs)


@given(open_pools(), st.integers(5, 9), st.integers(5, 90))
@settings(max_examples=12, deadline=None)
def test_one_lowering_for_every_size(body: Call, height: int, width: int) -> None:
    """Rows of less results than a vector, of one tile, and of several that are no whole number."""
    tiling = CpuTiling(lanes=4, rows=4)
    with collecting_guards():
        changed = use_channels_last(round_down_pools(function_of(body)), tiling)
        made = lower(changed, (), target=make_target(**SCHEDULES))
    names = [node.name for node in calls(changed)]
    if names == [f"cpu.plane_{body.name.removeprefix('nn.')}"]:
        assert all("lines" in print_func(function) for function in made.module.functions)
    for last in (5, width):
        check(function_of(body), made, {"N": 2, "D": 5, "H": height, "W": last})
