# SPDX-License-Identifier: Apache-2.0
"""Weights in the order in which register tiles read them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from ...runtime.threads import available_threads

Array = np.ndarray

_LEAST_SHARED = 4 << 20  # bytes that take some milliseconds


class Filling(NamedTuple):
    """An array that is there and has no content yet.

    Attributes:
        array: The array, of its final shape and type.
        fill: Writes all its elements.
    """

    array: Array
    fill: Callable[[], None]

    def filled(self) -> Array:
        """Fill the array, and return it."""
        self.fill()
        return self.array


def fill_all(fillings: Sequence[Filling]) -> None:
    """Fill arrays, large ones on all processors: NumPy lets other threads run while it copies.

    Raises:
        MemoryError: There is not enough for their content.
    """
    waiting: SimpleQueue[Filling] = SimpleQueue()
    for filling in sorted(fillings, key=_bytes, reverse=True):
        waiting.put(filling)
    failed: list[BaseException] = []

    def work() -> None:
        with suppress(Empty):
            while not failed:
                filling = waiting.get_nowait()
                try:
                    filling.fill()
                except BaseException as error:
                    failed.append(error)

    shared = sum(map(_bytes, fillings)) >= _LEAST_SHARED
    count = min(available_threads(), len(fillings)) - 1 if shared else 0
    others = [threading.Thread(target=work) for _ in range(count)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]


def _bytes(filling: Filling) -> int:
    return filling.array.nbytes


def pack_dense(weight: Array, width: int) -> Array:
    """Return ``weight[K, N]`` as ``[blocks, K, width]``."""
    return dense_filling(weight, width).filled()


def dense_filling(weight: Array, width: int) -> Filling:
    """Return what becomes :func:`pack_dense`."""
    depth, outputs = weight.shape
    packed = np.empty((-(-outputs // width), depth, width), weight.dtype)
    return Filling(packed, partial(_fill_dense, packed, weight))


def _fill_dense(packed: Array, weight: Array) -> None:
    width = packed.shape[2]
    for number, block in enumerate(packed):
        columns = weight[:, number * width : (number + 1) * width]
        block[:, : columns.shape[1]] = columns
        block[:, columns.shape[1] :] = 0


def unpack_dense(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_dense`."""
    blocks, depth, width = packed.shape
    return packed.transpose(1, 0, 2).reshape(depth, blocks * width)[:, :outputs]


def pack_conv(weight: Array, groups: int, width: int) -> Array:
    """Return ``weight[O, I, KH, KW]`` as ``[groups * blocks, KH * KW * I, width]``."""
    return conv_filling(weight, groups, width).filled()


def conv_filling(weight: Array, groups: int, width: int) -> Filling:
    """Return what becomes :func:`pack_conv`."""
    outputs, inner, height, breadth = weight.shape
    blocks = -(-(outputs // groups) // width)
    packed = np.empty((groups * blocks, height * breadth * inner, width), weight.dtype)
    return Filling(packed, partial(_fill_conv, packed, weight, groups))


def _fill_conv(packed: Array, weight: Array, groups: int) -> None:
    outputs, inner, height, breadth = weight.shape
    width = packed.shape[2]
    own, blocks = outputs // groups, len(packed) // groups
    rows = weight.reshape(groups, own, inner, height, breadth)
    if own % width:
        rows = np.zeros((groups, blocks * width, inner, height, breadth), weight.dtype)
        rows[:, :own] = weight.reshape(groups, own, inner, height, breadth)
    parts = rows.reshape(groups * blocks, width, inner, height, breadth).transpose(0, 3, 4, 2, 1)
    np.copyto(packed.reshape(parts.shape), parts)


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
    return winograd_filling(weight, width).filled()


def winograd_filling(weight: Array, width: int) -> Filling:
    """Return what becomes :func:`pack_winograd`."""
    outputs, inner = weight.shape[:2]
    packed = np.empty((-(-outputs // width), 16, inner, width), weight.dtype)
    return Filling(packed, partial(_fill_winograd, packed, weight))


def _fill_winograd(packed: Array, weight: Array) -> None:
    _, _, inner, width = packed.shape
    taps = pack_conv(weight, 1, width)
    transform = np.kron(_TRANSFORM, _TRANSFORM)
    for source, result in zip(taps, packed, strict=True):  # a block of outputs stays in the cache
        # Small products, one an input channel: threads for larger ones cost more than they save.
        rows = source.reshape(9, inner, width).transpose(1, 0, 2)
        np.matmul(transform, rows, result.transpose(1, 0, 2), casting="same_kind")


def unpack_winograd(packed: Array, outputs: int) -> Array:
    """Undo :func:`pack_winograd`, but for rounding."""
    _, places, inner, _ = packed.shape
    wide = np.stack([unpack_dense(packed[:, e], outputs) for e in range(places)])
    wide = wide.reshape(4, 4, inner, outputs)
    return np.einsum("ya,xb,abio->oiyx", _BACK, _BACK, wide).astype(packed.dtype)


def pack_depthwise(weight: Array) -> Array:
    """Return ``weight[C, 1, KH, KW]`` as ``[KH, KW, C]``."""
    return depthwise_filling(weight).filled()


def depthwise_filling(weight: Array) -> Filling:
    """Return what becomes :func:`pack_depthwise`."""
    parts = weight[:, 0].transpose(1, 2, 0)
    packed = np.empty(parts.shape, weight.dtype)
    return Filling(packed, partial(np.copyto, packed, parts))


def unpack_depthwise(packed: Array) -> Array:
    """Undo :func:`pack_depthwise`."""
    return np.ascontiguousarray(packed.transpose(2, 0, 1)[:, None])
