# SPDX-License-Identifier: Apache-2.0
"""AffineGrid: where affine maps put the elements of images, which GridSample takes."""

from __future__ import annotations

from functools import reduce
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary
from intarsia_ir.ops.elements import accumulator
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..builder import dtype_of, sizes_of
from ..context import NodeContext
from .computed import Numbers


def affine_grid(node: NodeContext) -> Expr:
    """Convert AffineGrid: ``theta @ (x, y, 1)`` or ``theta @ (x, y, z, 1)`` of every place.

    Places are the elements of an image ``[N, C, H, W]`` or ``[N, C, D, H, W]``, from -1 to 1.

    Raises:
        ModelError: The maps do not fit the size.
    """
    theta, sizes = node.input(0), node.required_sizes(1, "the size")
    shape, rank = sizes_of(theta), len(sizes) - 2
    if rank not in (2, 3) or tuple(shape[1:]) != (rank, rank + 1):
        raise node.model_error(f"maps {node.type_of(0)} for an image of {len(sizes)} dimensions")
    kind = accumulator(dtype_of(theta))
    maps = node.cast(theta, kind)

    def column(number: int) -> Expr:
        """One factor of every map, ``[N, 1, ..., rank]``."""
        taken = node.slice(maps, 2, number, number + 1)
        return node.reshape(taken, (shape[0], *[1] * rank, rank))

    parts: list[Expr] = []
    for axis, size in enumerate(sizes[2:]):
        row: list[Size] = [1] * (rank + 2)
        row[1 + axis] = size
        places = node.reshape(_places(node, size, kind), row)
        parts.append(node.call(binary.Multiply, places, column(rank - 1 - axis)))
    total = reduce(lambda a, b: node.call(binary.Add, a, b), parts, column(rank))
    return node.cast(total, dtype_of(theta))


def _places(node: NodeContext, size: Size, kind: DType) -> Expr:
    """Return where elements of a dimension lie from -1 to 1: their middles, or the ends too."""
    numbers = Numbers(node)
    count = node.cast(numbers.size(size), kind)
    index = node.cast(numbers.range(size), kind)
    one, two = node.scalar(1.0, kind), node.scalar(2.0, kind)
    if node.integer("align_corners", 0):
        spaces = node.call(binary.Maximum, node.call(binary.Subtract, count, one), one)
        moved = node.call(binary.Multiply, index, node.call(binary.Divide, two, spaces))
        return node.call(binary.Subtract, moved, one)
    # (2 i + 1) / n - 1
    doubled = node.call(binary.Add, node.call(binary.Multiply, index, two), one)
    return node.call(binary.Subtract, node.call(binary.Divide, doubled, count), one)


CONVERTERS = MappingProxyType({"AffineGrid": affine_grid})
