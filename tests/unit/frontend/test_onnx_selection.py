# SPDX-License-Identifier: Apache-2.0
"""Choosing, scattering and sampling as models write it, against ONNX Runtime; and what breaks."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

from .onnx_models import assert_like_onnxruntime, model, node

IMAGE = {"x": (1, 2, 6, 5)}
REGIONS = {"r": np.float32([[0, 0, 3, 2], [1, 0.5, 4, 4]]), "b": np.array([0, 0])}


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def roi(opset: int = 18, **attrs) -> object:
    made = node("RoiAlign", "x r b", output_height=2, output_width=2, **attrs)
    return model([made], IMAGE, weights=REGIONS, opset=opset)


def scatter(op: str, indices: list, updates: np.ndarray, **attrs) -> object:
    weights = {"i": np.array(indices), "u": updates}
    return model([node(op, "x i u", **attrs)], {"x": (4, 3)}, weights=weights)


def resized(scales: np.ndarray, **attrs) -> object:
    return model([node("Resize", "x _ s", **attrs)], IMAGE, weights={"s": scales}, opset=18)


HALF = np.float32([1, 1, 0.5, 0.5])

CASES = {
    "top-k": model(
        [node("TopK", "x k", "v y", axis=0)], {"x": (7, 3)}, weights={"k": np.array([4])}
    ),
    "top-k-old": model([node("TopK", "x", "v y", k=2, axis=1)], {"x": (3, 9)}, opset=9),
    "scatter-elements": scatter("ScatterElements", [[1, 0, -1]], f32(1, 3)),
    "scatter-nd": scatter("ScatterND", [[3], [-4]], f32(2, 3), reduction="add"),
    "roi-align": roi(sampling_ratio=2, spatial_scale=0.9),
    "roi-align-before-16": roi(opset=11, sampling_ratio=2),
    "antialias": resized(HALF, mode="linear", antialias=1),
    "reverse-sequence": model(
        [node("ReverseSequence", "x l", time_axis=1, batch_axis=0)],
        {"x": (2, 4, 3)},
        weights={"l": np.array([3, 1])},
    ),
    "trilu": model([node("Trilu", "x k", upper=0)], {"x": (2, 4, 3)}, weights={"k": np.array(1)}),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name: str) -> None:
    assert_like_onnxruntime(CASES[name])


def cached(**attrs) -> object:
    return model(
        [node("TensorScatter", "x u", **attrs)], {"x": (1, 4, 2), "u": (1, 2, 2)}, opset=24
    )


def test_a_cache_is_written_from_its_beginning_if_nothing_is_said() -> None:
    module = from_onnx(cached())
    assert module.main.body.name == "tensor_scatter"


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (
            model([node("TopK", "x k", "v y")], {"x": (3,)}, weights={"k": np.array([4])}),
            "4 of 3 elements are asked for",
        ),
        (
            scatter("ScatterElements", [[9, 0, 0]], f32(1, 3)),
            "outside of the 4 elements of its dimension",
        ),
        (
            scatter("ScatterND", [[0]], f32(1, 3), reduction="mean"),
            "reduction='mean' is not defined",
        ),
        (cached(mode="round"), "mode='round' is not defined"),
        (roi(sampling_ratio=1, mode="min"), "mode='min'"),
        (resized(HALF[:3], antialias=1, mode="linear"), "needs 4 scales or sizes"),
        (
            model([node("Trilu", "x k")], {"x": (3,), "k": (1,)}, dtype=7),
            "needs rank 2 or more",
        ),
    ],
    ids=range(7),
)
def test_broken(proto: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(proto)


def test_left_to_the_host() -> None:
    with pytest.raises(UnsupportedError, match="as many samples as a region has pixels"):
        from_onnx(roi())
