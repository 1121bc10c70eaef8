# SPDX-License-Identifier: Apache-2.0
"""Operators that resize pictures of open sizes, and what is refused of them."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import UnsupportedError

from .onnx_models import model, node

H, W = variable("H"), variable("W")


def resized(scales: list[float], **attrs: object) -> IRModule:
    """Import a Resize of an open picture."""
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
    ("scales", "mode"), [([1, 1, 2, 2], "linear"), ([1, 1, 0.5, 0.5], "nearest")]
)
def test_others_are_refused(scales: list[float], mode: str) -> None:
    with pytest.raises(UnsupportedError, match=f"a {mode} Resize of open sizes"):
        resized(scales, mode=mode)


def test_a_scale_that_is_no_simple_fraction_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="the size H is only known at run time"):
        resized([1, 1, 1.2345678, 1], mode="nearest")
