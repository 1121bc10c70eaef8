# SPDX-License-Identifier: Apache-2.0
"""Resize where a rounding decides a size or an element, or a region is taken: as ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
import pytest
from tests.integration.frontend.test_onnx_counted import F32, check, floats, typed
from tests.unit.frontend.onnx_models import node

import intarsia

CROP = "tf_crop_and_resize"


def resize(
    operands: str, weights: Mapping[str, np.ndarray], shape: Sequence[int | str], **attrs: object
) -> bytes:
    made = [node("Resize", f"x {operands}", **attrs)]
    return typed(made, {"x": (F32, tuple(shape))}, weights=weights, opset=19)


def agrees(data: bytes, x: np.ndarray) -> None:
    (wanted,) = ort.InferenceSession(data).run(None, {"x": x})
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        (found,) = executable.run({"x": x}).values()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, "h", "w"), (1, 1, 7, 6)], ids=["open", "known"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize(
    ("low", "high", "scale"), [(0.1, 0.9, 1.5), (0.2, 0.7, 2), (0.3, 0.3, 2), (-0.5, 1.5, 1.3)]
)
def test_a_scale_does_not_depend_on_the_region(
    shape: tuple[int | str, ...], mode: str, low: float, high: float, scale: float
) -> None:
    weights = {"r": F32([0, 0, low, 0, 1, 1, high, 1]), "s": F32([1, 1, scale, 1])}
    attrs = {"mode": mode, "coordinate_transformation_mode": CROP, "extrapolation_value": -7.0}
    agrees(resize("r s", weights, shape, **attrs), floats(1, 1, 7, 6))


@pytest.mark.parametrize("shape", ["n", 5], ids=["open", "known"])
def test_a_region_that_keeps_its_size_is_taken(shape: int | str) -> None:
    """ONNX Runtime returns the image as it is; ONNX's text and reference take the region."""
    data = resize("r _ z", {"r": F32([0.25, 0.75]), "z": np.array([5])}, (shape,),
                  mode="linear", coordinate_transformation_mode=CROP)  # fmt: skip
    x = F32([0, 1, 4, 9, 16])
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        (found,) = executable.run({"x": x}).values()
    np.testing.assert_allclose(found, np.interp([1, 1.5, 2, 2.5, 3], np.arange(5), x), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.3, 0.7, 2.3, 0.35, 0.1, 1.7, 0.9, 1.5, 0.25])
def test_sizes_and_elements_are_those_of_products_in_float32(scale: float) -> None:
    """0.7 of ten is seven, and 1.3 of ninety is 116: float32 rounds one up, and one down."""
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    lengths = (10, 20, 37, 50, 90)
    data = resize("_ s", {"s": F32([scale])}, ("n",), **attrs)
    check(data, *({"x": floats(length)} for length in lengths))
    for length in lengths:
        agrees(resize("_ s", {"s": F32([scale])}, (length,), **attrs), floats(length))


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize(
    "coordinates", ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]
)
def test_places_of_nearest_elements_are_rounded_in_float32(coordinates: str, nearest: str) -> None:
    attrs = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    rows = ((9, 21), (21, 9), (10, 7), (6, 50), (49, 35))
    for old, new in rows:
        weights = {"z": np.array([new])}
        agrees(resize("_ _ z", weights, (old,), **attrs), floats(old))
        agrees(resize("_ _ z", weights, ("n",), **attrs), floats(old))


@pytest.mark.parametrize("shape", [(1, 2, "h", "w"), (1, 2, 9, 7)], ids=["open", "known"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("way", ["region", "linear filter", "cubic filter", "nearest"])
def test_the_aspect_ratio_is_kept(shape: tuple[int | str, ...], policy: str, way: str) -> None:
    mode = {"region": "linear"}.get(way, way.split()[0])
    attrs: dict[str, object] = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    weights, operands = {"z": np.array([4, 5])}, "_ _ z"
    if way == "region":
        attrs["coordinate_transformation_mode"] = CROP
        weights["r"], operands = F32([0.1, 0.2, 0.9, 1.0]), "r _ z"
    attrs["antialias"] = int("filter" in way)
    agrees(resize(operands, weights, shape, **attrs), floats(1, 2, 9, 7))


@pytest.mark.parametrize("shape", [("n", "m"), (10, 7)], ids=["open", "known"])
@pytest.mark.parametrize("scales", [(1.3, 0.7), (0.6, 2), (0.5, 0.5), (2, 3)])
def test_old_forms_take_the_element_behind_where_they_shrink(
    shape: tuple[int | str, ...], scales: tuple[float, ...]
) -> None:
    given = typed([node("Resize", "x s")], {"x": (F32, shape), "s": (F32, (2,))}, opset=10)
    made = typed([node("Resize", "x s")], {"x": (F32, shape)}, ("y",), {"s": F32(scales)}, 10)
    agrees(made, floats(10, 7))
    check(given, {"x": floats(10, 7), "s": F32(scales)})


def test_an_old_form_interpolates_images_of_open_sizes() -> None:
    made = typed(
        [node("Upsample", "x s", mode="linear")],
        {"x": (F32, (1, 2, "h", "w"))},
        weights={"s": F32([1, 1, 2, 1.5])},
        opset=9,
    )
    check(made, *({"x": floats(1, 2, *size)} for size in ((4, 6), (1, 3), (7, 5))), tolerance=1e-5)


@pytest.mark.parametrize("height", ["h", 1, 4], ids=["open", "known", "four"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_less_than_one_element_is_none(mode: str, height: int | str) -> None:
    data = resize("_ s", {"s": F32([1, 1, 0.3, 2])}, (1, 2, height, 3), mode=mode)
    agrees(data, floats(1, 2, 1 if height == "h" else int(height), 3))
