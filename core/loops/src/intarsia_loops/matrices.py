# SPDX-License-Identifier: Apache-2.0
"""Transposes that swap the rows and columns of matrices.

A loop over the elements of such a transpose reads with the stride of a row: a cache line for each
element, and no vectors. Backends have kernels for it that move squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.graph.op import OpKind
from intarsia_ir.ops.shape import Transpose

from .typical import extents, typical

LEAST_SIDE = 8
"""Fewest rows and columns of a matrix that is transposed by a kernel of its own."""

LEAST_ELEMENTS = 16_384
"""Fewest elements; fewer stay in the first-level cache, where a stride costs little."""


def as_matrices(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return ``(batch, rows, columns)`` if a transpose swaps the last two of three dimensions.

    Dimensions of size 1 are left out, and those that stay neighbours are one.
    """
    kept_axes = [axis for axis in axes if shape[axis] != 1]
    groups: list[list[int]] = []
    rank = {axis: number for number, axis in enumerate(sorted(kept_axes))}
    for axis in kept_axes:
        if groups and rank[axis] == rank[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [prod(shape[axis] for axis in group) for group in groups]
    order = sorted(range(len(groups)), key=lambda n: groups[n][0])
    if order == [1, 0]:
        return 1, sizes[1], sizes[0]
    if order == [0, 2, 1]:
        return sizes[0], sizes[2], sizes[1]
    return None


def swaps_matrices(call: Call) -> bool:
    """Whether a call transposes matrices that are large enough for a kernel of its own."""
    if not isinstance(call.attrs, Transpose.Attrs):
        return False
    shape = extents(tensor_type(call.args[0]))
    matrices = as_matrices(shape, call.attrs.axes)
    if matrices is None or typical(prod(shape)) < LEAST_ELEMENTS:
        return False
    return all(typical(side) >= LEAST_SIDE for side in matrices[1:])


def reads_across(last: Call, call: Call) -> bool:
    """Whether an element-wise call reads a transposed matrix; others may read a part of it."""
    return call.op.kind is OpKind.ELEMWISE and swaps_matrices(last)
