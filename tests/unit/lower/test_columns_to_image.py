# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions by an identity add the columns of an image up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Var, call, constant, tensor_type
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.nn import ConvTranspose
from intarsia_ir.tir.interp import run
from intarsia_loops.cpu.columns_to_image import ColumnsToImage, add_columns
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of


def columns(
    kernel: tuple[int, int] = (3, 3), counts: tuple[Size, Size] = (5, 4), groups: int = 2,
    kind: str = "float32", scale: float = 1, **attrs: object,
) -> Call:  # fmt: skip
    taps = kernel[0] * kernel[1]
    eye = np.eye(taps, dtype=kind).reshape(taps, 1, *kernel) * np.asarray(scale, kind)
    weight = constant(np.tile(eye, (groups, 1, 1, 1)))
    x = Var("x", TensorType((2, groups * taps, *counts), DType(kind)))
    plain = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    own = ConvTranspose.Attrs(**{**plain, "groups": groups, **attrs})
    return call(ConvTranspose, x, weight, attrs=own)


PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(deadline=None)
@given(PAIR, PAIR, PAIR, PAIR, st.integers(18, 20))
def test_sums_are_those_of_the_convolution(
    kernel: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int],
    cut: tuple[int, int], width: int,
) -> None:  # fmt: skip
    ends = tuple(
        (min(c - 1, (k - 1) * d), (k - 1) * d // 2)
        for c, k, d in zip(cut, kernel, dilation, strict=True)
    )
    body = columns(kernel, (4, width), strides=strides, dilation=dilation, padding=ends)
    changed = add_columns(function_of(body))
    names = [node.name for node in calls(changed)]
    assert names == (["cpu.columns_to_image"] if kernel != (1, 1) else ["nn.conv_transpose"])
    shape = tensor_type(body.args[0]).static_shape
    x = np.random.default_rng(width).standard_normal(shape).astype(np.float32)
    (want,), (got,) = expected(function_of(body), [x]), expected(changed, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    made = changed.body
    assert isinstance(made, Call)
    if isinstance(made.attrs, ColumnsToImage.Attrs):
        out = np.empty(want.shape, np.float32)
        run(ColumnsToImage.loops(made.attrs, tensor_type(made.args[0])), x, out)
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        columns(kind="float64"),
        columns(scale=2),
        columns(counts=(variable("H"), 4)),
        columns(kernel=(9, 8)),
    ],
    ids=["float64", "no identity", "open", "many taps"],
)
def test_others_are_left(body: Call) -> None:
    function = function_of(body)
    assert add_columns(function) is function
