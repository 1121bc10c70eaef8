# SPDX-License-Identifier: Apache-2.0
"""Weights in the order in which register tiles read them."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def pack_dense(weight: Array, width: int) -> Array:
    """Return ``weight[K, N]`` as ``[blocks, K, width]``."""
    depth, outputs = weight.shape
    blocks = -(-outputs // width)
    if outputs % width == 0:
        return np.ascontiguousarray(weight.reshape(depth, blocks, width).transpose(1, 0, 2))
    padded = np.zeros((depth, blocks * width), weight.dtype)
    padded[:, :outputs] = weight
    return np.ascontiguousarray(padded.reshape(depth, blocks, width).transpose(1, 0, 2))


def unpack_dense(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_dense`."""
    blocks, depth, width = packed.shape
    return packed.transpose(1, 0, 2).reshape(depth, blocks * width)[:, :outputs]


def pack_conv(weight: Array, groups: int, width: int) -> Array:
    """Return ``weight[O, I, KH, KW]`` as ``[groups * blocks, KH * KW * I, width]``."""
    outputs, inner, height, breadth = weight.shape
    own = outputs // groups
    blocks = -(-own // width)
    rows = weight.reshape(groups, own, inner, height, breadth)
    if own % width:
        rows = np.zeros((groups, blocks * width, inner, height, breadth), weight.dtype)
        rows[:, :own] = weight.reshape(groups, own, inner, height, breadth)
    parts = rows.reshape(groups * blocks, width, inner, height, breadth).transpose(0, 3, 4, 2, 1)
    depth = height * breadth * inner
    return np.ascontiguousarray(parts).reshape(groups * blocks, depth, width)


def unpack_conv(packed: Array, outputs: int, kernel: tuple[int, int], groups: int) -> Array:
    """Undo :func:`pack_conv`."""
    own = outputs // groups
    parts = np.split(packed, groups)
    matrix = np.stack([unpack_dense(part, own).T for part in parts]).reshape(outputs, *kernel, -1)
    return np.ascontiguousarray(matrix.transpose(0, 3, 1, 2))


_TRANSFORM = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_BACK = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]])


def pack_winograd(weight: Array, width: int) -> Array:
    """Return ``G g G^T`` of ``weight[O, I, 3, 3]`` as ``[blocks, 16, I, width]``."""
    inner = weight.shape[1]
    taps = pack_conv(weight, 1, width)
    transform = np.kron(_TRANSFORM, _TRANSFORM)
    packed = np.empty((len(taps), 16, inner, width), weight.dtype)
    for source, result in zip(taps, packed, strict=True):  # a block of outputs stays in the cache
        # Small products, one an input channel: threads for larger ones cost more than they save.
        rows = source.reshape(9, inner, width).transpose(1, 0, 2)
        np.matmul(transform, rows, result.transpose(1, 0, 2), casting="same_kind")
    return packed


def unpack_winograd(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_winograd`, but for rounding."""
    _, places, inner, _ = packed.shape
    wide = np.stack([unpack_dense(packed[:, e], outputs) for e in range(places)])
    wide = wide.reshape(4, 4, inner, outputs)
    return np.einsum("ya,xb,abio->oiyx", _BACK, _BACK, wide).astype(packed.dtype)


def pack_depthwise(weight: Array) -> Array:
    """Return ``weight[C, 1, KH, KW]`` as ``[KH, KW, C]``."""
    return np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))


def unpack_depthwise(packed: Array) -> Array:
    """Undo :func:`pack_depthwise`."""
    return np.ascontiguousarray(packed.transpose(2, 0, 1)[:, None])
