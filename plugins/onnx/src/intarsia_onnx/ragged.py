# SPDX-License-Identifier: Apache-2.0
"""The rows in which a sequence of tensors of any sizes says what its elements are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROW = 9
"""Columns of a row: the rank of an element, its sizes, and zeros."""


def pack_arrays(arrays: Sequence[np.ndarray], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements of arrays one behind the other, ``[total]``, and a row for each.

    Raises:
        ValueError: An array has ``ROW`` dimensions or more.
    """
    shapes = np.zeros((len(arrays), ROW), np.int64)
    for row, array in zip(shapes, arrays, strict=True):
        if array.ndim >= ROW:
            raise ValueError(f"{array.ndim} dimensions; {ROW - 1} is the most")
        row[: array.ndim + 1] = (array.ndim, *array.shape)
    flat = [array.reshape(-1) for array in arrays]
    return np.concatenate(flat) if flat else np.zeros(0, dtype), shapes


def unpack_arrays(items: np.ndarray, shapes: np.ndarray) -> list[np.ndarray]:
    """Return the arrays that :func:`pack_arrays` packed, as views."""
    found: list[np.ndarray] = []
    start = 0
    for rank, *sizes in shapes.tolist():
        shape = sizes[:rank]
        count = int(np.prod(shape, dtype=np.int64))
        found.append(items[start : start + count].reshape(shape))
        start += count
    return found
