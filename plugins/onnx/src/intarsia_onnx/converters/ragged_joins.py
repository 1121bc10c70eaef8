# SPDX-License-Identifier: Apache-2.0
"""Elements of a sequence that become one tensor: joined along a dimension, or stacked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import compare, indexing, reduce
from intarsia_ir.ops.cumulative import Cumsum, RunningAttrs
from intarsia_ir.ops.shape import Copy
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, product

from ..builder import sizes_of
from ..context import NodeContext
from .computed import Numbers
from .index_range import required
from .ragged import KnownSizes, Ragged

FIRST = indexing.Take.Attrs(axis=0)


def joined_elements(node: NodeContext, sequence: Ragged, sizes: KnownSizes, axis: int) -> Expr:
    """Join the elements along one of their dimensions.

    Args:
        node: The node that joins them.
        sequence: The elements.
        sizes: Of them, as far as they are known.
        axis: The dimension.
    """
    others = [n for n in range(len(sizes)) if n != axis]
    found = _common_sizes(node, sequence, {n: sizes[n] for n in others})
    before, behind = ([found[n] for n in others if (n < axis) is first] for first in (True, False))
    widths = node.reshape(node.slice(sequence.shapes, 1, 1 + axis, 2 + axis), (sequence.count,))
    attrs = reduce.Sum.Attrs(axes=(0,), keepdims=False)
    total = Numbers(node).as_size(node.call(reduce.Sum, widths, attrs=attrs))
    items, (outer, inner) = sequence.items, map(product, (before, behind))
    if outer != 1:
        items = node.call(
            indexing.Take, items, _joined_rows(node, widths, total, outer, inner), attrs=FIRST
        )
    return node.reshape(items, (*before, total, *behind))


def _joined_rows(node: NodeContext, widths: Expr, total: Size, outer: Size, inner: Size) -> Expr:
    """Return for ``[outer, total, inner]`` where its elements lie in a sequence's items.

    Args:
        node: The node.
        widths: Positions of each element along the dimension that is joined, ``[count]``.
        total: Their sum.
        outer: Elements of the dimensions before.
        inner: Elements of the dimensions behind.
    """
    numbers = Numbers(node)
    ends = node.call(Cumsum, widths, attrs=RunningAttrs(axis=0))
    begins = numbers.subtract(ends, widths)
    positions = numbers.range(total)
    part = part_of(node, ends, positions)
    begin, width = (node.call(indexing.Take, row, part, attrs=FIRST) for row in (begins, widths))
    # Element e begins at ``begin * outer * inner`` and has ``width * inner`` for each outer index.
    planes, columns = numbers.size(outer * inner), numbers.size(inner)
    first = numbers.multiply(begin, planes)
    first = numbers.add(first, numbers.multiply(numbers.subtract(positions, begin), columns))
    start = node.reshape(first, (1, total, 1))
    step = node.reshape(numbers.multiply(width, columns), (1, total, 1))
    rows = node.reshape(numbers.range(outer), (outer, 1, 1))
    places = numbers.add(numbers.add(start, numbers.multiply(rows, step)), numbers.range(inner))
    return node.reshape(places, (outer * total * inner,))


def part_of(node: NodeContext, ends: Expr, positions: Expr) -> Expr:
    """Return in which part each position is: as many parts end before it.

    Args:
        node: The node.
        ends: Where the parts end, ``[count]``.
        positions: ``[length]``.
    """
    column = node.reshape(positions, (*sizes_of(positions), 1))
    is_over = node.cast(node.call(compare.LessEqual, ends, column), DType.INT64)
    counted = node.call(reduce.Sum, is_over, attrs=reduce.Sum.Attrs(axes=(1,), keepdims=False))
    return node.call(Copy, counted)


def stacked_elements(node: NodeContext, sequence: Ragged, sizes: KnownSizes) -> Expr:
    """Stack the elements along a new first dimension.

    Args:
        node: The node that stacks them.
        sequence: The elements.
        sizes: Of them, as far as they are known.
    """
    found = _common_sizes(node, sequence, dict(enumerate(sizes)))
    return node.reshape(sequence.items, (sequence.count, *found.values()))


def _common_sizes(
    node: NodeContext, sequence: Ragged, known: Mapping[int, Size | None]
) -> dict[int, Size]:
    """Return sizes that all elements have in common; a run in which they differ fails.

    They are 0 if there are no elements.

    Args:
        node: The node that needs them.
        sequence: The elements.
        known: For each dimension its size, ``None`` for one that only the run knows.
    """
    asked = [axis for axis, size in known.items() if size is None]
    if not asked:
        return {axis: size for axis, size in known.items() if size is not None}
    columns = node.concat([node.slice(sequence.shapes, 1, 1 + axis, 2 + axis) for axis in asked], 1)
    behind = node.array(np.zeros((1, len(asked)), np.int64))
    first = node.slice(node.concat([columns, behind], 0), 0, 0, 1)
    same = node.call(compare.Equal, columns, first)
    holds = node.call(reduce.All, same, attrs=reduce.All.Attrs(axes=(0, 1), keepdims=False))
    row = required(node, holds, first, "elements that are joined differ in size")
    own = {axis: node.size_of(row, number) for number, axis in enumerate(asked)}
    return {axis: own[axis] if size is None else size for axis, size in known.items()}
