# SPDX-License-Identifier: Apache-2.0
"""Blocks and windows of images: folding, pooling with places, resizing, decoding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.ops.arrays import widen

from ..resizing import is_crop, needs_matrices, resizings
from .call import NumpyCall


def col2im(call: NumpyCall, x: np.ndarray, image: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Add up overlapping blocks, given one a column, into images."""
    rank = len(image)
    strides = call.integers("strides", (1,) * rank)
    dilations = call.integers("dilations", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    kernel = [int(size) for size in block]
    padded = [int(n) + pads[i] + pads[rank + i] for i, n in enumerate(image)]
    steps = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(padded, dilations, kernel, strides, strict=True)
    ]
    channels = x.shape[1] // int(np.prod(kernel))
    columns = x.reshape(x.shape[0], channels, *kernel, *steps)
    call.reserve((x.shape[0], channels, *padded), x.itemsize)
    result = np.zeros((x.shape[0], channels, *padded), x.dtype)
    for tap in itertools.product(*(range(k) for k in kernel)):
        where = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, steps, strides, strict=True)
        )
        result[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *tap)]
    inside = tuple(slice(pads[i], pads[i] + int(n)) for i, n in enumerate(image))
    return np.ascontiguousarray(result[(slice(None), slice(None), *inside)])


def max_pool(call: NumpyCall, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest element of each window, and its place in the whole flattened tensor."""
    if not call.wants(1) or call.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return NotImplemented
    rank = x.ndim - 2
    kernel = call.integers("kernel_shape")
    strides = call.integers("strides", (1,) * rank)
    dilations = call.integers("dilations", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    up = bool(call.integer("ceil_mode", 0))
    counts = [
        _steps(n, pads[i::rank], dilations[i] * (kernel[i] - 1) + 1, strides[i], up)
        for i, n in enumerate(x.shape[2:])
    ]
    order = range(rank) if not call.integer("storage_order", 0) else range(rank - 1, -1, -1)
    call.reserve((*x.shape[:2], *counts))
    best = np.full((*x.shape[:2], *counts), -np.inf)
    where = np.full(best.shape, -1, np.int64)
    plane = np.arange(int(x.shape[0] * x.shape[1])).reshape(x.shape[:2]) * int(np.prod(x.shape[2:]))
    for tap in itertools.product(*(range(k) for k in kernel)):
        places = np.indices(counts)
        inside = np.ones(counts, bool)
        flat = np.zeros(counts, np.int64)
        spots: list[np.ndarray] = []
        for i in range(rank):
            spot = places[i] * strides[i] - pads[i] + tap[i] * dilations[i]
            inside &= (spot >= 0) & (spot < x.shape[2 + i])
            spots.append(np.clip(spot, 0, x.shape[2 + i] - 1))
        for i in order:
            flat = flat * x.shape[2 + i] + spots[i]
        values = np.where(inside, widen(x)[(slice(None), slice(None), *spots)], -np.inf)
        better = values > best
        best = np.where(better, values, best)
        where = np.where(better, plane[..., *[None] * rank] + flat, where)
    return best.astype(x.dtype), where


def _steps(size: int, pads: Sequence[int], window: int, stride: int, up: bool) -> int:
    """How many windows there are; rounded up, none may begin behind the elements."""
    room = size + sum(pads) - window
    if not up:
        return room // stride + 1
    last = -(-room // stride)
    return last + (last * stride < size + pads[0])


def max_unpool(
    call: NumpyCall, x: np.ndarray, places: np.ndarray, shape: np.ndarray | None = None
) -> np.ndarray:
    """Put elements back to where MaxPool took them from, zeros elsewhere."""
    rank = x.ndim - 2
    kernel = call.integers("kernel_shape")
    strides = call.integers("strides", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    sizes = [
        (n - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
        for i, n in enumerate(x.shape[2:])
    ]
    call.reserve((*x.shape[:2], *sizes), x.itemsize)
    natural = np.zeros((*x.shape[:2], *sizes), x.dtype)
    natural.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    if shape is None:
        return natural
    call.reserve(shape, x.itemsize)
    result = np.zeros([int(size) for size in shape], x.dtype)
    result[tuple(slice(0, size) for size in natural.shape)] = natural
    return result


def resize(
    call: NumpyCall,
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> np.ndarray:
    """Resize with an antialiasing filter, or a region of the image; else left to the converter."""
    if not needs_matrices(call):
        return NotImplemented
    wide = widen(x).astype(np.float64)
    outside = np.zeros([1] * x.ndim, bool)
    for part in resizings(call, x.shape, roi, scales, sizes):
        wide = np.moveaxis(np.tensordot(part.matrix, wide, (1, part.axis)), 0, part.axis)
        column = [-1 if axis == part.axis else 1 for axis in range(x.ndim)]
        outside = outside | part.outside.reshape(column)
    if is_crop(call):
        wide = np.where(outside, call.number("extrapolation_value", 0.0), wide)
    return _narrowed(wide, x.dtype)


def _narrowed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x), limits.min, limits.max).astype(dtype)


KERNELS = MappingProxyType(
    {
        ("", "Col2Im"): col2im,
        ("", "MaxPool"): max_pool,
        ("", "MaxUnpool"): max_unpool,
        ("", "Resize"): resize,
    }
)
