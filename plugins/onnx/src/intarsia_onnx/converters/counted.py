# SPDX-License-Identifier: Apache-2.0
"""Operators whose results are as long as the data say: what is found is counted first."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.graph.guards import is_collecting, require_at_most
from intarsia_ir.graph.types import Size
from intarsia_ir.ops import binary, compare, counted, indexing, reduce, unary
from intarsia_ir.ops.suppression import NonMaxSuppression
from intarsia_ir.ops.type_rules import same_size
from intarsia_ir.ops.unique import Unique
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum, minimum, product

from ..builder import STATIC_HINT, dtype_of, rank_of, sizes_of
from ..context import NodeContext
from ..run_sizes import Hole
from .computed import Numbers
from .creation import known_range


def non_zero(node: NodeContext) -> Expr:
    """Convert NonZero."""
    value = node.constant_value(0)
    if value is not None:
        return node.array(np.stack(np.nonzero(np.atleast_1d(value))).astype(np.int64))
    x = node.input(0)
    if rank_of(x) == 0:
        x = node.reshape(x, (1,))
    return places_of(node, x)


def compress(node: NodeContext) -> Expr:
    """Convert Compress: a gather of the chosen elements."""
    x = node.input(0)
    if node.has("axis"):
        axis = node.axis("axis", rank_of(x))
    else:
        axis = 0
        x = node.reshape(x, (product(sizes_of(x)),))
    length, size = sizes_of(node.input(1))[0], sizes_of(x)[axis]
    if not require_at_most(length, size, f"{node.span}: there must be an element to choose"):
        raise node.model_error(f"{length} conditions for {size} elements")
    condition = node.constant_value(1)
    if condition is not None:
        places: Expr = node.array(np.flatnonzero(condition))
    else:
        chosen = places_of(node, node.input(1))
        places = node.reshape(chosen, (sizes_of(chosen)[1],))
    return node.call(indexing.Take, x, places, attrs=indexing.Take.Attrs(axis=axis))


def places_of(node: NodeContext, x: Expr) -> Expr:
    """Return the places of elements that are not 0, int64 ``[rank, count]``."""
    _check_collecting(node, "how many elements are not 0")
    mask = x
    if dtype_of(x) is not DType.BOOL:
        mask = node.call(compare.NotEqual, x, node.scalar(0, dtype_of(x)))
    total = count_of(node, mask)
    attrs = counted.NonZero.Attrs(count=extents((total,))[0])
    return node.call(counted.NonZero, mask, attrs=attrs)


def count_of(node: NodeContext, numbers: Expr) -> Size:
    """Return the sum of all elements as a size."""
    wide = node.cast(numbers, DType.INT64)
    axes = tuple(range(rank_of(wide)))
    return node.size_of(
        node.call(reduce.Sum, wide, attrs=reduce.Sum.Attrs(axes=axes, keepdims=False))
    )


def _check_collecting(node: NodeContext, what: str) -> None:
    """Refuse what needs open sizes in a model of known ones.

    Raises:
        UnsupportedError: The model is built with known sizes alone.
    """
    if not is_collecting():
        raise node.unsupported(f"{what} is not known at compile time", STATIC_HINT)


def range_(node: NodeContext) -> Expr:
    """Convert Range; limits that the model computes give a number of elements of the run."""
    values = [node.constant_value(index) for index in range(3)]
    found = known_range(node, values)
    if found is not None:
        return found
    _check_collecting(node, "how long a range is")
    start, limit, delta = (node.reshape(node.input(index), ()) for index in range(3))
    dtype = dtype_of(start)
    wide = DType.FLOAT64 if dtype.is_float else DType.INT64
    first, last, step = (node.cast(value, wide) for value in (start, limit, delta))
    span, ints = node.call(binary.Subtract, last, first), Numbers(node)
    if dtype.is_float:
        steps = node.cast(node.call(unary.Ceil, node.call(binary.Divide, span, step)), DType.INT64)
        steps = node.call(binary.Maximum, steps, ints.of(0))
    else:
        steps = ints.steps(span, step)
    numbers = node.cast(ints.range(node.size_of(steps)), wide)
    moved = node.call(binary.Multiply, numbers, step)
    return node.cast(node.call(binary.Add, moved, first), dtype)


def non_max_suppression(node: NodeContext) -> Expr:
    """Convert NonMaxSuppression: the boxes of each class, then all of them in one list.

    Raises:
        ModelError: Boxes and scores do not fit, or a limit is not one number.
    """
    _check_collecting(node, "how many boxes are chosen")
    boxes, scores = sizes_of(node.input(0)), sizes_of(node.input(1))
    fits = len(scores) == len(boxes) == 3
    if not fits or not all(map(same_size, boxes, (scores[0], scores[2], 4))):
        raise node.model_error(f"boxes of shape {boxes} do not fit scores of shape {scores}")
    (count,) = extents((_most_boxes(node, scores[2]),))
    if count == 0:
        return node.array(np.zeros((0, 3), np.int64))
    operands = [_corners(node), node.input(1)]
    attrs = NonMaxSuppression.Attrs(count=count, overlap=0.0)
    limits = [node.optional(3), node.optional(4)]
    known = [None if limit is None else node.folder.value(limit) for limit in limits]
    if all(limit is None or value is not None for limit, value in zip(limits, known, strict=True)):
        overlap = float(node.required_scalar(3, "the overlap")) if limits[0] else 0.0
        least = float(node.required_scalar(4, "the least score")) if limits[1] else -np.inf
        attrs = NonMaxSuppression.Attrs(count=count, overlap=overlap, least=least)
    else:
        usual = (node.scalar(0.0, DType.FLOAT32), node.scalar(-np.inf, DType.FLOAT32))
        pairs = zip(limits, usual, strict=True)
        parts = [node.reshape(default if x is None else x, (1,)) for x, default in pairs]
        operands.append(node.concat(parts, 0))
    chosen = node.call(NonMaxSuppression, *operands, attrs=attrs)
    places, counts = get_item(chosen, 0), get_item(chosen, 1)
    total = extents((count_of(node, counts),))[0]
    attrs_of_all = counted.ChosenBoxes.Attrs(count=total)
    return node.call(counted.ChosenBoxes, places, counts, attrs=attrs_of_all)


def unique(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Unique: rows along an axis, or all elements."""
    _check_collecting(node, "how many elements differ")
    x = node.input(0)
    rank = rank_of(x)
    axis = node.axis("axis", rank) if node.has("axis") else 0
    if not node.has("axis"):
        x = node.reshape(x, (product(sizes_of(x)),))
        rank = 1
    moved = node.transpose(x, (axis, *(n for n in range(rank) if n != axis)))
    sizes = sizes_of(moved)
    rows = node.reshape(moved, (sizes[0], product(sizes[1:])))
    attrs = Unique.Attrs(is_sorted=bool(node.integer("sorted", 1)))
    found = node.call(Unique, rows, attrs=attrs)
    first, inverse, counts, total = (get_item(found, n, span=node.span) for n in range(4))
    (count,) = extents((node.size_of(total),))
    first, counts = node.slice(first, 0, 0, count), node.slice(counts, 0, 0, count)
    values = node.call(indexing.Take, x, first, attrs=indexing.Take.Attrs(axis=axis))
    return values, first, inverse, counts


