# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers: within one quantum of their definition, and on fast kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intarsia.plugin import Target
from intarsia_dnnl import isa, plugin, profitable
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.draft import DnnlDraft
from intarsia_dnnl.isa import EXACT, exact_feature
from intarsia_dnnl.loader import load
from intarsia_dnnl.support import TABLE
from intarsia_dnnl.target import DNNL, DnnlOptions
from intarsia_ir.graph.expr import Constant, Expr, Var, constant
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.regions.support import Code
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError
from intarsia_testkit.expressions import apply, expected, function_of, number

from .regions import Made, make, region_of, request_for, verdicts

RNG = np.random.default_rng(4)
PLAIN = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
POINT = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}

needs_exact = pytest.mark.skipif(
    not exact_feature(), reason=f"this processor has none of {', '.join(EXACT)}: sums saturate"
)


def given_bytes(*shape: int, dtype: DType = DType.UINT8, name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def zero(value: int, dtype: DType = DType.UINT8) -> Constant:
    return constant(np.asarray(value, dtype.value))


def weights(*shape: int, low: int = -127, dtype: str = "int8") -> Constant:
    return constant(RNG.integers(low, low + 255, shape).astype(dtype))


def scales(count: int) -> Constant:
    return constant(RNG.uniform(0.001, 0.003, count).astype(np.float32))


def bias(count: int) -> Constant:
    return constant(RNG.integers(-4000, 4000, count).astype(np.int32))


def conv(x: Expr, w: Constant, *, groups: int = 1, x_zero: int = 3, y_zero: int = 9, **attrs):
    count, kind = w.data.shape[0], x.type.dtype  # type: ignore[union-attr]  # a tensor
    operands = [x, number(0.02), zero(x_zero, kind), w, scales(count), zero(0, w.type.dtype)]
    result = [number(0.05), zero(y_zero)]
    settings = {**PLAIN, **attrs, "groups": groups}
    return apply("qnn.conv", *operands, *result, bias(count), **settings)


def within_one(body: Expr, *, apart: int = 1) -> Made:
    """Compare a region with the operators' definitions on random bytes, twice."""
    made = make(body)
    for _ in range(2):
        arrays = [_random(spec) for spec in made.request.inputs]
        for found, wanted in zip(
            made.outputs(arrays), expected(made.function, arrays), strict=True
        ):
            assert found.dtype == wanted.dtype
            assert np.unique(wanted).size > 2, "the case tests nothing"
            difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
            if found.dtype.kind == "f":
                assert difference.max() <= 1e-5 * np.abs(wanted).max()
                continue
            assert difference.max() <= apart
            assert (difference > 0).sum() <= max(1, 0.02 * difference.size)
    return made


def _random(spec) -> np.ndarray:
    kind = np.dtype(spec.dtype.value)
    if kind.kind == "f":
        return RNG.uniform(-3, 3, spec.shape).astype(kind)
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, spec.shape, endpoint=True).astype(kind)


CONVOLUTIONS = [
    ((1, 3, 9, 9), (16, 3, 3, 3), {"strides": (2, 2)}, 1),
    ((2, 16, 7, 7), (32, 16, 3, 3), {}, 1),
    ((1, 32, 6, 6), (32, 1, 3, 3), {}, 32),
    ((1, 24, 6, 6), (24, 1, 3, 3), {"strides": (2, 2)}, 24),
    ((1, 16, 5, 5), (8, 4, 3, 3), {"padding": ((1, 0), (0, 1))}, 4),
    ((1, 17, 5, 5), (5, 17, 1, 1), POINT, 1),
    ((1, 4, 20), (6, 4, 5), {"strides": (2,), "padding": ((2, 1),), "dilation": (1,)}, 1),
]


@needs_exact
@pytest.mark.parametrize("x_zero", [0, 3])
@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
@pytest.mark.parametrize(("x", "w", "attrs", "groups"), CONVOLUTIONS)
def test_convolution(x, w, attrs, groups, dtype, x_zero):
    body = conv(given_bytes(*x, dtype=dtype), weights(*w), groups=groups, x_zero=x_zero, **attrs)
    within_one(body)


