# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution computes what the plain one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Expr, tensor_type
from intarsia_ir.graph.walk import calls
from intarsia_ir.tir.buffer import Buffer
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.packing import pack_winograd, unpack_winograd
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_loops.cpu.window import Window
from intarsia_loops.cpu.winograd import WinogradOperands
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

SHAPE = CpuTiling(4, 6)


def conv(channels: int, outputs: int, size: tuple[int, int], **change: object) -> Call:
    kernel = change.pop("kernel", (3, 3))
    given = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    given |= change
    taps = weight(outputs, channels // int(given["groups"]), *kernel)
    return apply("nn.conv", var("x", 1, channels, *size), taps, **given)


def names(body: Expr, *, winograd: bool = True) -> list[str]:
    changed = use_channels_last(function_of(body), SHAPE, winograd=winograd)
    return [node.name for node in calls(changed)]


@pytest.mark.parametrize("size", [(12, 11), (16, 8)])
def test_many_channels_and_places_are_transformed(size: tuple[int, int]) -> None:
    body = conv(32, 48, size)
    assert names(body) == ["transpose", "cpu.winograd", "transpose"]
    function = function_of(body)
    x = fresh(*tensor_type(function.params[0]).static_shape)
    changed = use_channels_last(function, SHAPE, winograd=True)
    (want,), (got,) = expected(function, [x]), expected(changed, [x])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        conv(31, 48, (12, 12)),
        conv(32, 31, (12, 12)),
        conv(32, 48, (4, 6)),
        conv(32, 48, (24, 24), strides=(2, 2)),
        conv(32, 48, (16, 16), dilation=(2, 2)),
        conv(64, 64, (12, 12), groups=2),
        conv(32, 48, (12, 14), kernel=(3, 1)),
    ],
    ids=["inputs", "outputs", "places", "strides", "dilation", "groups", "kernel"],
)
def test_others_are_not(body: Call) -> None:
    assert "cpu.conv" in names(body)


def test_who_does_not_want_it_has_plain_sums() -> None:
    assert "cpu.conv" in names(conv(32, 48, (12, 12)), winograd=False)


@pytest.mark.parametrize(("size", "data_stationary", "band"), [(60, True, 3), (14, False, 7)])
def test_the_larger_of_data_and_weights_is_gone_through_once(
    size: int, data_stationary: bool, band: int
) -> None:
    data = Buffer("data", (1, size, size, 128), DType.FLOAT32)
    weights = Buffer("weight", (2, 16, 128, 32), DType.FLOAT32)
    window = Window((size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1))
    given = WinogradOperands(data, weights, 64, window)
    assert (given.is_data_stationary, given.band) == (data_stationary, band)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from([8, 16, 32]))
def test_weights_come_back(outputs: int, inner: int, width: int) -> None:
    plain = fresh(outputs, inner, 3, 3)
    packed = pack_winograd(plain, width)
    assert packed.shape == (-(-outputs // width), 16, inner, width)
    np.testing.assert_allclose(unpack_winograd(packed, outputs), plain, rtol=1e-5, atol=1e-6)
