# SPDX-License-Identifier: Apache-2.0
"""Sampling at places that are data, against what can be said without it; shifts of bits."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_runtime.errors import TypeRuleError

X = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)


def corners(rows: int, columns: int) -> np.ndarray:
    """The places of the elements of an image with aligned corners."""
    y, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
    return np.stack([x, y], -1)[None].repeat(2, 0).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_image_sampled_at_its_elements_is_itself(run_operator, mode: str) -> None:
    (found,) = run_operator("nn.grid_sample", X, corners(4, 5), mode=mode, align_corners=True)
    np.testing.assert_allclose(found, X, rtol=1e-4, atol=1e-5)


def test_what_is_outside_follows_the_padding(run_operator) -> None:
    far = np.full((2, 1, 1, 2), -3.0, np.float32)
    for padding, wanted in (("zeros", 0 * X[..., 0, 0]), ("border", X[..., 0, 0])):
        (found,) = run_operator("nn.grid_sample", X, far, padding=padding)
        np.testing.assert_array_equal(found[..., 0, 0], wanted)
    attrs = {"padding": "reflection", "align_corners": True}
    (found,) = run_operator("nn.grid_sample", X, far, **attrs)
    np.testing.assert_allclose(found[..., 0, 0], X[..., -1, -1], rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "grid", "attrs", "message"),
    [
        (X, np.zeros((2, 1, 2), np.float32), {}, "does not fit data"),
        (X, np.zeros((3, 1, 1, 2), np.float32), {}, "does not fit data"),
        (X, np.zeros((2, 1, 1, 3), np.float32), {}, "does not fit data"),
        (X, np.zeros((2, 1, 1, 2), np.float32), {"mode": "area"}, "mode 'area' with"),
        (X, np.zeros((2, 1, 1, 2), np.float32), {"padding": "wrap"}, "padding 'wrap' is not"),
        (X[:, :, :0], np.zeros((2, 1, 1, 2), np.float32), {}, "has no elements"),
        (X, np.zeros((2, 1, 1, 2), np.int32), {}, "floating-point"),
    ],
)
def test_wrong_grids_are_refused(run_operator, x, grid, attrs, message: str) -> None:
    with pytest.raises(TypeRuleError, match=message):
        run_operator("nn.grid_sample", x, grid, **attrs)


def test_shifts_are_defined_for_every_amount(run_operator) -> None:
    amounts = np.array([-128, -1, 0, 1, 7, 8, 127], np.int8)
    values = np.array([-128, -3, 0, 5, 127], np.int8)[:, None]
    (left,) = run_operator("left_shift", values, amounts)
    (right,) = run_operator("right_shift", values, amounts)
    for row, value in enumerate(values[:, 0].tolist()):
        for column, amount in enumerate(amounts.tolist()):
            inside = 0 <= amount < 8
            moved = (value << amount) & 255 if inside else 0
            assert int(left[row, column]) & 255 == moved
            assert right[row, column] == (value >> amount if inside else -(value < 0))


@pytest.mark.parametrize("half_pixel", [True, False])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_sampled_as_onnx_says(check_operator, onnx_node, mode, half_pixel) -> None:
    rois = np.array([[0, 0, 3, 2], [1.5, 0.5, 4, 4], [-3, -3, 9, 1]], np.float32)
    images = np.array([0, 1, 0])
    attrs = {"mode": mode, "sampling_ratio": 2, "output_height": 2, "output_width": 3}
    where = "half_pixel" if half_pixel else "output_half_pixel"
    wanted = onnx_node("RoiAlign", X, rois, images, **attrs, coordinate_transformation_mode=where)
    own = {"size": (2, 3), "samples": 2, "half_pixel": half_pixel, "largest": mode == "max"}
    check_operator(wanted, "nn.roi_align", X, rois, images, **own)