def _most_boxes(node: NodeContext, boxes: Size) -> Size:
    """Return how many boxes of a class may be chosen; a number that there are not means all."""
    if node.optional(2) is None:
        return 0
    wanted = node.partial_sizes(2, "the number of boxes")
    if len(wanted) != 1:
        raise node.model_error(f"the number of boxes must be one number, got {len(wanted)}")
    if not isinstance(wanted[0], Hole):
        return maximum(minimum(wanted[0], boxes), 0)
    least = node.call(
        binary.Minimum, node.cast(node.input(2), DType.INT64), node.size_tensor(boxes)
    )
    return node.size_of(node.call(binary.Maximum, least, node.scalar(0, DType.INT64)))


def _corners(node: NodeContext) -> Expr:
    """Lower and upper corner of each box: ``[batch, (y0, x0, y1, x1), boxes]``."""
    rows = node.transpose(node.input(0), (0, 2, 1))
    first, second = node.slice(rows, 1, 0, 2), node.slice(rows, 1, 2, 4)
    if not node.integer("center_point_box", 0):
        low = node.call(binary.Minimum, first, second)
        return node.concat((low, node.call(binary.Maximum, first, second)), 1)
    centre, size = _swapped(node, first), _swapped(node, second)  # x, y and width, height
    half = node.call(binary.Multiply, size, node.scalar(0.5, DType.FLOAT32))
    low, high = (node.call(op, centre, half) for op in (binary.Subtract, binary.Add))
    return node.concat((low, high), 1)


def _swapped(node: NodeContext, pair: Expr) -> Expr:
    return node.concat((node.slice(pair, 1, 1, 2), node.slice(pair, 1, 0, 1)), 1)


CONVERTERS = MappingProxyType(
    {
        "Compress": compress,
        "NonMaxSuppression": non_max_suppression,
        "NonZero": non_zero,
        "Range": range_,
        "Unique": unique,
    }
)
