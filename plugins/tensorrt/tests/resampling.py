# SPDX-License-Identifier: Apache-2.0
"""Resize layers of arrays, as the library documents them: one axis after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def resized(layer: Any, x: Array, shape: tuple[int, ...]) -> Array:
    """Return the tensor of a shape that a resize layer gives."""
    for axis, new in enumerate(shape):
        if new != x.shape[axis]:
            x = np.moveaxis(_along(layer, np.moveaxis(x, axis, -1), new), -1, axis)
    return x


def _along(layer: Any, x: Array, new: int) -> Array:
    old = x.shape[-1]
    at = _positions(layer.coordinate_transformation.name, old, new)
    if layer.resize_mode.name == "NEAREST":
        return x[..., np.clip(_rounded(layer.nearest_rounding.name, at), 0, old - 1)]
    first = np.floor(at).astype(int)
    rest = at - first
    result = np.zeros((*x.shape[:-1], new))
    for offset, weight in _weights(layer, rest):
        result += x[..., np.clip(first + offset, 0, old - 1)] * weight
    return result.astype(np.float32)


def _positions(mode: str, old: int, new: int) -> Array:
    number = np.arange(new, dtype=np.float64)
    match mode:
        case "ALIGN_CORNERS":
            return number * (old - 1) / (new - 1)
        case "ASYMMETRIC":
            return number * old / new
        case _:
            return (number + 0.5) * old / new - 0.5


def _rounded(mode: str, at: Array) -> Array:
    match mode:
        case "HALF_DOWN":
            whole = np.ceil(at - 0.5)
        case "HALF_UP":
            whole = np.floor(at + 0.5)
        case "FLOOR":
            whole = np.floor(at)
        case _:
            whole = np.ceil(at)
    return whole.astype(int)


def _weights(layer: Any, rest: Array) -> list[tuple[int, Array]]:
    if layer.resize_mode.name == "LINEAR":
        return [(0, 1 - rest), (1, rest)]
    assert not layer.exclude_outside
    a = layer.cubic_coeff
    return [(offset, _cubic(np.abs(rest - offset), a)) for offset in (-1, 0, 1, 2)]


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)
