# SPDX-License-Identifier: Apache-2.0
"""Quantized graphs compiled and run: equal to their definition, bit by bit, on every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, Var, call, constant
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.tir.interp import evaluate as interpret
from intarsia_ir.tir.tensor import placeholder
from intarsia_loops.cpu.int8x4 import (
    Int8ConvAttrs,
    Int8Depthwise,
    Int8x4Conv,
    Int8x4Dense,
    pack_int8x4_conv,
    pack_int8x4_dense,
)
from intarsia_loops.cpu.ordered_words import pack_ordered
from intarsia_loops.cpu.packing import pack_conv, pack_int8x4, pair_columns, unpack_int8x4
from intarsia_runtime.dtype import DType

RNG = np.random.default_rng(8)
HAS_AVX512 = "avx512bw" in Path("/proc/cpuinfo").read_text()
V4 = pytest.param(
    "x86-64-v4",
    marks=pytest.mark.skipif(not HAS_AVX512, reason="this processor has no AVX-512"),
)
MACHINES = ("native", V4, "haswell", "x86-64")


def apply(name: str, *args: Expr, **attrs: object) -> Expr:
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def given(*shape: int, dtype: DType = DType.UINT8) -> Var:
    return Var("x", TensorType(shape, dtype))


def scalar(value: float, dtype: str = "float32"):
    return constant(np.asarray(value, dtype))


def byte_array(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def linear(
    name: str, x: Expr, weight: np.ndarray, count: int, *, x_zero: int = 5, **attrs: object
) -> Expr:
    """A quantized convolution or product with scales and a bias for each channel."""
    kind = x.type.dtype.value  # type: ignore[union-attr]  # a tensor
    scales = constant(RNG.uniform(0.001, 0.004, count).astype(np.float32))
    w_zero = 127 if weight.dtype == np.uint8 else 0
    operands = [x, scalar(0.02), scalar(x_zero, kind), constant(weight), scales]
    operands += [scalar(w_zero, weight.dtype.name), scalar(0.09), scalar(30, kind)]
    operands.append(constant(RNG.integers(-5000, 5000, count).astype(np.int32)))
    return apply(name, *operands, **attrs)


def conv(x: Expr, weight: np.ndarray, groups: int = 1, **attrs: object) -> Expr:
    settings = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), **attrs}
    return linear("qnn.conv", x, weight, weight.shape[0], groups=groups, **settings)


def check(runner, body: Expr, x: Var, cpu: str = "native", *, apart: int = 0) -> Function:
    """Compare the compiled function with the definition; return what the backend compiled."""
    function = Function((x,), body)
    assert isinstance(x.type, TensorType)
    array = byte_array(x.type.dtype.value, *x.type.static_shape)
    (wanted,) = evaluate(function, {"x": array})
    (found,), changed, _ = runner(function, array, mcpu=cpu)
    assert found.dtype == wanted.dtype
    assert np.unique(wanted).size > 2, "the case tests nothing"
    assert np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max() <= apart
    return changed


IMAGES = [
    ((1, 16, 9, 9), (32, 16, 3, 3), 1, {}),
    ((2, 3, 9, 11), (17, 3, 3, 3), 1, {"strides": (2, 2)}),
    ((1, 33, 7, 7), (16, 33, 1, 1), 1, {"padding": ((0, 0), (0, 0))}),
    ((1, 20, 9, 9), (20, 1, 3, 3), 20, {"strides": (2, 2)}),
    ((1, 16, 6, 6), (8, 8, 3, 3), 2, {"dilation": (2, 1), "padding": ((2, 2), (0, 1))}),
    ((1, 6, 6, 6), (4, 3, 3, 3), 2, {}),
    ((2, 64, 41, 1), (34, 32, 5, 1), 2, {"strides": (2, 1), "padding": ((2, 1), (0, 0))}),
    ((1, 64, 41, 1), (33, 64, 3, 1), 1, {"dilation": (2, 1), "padding": ((0, 0), (0, 0))}),
]


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize(("x", "w", "groups", "attrs"), IMAGES)
def test_convolution(runner, x, w, groups, attrs, dtype, cpu):
    data = given(*x, dtype=dtype)
    check(runner, conv(data, byte_array("int8", *w), groups, **attrs), data, cpu)


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_padding_counts_where_most_taps_meet_it(runner, dtype, cpu):
    data, weight = given(1, 16, 14, 14, dtype=dtype), byte_array("int8", 8, 16, 3, 3)
    apart = {"dilation": (5, 5), "padding": ((5, 5), (5, 5))}
    check(runner, conv(data, weight, x_zero=0, **apart), data, cpu)


def test_convolutions_take_four_channels_at_a_time(runner):
    x = given(1, 3, 9, 9)
    first = conv(x, byte_array("int8", 16, 3, 3, 3))
    body = conv(conv(first, byte_array("int8", 16, 1, 3, 3), 16), byte_array("int8", 8, 16, 1, 1))
    rewritten = check(runner, body, x)
    names = [node.name for node in calls(rewritten)]
    kept = [name for name in names if name.startswith(("cpu.", "qnn."))]
    assert kept == ["cpu.qconv", "cpu.qdepthwise", "cpu.qconv"]
    assert names.count("transpose") == 2  # into the layout and out of it


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize(("x", "depth", "count"), [((5,), 64, 33), ((2, 3), 41, 16), ((1,), 8, 5)])
def test_product(runner, x, depth, count, flipped, dtype, cpu):
    data = given(*x, depth, dtype=dtype)
    weight = byte_array("uint8", *((count, depth) if flipped else (depth, count)))
    weight = np.maximum(weight, 1)  # less its zero point it fits in int8
    body = linear("qnn.matmul", data, weight, count, transpose_b=flipped)
    check(runner, body, data, cpu)


def nine_bits(name: str, x: Expr, weight: np.ndarray, zeros: np.ndarray, **attrs: object) -> Expr:
    """A convolution or product whose weights less their zero points need nine bits."""
    kind = x.type.dtype.value  # type: ignore[union-attr]  # a tensor
    operands = [x, scalar(0.02), scalar(3, kind), constant(weight), scalar(0.002)]
    middle = 128 if kind == "uint8" else 0
    operands += [constant(zeros.astype(weight.dtype)), scalar(2.0), scalar(middle, kind)]
    return apply(name, *operands, **attrs)


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("zero", [0, 255, (3, 250, 128)])
@pytest.mark.parametrize(("x", "w", "groups", "attrs"), [IMAGES[n] for n in (0, 1, 3)])
def test_weights_of_nine_bits_in_convolutions(runner, x, w, groups, attrs, zero, dtype, cpu):
    weight = byte_array("uint8", *w)
    weight.reshape(-1)[:2] = (0, 255)
    zeros = np.resize(np.array(zero), w[0]) if isinstance(zero, tuple) else np.array(zero)
    settings = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), **attrs}
    data = given(*x, dtype=dtype)
    body = nine_bits("qnn.conv", data, weight, zeros, groups=groups, **settings)
    names = [node.name for node in calls(check(runner, body, data, cpu))]
    assert "qnn.conv" not in names


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_weights_of_nine_bits_in_products(runner, kind, flipped, dtype, cpu):
    weight = byte_array(kind, *((33, 64) if flipped else (64, 33)))
    limits = np.iinfo(kind)
    zeros = np.where(np.arange(33) % 2, limits.min, limits.max)
    data = given(5, 64, dtype=dtype)
    body = nine_bits("qnn.matmul", data, weight, zeros, transpose_b=flipped)
    assert "qnn.matmul" not in [node.name for node in calls(check(runner, body, data, cpu))]


def test_weights_of_nine_bits_in_groups_are_multiplied_one_by_one(runner):
    x = given(1, 8, 5, 5)
    weight = byte_array("uint8", 4, 4, 3, 3)
    weight[0, 0, 0, :2] = (0, 255)
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 2}
    rewritten = check(runner, nine_bits("qnn.conv", x, weight, np.array(0), **attrs), x)
    assert [node.name for node in calls(rewritten)] == ["qnn.conv"]


def test_what_follows_stays_channels_last(runner):
    x = given(1, 8, 6, 6)
    value = conv(x, byte_array("int8", 16, 8, 3, 3))
    table = constant(RNG.permutation(256).astype(np.uint8))
    value = apply("qnn.lookup", apply("clip", value, min=20.0), table)
    window = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
    value = apply("nn.max_pool", value, **window, dilation=(1, 1))
    parameters = [scalar(0.05), scalar(9, "uint8")]
    other = apply("flip", value, axes=(1,))
    wide = [scalar(0.1), scalar(9, "uint8")]
    value = apply("qnn.add", value, *parameters, other, *parameters, *wide)
    body = apply("qnn.mean", value, *wide, scalar(0.11), scalar(1, "uint8"), axes=(2, 3))
    check(runner, body, x, apart=1)


def test_a_residual_reads_the_bytes_that_the_convolution_reads(runner):
    x = given(1, 16, 6, 6)
    value = conv(x, byte_array("int8", 16, 16, 3, 3))
    parameters = [scalar(0.05), scalar(9, "uint8")]
    body = apply("qnn.add", value, *parameters, x, *parameters, scalar(0.07), scalar(4, "uint8"))
    check(runner, body, x, apart=1)


def test_quads_are_undone():
    weight = byte_array("int8", 3, 8, 16)
    assert pack_int8x4(weight).shape == (3, 2, 16)
    np.testing.assert_array_equal(unpack_int8x4(pack_int8x4(weight)), weight)


def _agree(op, attrs, *arrays: np.ndarray) -> None:
    feeds = {placeholder(f"x{n}", a.shape, DType(a.dtype.name)): a for n, a in enumerate(arrays)}
    wanted = op.reference(attrs, *arrays)
    types = [TensorType(array.shape, DType(array.dtype.name)) for array in arrays]
    assert op.type_rule(attrs, *types) == TensorType(wanted.shape, DType.INT32)
    found = interpret(op.compute(attrs, *feeds), feeds)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_operators_agree_with_their_references(dtype):
    window = {"strides": (2, 1), "padding": ((1, 0), (1, 1)), "dilation": (1, 1), "zero": 3}
    attrs = Int8ConvAttrs(outputs=6, kernel=(3, 2), groups=2, **window)
    weight = pack_int8x4_conv(byte_array("int8", 6, 4, 3, 2), 2, 16)
    _agree(Int8x4Conv, attrs, byte_array(dtype, 1, 5, 4, 8), weight)
    attrs = Int8ConvAttrs(outputs=5, kernel=(3, 2), groups=5, **window)
    _agree(Int8Depthwise, attrs, byte_array(dtype, 1, 5, 4, 5), byte_array("int8", 3, 2, 5))
    packed = pack_int8x4_dense(byte_array("int8", 12, 5), 16)
    _agree(Int8x4Dense, Int8x4Dense.Attrs(outputs=5), byte_array(dtype, 3, 12), packed)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("groups", [1, 2])
def test_operators_agree_for_pairs_of_columns(dtype, groups):
    weight = byte_array("int8", 12, 16, 3, 2)
    packed = pair_columns(pack_int8x4_conv(weight, groups, 8))
    window = {"strides": (2, 1), "padding": ((1, 0), (1, 1)), "dilation": (1, 1), "zero": 3}
    paired = {"is_paired": True, "signed": True}
    attrs = Int8ConvAttrs(outputs=12, kernel=(3, 2), groups=groups, **paired, **window)
    _agree(Int8x4Conv, attrs, byte_array(dtype, 1, 5, 4, 16 * groups), packed)
    matrix = pair_columns(pack_int8x4_dense(byte_array("int8", 32, 5), 8))
    dense = Int8x4Dense.Attrs(outputs=5, **paired)
    _agree(Int8x4Dense, dense, byte_array(dtype, 3, 32), matrix)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("is_ordered", "has_masks"), [(False, 0), (True, False), (True, True)])
def test_operators_agree_for_pairs_and_words_in_order(dtype, is_ordered, has_masks):
    weight = RNG.integers(-64, 64, (6, 20, 3, 2)).astype(np.int8)
    weight[2, 4:6, 1, 0], weight[4, 10:12, 2, 1] = 127, -128
    blocks = pack_conv(weight, 1, 4)
    packed = pack_int8x4(blocks, DType.INT16)
    if is_ordered:
        packed = pack_ordered(blocks, signed=dtype == "int8", has_masks=has_masks)
        assert (packed[:, -1, :3].sum(axis=1) < 30).any()  # the large ones go alone
    window = {"strides": (2, 1), "padding": ((1, 0), (1, 1)), "dilation": (1, 1), "zero": 3}
    attrs = Int8ConvAttrs(outputs=6, kernel=(3, 2), is_ordered=is_ordered, **window)
    _agree(Int8x4Conv, attrs, byte_array(dtype, 1, 5, 4, 20), packed)
    dense = Int8x4Dense.Attrs(outputs=6, is_ordered=is_ordered)
    _agree(Int8x4Dense, dense, byte_array(dtype, 3, 120), packed)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16, DType.UINT16])
@pytest.mark.parametrize("count", [1, 11, 64])
def test_small_integers_of_floats_saturate(runner, dtype, count):
    x = Var("x", TensorType((count,), DType.FLOAT32))
    function = Function((x,), apply("cast", x, dtype=dtype))
    special = [np.nan, np.inf, -np.inf, 1e9, -1e9, -0.5, 127.9, 128.0, -128.9, 255.9, 65535.5]
    array = np.resize(np.asarray(special, np.float32), count)
    (wanted,) = evaluate(function, {"x": array})
    (found,), _, _ = runner(function, array)
    np.testing.assert_array_equal(found, wanted)
