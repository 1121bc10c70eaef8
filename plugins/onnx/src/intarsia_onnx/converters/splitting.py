# SPDX-License-Identifier: Apache-2.0
"""SplitToSequence: parts of known sizes, slices of an open axis, and parts that the run decides."""

from __future__ import annotations

from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, make_tuple
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import binary, compare, generate, indexing, reduce
from intarsia_ir.ops.cumulative import Cumsum, RunningAttrs
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size, product

from ..builder import rank_of, sizes_of
from ..context import NodeContext
from ..ragged import ROW
from .computed import Numbers
from .index_range import required
from .ragged import ragged_sequence
from .ragged_joins import part_of
from .sequences import stacked_sequence

_FIRST = indexing.Take.Attrs(axis=0)

MOST_ITEMS = 1024
"""Most elements of a sequence of known length."""


def split_to_sequence(node: NodeContext) -> Expr:
    """Convert SplitToSequence; slices of an open axis are a sequence of its length."""
    x = node.input(0)
    axis = node.axis("axis", rank_of(x), 0)
    length = sizes_of(x)[axis]
    keeps = bool(node.integer("keepdims", 1))
    width = _equal_width(node, length)
    if width:
        return _equal_parts(node, x, axis, width, keeps=keeps or node.optional(1) is not None)
    if not node.is_fixed(1) or isinstance(length, Dim):
        return _computed_split(node, x, axis)
    if node.optional(1) is None:
        numbers = range(length)
        parts = [node.slice(x, axis, n, n + 1) if keeps else node.item(x, axis, n) for n in numbers]
        return make_tuple(parts, span=node.span)
    begins = _begins(node, length)
    ends = [*begins[1:], length][: len(begins)]
    pairs = zip(begins, ends, strict=True)
    return make_tuple([node.slice(x, axis, *pair) for pair in pairs], span=node.span)


def _equal_width(node: NodeContext, length: Size) -> int:
    """Return how many positions every part has, where the parts are many and known to be equal.

    0 if they are few, may differ, or the last one may have fewer. A run in which as many parts do
    not add up to ``length`` fails.
    """
    given, is_long = node.optional(1), isinstance(length, Dim) or length > MOST_ITEMS
    if given is None:
        return int(is_long)
    if isinstance(given, Call) and given.op is generate.Full:
        attrs = cast("generate.Full.Attrs", given.attrs)
        (count,), width = sizes_of(given) or (1,), int(attrs.value)
        why = f"{node.span}: the parts do not add up to {length} elements"
        is_open = isinstance(count, Dim) and width > 0
        return width if is_open and require_equal(count * width, length, why) else 0
    known = node.constant_value(1)
    return int(is_long and known is not None and known.ndim == 0 and int(known) == 1)


def _equal_parts(node: NodeContext, x: Expr, axis: int, width: int, *, keeps: bool) -> Expr:
    """Make a sequence of parts of one size, which are slices of a tensor."""
    count, others = sizes_of(x)[axis] // width, [n for n in range(rank_of(x)) if n != axis]
    if width == 1:
        rows = node.transpose(x, [axis, *others])
    else:
        sizes = sizes_of(x)
        parts = node.reshape(x, (*sizes[:axis], count, width, *sizes[axis + 1 :]))
        rows = node.transpose(parts, [axis, *(n for n in range(rank_of(parts)) if n != axis)])
    if width == 1 and keeps:
        sizes = sizes_of(rows)
        rows = node.reshape(rows, (*sizes[: axis + 1], 1, *sizes[axis + 1 :]))
    return stacked_sequence(node, rows)


def _begins(node: NodeContext, length: int) -> list[int]:
    """Return where the parts of a split begin: one size is that of all, else each has its own."""
    sections = node.required_ints(1, "the sizes of the parts")
    if node.type_of(1).rank == 0:
        if sections[0] < 1:
            raise node.model_error(f"parts of {sections[0]} elements")
        begins = list(range(0, length, sections[0]))
    else:
        if any(size < 0 for size in sections) or sum(sections) != length:
            raise node.model_error(f"parts of {list(sections)} for {length} elements")
        begins = [0, *np.cumsum(sections[:-1]).tolist()] if sections else []
    if len(begins) > MOST_ITEMS:
        raise node.unsupported(f"a sequence of {len(begins)} elements")
    return begins


