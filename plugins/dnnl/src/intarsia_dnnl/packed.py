# SPDX-License-Identifier: Apache-2.0
"""Weights stored in the layout that the library chose when the model was compiled.

A loader whose library chooses the same uses them where they are mapped: nothing is reordered and
nothing is kept twice. Another one unpacks them. So the layout is described in full, as oneDNN's
*blocked* layouts are: outer blocks with strides, and dense inner blocks of some axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins


class Layout(Struct, frozen=True):
    """Where the elements of a tensor lie.

    Attributes:
        shape: Its shape.
        strides: Elements from one (outer) block to the next, for each axis.
        padded: The shape in memory; each axis a multiple of its blocks.
        blocks: Axis and size of the inner blocks, outermost first.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padded: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements in memory, padding included."""
        return prod(self.padded)

    def read(self, memory: np.ndarray) -> np.ndarray:
        """Return the tensor that lies in ``memory``; a view if the layout has no blocks.

        Args:
            memory: One axis of at least :attr:`elements` elements.
        """
        rank, item = len(self.shape), memory.itemsize
        outer, strides = list(self.padded), [step * item for step in self.strides]
        inner, steps, step = [], [], item
        for axis, size in reversed(self.blocks):
            outer[axis] //= size
            inner.insert(0, size)
            steps.insert(0, step)
            step *= size
        split = np.lib.stride_tricks.as_strided(memory, (*outer, *inner), (*strides, *steps))
        order = [
            place
            for axis in range(rank)
            for place in (axis, *(rank + n for n, (a, _) in enumerate(self.blocks) if a == axis))
        ]
        whole = split.transpose(order).reshape(self.padded) if self.blocks else split
        return whole[tuple(slice(size) for size in self.shape)]


class PackedWeight(Struct, frozen=True):
    """A constant that is stored in another layout than row-major.

    Attributes:
        view: How its reader sees the row-major constant: shape and strides, no blocks.
        layout: How the constant, seen so, is stored.
    """

    view: Layout
    layout: Layout

    def unpack(self, stored: np.ndarray) -> np.ndarray:
        """Return the row-major constant, one axis.

        Args:
            stored: What is stored, one axis.
        """
        plain = np.empty(self.view.elements, stored.dtype)
        self.view.read(plain)[...] = self.layout.read(stored)
        return plain

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return to_builtins(self)


def packed_from_json(body: Mapping[str, Any]) -> PackedWeight:
    """Read what :meth:`PackedWeight.to_json` gave.

    Raises:
        ValueError: A layout reads outside of its memory.
    """
    return PackedWeight(_layout(body["view"]), _layout(body["layout"]))


def _layout(body: Mapping[str, Any]) -> Layout:
    blocks = tuple((axis, size) for axis, size in body["blocks"])
    layout = Layout(tuple(body["shape"]), tuple(body["strides"]), tuple(body["padded"]), blocks)
    sizes = list(layout.padded)
    for axis, size in blocks:
        sizes[axis] //= size
    pairs = zip(sizes, layout.strides, strict=True)
    last = prod(size for _, size in blocks) + sum((size - 1) * step for size, step in pairs)
    if min((*layout.padded, *layout.strides)) < 0 or last > layout.elements:
        raise ValueError(f"the layout {layout} reads outside of its memory")
    return layout
