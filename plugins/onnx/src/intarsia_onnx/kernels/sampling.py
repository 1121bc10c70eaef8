# SPDX-License-Identifier: Apache-2.0
"""Images and other grids, sampled at places that follow from data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_ir.ops.arrays import widen
from intarsia_ir.ops.sampling import take_points

from .call import NumpyCall


def sample_linear(x: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Interpolate linearly between the neighbours of each place, 0 outside.

    Args:
        x: ``[batch, channels, *sizes]``.
        places: For each of the sizes, ``[batch, *points]``.

    Returns:
        ``[batch, channels, *points]``.
    """
    floors = [np.floor(place).astype(np.int64) for place in places]
    total = np.zeros((*x.shape[:2], *places[0].shape[1:]), np.result_type(x, np.float32))
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight = np.ones(places[0].shape)
        for place, floor, side in zip(places, floors, corner, strict=True):
            weight = weight * (place - floor if side else 1 - (place - floor))
        near = [floor + side for floor, side in zip(floors, corner, strict=True)]
        total += take_points(x, near) * weight[:, None]
    return total


def roi_align(call: NumpyCall, x: np.ndarray, rois: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Average, or take the largest, of samples in the cells of each region."""
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    shift = 0.5 if call.string("coordinate_transformation_mode", usual) == "half_pixel" else 0
    scale = call.number("spatial_scale", 1.0)
    rows, columns = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio = call.integer("sampling_ratio", 0)
    largest = call.string("mode", "avg") == "max"
    results: list[np.ndarray] = []
    for roi, image in zip(rois.astype(np.float64) * scale - shift, images.tolist(), strict=True):
        left, top, right, bottom = roi.tolist()
        width, height = right - left, bottom - top
        if not shift:
            width, height = max(width, 1.0), max(height, 1.0)
        call.reserve((rows, columns))
        ny = ratio or max(int(np.ceil(height / rows)), 0)
        nx = ratio or max(int(np.ceil(width / columns)), 0)
        if ny * nx == 0:  # a region that ends before it begins has no samples, which gives 0
            results.append(np.zeros((x.shape[1], rows, columns)))
            continue
        call.reserve((rows, ny, columns, nx))
        ys = top + (np.arange(rows * ny) + 0.5) * height / (rows * ny)
        xs = left + (np.arange(columns * nx) + 0.5) * width / (columns * nx)
        y, across = cast("list[np.ndarray]", np.meshgrid(ys, xs, indexing="ij"))
        found = _roi_samples(widen(x[image : image + 1]), y[None], across[None], largest)
        cells = found.reshape(x.shape[1], rows, ny, columns, nx)
        results.append(cells.max((2, 4)) if largest else cells.mean((2, 4)))
    shape = (len(rois), x.shape[1], rows, columns)
    return np.array(results).reshape(shape).astype(x.dtype)


def _roi_samples(x: np.ndarray, y: np.ndarray, across: np.ndarray, largest: bool) -> np.ndarray:
    """Sample one image; more than one pixel outside is 0, less is the border."""
    height, width = x.shape[2:]
    inside = (y >= -1) & (y <= height) & (across >= -1) & (across <= width)
    places = [np.clip(y, 0, height - 1), np.clip(across, 0, width - 1)]
    if not largest:
        return np.where(inside[:, None], sample_linear(x, places), 0)
    floors = [np.floor(place).astype(np.int64) for place in places]
    best: np.ndarray | None = None
    for corner in itertools.product((0, 1), repeat=2):
        weight = np.ones(y.shape)
        near: list[np.ndarray] = []
        for place, floor, side, size in zip(places, floors, corner, x.shape[2:], strict=True):
            weight = weight * (place - floor if side else 1 - (place - floor))
            near.append(np.minimum(floor + side, size - 1))
        part = take_points(x, near) * weight[:, None]
        best = part if best is None else np.maximum(best, part)
    assert best is not None
    return np.where(inside[:, None], best, 0)


def deform_conv(
    call: NumpyCall,
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> np.ndarray:
    """Convolution of samples at places that offsets move (Dai et al., 2017)."""
    rank = x.ndim - 2
    strides = call.integers("strides", (1,) * rank)
    dilations = call.integers("dilations", (1,) * rank)
    low = call.integers("pads", (0,) * (2 * rank))[:rank]
    groups, parts = call.integer("group", 1), call.integer("offset_group", 1)
    kernel, sizes = w.shape[2:], offset.shape[2:]
    taps = list(np.ndindex(*kernel))
    moved = offset.reshape(x.shape[0], parts, len(taps), rank, *sizes).astype(np.float64)
    masks = None if mask is None else mask.reshape(x.shape[0], parts, len(taps), *sizes)
    start = np.indices(sizes)
    slices = np.split(widen(x), parts, axis=1)
    columns: list[np.ndarray] = []
    for tap, position in enumerate(taps):
        samples: list[np.ndarray] = []
        for part, piece in enumerate(slices):
            places = [
                start[axis] * strides[axis]
                - low[axis]
                + position[axis] * dilations[axis]
                + moved[:, part, tap, axis]
                for axis in range(rank)
            ]
            found = sample_linear(piece, places)
            samples.append(found if masks is None else found * masks[:, part, tap][:, None])
        columns.append(np.concatenate(samples, axis=1))
    grown = np.stack(columns, axis=2)  # [batch, channels, taps, *sizes]
    grouped = grown.reshape(x.shape[0], groups, -1, *sizes)
    weights = widen(w).reshape(groups, w.shape[0] // groups, -1)
    result = np.einsum("bgc...,goc->bgo...", grouped, weights)
    result = result.reshape(x.shape[0], w.shape[0], *sizes)
    if b is not None:
        result = result + widen(b).reshape(-1, *[1] * rank)
    return result.astype(x.dtype)


KERNELS = MappingProxyType(
    {
        ("", "RoiAlign"): roi_align,
        ("", "DeformConv"): deform_conv,
    }
)
