# SPDX-License-Identifier: Apache-2.0
"""Layouts that kernels know: row-major, channels last, and blocked."""

from __future__ import annotations

from .names import F32
from .sdk import Dnnl


def channels_last(dnnl: Dnnl, shape: tuple[int, ...], dtype: int = F32) -> int:
    """Describe the layout in which the second axis is innermost."""
    rank = len(shape)
    return _dense(dnnl, shape, (0, *range(2, rank), *range(1, min(2, rank))), dtype)


def _dense(dnnl: Dnnl, shape: tuple[int, ...], order: tuple[int, ...], dtype: int) -> int:
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return dnnl.strided(shape, strides, dtype)


def canonical(dnnl: Dnnl, desc: int, shape: tuple[int, ...], dtype: int) -> int:
    """Return the usual descriptor of the layout that ``desc`` describes.

    An equal one may give an axis of one element a stride of its own, by which kernels count.
    """
    for usual in (dnnl.plain(shape, dtype), channels_last(dnnl, shape, dtype)):
        if dnnl.equal(desc, usual):
            return usual
    return desc


def is_usual(dnnl: Dnnl, desc: int, shape: tuple[int, ...]) -> bool:
    """Whether a layout is row-major, channels last or blocked, but for axes of size 1."""
    strides = dnnl.strides(desc, len(shape))
    if strides is None:
        return True
    rows = range(len(shape))
    for order in ((*rows,), (0, *rows[2:], *rows[1:2])):
        step = 1
        for axis in reversed(order):
            if shape[axis] == 1:
                continue
            if strides[axis] != step:
                break
            step *= shape[axis]
        else:
            return True
    return False
