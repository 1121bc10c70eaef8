# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions become convolutions that compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Constant, Var, call, constant, tensor_type
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import nn, qnn_linear
from intarsia_loops.cpu.conv_transpose import expand_conv_transpose
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of


def data(kind: DType, *shape: Size) -> Var:
    return Var("x", TensorType(shape, kind))


def weights(*shape: int, dtype: str = "float32") -> Constant:
    drawn = np.random.default_rng(sum(shape)).integers(-9, 9, shape)
    return constant(drawn.astype(dtype))


def names(body: Call) -> list[str]:
    return [node.name for node in calls(expand_conv_transpose(function_of(body)))]


@st.composite
def transposed(draw: st.DrawFn) -> Call:
    """Any that has two or three spatial dimensions, a kernel and strides, dilation, and groups."""
    groups, inner, depth = (draw(st.integers(1, 3)) for _ in range(3))
    rank = draw(st.sampled_from([2, 2, 3]))
    kernel = tuple(draw(st.integers(1, 6 - rank)) for _ in range(rank))
    strides = tuple(draw(st.integers(1, 6 - rank)) for _ in range(rank))
    extra = tuple(draw(st.integers(0, step - 1)) for step in strides)
    dilation = tuple(draw(st.sampled_from([1, 1, 2, 5 - rank])) for _ in range(rank))
    sizes = tuple(draw(st.integers(2, 7 - rank)) for _ in range(rank))
    padding = []
    for d in range(rank):
        whole = (sizes[d] - 1) * strides[d] + (kernel[d] - 1) * dilation[d] + 1 + extra[d]
        low = draw(st.integers(0, min(4, whole - 1)))
        padding.append((low, draw(st.integers(-1, min(4, whole - 1 - low)))))
    attrs = nn.ConvTranspose.Attrs(
        strides=strides,
        padding=tuple(padding),
        dilation=dilation,
        groups=groups,
        output_padding=extra,
    )
    x = data(DType.FLOAT32, 2, groups * depth, *sizes)
    weight = weights(groups * depth, inner, *kernel)
    bias = [weights(groups * inner)] if draw(st.booleans()) else []
    return call(nn.ConvTranspose, x, weight, *bias, attrs=attrs)


@settings(deadline=None)
@given(transposed())
def test_what_is_computed_stays_the_same(body: Call) -> None:
    function = function_of(body)
    changed = expand_conv_transpose(function)
    assert [node.name for node in calls(changed)].count("nn.conv") in (1, 2, 3, 4)
    shape = tensor_type(function.params[0]).static_shape
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    for got, want in zip(expected(changed, [x]), expected(function, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kernel", "padding", "wanted"),
    [
        ((3, 3), 1, [(2, 2), (2, 1), (1, 2), (1, 1)]),
        ((4, 4), 1, [(2, 2)]),
        ((3, 3), 2, [(2, 2)]),
        ((7, 7), 3, [(4, 4)]),
    ],
    ids=["uneven", "even", "taps cut off", "few missing"],
)
def test_phases_that_lack_many_taps_are_computed_one_by_one(
    kernel: tuple[int, int], padding: int, wanted: list[tuple[int, int]]
) -> None:
    ends = ((padding, padding), (padding, padding))
    attrs = nn.ConvTranspose.Attrs(strides=(2, 2), padding=ends, dilation=(1, 1))
    x, weight = data(DType.FLOAT32, 1, 3, 6, 6), weights(3, 5, *kernel)
    changed = expand_conv_transpose(function_of(call(nn.ConvTranspose, x, weight, attrs=attrs)))
    found = [node for node in calls(changed) if node.name == "nn.conv"]
    assert [tensor_type(node.args[1]).static_shape[2:] for node in found] == wanted


ONCE = nn.ConvTranspose.Attrs(strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1))


