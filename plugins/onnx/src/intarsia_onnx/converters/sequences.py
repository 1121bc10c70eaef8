# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals, which are decided while a model is imported.

A sequence of known length is a tuple of expressions. A sequence whose length is a size of the run
is one tensor, its elements stacked along a new first axis; they are equal in type. An optional is
the value that it holds, or ``ABSENT``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple, tensor_type
from intarsia_ir.graph.types import TupleType
from intarsia_ir.ops.indexing import Take
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .index_range import in_range

ABSENT = make_tuple(())
"""An optional that holds nothing."""

MOST_ITEMS = 1024
"""Most elements of a sequence of known length."""


def is_sequence(value: Expr) -> bool:
    """Whether a value is a sequence, or an optional that holds nothing."""
    return isinstance(value.type, TupleType)


def stacked_sequence(node: NodeContext, stacked: Expr) -> Expr:
    """Make a sequence of the slices of a tensor along its first axis."""
    made = make_tuple((stacked,), span=node.span)
    node.folder.stacked.add(made)
    return made


def stacked_items(node: NodeContext, sequence: Expr) -> Expr | None:
    """Return the tensor whose slices a sequence has; ``None`` if it has elements one by one."""
    if isinstance(sequence, Tuple) and sequence in node.folder.stacked:
        return sequence.fields[0]
    return None


def items_of(node: NodeContext, sequence: Expr) -> tuple[Expr, ...]:
    """Return the elements of a sequence of known length.

    Raises:
        ModelError: The value is no sequence.
        UnsupportedError: The length is a size of the run.
    """
    if not isinstance(sequence, Tuple) or sequence is ABSENT:
        raise node.model_error("the operand is no sequence")
    if sequence in node.folder.stacked:
        raise node.unsupported(f"{node.op_type} of a sequence whose length the run decides")
    return sequence.fields


