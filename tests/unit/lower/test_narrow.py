# SPDX-License-Identifier: Apache-2.0
"""Products in bfloat16: which values are stored so, how weights are packed, what is computed."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr, Var, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.tir.interp import evaluate as interpret
from intarsia_ir.tir.tensor import placeholder
from intarsia_loops.cpu.bf16x2 import (
    Bf16ConvAttrs,
    Bf16DenseAttrs,
    Bf16x2Conv,
    Bf16x2Dense,
    bf16x2_conv_deferred,
    bf16x2_dense_deferred,
    unpack_bf16x2,
)
from intarsia_loops.cpu.legalize import legalize_for_cpu
from intarsia_loops.cpu.packed_operands import Bf16x2
from intarsia_loops.cpu.packing import pack_conv, pack_dense
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import numbers, variable
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

BFLOAT16 = ml_dtypes.bfloat16


class Registers(Struct, frozen=True):
    """How large a unit's registers are, which is all that decides what goes to it."""

    rows: int = 16
    words: int = 16
    lanes: int = 16
    sums: DType = DType.FLOAT32


SHAPE = CpuTiling(16, 14, bf16x2=Bf16x2(lambda first: first, Registers()))


def conv(data: Expr, outputs: int, kernel: int = 1, groups: int = 1) -> Expr:
    inner = numbers(tensor_type(data).shape[1:2])[0] // groups
    around, ones = (kernel // 2, kernel // 2), (1, 1)
    taps = weight(outputs, inner, kernel, kernel)
    given = {"strides": ones, "padding": (around, around), "dilation": ones, "groups": groups}
    return apply("nn.conv", data, taps, **given)


def names(body: Expr) -> list[str]:
    return [node.name for node in calls(legalize_for_cpu(function_of(body), SHAPE))]


def test_what_products_read_is_stored_narrow() -> None:
    first = apply("nn.relu", conv(var("x", 1, 32, 8, 8), 16))
    assert names(conv(first, 48, 3)) == [
        *("cast", "transpose", "cpu.pair_conv", "nn.relu", "cast"),  # the input, then the value
        *("cpu.pair_conv", "transpose"),
    ]


def test_who_else_reads_such_a_value_widens_it_for_itself() -> None:
    first = apply("nn.relu", conv(var("x", 1, 32, 8, 8), 32))
    assert names(apply("add", conv(first, 32, 3), first)) == [
        *("cast", "transpose", "cpu.pair_conv", "nn.relu", "cast"),
        *("cpu.pair_conv", "cast", "add", "transpose"),
    ]


def test_windows_within_channels_read_narrow_values() -> None:
    first = apply("nn.relu", conv(var("x", 1, 32, 8, 8), 32))
    second = conv(first, 32, 3, groups=32)
    assert names(conv(second, 16)) == [
        *("cast", "transpose", "cpu.pair_conv", "nn.relu", "cast"),
        *("cpu.depthwise", "cast", "cpu.pair_conv", "transpose"),
    ]


def test_an_odd_number_of_channels_gets_one_more() -> None:
    assert names(conv(var("x", 1, 3, 8, 8), 16, 7)) == [
        *("cast", "transpose", "nn.pad", "cpu.pair_conv", "transpose"),
    ]


def test_images_that_repeat_pixels_stay_channels_last_and_narrow() -> None:
    height = variable("height")
    image = apply("nn.relu", conv(var("x", 1, 32, height, 8), 32, 3))
    apart = apply("reshape", image, shape=(1, 32, height, 1, 8, 1))
    repeated = apply("broadcast_to", apart, shape=(1, 32, height, 2, 8, 2))
    enlarged = apply("reshape", repeated, shape=(1, 32, height * 2, 16))
    assert names(conv(enlarged, 16, 3)) == [
        *("cast", "transpose", "cpu.pair_conv", "nn.relu", "cast"),
        *("reshape", "broadcast_to", "reshape", "cpu.pair_conv", "transpose"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        conv(var("x", 1, 6, 8, 8), 16),
        conv(var("x", 1, 6, 8, 8), 16, 3, groups=2),
        conv(var("x", 1, 32, 8, 8), 32, 3, groups=32),
        apply("matmul", var("x", 4, 15), weight(15, 8)),
        apply("matmul", var("x", 4, 64), var("y", 64, 8)),
    ],
    ids=["few channels", "odd groups", "depthwise", "odd depth", "no constant"],
)
def test_other_products_stay_as_they_are(body: Expr) -> None:
    assert not any("pair" in name or name == "cast" for name in names(body))


@pytest.mark.parametrize(
    "body",
    [
        conv(apply("nn.relu", conv(var("x", 2, 3, 9, 9), 32, 3)), 40, 3, groups=2),
        conv(conv(conv(var("x", 1, 32, 6, 7), 32), 32, 3, groups=32), 20),
        apply("matmul", var("x", 2, 5, 64), weight(64, 40)),
        apply("matmul", var("x", 1, 64), weight(40, 64), transpose_b=True),
    ],
    ids=["convolutions", "depthwise", "product", "transposed"],
)
def test_results_differ_by_the_rounding_of_operands(body: Expr) -> None:
    function = function_of(body)
    x = fresh(*tensor_type(function.params[0]).static_shape)
    changed = legalize_for_cpu(function, SHAPE)
    (want,), (got,) = expected(function, [x]), expected(changed, [x])
    assert got.dtype == want.dtype
    assert np.abs(got - want).max() <= 0.02 * np.abs(want).max()
    assert np.abs(got - want).max() > 0


def test_packed_weights_are_pairs_of_the_rounded_ones() -> None:
    taps = fresh(20, 6, 3, 3)
    packed = bf16x2_conv_deferred(taps, 2, 16).array()
    assert packed.dtype == BFLOAT16
    assert packed.shape == (2, 27, 32)
    rounded = pack_conv(taps, 2, 16).astype(BFLOAT16).astype(np.float32)
    np.testing.assert_array_equal(unpack_bf16x2(packed), rounded)


def test_an_odd_channel_has_a_partner_of_zeros() -> None:
    taps = fresh(16, 3, 1, 1)
    found = unpack_bf16x2(bf16x2_conv_deferred(taps, 1, 16).array())
    assert found.shape == (1, 4, 16)
    assert not found[:, 3].any()


def test_packed_matrices_end_with_zeros() -> None:
    matrix = fresh(10, 40)
    found = unpack_bf16x2(bf16x2_dense_deferred(matrix, 32).array())
    rounded = pack_dense(matrix, 32).astype(BFLOAT16).astype(np.float32)
    np.testing.assert_array_equal(found, rounded)
    assert not found[1, :, 8:].any()


def test_constants_are_not_stored_again() -> None:
    table = constant(fresh(4, 64))
    assert "cpu.pair_dense" in names(
        apply("matmul", apply("add", table, var("x", 4, 64)), weight(64, 8))
    )


def test_pairs_of_columns_are_the_same_operators() -> None:
    """Definition and reference read weights where ``pair_columns`` puts their words."""
    window = {"strides": (1, 2), "padding": ((1, 0), (1, 1)), "dilation": (1, 1)}
    conv = Bf16ConvAttrs(outputs=10, kernel=(3, 2), groups=2, is_paired=True, **window)
    data, taps = fresh(1, 5, 4, 16).astype(BFLOAT16), fresh(10, 8, 3, 2)
    matrix = fresh(16, 6)
    dense = Bf16DenseAttrs(outputs=6, is_paired=True)
    for op, attrs, pack in (
        (Bf16x2Conv, conv, partial(bf16x2_conv_deferred, taps, 2, 8)),
        (Bf16x2Dense, dense, partial(bf16x2_dense_deferred, matrix, 8)),
    ):
        packed, plain = pack(is_paired=True).array(), pack().array()
        assert not np.array_equal(packed, plain)
        want = op.reference(replace(attrs, is_paired=False), data, plain)
        np.testing.assert_array_equal(op.reference(attrs, data, packed), want)
        arrays = enumerate((data, packed))
        feeds = {placeholder(f"x{n}", a.shape, DType.BFLOAT16): a for n, a in arrays}
        np.testing.assert_allclose(interpret(op.compute(attrs, *feeds), feeds), want, atol=1e-5)


def test_open_rows_are_multiplied_by_a_unit_too() -> None:
    x = Var("x", TensorType((variable("n"), 64), DType.FLOAT32))
    changed = legalize_for_cpu(function_of(apply("matmul", x, weight(64, 48))), SHAPE)
    assert [node.name for node in calls(changed)] == ["cast", "cpu.pair_dense"]
