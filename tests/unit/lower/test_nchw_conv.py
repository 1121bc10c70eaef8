# SPDX-License-Identifier: Apache-2.0
"""Convolutions in the model's layout: any window, stride and group, lines of open length."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Call, Expr, Var, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.shape import Transpose
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.nchw_conv import nchw_tile
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of

from .conftest import carry_out, lower, make_target

pytestmark = pytest.mark.slow  # the interpreter carries out every product

SHAPE = CpuTiling(lanes=4, rows=6)


def _tiling_of(_target: Target, _dtype: DType, *, shape: CpuTiling = SHAPE) -> CpuTiling:
    return shape


def _names(body: Expr, shape: CpuTiling = SHAPE) -> list[str]:
    return [node.name for node in calls(use_channels_last(function_of(body), shape))]


def _agree(body: Expr, *data: np.ndarray, shape: CpuTiling = SHAPE) -> None:
    """Compare what the loops compute with the reference."""
    function = use_channels_last(function_of(body), shape)
    table = Schedules(partial(_tiling_of, shape=shape)).table()
    found = {name.replace(".", "__"): schedule for name, schedule in table.items()}
    lowered = lower(function, (), target=make_target(**found))
    (got,) = carry_out(lowered, list(data), compiled=True)
    (want,) = expected(function_of(body), list(data))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _attrs(stride: int = 1, padding: int = 0, groups: int = 1) -> Conv.Attrs:
    return Conv.Attrs(
        strides=(stride, stride),
        padding=((padding, padding),) * 2,
        dilation=(1, 1),
        groups=groups,
    )


def _line(length: int, channels: int, outputs: int, taps: int, stride: int, pad: int) -> Call:
    x = Var("x", TensorType((1, channels, length), DType.FLOAT32))
    attrs = Conv.Attrs(strides=(stride,), padding=((pad, pad),), dilation=(1,), groups=1)
    return call(Conv, x, constant(_drawn(outputs, channels, taps)), attrs=attrs)


@st.composite
def convolutions(draw: st.DrawFn) -> Call:
    """Of one or two samples, padded or not, dilated or not, in groups, with a bias or without."""
    pair = st.tuples(st.integers(0, 3), st.integers(0, 3))
    stride = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 3]))
    attrs = Conv.Attrs(
        strides=(draw(st.integers(1, 3)), stride),
        padding=(draw(pair), draw(pair)),
        dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2)) if stride == 1 else 1),
        groups=groups,
    )
    inner = draw(st.sampled_from([1, 2, 3]))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(2, 4)))
    size = (draw(st.integers(7, 12)), draw(st.integers(34, 49)))
    kind = TensorType((draw(st.integers(1, 2)), groups * inner, *size), DType.FLOAT32)
    outputs = groups * draw(st.sampled_from([1, 2, 7]))
    operands: list[Expr] = [Var("x", kind), constant(_drawn(outputs, inner, *kernel))]
    if draw(st.booleans()) or outputs == groups:
        operands.append(constant(_drawn(outputs)))
    return call(Conv, *operands, attrs=attrs)


@given(convolutions(), st.sampled_from([1 << 13, 1 << 16]))
@settings(max_examples=25, deadline=None)
def test_any_window(body: Call, strip_bytes: int) -> None:
    shape = CpuTiling(lanes=4, rows=6, strip_bytes=strip_bytes)
    # The interpreter does not know neighbours beyond the last dimension, as rows of pixels are.
    assume("cpu.plane_conv" in _names(body, shape))
    _agree(body, _drawn(*tensor_type(body.args[0]).static_shape), shape=shape)


@pytest.mark.parametrize(
    ("length", "channels", "outputs", "taps", "stride", "pad"),
    [
        (400, 1, 31, 10, 5, 0),
        (97, 2, 8, 3, 2, 1),
        (100, 5, 4, 40, 1, 20),
        (203, 1, 9, 33, 4, 3),
        (80, 40, 3, 7, 1, 3),
        (9000, 1, 5, 256, 128, 0),
        (70, 19, 23, 5, 2, 2),
    ],
)
def test_lines(length: int, channels: int, outputs: int, taps: int, stride: int, pad: int) -> None:
    body = _line(length, channels, outputs, taps, stride, pad)
    assert "cpu.plane_conv" in _names(body)
    _agree(body, _drawn(1, channels, length))


def test_what_stands_behind_is_fused() -> None:
    x = Var("x", TensorType((1, 3, 9, 33), DType.FLOAT32))
    weight, bias = constant(_drawn(5, 3, 3, 3)), constant(_drawn(5))
    summed = call(Conv, x, weight, bias, attrs=_attrs(padding=1))
    body = call(Relu, call(Add, summed, constant(_drawn(5, 1, 1))))
    assert _names(body) == ["cpu.plane_conv", "add", "add", "nn.relu"]
    _agree(body, _drawn(1, 3, 9, 33))
    function = use_channels_last(function_of(body), SHAPE)
    target = make_target(cpu__plane_conv=Schedules(_tiling_of).plane_conv)
    assert len(lower(function, (), target=target).module.functions) == 1


@pytest.mark.parametrize(
    ("channels", "outputs", "columns", "kernel", "name"),
    [
        (3, 32, 40, 3, "cpu.plane_conv"),
        (32, 3, 40, 3, "cpu.plane_conv"),
        (32, 32, 40, 3, "cpu.conv"),  # products cost more than transposes
        (3, 32, 40, 1, "cpu.conv"),
        (3, 32, 3, 3, "cpu.conv"),  # rows that fill no vector
        (3, 6000, 40, 3, "cpu.conv"),  # weights that each strip reads from memory
    ],
)
def test_which_are_computed_so(
    channels: int, outputs: int, columns: int, kernel: int, name: str
) -> None:
    x = Var("x", TensorType((1, channels, 16, columns), DType.FLOAT32))
    weight = constant(_drawn(outputs, channels, kernel, kernel))
    assert name in _names(call(Conv, x, weight, attrs=_attrs(padding=kernel // 2)))


@pytest.mark.parametrize(("stride", "name"), [(4, "cpu.plane_conv"), (64, "cpu.conv")])
def test_spectrograms_of_open_lines_are_products_of_packed_weights(stride: int, name: str) -> None:
    x = Var("x", TensorType((variable("N"), 1, variable("L")), DType.FLOAT32))
    attrs = Conv.Attrs(strides=(stride,), padding=((0, 0),), dilation=(1,))
    assert name in _names(call(Conv, x, constant(_drawn(66, 1, 128)), attrs=attrs))


def test_points_in_groups_are_lines() -> None:
    x = Var("x", TensorType((2, 15, 9, 11), DType.FLOAT32))
    weight, bias = constant(_drawn(21, 5, 1, 1)), constant(_drawn(21))
    body = call(Relu, call(Conv, x, weight, bias, attrs=_attrs(groups=3)))
    assert "cpu.plane_conv" in _names(body)
    _agree(body, _drawn(2, 15, 9, 11))
    strided = call(Conv, x, weight, bias, attrs=_attrs(stride=2, groups=3))
    assert "cpu.plane_conv" not in _names(strided)


def test_results_that_are_wanted_channels_last_are_computed_so() -> None:
    x = Var("x", TensorType((1, 3, 24, 40), DType.FLOAT32))
    first = call(Conv, x, constant(_drawn(16, 3, 3, 3)), attrs=_attrs(padding=1))
    second = call(Conv, call(Relu, first), constant(_drawn(16, 16, 1, 1)), attrs=_attrs())
    assert "cpu.plane_conv" not in _names(second)
    turned = call(Transpose, first, attrs=Transpose.Attrs(axes=(0, 2, 3, 1)))
    assert "cpu.plane_conv" not in _names(turned)


@pytest.mark.parametrize("outputs", [1, 3, 4, 16, 32, 512])
@pytest.mark.parametrize("machine", [CpuTiling(8, 6), CpuTiling(16, 14)])
@pytest.mark.parametrize("columns", [8, 64, 112, 3199])
def test_tiles_fit_the_registers(machine: CpuTiling, outputs: int, columns: int) -> None:
    rows, vectors = nchw_tile(machine, outputs, columns)
    assert rows * vectors + vectors + 1 <= 2 * machine.rows + 4
    assert rows <= outputs
