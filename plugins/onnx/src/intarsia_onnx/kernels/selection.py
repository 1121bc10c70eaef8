# SPDX-License-Identifier: Apache-2.0
"""Operators that choose or place elements: their result sizes or targets follow from data."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.ops.arrays import is_half, widen
from intarsia_ir.ops.suppression import NonMaxSuppression

from .call import OWN_DOMAIN, NumpyCall

_UFUNCS = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
)


def non_zero(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Positions of the elements that are not zero, one column each, in row-major order."""
    found = np.nonzero(widen(x) if is_half(x) else x)
    return np.array(found, np.int64).reshape(x.ndim, -1)


def compress(call: NumpyCall, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
    """Keep the slices, or the elements of the flattened tensor, that the condition marks."""
    axis = call.axis("axis", x.ndim) if call.has("axis") else None
    size = x.size if axis is None else x.shape[axis]
    return np.compress(condition[:size], x, axis)


def unique(call: NumpyCall, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different elements or slices, with first positions, places in the result, and counts."""
    axis = call.axis("axis", x.ndim) if call.has("axis") else None
    wide = widen(x) if is_half(x) else x
    found, first, inverse, counts = np.unique(
        wide, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not call.integer("sorted", 1):
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        found = np.take(found, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    numbers = (np.asarray(item, np.int64) for item in (first, inverse, counts))
    return (found.astype(x.dtype), *numbers)


def top_k(call: NumpyCall, x: np.ndarray, k: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """The largest or smallest elements along a dimension, and where they are; ties by position."""
    count = call.integer("k") if k is None else int(k.reshape(()))
    axis = call.axis("axis", x.ndim, -1)
    if not 0 <= count <= x.shape[axis]:
        raise call.model_error(f"{count} of {x.shape[axis]} elements are asked for")
    keys = widen(x)
    if call.integer("largest", 1):
        # The least integer has no negative; complements are ordered as negatives are.
        keys = -keys if keys.dtype.kind == "f" else ~keys
    order = np.argsort(keys, axis=axis, kind="stable")
    chosen = np.take(order, range(count), axis)
    return np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)


def scatter_elements(
    call: NumpyCall, data: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    """Put elements where indices along one dimension say, replacing or combining."""
    axis = call.axis("axis", data.ndim, 0)
    size = data.shape[axis]
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise call.model_error(f"an index is outside of the {size} elements of axis {axis}")
    result = data.copy()
    where: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    where[axis] = np.where(indices < 0, indices + size, indices)
    _combine(call, result, tuple(where), updates)
    return result


def scatter_nd(
    call: NumpyCall, data: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    """Put slices where tuples of indices say, replacing or combining."""
    depth = indices.shape[-1]
    sizes = np.array(data.shape[:depth])
    if indices.size and ((indices < -sizes) | (indices >= sizes)).any():
        raise call.model_error(f"an index is outside of shape {data.shape}")
    result = data.copy()
    fixed = np.where(indices < 0, indices + sizes, indices)
    where = tuple(fixed[..., place] for place in range(depth))
    _combine(call, result, where, updates)
    return result


def _combine(
    call: NumpyCall, result: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray
) -> None:
    reduction = call.string("reduction", "none")
    if reduction == "none":
        result[where] = updates
    elif reduction in _UFUNCS:
        _UFUNCS[reduction].at(result, where, updates)
    else:
        raise call.model_error(f"reduction='{reduction}'")


def tensor_scatter(
    call: NumpyCall, cache: np.ndarray, update: np.ndarray, starts: np.ndarray | None = None
) -> np.ndarray:
    """Write an update into a cache, at a position of its own for each sample of the batch."""
    axis = call.axis("axis", cache.ndim, -2)
    length, room = int(update.shape[axis]), int(cache.shape[axis])
    result = cache.copy()
    for sample in range(cache.shape[0]):
        places = np.arange(length) + (0 if starts is None else int(starts[sample]))
        if call.string("mode", "linear") == "circular":
            places %= room
        elif length and (places[0] < 0 or places[-1] >= room):
            raise call.model_error(f"the update leaves the cache of {room} at sample {sample}")
        moved = np.moveaxis(result[sample], axis - 1, 0)
        moved[places] = np.moveaxis(update[sample], axis - 1, 0)
    return result


def reverse_sequence(call: NumpyCall, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reverse the first elements of each sequence of a batch, as many as it is long."""
    time, batch = call.axis("time_axis", x.ndim, 0), call.axis("batch_axis", x.ndim, 1)
    moved = np.moveaxis(x, (batch, time), (0, 1))
    result = moved.copy()
    for sample, length in enumerate(lengths.tolist()):
        result[sample, :length] = moved[sample, :length][::-1]
    return np.ascontiguousarray(np.moveaxis(result, (0, 1), (batch, time)))


def non_max_suppression(
    call: NumpyCall,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray | None = None,
    overlap: np.ndarray | None = None,
    least: np.ndarray | None = None,
) -> np.ndarray:
    """Choose boxes by score, of each class of each image; drop those that overlap a chosen one."""
    count = min(0 if most is None else int(most.reshape(())), scores.shape[2])
    if count < 1:
        return np.zeros((0, 3), np.int64)
    attrs = NonMaxSuppression.Attrs(
        count=count,
        overlap=0.0 if overlap is None else float(overlap.reshape(())),
        least=-np.inf if least is None else float(least.reshape(())),
    )
    corners = _corners(boxes, bool(call.integer("center_point_box", 0)))
    places, counts, _ = NonMaxSuppression.reference(attrs, corners, scores)
    return chosen_boxes(call, places, counts)


def chosen_boxes(call: NumpyCall, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Rows of image, class and box from ``nn.non_max_suppression``'s first two results."""
    chosen = np.arange(int(places.shape[2])) < counts[..., np.newaxis]
    images, classes, _ = np.nonzero(chosen)
    return np.stack([images, classes, places[chosen]], 1)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """Return lower and upper corner of each box: ``[batch, (y0, x0, y1, x1), boxes]``."""
    first, second, third, fourth = np.moveaxis(boxes, -1, 0)
    if centred:  # x, y, width, height
        low_y, high_y = second - fourth / 2, second + fourth / 2
        low_x, high_x = first - third / 2, first + third / 2
        return np.stack([low_y, low_x, high_y, high_x], 1)
    low_y, high_y = np.minimum(first, third), np.maximum(first, third)
    low_x, high_x = np.minimum(second, fourth), np.maximum(second, fourth)
    return np.stack([low_y, low_x, high_y, high_x], 1)


def array_feature_extractor(call: NumpyCall, x: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Take columns of the last dimension."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return np.take(rows, which.reshape(-1), -1)


def binarizer(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """1 above the threshold, 0 elsewhere."""
    return (x > call.number("threshold", 0.0)).astype(x.dtype)


KERNELS = MappingProxyType(
    {
        ("", "NonZero"): non_zero,
        ("", "Compress"): compress,
        ("", "Unique"): unique,
        ("", "TopK"): top_k,
        ("", "Scatter"): scatter_elements,
        ("", "ScatterElements"): scatter_elements,
        ("", "ScatterND"): scatter_nd,
        ("", "TensorScatter"): tensor_scatter,
        ("", "ReverseSequence"): reverse_sequence,
        ("", "NonMaxSuppression"): non_max_suppression,
        (OWN_DOMAIN, "ChosenBoxes"): chosen_boxes,
        ("ai.onnx.ml", "ArrayFeatureExtractor"): array_feature_extractor,
        ("ai.onnx.ml", "Binarizer"): binarizer,
    }
)