def _computed_split(node: NodeContext, x: Expr, axis: int) -> Expr:
    """Cut a tensor along a dimension; the parts are elements of any sizes.

    Args:
        node: The node; operand 1 is the size of every part, or the sizes of all.
        x: The tensor.
        axis: The dimension.
    """
    numbers, sizes = Numbers(node), sizes_of(x)
    length = sizes[axis]
    begins, widths = _parts(node, length)
    inner = product(sizes[axis + 1 :])
    plane = numbers.size(product(sizes[:axis]) * inner)
    flat = numbers.range(product(sizes))
    # Parts lie one behind the other, each with all elements of its positions along the dimension.
    part = node.call(
        indexing.Take,
        part_of(node, numbers.add(begins, widths), numbers.range(length)),
        _over(node, flat, plane),
        attrs=_FIRST,
    )
    begin, width = (node.call(indexing.Take, row, part, attrs=_FIRST) for row in (begins, widths))
    own = numbers.subtract(flat, node.call(binary.Multiply, begin, plane))
    row_length = node.call(binary.Multiply, width, numbers.size(inner))
    row = _over(node, own, row_length)
    column = numbers.subtract(own, node.call(binary.Multiply, row, row_length))
    start = node.call(binary.Multiply, begin, numbers.size(inner))
    start = numbers.add(start, node.call(binary.Multiply, row, numbers.size(length * inner)))
    every = node.reshape(x, (product(sizes),))
    items = node.call(indexing.Take, every, numbers.add(start, column), attrs=_FIRST)
    known = (*sizes[:axis], None, *sizes[axis + 1 :])
    return ragged_sequence(node, items, _rows(node, widths, sizes, axis), known)


def _over(node: NodeContext, a: Expr, b: Expr) -> Expr:
    """``a // b``; of nothing, something."""
    return node.call(binary.Divide, a, node.call(binary.Maximum, b, Numbers(node).of(1)))


def _parts(node: NodeContext, length: Size) -> tuple[Expr, Expr]:
    """Return where parts begin and how many positions they have; a run with others fails."""
    numbers = Numbers(node)
    given = node.cast(node.input(1), DType.INT64)
    whole = numbers.size(length)
    if rank_of(given) == 0:
        holds = node.call(compare.Greater, given, numbers.of(0))
        step = required(node, holds, given, "the size of a part is not positive")
        count = numbers.as_size(numbers.steps(whole, step))
        begins = node.call(binary.Multiply, numbers.range(count), step)
        return begins, node.call(binary.Minimum, numbers.subtract(whole, begins), step)
    attrs = reduce.Sum.Attrs(axes=(0,), keepdims=False)
    is_whole = node.call(compare.Equal, node.call(reduce.Sum, given, attrs=attrs), whole)
    is_size = node.call(compare.GreaterEqual, given, numbers.of(0))
    attrs = reduce.All.Attrs(axes=(0,), keepdims=False)
    holds = node.call(binary.LogicalAnd, is_whole, node.call(reduce.All, is_size, attrs=attrs))
    widths = required(node, holds, given, f"the parts do not add up to {length} elements")
    begins = node.call(Cumsum, widths, attrs=RunningAttrs(axis=0, exclusive=True))
    return begins, widths


def _rows(node: NodeContext, widths: Expr, sizes: tuple[Size, ...], axis: int) -> Expr:
    """Return the rows of the parts, which differ in one size."""
    (count,) = sizes_of(widths)
    before, behind = sizes[:axis], sizes[axis + 1 :]
    zeros = [0] * (ROW - 1 - len(sizes))
    columns = [
        node.broadcast(node.reshape(node.size_tensor(*known), (1, len(known))),
                       extents((count, len(known))))
        for known in ((len(sizes), *before), (*behind, *zeros))
        if known
    ]  # fmt: skip
    columns.insert(1, node.reshape(widths, (count, 1)))
    return node.concat(columns, 1)


CONVERTERS = MappingProxyType({"SplitToSequence": split_to_sequence})