@needs_exact
def test_convolutions_run_on_kernels_of_the_processor():
    made = within_one(conv(given_bytes(1, 32, 8, 8), weights(32, 32, 3, 3)))
    kernels = [name for name in made.region.implementations if "reorder" not in name]
    assert kernels
    assert not any(name.startswith("ref") for name in kernels)


@needs_exact
@pytest.mark.parametrize(("x_zero", "packed"), [(0, 1), (3, 0)])
def test_weights_are_stored_as_kernels_read_them(x_zero, packed):
    """With a zero point of the data, sums of the weights lie behind them: those are not stored."""
    made = within_one(conv(given_bytes(1, 32, 9, 9), weights(48, 32, 3, 3), x_zero=x_zero))
    assert len(made.program.packed) == packed
    constants = made.unit.constants.values()
    assert sum(data.dtype == np.int8 and data.ndim == 1 for data in constants) == packed
    assert (made.region.reordered_bytes == 0) == bool(packed)


@needs_exact
def test_weights_with_a_zero_point_are_moved():
    x, w = given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3, low=0, dtype="uint8")
    operands = [x, number(0.02), zero(3), w, number(0.002), zero(127), number(0.05), zero(9)]
    within_one(apply("qnn.conv", *operands, **PLAIN))


def test_weights_that_do_not_fit_are_refused():
    x, w = given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3, low=0, dtype="uint8")
    operands = [x, number(0.02), zero(3), w, number(0.002), zero(0), number(0.05), zero(9)]
    said = verdicts(apply("qnn.conv", *operands, **PLAIN))
    assert said["qnn.conv"].detail == "weights less their zero point do not fit in int8"


@needs_exact
@pytest.mark.parametrize("shape", [(5, 40), (2, 3, 40)])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_product(shape, flipped, dtype):
    w = weights(*((16, 40) if flipped else (40, 16)))
    operands = [given_bytes(*shape, dtype=dtype), number(0.02), zero(7, dtype), w, scales(16)]
    operands += [zero(0, DType.INT8), number(0.05), zero(100), bias(16)]
    within_one(apply("qnn.matmul", *operands, transpose_b=flipped))


@needs_exact
def test_limits_are_part_of_the_kernel():
    body = apply("clip", conv(given_bytes(1, 16, 7, 7), weights(16, 16, 3, 3)), min=9.0, max=120.0)
    made = within_one(body)
    assert [node.kind for node in made.program.nodes] == ["qconv"]


@needs_exact
def test_sum_of_two_convolutions():
    x = given_bytes(1, 16, 7, 7)
    operands = [conv(x, weights(16, 16, 3, 3)), number(0.05), zero(9)]
    operands += [conv(x, weights(16, 16, 1, 1), **POINT), number(0.07), zero(20)]
    total = apply("qnn.add", *operands, number(0.09), zero(30))
    within_one(total)
    within_one(apply("clip", total, min=30.0))


def test_sum_of_tensors_in_the_callers_layout():
    x, y = given_bytes(8, 9, 10), given_bytes(8, 9, 10, dtype=DType.INT8, name="y")
    operands = [x, number(0.05), zero(9), y, number(0.03), zero(-4, DType.INT8)]
    within_one(apply("qnn.add", *operands, number(0.061), zero(30)))


@pytest.mark.parametrize("keepdims", [False, True])
def test_mean(keepdims):
    operands = [given_bytes(2, 16, 7, 7), number(0.0505), zero(120), number(0.01), zero(100)]
    within_one(apply("qnn.mean", *operands, axes=(2, 3), keepdims=keepdims))


