# SPDX-License-Identifier: Apache-2.0
"""Sequences whose elements differ in size, in two tensors.

One has the elements one behind the other, flat; the other a row for each element: its rank, its
sizes, and zeros. So a sequence may be an input of compiled code, or grow in a loop, whatever its
elements are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as reduce_pairs
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple, tensor_type
from intarsia_ir.ops import compare, indexing, reduce
from intarsia_ir.ops.cumulative import Cumsum, RunningAttrs
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, product

from ..builder import Builder, dtype_of, sizes_of
from ..context import NodeContext
from ..ragged import ROW
from .computed import Numbers
from .index_range import in_range

KnownSizes: TypeAlias = "Sequence[Size | None]"
"""Sizes of elements of a sequence; ``None`` for one in which they may differ."""

ElementSizes: TypeAlias = "KnownSizes | None"
"""The same; ``None`` for elements that may differ in rank."""


class Ragged(Struct, frozen=True, eq=False):
    """A sequence.

    Attributes:
        items: ``[total]``: its elements, one behind the other.
        shapes: ``[count, ROW]``, int64.
        sizes: Of every element, ``None`` where they may differ; ``None`` for all if they may differ
            in rank, too.
    """

    items: Expr
    shapes: Expr
    sizes: ElementSizes

    @property
    def rank(self) -> int | None:
        """The rank of every element; ``None`` if they may differ in that."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def count(self) -> Size:
        """How many elements there are."""
        return sizes_of(self.shapes)[0]

    @property
    def dtype(self) -> DType:
        """The type of the elements' elements."""
        return dtype_of(self.items)


def ragged_sequence(node: Builder, items: Expr, shapes: Expr, sizes: ElementSizes) -> Expr:
    """Make a sequence of its two tensors."""
    made = make_tuple((items, shapes), span=node.span)
    node.folder.ragged[made] = sizes
    return made