@pytest.mark.parametrize("channels", [None, 5], ids=["one scale", "a scale for each channel"])
def test_quantized_ones_too(channels: int | None) -> None:
    scale = np.linspace(0.01, 0.05, channels or 1).astype(np.float32)
    zero = np.arange(channels or 1).astype(np.int8)
    if channels is None:
        scale, zero = scale[0], zero[0]
    parameters = [constant(np.float32(0.02)), constant(np.uint8(7))]
    parameters += [weights(3, 5, 3, 3, dtype="int8"), constant(scale), constant(zero)]
    parameters += [constant(np.float32(0.05)), constant(np.uint8(100))]
    bias = constant(np.arange(5, dtype=np.int32) * 30)
    x = data(DType.UINT8, 1, 3, 6, 4)
    function = function_of(call(qnn_linear.ConvTranspose, x, *parameters, bias, attrs=ONCE))
    changed = expand_conv_transpose(function)
    assert "qnn.conv" in [node.name for node in calls(changed)]
    array = np.random.default_rng(1).integers(0, 255, (1, 3, 6, 4)).astype(np.uint8)
    (want,), (got,) = expected(function, [array]), expected(changed, [array])
    np.testing.assert_array_equal(got, want)
    assert np.unique(want).size > 10


def test_a_stride_of_1_needs_no_phases() -> None:
    attrs = nn.ConvTranspose.Attrs(strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1))
    x = data(DType.FLOAT32, 1, 3, 5, 5)
    assert names(call(nn.ConvTranspose, x, weights(3, 4, 3, 3), attrs=attrs)) == ["nn.conv"]


@pytest.mark.parametrize("height", [variable("H"), 7], ids=["open", "fixed"])
def test_a_dilated_one_of_stride_1_is_a_convolution_as_dilated(height: Size) -> None:
    attrs = nn.ConvTranspose.Attrs(
        strides=(1, 1), padding=((1, 2), (0, 6)), dilation=(2, 3), groups=3, output_padding=(0, 1)
    )
    x = data(DType.FLOAT32, 2, 3, height, 5)
    changed = expand_conv_transpose(
        function_of(call(nn.ConvTranspose, x, weights(3, 2, 3, 3), attrs=attrs))
    )
    (found,) = calls(changed)
    assert found.op is nn.Conv
    assert found.attrs == nn.Conv.Attrs(
        strides=(1, 1), padding=((3, 2), (6, 1)), dilation=(2, 3), groups=3
    )
    assert tensor_type(found.args[1]).static_shape == (6, 1, 3, 3)


@pytest.mark.parametrize(
    ("stride", "padding", "extra", "expected_name"),
    [(1, 0, 0, "matmul"), (2, 1, 0, "matmul"), (3, 0, 2, "nn.conv")],
)
def test_a_single_pixel_is_the_row_of_a_product(
    stride: int, padding: int, extra: int, expected_name: str
) -> None:
    attrs = nn.ConvTranspose.Attrs(
        strides=(stride, stride),
        padding=((padding, padding),) * 2,
        dilation=(1, 1),
        output_padding=(extra, extra),
    )
    x = data(DType.FLOAT32, 2, 7, 1, 1)
    body = call(nn.ConvTranspose, x, weights(7, 3, 4, 5), weights(3), attrs=attrs)
    assert expected_name in names(body)
    function = function_of(body)
    array = np.random.default_rng(0).integers(-9, 9, (2, 7, 1, 1)).astype(np.float32)
    (want,) = expected(function, [array])
    (got,) = expected(expand_conv_transpose(function), [array])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("x", "change"),
    [
        (data(DType.FLOAT32, 1, 3, 5, 5), {"dilation": (2, 2000)}),
        (data(DType.FLOAT32, 1, 3, 5, 5), {"padding": ((-1, 0), (0, 0))}),
        (data(DType.FLOAT64, 1, 3, 5, 5), {}),
        (data(DType.FLOAT32, 0, 3, 5, 5), {}),
    ],
    ids=["far dilation", "padding that adds in front", "float64", "nothing"],
)
def test_others_are_left(x: Var, change: dict[str, object]) -> None:
    settings_ = {"strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    attrs = nn.ConvTranspose.Attrs(**settings_ | change)
    weight = weights(3, 4, 3, 3, dtype=tensor_type(x).dtype.value)
    assert names(call(nn.ConvTranspose, x, weight, attrs=attrs)) == ["nn.conv_transpose"]


def test_weights_that_are_not_known_are_left() -> None:
    weight = Var("w", TensorType((3, 4, 3, 3), DType.FLOAT32))
    x = data(DType.FLOAT32, 1, 3, 5, 5)
    assert names(call(nn.ConvTranspose, x, weight, attrs=ONCE)) == ["nn.conv_transpose"]