def tensors_of(node: NodeContext, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return values of a graph inside a node, all of which must be tensors.

    Raises:
        ModelError: One is a sequence, or an optional that holds nothing.
    """
    if any(is_sequence(value) for value in values):
        raise node.model_error("a graph inside gives a sequence where a tensor must be")
    return values


def flat_values(values: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return tensors, and the elements of sequences in the place of these."""
    return tuple(item for x in values for item in (x.fields if isinstance(x, Tuple) else (x,)))


def regrouped(
    node: NodeContext, pattern: Sequence[Expr], tensors: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Make sequences of tensors, which are in the order of ``flat_values(pattern)``."""
    rest = iter(tensors)
    found: list[Expr] = []
    for value in pattern:
        if not isinstance(value, Tuple) or value is ABSENT:
            found.append(value if value is ABSENT else next(rest))
        elif stacked_items(node, value) is not None:
            found.append(stacked_sequence(node, next(rest)))
        else:
            found.append(make_tuple([next(rest) for _ in value.fields], span=node.span))
    return tuple(found)


def are_formed_alike(node: NodeContext, a: Expr, b: Expr) -> bool:
    """Whether both are tensors, or sequences of as many elements, or hold nothing."""
    if not isinstance(a, Tuple) or not isinstance(b, Tuple):
        return not isinstance(a, Tuple) and not isinstance(b, Tuple)
    is_stacked = [stacked_items(node, x) is not None for x in (a, b)]
    is_absent = [x is ABSENT for x in (a, b)]
    return (
        is_stacked[0] is is_stacked[1]
        and is_absent[0] is is_absent[1]
        and len(a.fields) == len(b.fields)
    )


def stacked_alike(node: NodeContext, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Return two sequences of different lengths, each stacked; ``None`` for other values."""
    pair = (a, b)
    if not all(isinstance(x, Tuple) and x is not ABSENT for x in pair):
        return None
    rows = [joined_items(node, x) for x in pair]
    one = next((x for x in rows if x is not None), None)
    if one is None:
        return None
    if any(x is not None and rank_of(x) != rank_of(one) for x in rows):
        return None
    shape, dtype = extents((0, *sizes_of(one)[1:])), dtype_of(one)
    whole = [node.full(shape, 0, dtype) if x is None else x for x in rows]
    return stacked_sequence(node, whole[0]), stacked_sequence(node, whole[1])


def joined_items(node: NodeContext, sequence: Expr) -> Expr | None:
    """Stack the elements of a sequence along a new first axis; ``None`` if it has none.

    Raises:
        UnsupportedError: They differ in type.
    """
    stacked = stacked_items(node, sequence)
    if stacked is not None:
        return stacked
    items = items_of(node, sequence)
    if any(item.type != items[0].type for item in items):
        raise node.unsupported(f"{node.op_type} of elements that differ in type")
    rows = [node.reshape(item, (1, *sizes_of(item))) for item in items]
    return node.concat(rows, 0) if rows else None


def appended(node: NodeContext, sequence: Expr, rows: Expr) -> Expr:
    """Put the slices of a tensor along its first axis at the end of a sequence.

    Raises:
        UnsupportedError: Elements differ in type.
    """
    first = joined_items(node, sequence)
    if first is None:
        return stacked_sequence(node, rows)
    old, new = tensor_type(first), tensor_type(rows)
    if old.shape[1:] != new.shape[1:] or old.dtype is not new.dtype:
        raise node.unsupported("elements that a loop appends differ in type from those before")
    return stacked_sequence(node, node.concat([first, rows], 0))


def sequence_construct(node: NodeContext) -> Expr:
    """Convert SequenceConstruct."""
    return make_tuple(node.variadic(), span=node.span)


def sequence_empty(node: NodeContext) -> Expr:
    """Convert SequenceEmpty."""
    return make_tuple((), span=node.span)


def sequence_insert(node: NodeContext) -> Expr:
    """Convert SequenceInsert at a known position; at the end if none is given."""
    sequence, item = node.input(0), node.input(1)
    if stacked_items(node, sequence) is not None:
        if node.optional(2) is not None:
            raise node.unsupported("SequenceInsert into a sequence whose length the run decides")
        return appended(node, sequence, node.reshape(item, (1, *sizes_of(item))))
    items = items_of(node, sequence)
    position = _position(node, 2, len(items), len(items))
    return make_tuple((*items[:position], item, *items[position:]), span=node.span)


def sequence_erase(node: NodeContext) -> Expr:
    """Convert SequenceErase at a known position; of the last element if none is given."""
    items = items_of(node, node.input(0))
    position = _position(node, 1, len(items), len(items) - 1)
    return make_tuple((*items[:position], *items[position + 1 :]), span=node.span)


def sequence_at(node: NodeContext) -> Expr:
    """Convert SequenceAt; a position of the run takes a slice of the stacked elements."""
    sequence = node.input(0)
    if node.constant_value(1) is None or stacked_items(node, sequence) is not None:
        stacked = joined_items(node, sequence)
        if stacked is None:
            raise node.model_error("the sequence has no elements")
        position = in_range(node, node.reshape(node.input(1), ()), sizes_of(stacked)[0])
        return node.call(Take, stacked, position, attrs=Take.Attrs(axis=0))
    items = items_of(node, sequence)
    return items[_position(node, 1, len(items), len(items) - 1)]


def sequence_length(node: NodeContext) -> Expr:
    """Convert SequenceLength."""
    sequence = node.input(0)
    stacked = stacked_items(node, sequence)
    if stacked is not None:
        return node.reshape(node.size_tensor(sizes_of(stacked)[0]), ())
    return node.scalar(len(items_of(node, sequence)), DType.INT64)


def _position(node: NodeContext, index: int, length: int, last: int) -> int:
    """Return a known position from the front; ``last`` is the largest allowed, and the default."""
    if node.optional(index) is None:
        position = last
    else:
        position = node.required_integer(index, "the position")
    if last < 0 or not -length <= position <= last:
        raise node.model_error(f"position {position} is outside of a sequence of {length}")
    return position + length if position < 0 else position


def split_to_sequence(node: NodeContext) -> Expr:
    """Convert SplitToSequence; slices of an open axis are a sequence of its length."""
    x = node.input(0)
    axis = node.axis("axis", rank_of(x), 0)
    length = sizes_of(x)[axis]
    keeps = bool(node.integer("keepdims", 1))
    if isinstance(length, Dim):
        if node.optional(1) is not None:
            raise node.unsupported(f"a split of the open size {length} into parts")
        moved = node.transpose(x, [axis, *(n for n in range(rank_of(x)) if n != axis)])
        sizes = list(sizes_of(moved))
        if keeps:
            sizes.insert(axis + 1, 1)
        return stacked_sequence(node, node.reshape(moved, sizes))
    if node.optional(1) is None:
        if length > MOST_ITEMS:
            raise node.unsupported(f"a sequence of {length} elements")
        numbers = range(length)
        parts = [node.slice(x, axis, n, n + 1) if keeps else node.item(x, axis, n) for n in numbers]
        return make_tuple(parts, span=node.span)
    begins = _begins(node, length)
    ends = [*begins[1:], length]
    pairs = zip(begins, ends, strict=True)
    return make_tuple([node.slice(x, axis, *pair) for pair in pairs], span=node.span)


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


def concat_from_sequence(node: NodeContext) -> Expr:
    """Convert ConcatFromSequence along a dimension of the elements, or a new one."""
    sequence = node.input(0)
    is_new = bool(node.integer("new_axis", 0))
    stacked = stacked_items(node, sequence)
    if stacked is None:
        items = items_of(node, sequence)
        if not items:
            raise node.model_error("the sequence has no elements")
        rank = rank_of(items[0]) + is_new
        axis = node.axis("axis", rank)
        if is_new:
            items = [node.reshape(x, _with_one(sizes_of(x), axis)) for x in items]
        return node.concat(items, axis)
    rank = rank_of(stacked) - 1 + is_new
    axis = node.axis("axis", rank)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank_of(stacked))]
    moved = node.transpose(stacked, order)
    if is_new:
        return moved
    sizes = sizes_of(moved)
    return node.reshape(moved, (*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]))


