# SPDX-License-Identifier: Apache-2.0
"""Operators that resize images of open sizes, and what is refused of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.size_values import SizeValues
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

from .onnx_models import model, node

H, W = variable("H"), variable("W")


def resized(scales: list[float], **attrs: object) -> IRModule:
    """Import a Resize of an open image."""
    weights = {"s": np.array(scales, np.float32)}
    made = model([node("Resize", "x _ s", **attrs)], {"x": (1, 2, "H", "W")}, weights=weights)
    with collecting_guards():
        return from_onnx(made)


@pytest.mark.parametrize(
    ("coordinates", "nearest"),
    [
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
        ("pytorch_half_pixel", "round_prefer_floor"),
    ],
)
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_whole_numbers_repeat_elements(coordinates: str, nearest: str, scale: int) -> None:
    main = resized(
        [1, 1, scale, 1],
        mode="nearest",
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
    ).main
    assert main.body.type.shape == (1, 2, H * scale, W)
    for height, width in ((1, 1), (5, 3)):
        x = np.random.default_rng(0).random((1, 2, height, width), np.float32)
        (got,) = evaluate(main, {"x": x})
        np.testing.assert_array_equal(got, np.repeat(x, scale, axis=2))


@pytest.mark.parametrize(
    ("scales", "mode"),
    [([1, 1, 2, 2], "linear"), ([1, 1, 0.5, 0.5], "nearest"), ([1, 1, 1.625, 1], "nearest")],
)
def test_other_scales_gather_elements(scales: list[float], mode: str) -> None:
    main = resized(scales, mode=mode).main
    factors = [Fraction(float(np.float32(scale))) for scale in scales[2:]]
    new = [size * f.numerator // f.denominator for size, f in zip((H, W), factors, strict=True)]
    assert main.body.type.shape == (1, 2, *new)  # no step has to compute it
    weights = {"s": np.array(scales, np.float32)}
    for height, width in ((4, 2), (7, 9)):
        x = np.random.default_rng(2).random((1, 2, height, width), np.float32)
        fixed = model([node("Resize", "x _ s", mode=mode)], {"x": x.shape}, weights=weights)
        (wanted,) = evaluate(from_onnx(fixed).main, {"x": x})
        (found,) = evaluate(main, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "int32", "int64"])
def test_a_range_up_to_a_size_is_of_any_number_type(kind: str) -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Gather", "sizes two", "size"),
        node("Cast", "size", "limit", to=helper.np_dtype_to_tensor_dtype(np.dtype(kind))),
        node("Range", "first limit step"),
    ]
    weights = {"two": np.array(2), "first": np.array(1, kind), "step": np.array(2, kind)}
    made = model(nodes, {"x": (1, 2, "H")}, weights=weights)
    with collecting_guards():
        main = from_onnx(made).main
    for height in (1, 2, 9):
        (got,) = evaluate(main, {"x": np.zeros((1, 2, height), np.float32)})
        np.testing.assert_array_equal(got, np.arange(1, height, 2, kind))
        assert got.dtype == kind


def test_the_best_of_an_open_size_may_be_all() -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Min", "sizes three", "k"),
        node("TopK", "x k", "best places", axis=0),
        node("Neg", "best"),
    ]
    made = model(nodes, {"x": ("H",)}, weights={"three": np.array([3])})
    with collecting_guards() as guards:
        main = from_onnx(made).main
    assert all(
        guard.left.evaluate({"H": size}) == min(size, 3) for guard in guards for size in (1, 9)
    )
    for height in (1, 9):
        x = np.random.default_rng(1).random(height, np.float32)
        (got,) = evaluate(main, {"x": x})
        np.testing.assert_array_equal(got, -np.sort(x)[::-1][:3])
    wrong = model([node("TopK", "x k", "y places")], {"x": ("H",)}, weights={"k": np.array([1, 2])})
    with collecting_guards(), pytest.raises(ModelError, match="must be one number, got 2"):
        from_onnx(wrong)


def test_sizes_are_followed_through_a_split() -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Split", "sizes", "batch height width"),
        node("Concat", "width batch height", "wanted", axis=0),
        node("Reshape", "x wanted"),
    ]
    with collecting_guards() as guards:
        main = from_onnx(model(nodes, {"x": (2, "H", "W")})).main
    assert main.body.type.shape == (W, 2, H)  # no size of the run
    assert not guards


def test_an_image_says_how_many_blocks_there_are() -> None:
    """The number of columns is a name in the model, and what the image says when it runs."""
    weights = {"image": np.array([4, 4]), "kernel": np.array([2, 2])}
    folding = [node("Col2Im", "x image kernel")]
    with collecting_guards():
        main = from_onnx(model(folding, {"x": ("N", 4, "L")}, weights=weights)).main
    assert main.body.type.shape == (variable("N"), 1, 4, 4)
    assert main.params[0].type.shape == (variable("N"), 4, 9)
    columns = np.random.default_rng(1).random((2, 4, 9), np.float32)
    fixed = from_onnx(model(folding, {"x": columns.shape}, weights=weights)).main
    (found,), (wanted,) = evaluate(main, {"x": columns}), evaluate(fixed, {"x": columns})
    np.testing.assert_array_equal(found, wanted)


def test_a_range_says_that_squeeze_leaves_nothing_out() -> None:
    """A scalar is declared, which is right for one element; a range from 2 on has no such."""
    made = model([node("Squeeze", "x")], {"x": ("N", 1)})
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ()))
    with collecting_guards():
        whole = from_onnx(made, control_flow=True)
    assert (whole.main.params[0].type.shape, whole.main.body.type.shape) == ((1, 1), ())
    several = SizeValues.at_least(2).guards("N")
    with collecting_guards(several):
        whole = from_onnx(made, control_flow=True)
    assert whole.main.body.type.shape == (variable("N"),)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "more"), [(3, 2, 0), (4, 2, 1), (1, 3, 0), (2, 1, 0)])
def test_transposed_convolutions_that_keep_the_size_take_open_images(
    auto: str, kernel: int, stride: int, more: int
) -> None:
    attrs = {"auto_pad": auto, "strides": [stride, stride], "output_padding": [more, more]}
    taps = np.random.default_rng(1).random((2, 3, kernel, kernel), np.float32)
    nodes = [node("ConvTranspose", "x w", **attrs)]
    with collecting_guards():
        main = from_onnx(model(nodes, {"x": (1, 2, "H", "W")}, weights={"w": taps})).main
    short = max(stride - kernel - more, 0)  # by which a window is shorter than its step
    assert main.body.type.shape == (1, 3, stride * H - short, stride * W - short)
    for height, width in ((1, 4), (5, 3)):
        x = np.random.default_rng(2).random((1, 2, height, width), np.float32)
        fixed = model(nodes, {"x": x.shape}, weights={"w": taps})
        (wanted,) = evaluate(from_onnx(fixed).main, {"x": x})
        (found,) = evaluate(main, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        (theirs,) = ort.InferenceSession(fixed.SerializeToString()).run(None, {"x": x})
        np.testing.assert_allclose(found, theirs, rtol=1e-5)


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL])
def test_a_diagonal_of_an_open_size(k: int, dtype: int) -> None:
    made = model([node("EyeLike", "x", k=k, dtype=dtype)], {"x": ("H", "W")})
    main = from_onnx(made).main
    for shape in ((1, 1), (4, 7), (5, 2)):
        (got,) = evaluate(main, {"x": np.zeros(shape, np.float32)})
        want = np.eye(*shape, k, helper.tensor_dtype_to_np_dtype(dtype))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
