# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions in the model's layout: any window, and what is fused behind it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Call, Expr, Var, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of

from .conftest import carry_out, lower, make_target

pytestmark = pytest.mark.slow  # the interpreter carries out every product

SHAPE = CpuTiling(lanes=4, rows=4)


def _tiling_of(_target: Target, _dtype: DType, *, shape: CpuTiling = SHAPE) -> CpuTiling:
    return shape


def _agree(body: Expr, *data: np.ndarray, shape: CpuTiling = SHAPE) -> list[str]:
    """Compare what the loops compute with the reference; return the names of the operators."""
    function = use_channels_last(function_of(body), shape)
    table = Schedules(partial(_tiling_of, shape=shape)).table()
    found = {name.replace(".", "__"): schedule for name, schedule in table.items()}
    lowered = lower(function, (), target=make_target(**found))
    (got,) = carry_out(lowered, list(data), compiled=True)
    (want,) = expected(function_of(body), list(data))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return [node.name for node in calls(function)]


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _attrs(groups: int, stride: int = 1, padding: int = 1) -> Conv.Attrs:
    return Conv.Attrs(
        strides=(stride, stride),
        padding=((padding, padding),) * 2,
        dilation=(1, 1),
        groups=groups,
    )


@st.composite
def convolutions(draw: st.DrawFn) -> Call:
    """Of images of one or two samples, padded or not, dilated or not, with a bias or without."""
    pair = st.tuples(st.integers(0, 3), st.integers(0, 3))
    attrs = Conv.Attrs(
        strides=(draw(st.integers(1, 3)), draw(st.integers(1, 2))),
        padding=(draw(pair), draw(pair)),
        dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        groups=3,
    )
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    size = (draw(st.integers(7, 20)), draw(st.integers(10, 23)))
    x = Var("x", TensorType((draw(st.integers(1, 2)), 3, *size), DType.FLOAT32))
    operands = [x, constant(_drawn(3, 1, *kernel))]
    if draw(st.booleans()):
        operands.append(constant(_drawn(3)))
    return call(Conv, *operands, attrs=attrs)


@given(convolutions(), st.sampled_from([256, 2048, 1 << 16]))
@settings(max_examples=15, deadline=None)
def test_any_window(body: Call, strip_bytes: int) -> None:
    shape = CpuTiling(lanes=4, rows=4, strip_bytes=strip_bytes)
    names = _agree(body, _drawn(*tensor_type(body.args[0]).static_shape), shape=shape)
    assert names[0] == "cpu.plane_depthwise"


@pytest.mark.parametrize("kernel", [(7, 7), (1, 12), (12, 1), (11, 11), (19, 3)])
def test_windows_that_are_not_written_out(kernel: tuple[int, int]) -> None:
    x = Var("x", TensorType((1, 2, 13, 17), DType.FLOAT32))
    body = call(Conv, x, constant(_drawn(2, 1, *kernel)), attrs=_attrs(2, padding=5))
    assert _agree(body, _drawn(1, 2, 13, 17)) == ["cpu.plane_depthwise"]


def test_what_stands_behind_is_fused() -> None:
    x = Var("x", TensorType((1, 2, 9, 21), DType.FLOAT32))
    y = Var("y", TensorType((1, 2, 9, 21), DType.FLOAT32))
    summed = call(Conv, x, constant(_drawn(2, 1, 3, 3)), constant(_drawn(2)), attrs=_attrs(2))
    body = call(Relu, call(Add, summed, y))
    data = (_drawn(1, 2, 9, 21), _drawn(1, 2, 9, 21))
    assert _agree(body, *data) == ["cpu.plane_depthwise", "add", "add", "nn.relu"]
    function = use_channels_last(function_of(body), SHAPE)
    schedule = Schedules(_tiling_of).plane_depthwise
    target = make_target(cpu__plane_depthwise=schedule)
    assert len(lower(function, (), target=target).module.functions) == 1


def test_weights_and_bias_of_run_time() -> None:
    x = Var("x", TensorType((1, 2, 9, 21), DType.FLOAT32))
    weight = Var("w", TensorType((2, 1, 3, 3), DType.FLOAT32))
    bias = Var("b", TensorType((2,), DType.FLOAT32))
    body = call(Conv, x, weight, bias, attrs=_attrs(2))
    _agree(body, _drawn(1, 2, 9, 21), _drawn(2, 1, 3, 3), _drawn(2))


@pytest.mark.parametrize(
    ("channels", "outputs", "columns", "stride", "kernel", "name"),
    [
        (4, 4, 8, 1, 3, "cpu.plane_depthwise"),
        (4, 4, 1, 1, 3, "cpu.depthwise"),  # rows that fill no vector
        (4, 4, 20, 3, 3, "cpu.depthwise"),  # steps that no vector takes
        (4, 4, 20, 2, 10, "cpu.depthwise"),
        (4, 8, 8, 1, 3, "cpu.conv"),  # two results of each channel
    ],
)
def test_which_are_computed_so(
    channels: int, outputs: int, columns: int, stride: int, kernel: int, name: str
) -> None:
    x = Var("x", TensorType((1, channels, 16, columns), DType.FLOAT32))
    weight = constant(_drawn(outputs, channels // 4, kernel, kernel))
    attrs = _attrs(4, stride, padding=kernel // 2)
    function = use_channels_last(function_of(call(Conv, x, weight, attrs=attrs)), SHAPE)
    assert name in [node.name for node in calls(function)]


def test_an_image_that_is_channels_last_stays_so() -> None:
    x = Var("x", TensorType((1, 3, 12, 12), DType.FLOAT32))
    first = call(Conv, x, constant(_drawn(4, 3, 1, 1)), attrs=_attrs(1, padding=0))
    second = call(Conv, first, constant(_drawn(4, 1, 3, 3)), attrs=_attrs(4))
    names = [node.name for node in calls(use_channels_last(function_of(second), SHAPE))]
    assert names == ["transpose", "cpu.conv", "cpu.depthwise", "transpose"]
