# SPDX-License-Identifier: Apache-2.0
"""Weights stored in the layout that the library chose when the model was compiled.

A loader whose library chooses the same uses them where they are mapped: nothing is reordered and
nothing is kept twice. Another one unpacks them. So the layout is described in full, as oneDNN's
*blocked* layouts are: outer blocks with strides, and dense inner blocks of some axes.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta, Struct, to_builtins

from intarsia_runtime.plugin import Dims, Index

Block: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 20)]
"""Elements of an inner block."""


class PackedLayout(Struct, frozen=True):
    """Where the elements of a tensor lie.

    Attributes:
        shape: Its shape.
        strides: Elements from one (outer) block to the next, for each axis.
        padded: The shape in memory; each axis a multiple of its blocks.
        blocks: Axis and size of the inner blocks, outermost first.
    """

    shape: Dims
    strides: Dims
    padded: Dims
    blocks: Annotated[tuple[tuple[Index, Block], ...], Meta(max_length=12)] = ()

    @property
    def elements(self) -> int:
        """Number of elements in memory, padding included."""
        return prod(self.padded)

    def check(self) -> None:
        """Check that the layout lies within its memory.

        Raises:
            ValueError: It does not.
        """
        outer = list(self.padded)
        for axis, size in self.blocks:
            outer[axis], rest = divmod(outer[axis], size)
            if rest:
                raise ValueError(f"blocks of {size} do not fill axis {axis} of {self.padded}")
        steps = zip(outer, self.strides, strict=True)
        last = prod(size for _, size in self.blocks) + sum((n - 1) * step for n, step in steps)
        fits = all(n <= whole for n, whole in zip(self.shape, self.padded, strict=True))
        if not fits or min(outer, default=1) < 1 or last > self.elements:
            raise ValueError(f"the layout {self} reads outside of its memory")

    def read(self, memory: np.ndarray) -> np.ndarray:
        """Return the tensor that lies in ``memory``; a view if the layout has no blocks.

        Args:
            memory: One axis of at least :attr:`elements` elements.
        """
        rank, item = len(self.shape), memory.itemsize
        outer, strides = list(self.padded), [step * item for step in self.strides]
        inner: list[int] = []
        steps: list[int] = []
        step = item
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

    view: PackedLayout
    layout: PackedLayout

    def unpack(self, stored: np.ndarray) -> np.ndarray:
        """Return the row-major constant, one axis.

        Args:
            stored: What is stored, one axis.
        """
        plain = np.empty(self.view.elements, stored.dtype)
        self.view.read(plain)[...] = self.layout.read(stored)
        return plain

    def check(self) -> None:
        """Check that both layouts lie within their memory, and have one shape.

        Raises:
            ValueError: They do not.
        """
        self.view.check()
        self.layout.check()
        if self.view.shape != self.layout.shape or self.view.blocks:
            raise ValueError(f"a weight of {self.view.shape} is stored as {self.layout.shape}")

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return to_builtins(self)
