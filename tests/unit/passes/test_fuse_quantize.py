# SPDX-License-Identifier: Apache-2.0
"""Quantized clusters become operators on integers, and what they compute stays within a quantum."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.dtype import DType

RNG = np.random.default_rng(3)
START = RNG.bit_generator.state
WINDOW = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (1, 1)), "dilation": (1, 1)}


@pytest.fixture(autouse=True)
def _numbers_of_its_own():
    """Give each test the same numbers, whichever tests ran before it."""
    RNG.bit_generator.state = START


def node(name: str, *args: Expr, **attrs: Any) -> Call:
    operator = OPERATORS[name]
    return call(operator, *args, attrs=operator.Attrs(**attrs), span=Span(name, name))


def number(value: float, dtype: type = np.float32) -> Constant:
    return constant(np.asarray(value, dtype))


def given_bytes(*shape: int, dtype: DType = DType.UINT8) -> Var:
    return Var("x", TensorType(shape, dtype))


def real(x: Expr, scale: float = 0.02, zero: int = 120) -> Call:
    """Dequantize; ``zero`` has the type of ``x``."""
    assert isinstance(x.type, TensorType)
    return node("qnn.dequantize", x, number(scale), number(zero, x.type.dtype.value))


def stored(x: Expr, scale: float = 0.05, zero: int = 30, dtype: type = np.uint8) -> Call:
    return node("qnn.quantize", x, number(scale), number(zero, dtype))


def weight(*shape: int, axis: int | None = None, symmetric: bool = True) -> Call:
    """Random weights, dequantized per tensor or along an axis."""
    data = constant(RNG.integers(-127, 128, shape).astype(np.int8))
    count = 1 if axis is None else shape[axis]
    along = [1] * len(shape)
    if axis is not None:
        along[axis] = count
    scale = RNG.uniform(0.001, 0.01, count).astype(np.float32)
    zero = np.zeros(count) if symmetric else RNG.integers(-9, 9, count)
    parameters = (scale, zero.astype(np.int8))
    if axis is None:
        return node("qnn.dequantize", data, *(constant(p.reshape(())) for p in parameters))
    return node("qnn.dequantize", data, *(constant(p.reshape(along)) for p in parameters))


def bias(count: int) -> Call:
    data = constant(RNG.integers(-9000, 9000, count).astype(np.int32))
    return node("qnn.dequantize", data, number(1e-4), number(0, np.int32))


def prepared(*outputs: Expr, x: Var, apart: int = 1) -> list[str]:
    """Prepare, check that no result moves by more than ``apart``, and return what is left."""
    body = outputs[0] if len(outputs) == 1 else make_tuple(outputs)
    before = IRModule.from_function(Function((x,), body))
    remarks = Remarks()
    after = PREPARE.run(before, check=True, remarks=remarks)
    assert isinstance(x.type, TensorType)
    limits = np.iinfo(x.type.dtype.value)
    values = RNG.integers(limits.min, limits.max, x.type.static_shape, endpoint=True)
    inputs = {"x": values.astype(x.type.dtype.value)}
    pairs = zip(
        evaluate(before.main, inputs, before), evaluate(after.main, inputs, after), strict=True
    )
    for want, got in pairs:
        assert want.dtype == got.dtype
        assert np.unique(want).size > 2, "the case tests nothing"
        assert np.abs(want.astype(np.float64) - got.astype(np.float64)).max() <= apart
    return [c.name for c in calls(after.main)]


def remarked(output: Expr, x: Var) -> list[str]:
    remarks = Remarks()
    PREPARE.run(IRModule.from_function(Function((x,), output)), remarks=remarks)
    return [found.message for found in remarks.found if found.stage == "fuse-quantize"]


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("symmetric", [False, True])
def test_convolution(axis, symmetric):
    x = given_bytes(1, 4, 6, 6)
    w = weight(5, 4, 3, 3, axis=axis, symmetric=symmetric)
    assert prepared(stored(node("nn.conv", real(x), w, bias(5), **WINDOW)), x=x) == ["qnn.conv"]
    assert prepared(stored(node("nn.conv", real(x), w, **WINDOW)), x=x) == ["qnn.conv"]


def test_depthwise_convolution_of_signed_data():
    x = given_bytes(1, 4, 6, 6, dtype=DType.INT8)
    w = weight(4, 1, 3, 3, axis=0)
    found = node("nn.conv", real(x, zero=-7), w, bias(4), **WINDOW, groups=4)
    assert prepared(stored(found, 0.02, dtype=np.int8), x=x) == ["qnn.conv"]


def test_a_float_bias_is_counted_in_units_of_the_accumulator():
    x = given_bytes(1, 4, 6, 6)
    plain = constant(RNG.uniform(-2, 2, 5).astype(np.float32))
    found = node("nn.conv", real(x), weight(5, 4, 3, 3, axis=0), plain, **WINDOW)
    assert prepared(stored(found), x=x) == ["qnn.conv"]


@pytest.mark.parametrize("flipped", [False, True])
def test_product(flipped):
    x = given_bytes(3, 8)
    w = weight(*((5, 8) if flipped else (8, 5)), axis=0 if flipped else 1)
    product = node("matmul", real(x), w, transpose_b=flipped)
    assert prepared(stored(product), x=x) == ["qnn.matmul"]
    assert prepared(stored(node("add", product, bias(5))), x=x) == ["qnn.matmul"]
    assert prepared(stored(node("add", bias(5), product)), x=x) == ["qnn.matmul"]


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_a_product_with_no_quantization_behind_it_adds_up_integers(axis, dtype):
    x = given_bytes(3, 8, dtype=dtype)
    product = node("matmul", real(x, zero=9), weight(8, 5, axis=axis))
    found = node("add", product, constant(RNG.uniform(-2, 2, 5).astype(np.float32)))
    assert prepared(found, x=x) == ["qnn.matmul_integer", "cast", "multiply", "add"]
    flipped = node("matmul", real(x, zero=9), weight(5, 8, axis=0), transpose_b=True)
    assert prepared(flipped, x=x) == ["qnn.matmul_integer", "cast", "multiply"]


def test_a_product_that_is_no_sum_of_these_integers_stays_in_float32():
    x = given_bytes(3, 8)
    by_depth = node("matmul", real(x), weight(8, 5, axis=0))
    moved = node("matmul", real(x), weight(8, 5, axis=1, symmetric=False))
    assert prepared(by_depth, x=x)[-1] == "matmul"
    assert prepared(moved, x=x)[-1] == "matmul"


def test_product_of_two_activations():
    x = given_bytes(2, 4, 4)
    product = node("matmul", real(x), real(x, 0.03, 9), transpose_b=True)
    assert prepared(stored(product, 0.3, 100), x=x) == ["qnn.matmul"]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_element_wise(name):
    x = given_bytes(2, 3, 4)
    other = real(node("transpose", x, axes=(0, 1, 2)), 0.03, 7)
    found = stored(node(name, real(x), other), 0.07, 110)
    assert prepared(found, x=x, apart=0) == [f"qnn.{name}"]


def test_means():
    x = given_bytes(2, 3, 4, 4)
    mean = node("mean", real(x), axes=(2, 3), keepdims=True)
    assert prepared(stored(mean, 0.01, 100), x=x) == ["qnn.mean"]
    assert prepared(stored(node("nn.avg_pool", real(x), **POOL)), x=x) == ["qnn.avg_pool"]


@pytest.mark.parametrize(
    "names", [["sigmoid"], ["nn.silu"], ["tanh", "exp"], ["nn.hard_swish"], ["nn.gelu"], ["sqrt"]]
)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_functions_of_one_tensor_become_tables(names, dtype):
    x = given_bytes(64, 4, dtype=dtype)
    found: Expr = real(x, 0.03, 10)
    for name in names:
        found = node(name, found)
    found = node("multiply", found, number(0.9))
    assert prepared(stored(found, 0.01, 20), x=x, apart=0) == ["qnn.lookup"]


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("last", [None, "sqrt"])
def test_operators_on_one_tensor_of_bytes_become_one_table(dtype: DType, last: str | None):
    """A hard swish of a quantizer: each of its steps is quantized."""
    x = given_bytes(64, 4, dtype=dtype)
    real_x = real(x, 0.03, 10)
    added = real(stored(node("add", real_x, number(3.0)), 0.025, 0), 0.025, 0)
    product = stored(node("multiply", real_x, added), 0.06, 12)
    if last is not None:
        product = stored(node(last, real(product, 0.06, 12)), 0.02, 3)
    assert prepared(product, x=x, apart=0) == ["qnn.lookup"]


def test_operators_on_two_tensors_of_bytes_become_no_table():
    x = given_bytes(64, 4)
    other = real(node("transpose", node("reshape", x, shape=(4, 64)), axes=(1, 0)), 0.03, 10)
    added = real(stored(node("add", other, number(3.0)), 0.025, 0), 0.025, 0)
    product = stored(node("multiply", real(x, 0.03, 10), added), 0.06, 12)
    assert "qnn.multiply" in prepared(product, x=x, apart=0)
    wide = node("broadcast_to", real(x, 0.03, 10), shape=(3, 64, 4))
    assert "qnn.lookup" not in prepared(stored(node("multiply", wide, wide)), x=x)


def test_limits_become_limits_of_integers():
    x = given_bytes(1, 4, 6, 6)
    conv = node("nn.conv", real(x), weight(5, 4, 3, 3), **WINDOW)
    relu = node("nn.relu", conv)
    assert prepared(stored(relu, zero=0), x=x) == ["qnn.conv"]
    assert prepared(stored(relu, zero=30), x=x) == ["qnn.conv", "clip"]
    clip = node("clip", conv, min=0.0, max=6.0)
    assert prepared(stored(clip, 6 / 255, 0), x=x) == ["qnn.conv"]
    assert prepared(stored(clip, 0.05, 0), x=x) == ["qnn.conv", "clip"]
    assert prepared(stored(node("nn.relu", real(x)), 0.02, 120), x=x, apart=0) == ["clip"]


MOVED = [
    ("reshape", {"shape": (4, 12)}),
    ("transpose", {"axes": (0, 3, 1, 2)}),
    ("flip", {"axes": (2,)}),
    ("nn.max_pool", POOL),
    ("max", {"axes": (2, 3)}),
    ("strided_slice", {"begin": (0, 0, 1, 0), "end": (1, 3, 4, 4), "strides": (1, 1, 2, 1)}),
    ("nn.depth_to_space", {"block": 1}),
    ("nn.pad", {"widths": ((0, 0), (0, 0), (1, 1), (0, 1)), "mode": "edge"}),
]


@pytest.mark.parametrize(("name", "attrs"), MOVED)
def test_integers_are_moved_instead_of_numbers(name, attrs):
    x = given_bytes(1, 3, 4, 4)
    moved = node(name, real(x), **attrs)
    kept = [] if name == "nn.depth_to_space" else [name]
    assert prepared(stored(moved, 0.02, 120), x=x, apart=0) in ([name], kept)
    left = prepared(node("nn.softmax", moved, axis=1), x=x, apart=0)
    assert left.index("qnn.dequantize") == len(left) - 2
    conv = node("nn.conv", real(x), weight(3, 3, 3, 3), **WINDOW)
    assert "qnn.conv" in prepared(stored(node(name, conv, **attrs)), x=x)


def test_a_weight_is_transposed_with_its_scales():
    x = given_bytes(3, 8)
    turned = node("transpose", weight(5, 8, axis=0, symmetric=False), axes=(1, 0))
    assert prepared(stored(node("matmul", real(x), turned)), x=x) == ["qnn.matmul"]


def test_joins_and_parts():
    x = given_bytes(1, 4, 4)
    parts = node("split", real(x), sections=(1, 3), axis=1)
    first, second = (stored(get_item(parts, n), 0.02, 120) for n in range(2))
    assert set(prepared(first, second, x=x, apart=0)) == {"split"}
    same = node("concatenate", real(x), real(x), axis=1)
    assert prepared(stored(same, 0.02, 120), x=x, apart=0) == ["concatenate"]
    other = node("concatenate", real(x), real(x, 0.03), axis=1)
    found = Counter(prepared(stored(other, 0.03, 120), x=x, apart=0))
    assert found == {"qnn.requantize": 1, "concatenate": 1}


def test_choices_between_numbers_keep_every_bit():
    x = given_bytes(2, 3, 4)
    other = real(node("flip", x, axes=(2,)), 0.03, 100)
    for name in ("maximum", "minimum"):
        found = Counter(prepared(stored(node(name, real(x), other)), x=x, apart=0))
        assert found == {"flip": 1, "qnn.requantize": 2, name: 1}
    picks = constant(RNG.integers(0, 2, (3, 1)).astype(bool))
    chosen = prepared(stored(node("where", picks, real(x), other)), x=x, apart=0)
    assert Counter(chosen) == {"flip": 1, "qnn.requantize": 2, "where": 1}
    mixed = node("where", picks, real(x), weight(2, 3, 4, axis=0))
    assert prepared(stored(mixed), x=x, apart=0) == ["qnn.requantize", "where"]


def test_the_same_numbers_under_another_scale():
    x = given_bytes(3, 5)
    assert prepared(stored(real(x), 0.02, 120, np.int8), x=x, apart=0) == ["qnn.requantize"]
    assert prepared(stored(real(x), 0.03, 120), x=x, apart=0) == ["qnn.requantize"]
    back = stored(real(stored(real(x), 0.02, 120)), 0.02, 120)
    assert prepared(back, x=x, apart=0) == []


@pytest.mark.parametrize("axis", [None, 1])
def test_transposed_convolution(axis):
    x = given_bytes(1, 4, 6, 6)
    w = weight(4, 5, 3, 3, axis=axis)
    attrs = {"strides": (2, 2), "padding": ((1, 0), (1, 1)), "dilation": (1, 1)}
    turned = node("nn.conv_transpose", real(x), w, bias(5), **attrs)
    assert prepared(stored(turned), x=x) == ["qnn.conv_transpose"]
    plain = node("nn.conv_transpose", real(x), w, **attrs)
    assert prepared(stored(node("nn.relu", plain)), x=x) == ["qnn.conv_transpose", "clip"]


def test_transposed_convolution_in_groups():
    x = given_bytes(1, 4, 6, 6)
    attrs = {"strides": (2, 2), "padding": ((1, 0), (1, 1)), "dilation": (1, 1), "groups": 2}
    one = node("nn.conv_transpose", real(x), weight(4, 3, 3, 3), **attrs)
    assert prepared(stored(one), x=x) == ["qnn.conv_transpose"]
    several = node("nn.conv_transpose", real(x), weight(4, 3, 3, 3, axis=1), **attrs)
    assert "qnn.conv_transpose" not in prepared(stored(several), x=x)


def test_softmax_and_layer_norm_keep_every_bit():
    x = given_bytes(4, 8)
    softmax = stored(node("nn.softmax", real(x), axis=1), 1 / 256, 0)
    assert prepared(softmax, x=x, apart=0) == ["qnn.softmax"]
    affine = (constant(RNG.normal(1, 0.1, 8).astype(np.float32)) for _ in range(2))
    norm = stored(node("nn.layer_norm", real(x), *affine, axis=1), 0.03, 128)
    assert prepared(norm, x=x, apart=0) == ["qnn.layer_norm"]


def test_constant_padding_keeps_every_bit():
    x = given_bytes(1, 2, 4, 4)
    widths = ((0, 0), (0, 0), (1, 2), (0, 1))
    zeros = node("nn.pad", real(x), widths=widths)
    assert prepared(stored(zeros, 0.02, 120), x=x, apart=0) == ["nn.pad"]
    left = prepared(node("nn.softmax", zeros, axis=1), x=x, apart=0)
    assert left == ["nn.pad", "qnn.dequantize", "nn.softmax"]
    between = node("nn.pad", real(x), widths=widths, value=0.0301)
    assert prepared(stored(between), x=x, apart=0)[-1] == "nn.pad"
    assert prepared(node("nn.softmax", between, axis=1), x=x, apart=0)[0] == "qnn.dequantize"
    endless = node("clip", node("nn.pad", real(x), widths=widths, value=np.inf), max=9.0)
    assert prepared(stored(endless), x=x, apart=0)[0] == "qnn.dequantize"


def test_a_chain_of_layers_has_no_floats():
    x = given_bytes(1, 4, 6, 6)
    value: Expr = x
    scale, zero = 0.02, 120
    for number_ in range(3):
        conv = node("nn.conv", real(value, scale, zero), weight(4, 4, 3, 3, axis=0), **WINDOW)
        scale, zero = 0.03 + number_ / 100, 40
        value = stored(node("nn.relu", conv), scale, zero)
    found = Counter(prepared(value, x=x, apart=3))
    assert found == {"qnn.conv": 3, "clip": 3}


def test_what_has_no_form_on_integers_is_computed_in_float32_and_named():
    x = given_bytes(2, 8)
    chain = stored(node("nn.log_softmax", real(x), axis=1), 1 / 16, 255)
    assert prepared(chain, x=x) == ["qnn.dequantize", "nn.log_softmax", "qnn.quantize"]
    (message,) = remarked(chain, x)
    assert message == (
        "'nn.log_softmax' has no form on these integers (its logarithms are not kept in 8 bits): "
        "computed in float32"
    )
    assert remarked(stored(node("matmul", real(x), weight(8, 3))), x) == []


def test_a_result_that_is_needed_as_a_number_stays_one():
    x = given_bytes(1, 4, 6, 6)
    conv = node("nn.conv", real(x), weight(5, 4, 3, 3), **WINDOW)
    assert Counter(prepared(stored(conv), conv, x=x))["qnn.conv"] == 0


def test_clusters_that_are_left_alone():
    wide = given_bytes(1, 4, 6, 6, dtype=DType.INT16)
    conv = node("nn.conv", real(wide, 1e-4), weight(5, 4, 3, 3), **WINDOW)
    assert "qnn.conv" not in prepared(stored(conv), x=wide)
    x = given_bytes(1, 4, 6, 6)
    huge = constant(np.full(5, 1e9, np.float32) * RNG.uniform(-1, 1, 5).astype(np.float32))
    biased = node("nn.conv", real(x), weight(5, 4, 3, 3), huge, **WINDOW)
    assert "qnn.conv" not in prepared(stored(biased, 1e7, 128), x=x)
    per_input = node("nn.conv", real(x), weight(5, 4, 3, 3, axis=1), **WINDOW)
    assert "qnn.conv" not in prepared(stored(per_input), x=x)
    flat = given_bytes(3, 8)
    sideways = node("matmul", real(flat), weight(8, 5, axis=0))
    assert "qnn.matmul" not in prepared(stored(sideways), x=flat)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_chains_stay_within_a_quantum(data):
    """Each step requantizes: a difference grows by a quantum, and a sum of two has that of both."""
    x = given_bytes(1, 4, 4, 4)
    value: Expr = x
    apart = 0.0
    scale, zero, steps = 0.02, 120, data.draw(st.integers(1, 4))
    for _ in range(steps):
        number_ = real(value, scale, zero)
        choice = data.draw(st.sampled_from(["sigmoid", "nn.relu", "add", "mean", "reverse"]))
        match choice:
            case "add":
                made = node("add", number_, number_ if data.draw(st.booleans()) else real(x))
            case "mean":
                mean = node("mean", number_, axes=(2, 3), keepdims=True)
                made = node("add", real(stored(mean, scale, zero), scale, zero), number_)
            case "reverse":
                made = node("flip", number_, axes=(3,))
            case name:
                made = node(name, number_)
        before = scale
        scale, zero = data.draw(st.sampled_from([(0.02, 120), (0.03, 100), (0.025, 60)]))
        value = stored(made, scale, zero)
        apart = (2 * apart + 1 if choice in ("add", "mean") else apart) * before / scale + 1
    names = prepared_or_constant(value, x, apart)
    assert "qnn.dequantize" not in names


def prepared_or_constant(value: Expr, x: Var, apart: float) -> list[str]:
    """As ``prepared``, for chains that may have few different results."""
    before = IRModule.from_function(Function((x,), value))
    after = PREPARE.run(before, check=True)
    inputs = {"x": RNG.integers(0, 256, (1, 4, 4, 4)).astype(np.uint8)}
    (want,) = evaluate(before.main, inputs, before)
    (got,) = evaluate(after.main, inputs, after)
    assert np.abs(want.astype(int) - got.astype(int)).max() <= apart
    return [c.name for c in calls(after.main)]