@needs_exact
@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
@pytest.mark.parametrize(
    "attrs", [{}, {"padding": ((1, 0), (0, 1))}, {"output_padding": (1, 1)}, {"dilation": (2, 1)}]
)
def test_transposed_convolution(dtype, attrs):
    window = {"strides": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    operands = [given_bytes(1, 16, 7, 6, dtype=dtype), number(0.02), zero(3, dtype)]
    operands += [weights(16, 8, 3, 3), scales(8), zero(0, DType.INT8), number(0.07), zero(9)]
    within_one(apply("qnn.conv_transpose", *operands, bias(8), **(window | attrs)))


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("affine", [1, 2])
def test_layer_norm(axis, affine):
    x = given_bytes(3, 8, 16, dtype=DType.INT8)
    shape = (8, 16)[axis - 1 :]
    parts = [constant(RNG.uniform(0.5, 2, shape).astype(np.float32)) for _ in range(affine)]
    result = (number(0.03), zero(100))
    operands = (x, number(0.011), zero(-5, DType.INT8), *result, *parts)
    within_one(apply("qnn.layer_norm", *operands, axis=axis, epsilon=0.01))


@pytest.mark.parametrize("padding", [0, 1])
def test_average_over_windows(padding):
    window = {"kernel": (3, 2), "strides": (2, 1), "dilation": (1, 1)}
    operands = [given_bytes(2, 16, 9, 7), number(0.0505), zero(120), number(0.041), zero(100)]
    pads = ((padding, padding), (padding, 0))
    within_one(apply("qnn.avg_pool", *operands, padding=pads, **window))


def test_requantize():
    x = given_bytes(2, 6, 5, dtype=DType.INT8)
    within_one(
        apply("qnn.requantize", x, number(0.05), zero(-3, DType.INT8), number(0.07), zero(9))
    )


@pytest.mark.parametrize("places", [(9, 11), (7, 7), (8, 8), (1, 63)])
@pytest.mark.parametrize("channels", [3, 64, 128])
@pytest.mark.parametrize("y_zero", [0, 54])
@pytest.mark.parametrize("to", [DType.UINT8, DType.INT8, DType.FLOAT32])
def test_images_that_become_row_major_keep_their_zero_points(to, y_zero, channels, places):
    image = conv(given_bytes(2, channels, *places), weights(8, channels, 1, 1), **POINT)
    wide = conv(image, weights(channels, 8, 3, 3), x_zero=9, y_zero=y_zero, **PLAIN)
    if to is DType.FLOAT32:
        body = apply("qnn.dequantize", wide, number(1.0), zero(y_zero))
    else:
        parts = (
            number(0.02),
            zero(y_zero),
            number(0.03),
            zero(-20 if to is DType.INT8 else 54, to),
        )
        body = apply("qnn.requantize", wide, *parts)
    made = make(body)
    arrays = [_random(spec) for spec in made.request.inputs]
    (found,), (wanted,) = made.outputs(arrays), expected(made.function, arrays)
    assert np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max() <= 1


def test_difference():
    x, y = given_bytes(8, 9, 10), given_bytes(8, 9, 10, dtype=DType.INT8, name="y")
    operands = [x, number(0.05), zero(9), y, number(0.03), zero(-4, DType.INT8)]
    within_one(apply("qnn.subtract", *operands, number(0.061), zero(30)))


def grouped() -> Expr:
    operands = [given_bytes(1, 8, 5, 5), number(0.02), zero(3), weights(8, 2, 3, 3)]
    operands += [number(0.01), zero(0, DType.INT8), number(0.05), zero(9)]
    return apply("qnn.conv_transpose", *operands, **(PLAIN | {"groups": 2}))


def widened(padding: int) -> Expr:
    operands = [given_bytes(1, 8, 5), number(0.02), zero(3), weights(8, 2, 3), number(0.01)]
    operands += [zero(0, DType.INT8), number(0.05), zero(9)]
    pads = {"padding": ((padding, 0),), "strides": (1,), "dilation": (1,)}
    return apply("qnn.conv_transpose", *operands, **pads)


def averaged(*shape: int, to: DType = DType.UINT8, **attrs: object) -> Expr:
    operands = [given_bytes(*shape), number(0.05), zero(3), number(0.05), zero(3, to)]
    rank = len(shape) - 2
    window = {"kernel": (2,) * rank, "strides": (1,) * rank, "dilation": (1,) * rank}
    return apply("qnn.avg_pool", *operands, **({"padding": ((0, 0),) * rank} | window | attrs))


def broadcast_norm() -> Expr:
    operands = (given_bytes(3, 8), number(0.01), zero(3), number(0.03), zero(9), number(1.0))
    return apply("qnn.layer_norm", *operands, axis=1, epsilon=0.01)


def by_channel() -> Expr:
    parameters = (scales(3), zero(3), number(0.02), zero(3))
    return apply("qnn.requantize", given_bytes(2, 3), *parameters)


def looked_up() -> Expr:
    return apply("qnn.lookup", given_bytes(3), constant(np.arange(256, dtype=np.uint8)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (grouped(), "kernel is slow"),
        (widened(-1), "adds to the result"),
        (averaged(2, 16, 9, 7, to=DType.INT8), "one type"),
        (averaged(1, 2, 3, 3, 3, 3), "3 to 5"),
        (averaged(2, 16, 9, 7, ceil_mode=True), "ceil_mode"),
        (averaged(2, 16, 9, 7, padding=((2, 2), (0, 0))), "as large as the window"),
        (
            averaged(2, 16, 9, 7, padding=((1, 1), (0, 0)), count_include_pad=True),
            "padding that is counted",
        ),
        (broadcast_norm(), "is broadcast"),
        (by_channel(), "scalar scales"),
        (looked_up(), "no tables"),
    ],
)
def test_refusals_in_words(body: Expr, words: str):
    (said,) = verdicts(body).values()
    assert words in said.detail


def test_an_operator_that_is_never_taken_is_not_lowered():
    (row,) = [row for row in TABLE.rows if row.name == "qnn.lookup"]
    match = match_pattern(row.pattern, looked_up(), count_uses((looked_up(),)))
    assert match is not None
    with pytest.raises(PluginError, match="no tables"):
        row.lower(DnnlDraft("dnnl_0"), match)


def test_the_readme_shows_the_table():
    readme = Path(__file__).parents[1] / "README.md"
    assert TABLE.markdown() in readme.read_text()


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_quantize_and_dequantize(dtype):
    x = Var("x", TensorType((1, 3, 6, 6), DType.FLOAT32))
    stored = apply("qnn.quantize", x, number(0.021), zero(11, dtype))
    within_one(stored)
    within_one(apply("qnn.dequantize", stored, number(0.021), zero(11, dtype)))


@needs_exact
def test_a_network_from_floats_to_floats():
    x = Var("x", TensorType((1, 3, 12, 12), DType.FLOAT32))
    value = conv(apply("qnn.quantize", x, number(0.02), zero(3)), weights(16, 3, 3, 3))
    window = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
    value = apply("nn.max_pool", value, **window, dilation=(1, 1))
    mean = apply("qnn.mean", value, number(0.05), zero(9), number(0.03), zero(3), axes=(2, 3))
    operands = [mean, number(0.03), zero(3), weights(16, 10), scales(10), zero(0, DType.INT8)]
    logits = apply("qnn.matmul", *operands, number(0.01), zero(100), bias(10))
    made = make(apply("qnn.dequantize", logits, number(0.01), zero(100)))
    (array,) = (_random(spec) for spec in made.request.inputs)
    (found,), (wanted,) = made.outputs([array]), expected(made.function, [array])
    assert np.abs(found - wanted).max() <= 0.0201  # two quanta


@pytest.mark.parametrize("name", ["reshape", "transpose", "strided_slice", "concatenate"])
def test_bytes_are_moved_as_they_are(name):
    x = given_bytes(2, 6, 5, dtype=DType.INT8)
    attrs = {
        "reshape": {"shape": (3, 20)},
        "transpose": {"axes": (0, 2, 1)},
        "strided_slice": {"begin": (0, 2, 1), "end": (2, 5, 4), "strides": (1, 1, 1)},
        "concatenate": {"axis": 1},
    }[name]
    args = [x, given_bytes(2, 3, 5, dtype=DType.INT8, name="y")] if name == "concatenate" else [x]
    within_one(apply(name, *args, **attrs), apart=0)


def test_other_types_are_refused_in_words():
    wide = given_bytes(2, 3, dtype=DType.INT32)
    said = verdicts(apply("reshape", wide, shape=(6,)))
    assert said["reshape"].detail == "float32 and 8-bit integers only, not int32"
    x = given_bytes(1, 8, 5, 5)
    free = Var("scale", TensorType((), DType.FLOAT32))
    operands = [x, free, zero(3), weights(4, 8, 3, 3), number(0.01), zero(0, DType.INT8)]
    said = verdicts(apply("qnn.conv", *operands, number(0.05), zero(9), **PLAIN))
    assert "at run time" in said["qnn.conv"].detail or "compile time" in said["qnn.conv"].detail


@pytest.mark.parametrize(
    ("int8", "feature", "reason"),
    [
        ("auto", "", "saturate"),
        ("auto", "avx512_vnni", ""),
        ("on", "", ""),
        ("off", "avx512_vnni", "-int8=off"),
    ],
)
def test_products_are_left_alone_where_they_would_saturate(monkeypatch, int8, feature, reason):
    monkeypatch.setattr(isa, "exact_feature", lambda: feature)
    table = plugin.annotate(Target(DNNL, DnnlOptions(int8=int8)))
    body = conv(given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3))
    (row,) = [row for row in table.rows if row.name == "qnn.conv"]
    match = match_pattern(row.pattern, body, count_uses((body,)))
    assert match is not None
    said = row.predicate(match)
    assert (said.code is Code.OK) is (not reason)
    assert reason in said.detail


