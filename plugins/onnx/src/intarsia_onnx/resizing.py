# SPDX-License-Identifier: Apache-2.0
"""Resize with a filter, or of a region, as one matrix for each dimension that changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .context import NodeContext

LARGEST = 1e6
"""Scales and sizes are less than this."""


MOST_WEIGHTS = 1 << 27
"""Elements of a matrix of weights: 1 GiB."""


class Resizing(Struct, frozen=True, eq=False):
    """What becomes of one dimension.

    Attributes:
        axis: The dimension.
        spots: Where in the old dimension each new element lies.
        matrix: ``[new, old]`` in float64: the share of each old element in each new one.
    """

    axis: int
    spots: np.ndarray
    matrix: np.ndarray

    @property
    def outside(self) -> np.ndarray:
        """Which new elements lie outside of the old dimension."""
        return (self.spots < 0) | (self.spots > self.matrix.shape[1] - 1)


def needs_matrices(node: NodeContext) -> bool:
    """Whether a Resize has an antialiasing filter, or takes a region."""
    return is_crop(node) or bool(node.integer("antialias", 0))


def is_crop(node: NodeContext) -> bool:
    """Whether a Resize takes a region of the image."""
    return node.string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"


def resizings(
    node: NodeContext,
    shape: tuple[int, ...],
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
) -> Iterator[Resizing]:
    """Yield what becomes of each dimension that changes.

    A scale gives ``floor(size * scale)`` elements, of a region too: ONNX's text multiplies by the
    part that the region takes, but ONNX Runtime, ONNX's reference and its shape inference do not.

    Raises:
        ModelError: Neither scales nor sizes, not one for each axis, one that is not positive, one
            that leaves nothing, or a region that is not two numbers for each.
    """
    rank = len(shape)
    axes = [node.normal_axis(a, rank) for a in node.integers("axes", tuple(range(rank)))]
    node.normal_axes(axes, rank)
    given = scales if sizes is None or not sizes.size else sizes
    if given is None or given.size != len(axes):
        raise node.model_error(f"needs {len(axes)} scales or sizes")
    if not ((given > 0) & (given < LARGEST)).all():
        what = "scales" if given is scales else "sizes"
        raise node.model_error(f"{what} {tuple(given.tolist())} for shape {shape}")
    crop = is_crop(node)
    if crop and (roi is None or roi.size != 2 * len(axes)):
        raise node.model_error(f"tf_crop_and_resize needs a region of {2 * len(axes)} numbers")
    old = tuple(shape[axis] for axis in axes)
    if given is scales:
        factors = tuple(float(scale) for scale in given)
        new = tuple(map(scaled_size, old, factors))
    else:
        new, factors = by_policy(node, old, tuple(int(size) for size in given))
    rows = zip(axes, old, new, factors, strict=True)
    for index, (axis, size, wanted, scale) in enumerate(rows):
        region = (0.0, 1.0)
        if crop and roi is not None:
            region = (float(roi[index]), float(roi[len(axes) + index]))
        if wanted < 1:
            raise node.model_error(f"scale {scale:g} leaves nothing of dimension {axis} of {shape}")
        if wanted == size and scale == 1 and region == (0.0, 1.0):
            continue
        spots = _places(node, size, wanted, scale, region)
        yield Resizing(axis, spots, _weights(node, spots, size, scale))


def scaled_size(size: int, scale: float) -> int:
    """Return ``floor(size * scale)``; the product is rounded to float32, as in ONNX Runtime.

    Ten elements by 0.7 are seven, though the float32 nearest to 0.7 is a little less than that.
    """
    return int(np.floor(np.float32(size) * np.float32(scale)))


def by_policy(
    node: NodeContext, old: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return sizes and scales of sizes that are wanted; a policy may keep the aspect ratio.

    Raises:
        ModelError: There is no such policy.
    """
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted, tuple(new / size for new, size in zip(wanted, old, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        raise node.model_error(f"keep_aspect_ratio_policy='{policy}' is not defined")
    ratios = [np.float32(new) / np.float32(size) for new, size in zip(wanted, old, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    new = tuple(int(np.floor(float(ratio * np.float32(size)) + 0.5)) for size in old)
    return new, (float(ratio),) * len(old)


def _places(
    node: NodeContext, size: int, wanted: int, scale: float, region: tuple[float, float]
) -> np.ndarray:
    """Return where in the old dimension each new element lies.

    In float32 and in ONNX Runtime's order where a rounding decides which element that is, or
    whether it lies outside.
    """
    is_sharp = is_crop(node) or node.string("mode", "nearest") == "nearest"
    kind = np.float32 if is_sharp else np.float64
    index = np.arange(wanted, dtype=kind)
    low, high = kind(region[0]), kind(region[1])
    match node.string("coordinate_transformation_mode", "half_pixel"):
        case "tf_crop_and_resize":
            if wanted == 1:
                return np.array([kind(0.5) * (low + high) * kind(size - 1)])
            spread = index * (high - low) * kind(size - 1) / kind(wanted - 1)
            return low * kind(size - 1) + spread
        case "align_corners":
            return index * (size - 1) / (wanted - 1) if wanted > 1 else np.zeros(1)
        case "asymmetric":
            return index / kind(scale)
        case "pytorch_half_pixel":
            return (index + kind(0.5)) / kind(scale) - 0.5 if wanted > 1 else np.zeros(1)
        case "half_pixel_symmetric":
            adjusted = wanted / (scale * size)
            return size / 2 * (1 - adjusted) + (index + kind(0.5)) / kind(scale) - 0.5
        case _:
            return (index + kind(0.5)) / kind(scale) - 0.5


def _weights(node: NodeContext, spots: np.ndarray, size: int, scale: float) -> np.ndarray:
    """Return the matrix ``[new, old]`` of one dimension; the border repeats outside."""
    mode = node.string("mode", "nearest")
    if len(spots) * size > MOST_WEIGHTS:
        raise node.unsupported(
            f"resizing {size} elements to {len(spots)} takes a matrix of {len(spots) * size} "
            f"weights; {MOST_WEIGHTS} is the most"
        )
    matrix = np.zeros((len(spots), size))
    rows = np.arange(len(spots))
    if mode == "nearest":
        places = _nearest(node, spots)
        matrix[rows, np.clip(places, 0, size - 1).astype(np.int64)] = 1
        return matrix
    shrink = min(scale, 1.0) if node.integer("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    start = int(np.floor(-reach / shrink)) + 1
    exclude = bool(node.integer("exclude_outside", 0))
    floors = np.floor(spots)
    for offset in range(start, 2 * reach - start):
        place = floors + offset
        distance = np.abs(place - spots) * shrink
        if mode == "linear":
            weight = np.maximum(1 - distance, 0)
        else:
            weight = _cubic(distance, node.number("cubic_coeff_a", -0.75))
        if exclude:
            weight = np.where((place >= 0) & (place < size), weight, 0)
        np.add.at(matrix, (rows, np.clip(place, 0, size - 1).astype(np.int64)), weight)
    return matrix / matrix.sum(1, keepdims=True)


def _nearest(node: NodeContext, spots: np.ndarray) -> np.ndarray:
    match node.string("nearest_mode", "round_prefer_floor"):
        case "floor":
            return np.floor(spots)
        case "ceil":
            return np.ceil(spots)
        case "round_prefer_ceil":
            return np.floor(spots + 0.5)
        case _:
            return np.ceil(spots - 0.5)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel of a distance; 0 from 2 on."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