def common_sizes(a: ElementSizes, b: ElementSizes) -> ElementSizes:
    """Return what is known of elements, some of which are of one kind, and some of another."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(one if one == other else None for one, other in zip(a, b, strict=True))


def ragged_items(node: NodeContext, sequence: Expr) -> Ragged | None:
    """Return a sequence whose elements differ in size; ``None`` for another value."""
    if not isinstance(sequence, Tuple) or sequence not in node.folder.ragged:
        return None
    items, shapes = sequence.fields
    return Ragged(items, shapes, node.folder.ragged[sequence])


def ragged_rows(node: NodeContext, rows: Expr) -> Ragged:
    """Return the slices of a tensor along its first axis."""
    count, *sizes = sizes_of(rows)
    row = node.reshape(element_row(node, sizes), (1, ROW))
    shapes = node.broadcast(row, extents((count, ROW)))
    return Ragged(node.reshape(rows, (product(sizes_of(rows)),)), shapes, tuple(sizes))


def ragged_list(node: NodeContext, items: Sequence[Expr]) -> Ragged:
    """Return tensors, at least one, as a sequence.

    Raises:
        ModelError: They differ in element type.
    """
    if any(dtype_of(item) is not dtype_of(items[0]) for item in items):
        raise node.model_error("elements of a sequence differ in type")
    flat = [node.reshape(item, (product(sizes_of(item)),)) for item in items]
    rows = [node.reshape(element_row(node, sizes_of(item)), (1, ROW)) for item in items]
    sizes = reduce_pairs(common_sizes, [sizes_of(item) for item in items])
    return Ragged(node.concat(flat, 0), node.concat(rows, 0), sizes)


def joined(node: NodeContext, a: Ragged, b: Ragged) -> Expr:
    """Put the elements of one sequence behind those of another.

    Raises:
        ModelError: They differ in element type.
    """
    if a.dtype is not b.dtype:
        raise node.model_error(f"elements of {a.dtype} and {b.dtype} in one sequence")
    items, shapes = (node.concat(pair, 0) for pair in ((a.items, b.items), (a.shapes, b.shapes)))
    return ragged_sequence(node, items, shapes, common_sizes(a.sizes, b.sizes))


def inserted(node: NodeContext, sequence: Ragged, item: Expr, position: Expr) -> Expr:
    """Put an element before the one at a position of the run."""
    numbers, one = Numbers(node), ragged_list(node, [item])
    whole = ragged_items(node, joined(node, sequence, one))
    assert whole is not None  # it has just been made
    place = _place(node, position, sequence.count, beyond=1)
    total, count = sizes_of(sequence.items)[0], product(sizes_of(item))
    start = _begin(node, sequence, place)
    items = _moved(node, whole.items, start, numbers.size(total), numbers.size(count))
    shapes = _moved(node, whole.shapes, place, numbers.size(sequence.count), numbers.of(1))
    return ragged_sequence(node, items, shapes, whole.sizes)


def erased(node: NodeContext, sequence: Ragged, position: Expr) -> Expr:
    """Leave out the element at a position of the run."""
    numbers = Numbers(node)
    place = _place(node, position, sequence.count)
    start = _begin(node, sequence, place)
    length = node.call(indexing.Take, _counts(node, sequence), place, attrs=_FIRST)
    total = numbers.size(sizes_of(sequence.items)[0])
    rest = numbers.as_size(numbers.subtract(total, length))
    items = _without(node, sequence.items, start, length, rest)
    shapes = _without(node, sequence.shapes, place, numbers.of(1), sequence.count - 1)
    return ragged_sequence(node, items, shapes, sequence.sizes)


def element(node: NodeContext, sequence: Ragged, position: Expr) -> Expr:
    """Return the element at a position of the run, whose sizes become those of the run.

    Raises:
        UnsupportedError: Its rank is not known.
    """
    if sequence.sizes is None:
        raise node.unsupported(f"{node.op_type} of elements whose rank is not known")
    numbers = Numbers(node)
    place = _place(node, position, sequence.count)
    row = node.call(indexing.Take, sequence.shapes, place, attrs=_FIRST)
    sizes = [
        node.size_of(row, 1 + axis) if size is None else size
        for axis, size in enumerate(sequence.sizes)
    ]
    start = _begin(node, sequence, place)
    places = numbers.add(numbers.range(product(sizes)), start)
    return node.reshape(node.call(indexing.Take, sequence.items, places, attrs=_FIRST), sizes)


_FIRST = indexing.Take.Attrs(axis=0)


def element_row(node: NodeContext, sizes: Sequence[Size]) -> Expr:
    """Return the row of an element.

    Raises:
        UnsupportedError: It has more dimensions than a row has room for.
    """
    if len(sizes) >= ROW:
        raise node.unsupported(f"a sequence of tensors of {len(sizes)} dimensions")
    return node.size_tensor(len(sizes), *sizes, *[0] * (ROW - 1 - len(sizes)))


def _place(node: NodeContext, position: Expr, count: Size, beyond: int = 0) -> Expr:
    """Return a position, counted from the front; it may be ``beyond`` behind the last element."""
    given = node.reshape(node.cast(position, DType.INT64), ())
    place = in_range(node, given, count + beyond)
    numbers = Numbers(node)
    counted = numbers.add(place, numbers.size(count))
    return numbers.choose(numbers.is_less(place, numbers.of(0)), counted, place)


def _counts(node: NodeContext, sequence: Ragged) -> Expr:
    """Return how many elements each tensor of a sequence has, ``[count]``."""
    sizes = node.slice(sequence.shapes, 1, 1, ROW)
    ranks = node.slice(sequence.shapes, 1, 0, 1)
    is_used = node.call(compare.Less, node.array(np.arange(ROW - 1)), ranks)
    factors = node.call(compare.Where, is_used, sizes, node.scalar(1, DType.INT64))
    return node.call(reduce.Prod, factors, attrs=reduce.Prod.Attrs(axes=(1,), keepdims=False))


def _begin(node: NodeContext, sequence: Ragged, place: Expr) -> Expr:
    """Return where the element at a place begins; behind the last one, where all end."""
    ends = node.call(Cumsum, _counts(node, sequence), attrs=RunningAttrs(axis=0))
    starts = node.concat([node.array(np.zeros(1, np.int64)), ends], 0)
    return node.call(indexing.Take, starts, place, attrs=_FIRST)


def _moved(node: NodeContext, x: Expr, start: Expr, total: Expr, count: Expr) -> Expr:
    """Move what is behind ``total`` rows, ``count`` rows, to ``start``."""
    numbers = Numbers(node)
    index = numbers.range(tensor_type(x).shape[0])
    inside = numbers.add(numbers.subtract(index, start), total)
    behind = numbers.subtract(index, count)
    is_before = numbers.is_less(index, start)
    is_inside = numbers.is_less(index, numbers.add(start, count))
    chosen = numbers.choose(is_before, index, numbers.choose(is_inside, inside, behind))
    return node.call(indexing.Take, x, chosen, attrs=_FIRST)


def _without(node: NodeContext, x: Expr, start: Expr, count: Expr, rest: Size) -> Expr:
    """Leave out ``count`` rows from ``start`` on; ``rest`` are left."""
    numbers = Numbers(node)
    index = numbers.range(rest)
    behind = numbers.add(index, count)
    chosen = numbers.choose(numbers.is_less(index, start), index, behind)
    return node.call(indexing.Take, x, chosen, attrs=_FIRST)