def _with_one(sizes: Sequence[Size], axis: int) -> tuple[Size, ...]:
    return (*sizes[:axis], 1, *sizes[axis:])


def sequence_map(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SequenceMap: the body, once for each element; tensors are the same for all."""
    first = items_of(node, node.input(0))
    operands = [items_of(node, x) if is_sequence(x) else x for x in node.variadic()]
    rows: list[tuple[Expr, ...]] = []
    for number in range(len(first)):
        given: list[Expr] = []
        for operand in operands:
            if not isinstance(operand, tuple):
                given.append(operand)
            elif len(operand) == len(first):
                given.append(operand[number])
            else:
                raise node.model_error(f"sequences of {len(first)} and {len(operand)} elements")
        rows.append(tensors_of(node, node.body("body", given)))
    count = len(node.graph("body").outputs)
    return tuple(make_tuple([row[n] for row in rows], span=node.span) for n in range(count))


def optional(node: NodeContext) -> Expr:
    """Convert Optional: the value itself, or nothing."""
    value = node.optional(0)
    return ABSENT if value is None else value


def optional_has_element(node: NodeContext) -> Expr:
    """Convert OptionalHasElement; a plain value always holds one."""
    value = node.optional(0)
    return node.array(np.array(value is not None and value is not ABSENT))


def optional_get_element(node: NodeContext) -> Expr:
    """Convert OptionalGetElement.

    Raises:
        ModelError: The optional holds nothing.
    """
    value = node.input(0)
    if value is ABSENT:
        raise node.model_error("the optional holds nothing")
    return value


CONVERTERS = MappingProxyType(
    {
        "ConcatFromSequence": concat_from_sequence,
        "Optional": optional,
        "OptionalGetElement": optional_get_element,
        "OptionalHasElement": optional_has_element,
        "SequenceAt": sequence_at,
        "SequenceConstruct": sequence_construct,
        "SequenceEmpty": sequence_empty,
        "SequenceErase": sequence_erase,
        "SequenceInsert": sequence_insert,
        "SequenceLength": sequence_length,
        "SequenceMap": sequence_map,
        "SplitToSequence": split_to_sequence,
    }
)

_FIRST = range(1)

TAKE_SEQUENCES: Mapping[str, range] = MappingProxyType(
    {
        **dict.fromkeys(("Identity", "Optional", "OptionalGetElement"), _FIRST),
        **dict.fromkeys(("OptionalHasElement", "ConcatFromSequence", "SequenceAt"), _FIRST),
        **dict.fromkeys(("SequenceErase", "SequenceInsert", "SequenceLength"), _FIRST),
        "Loop": range(2, 1 << 31),
        "SequenceMap": range(1 << 31),
    }
)
"""Which operands of an operator may be sequences."""
