# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools of arrays, written down as the library documents its layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Pads = Sequence[tuple[int, int]]


def convolve(
    x: Array,
    kernel: Array,
    bias: Array,
    strides: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Add the contribution of each tap of the kernel."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads]).astype(np.float64)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], dilation, strict=True)]
    counts = [(n - e) // s + 1 for n, e, s in zip(padded.shape[2:], extents, strides, strict=True)]
    outputs = kernel.shape[0] // groups
    result = np.zeros((x.shape[0], kernel.shape[0], *counts))
    for tap in np.ndindex(*kernel.shape[2:]):
        place = tuple(
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, d, c, s in zip(tap, dilation, counts, strides, strict=True)
        )
        seen = padded[(slice(None), slice(None), *place)]
        for group in range(groups):
            channels = slice(group * kernel.shape[1], (group + 1) * kernel.shape[1])
            own = slice(group * outputs, (group + 1) * outputs)
            weight = kernel[(own, slice(None), *tap)]
            result[:, own] += np.einsum("nc...,oc->no...", seen[:, channels], weight)
    column = (-1, *[1] * (x.ndim - 2))
    return (result + (bias.reshape(column) if bias.size else 0)).astype(np.float32)


def deconvolve(
    x: Array,
    kernel: Array,
    bias: Array,
    strides: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Spread each element over the taps, then cut the padding off."""
    spatial = x.shape[2:]
    full = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(spatial, strides, kernel.shape[2:], dilation, strict=True)
    ]
    inner = kernel.shape[1]
    canvas = np.zeros((x.shape[0], inner * groups, *full))
    depth = x.shape[1] // groups
    for tap in np.ndindex(*kernel.shape[2:]):
        place = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilation, spatial, strides, strict=True)
        )
        for group in range(groups):
            channels = slice(group * depth, (group + 1) * depth)
            own = slice(group * inner, (group + 1) * inner)
            weight = kernel[(channels, slice(None), *tap)]
            canvas[(slice(None), own, *place)] += np.einsum(
                "nc...,co->no...", x[:, channels].astype(np.float64), weight
            )
    cut = tuple(slice(low, n - high) for n, (low, high) in zip(full, pads, strict=True))
    column = (-1, *[1] * (x.ndim - 2))
    kept = canvas[(slice(None), slice(None), *cut)]
    return (kept + (bias.reshape(column) if bias.size else 0)).astype(np.float32)


def pooled(x: Array, kind: str, kernel: Sequence[int], strides: Sequence[int], pads: Pads) -> Array:
    """Return the maximum, or the mean of what is no padding, of each window."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=np.nan)
    axes = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), axis=axes)
    steps = (slice(None), slice(None), *(slice(None, None, s) for s in strides))
    reduced = np.nanmax if kind == "MAX" else np.nanmean
    return reduced(view[steps], axis=tuple(range(x.ndim, 2 * x.ndim - 2)))