@pytest.mark.parametrize(
    ("int8", "hides", "kept"), [("auto", True, False), ("auto", False, True), ("on", True, True)]
)
def test_products_are_left_to_who_may_use_the_matrix_unit(monkeypatch, int8, hides, kept):
    monkeypatch.setattr(profitable, "hides_tiles", lambda: hides)
    region = region_of(function_of(conv(given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3))))
    left = profitable.keep_profitable(region, DnnlOptions(int8=int8), profitable.Strengths())
    assert left == region if kept else "AMX" in left.why


@pytest.mark.parametrize(("with_product", "least", "kept"), [(0, 200, 0), (0, 0, 1), (1, 200, 1)])
def test_an_average_alone_stays_with_the_products(monkeypatch, with_product, least, kept):
    monkeypatch.setattr(profitable, "hides_tiles", lambda: False)
    data = given_bytes(1, 8, 5, 5)
    source = conv(data, weights(4, 8, 3, 3)) if with_product else data
    operands = [source, number(0.05), zero(120), number(0.01), zero(100)]
    region = region_of(function_of(apply("qnn.mean", *operands, axes=(2, 3))))
    left = profitable.keep_profitable(region, DnnlOptions(min_reuse=least), profitable.Strengths())
    assert left == region if kept else "min-reuse" in left.why


def test_what_a_unit_needs_of_the_processor():
    region = region_of(function_of(conv(given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3))))
    needed = compile_region(region, DnnlOptions()).cpu_features
    assert needed == ((exact_feature(),) if exact_feature() else ())
    assert compile_region(region, DnnlOptions(int8="on")).cpu_features == ()


def test_a_constant_of_another_type_is_refused():
    function = function_of(conv(given_bytes(1, 8, 5, 5), weights(4, 8, 3, 3)))
    unit = compile_region(region_of(function), DnnlOptions())
    request = request_for(function, unit)
    wrong = {name: data.astype(np.float64) for name, data in request.constants.items()}
    broken = type(request)(
        *(request.name, request.files, wrong, request.inputs, request.outputs),
        *(request.threads, request.run_steps),
    )
    with pytest.raises(ArtifactError, match="not int8"):
        load(broken)
