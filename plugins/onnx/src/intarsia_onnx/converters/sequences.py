# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals, which are decided while a model is imported.

A sequence of known length is a tuple of expressions. A sequence whose length is a size of the run
is one tensor, its elements stacked along a new first axis, if they are equal in type; otherwise it
is :class:`.ragged.Ragged`. An optional is the value that it holds, or ``ABSENT``; of one that is an
input of the model only the run knows whether it holds a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple, tensor_type
from intarsia_ir.graph.types import TupleType
from intarsia_ir.ops.indexing import Take
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Size

from ..builder import Builder, dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .index_range import in_range
from .ragged import (
    Ragged,
    common_sizes,
    element,
    erased,
    inserted,
    joined,
    ragged_items,
    ragged_list,
    ragged_rows,
    ragged_sequence,
)
from .ragged_joins import joined_elements, stacked_elements

ABSENT = make_tuple(())
"""An optional that holds nothing."""


def is_sequence(value: Expr) -> bool:
    """Whether a value is a sequence, or an optional that holds nothing."""
    return isinstance(value.type, TupleType)


def stacked_sequence(node: Builder, stacked: Expr) -> Expr:
    """Make a sequence of the slices of a tensor along its first axis."""
    made = make_tuple((stacked,), span=node.span)
    node.folder.stacked.add(made)
    return made


def stacked_items(node: NodeContext, sequence: Expr) -> Expr | None:
    """Return the tensor whose slices a sequence has; ``None`` if it has elements one by one."""
    if isinstance(sequence, Tuple) and sequence in node.folder.stacked:
        return sequence.fields[0]
    return None


def is_open_sequence(node: NodeContext, value: Expr) -> bool:
    """Whether a value is a sequence whose length is a size of the run."""
    return value in node.folder.stacked or value in node.folder.ragged


def as_ragged(node: NodeContext, sequence: Expr) -> Ragged | None:
    """Return a sequence as one of elements of any sizes; ``None`` if it is known to be empty."""
    stacked = stacked_items(node, sequence)
    if stacked is not None:
        return ragged_rows(node, stacked)
    found = ragged_items(node, sequence)
    if found is not None:
        return found
    items = items_of(node, sequence)
    return ragged_list(node, items) if items else None


def items_of(node: NodeContext, sequence: Expr) -> tuple[Expr, ...]:
    """Return the elements of a sequence of known length.

    Raises:
        ModelError: The value is no sequence.
        UnsupportedError: The length is a size of the run.
    """
    if not isinstance(sequence, Tuple) or sequence is ABSENT:
        raise node.model_error("the operand is no sequence")
    if is_open_sequence(node, sequence):
        raise node.unsupported(
            f"{node.op_type} of a sequence whose length is known only at run time"
        )
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
        elif value in node.folder.ragged:
            pair = next(rest), next(rest)
            found.append(ragged_sequence(node, *pair, node.folder.ragged[value]))
        else:
            found.append(make_tuple([next(rest) for _ in value.fields], span=node.span))
    return tuple(found)


def are_formed_alike(node: NodeContext, a: Expr, b: Expr) -> bool:
    """Whether both are tensors, or sequences of as many elements, or hold nothing."""
    if not isinstance(a, Tuple) or not isinstance(b, Tuple):
        return not isinstance(a, Tuple) and not isinstance(b, Tuple)
    forms = [
        (stacked_items(node, x) is not None, x in node.folder.ragged, x is ABSENT) for x in (a, b)
    ]
    known = [node.folder.ragged.get(x) for x in (a, b)]
    return forms[0] == forms[1] and known[0] == known[1] and len(a.fields) == len(b.fields)


def formed_alike(node: NodeContext, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Return two sequences in one form; ``None`` for other values."""
    pair = (a, b)
    if not all(isinstance(x, Tuple) and x is not ABSENT for x in pair):
        return None
    if any(x in node.folder.optionals for x in pair):
        return None
    try:
        return _stacked_alike(node, a, b)
    except UnsupportedError:
        wholes = [as_ragged(node, x) for x in pair]
    first, second = wholes
    if first is None or second is None or first.dtype is not second.dtype:
        return None
    sizes = common_sizes(first.sizes, second.sizes)
    return (
        ragged_sequence(node, first.items, first.shapes, sizes),
        ragged_sequence(node, second.items, second.shapes, sizes),
    )


def _stacked_alike(node: NodeContext, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Return two sequences of different lengths, each stacked.

    Raises:
        UnsupportedError: Elements differ in type.
    """
    pair = (a, b)
    rows = [joined_items(node, x) for x in pair]
    one = next((x for x in rows if x is not None), None)
    if one is None:
        return None
    if any(x is not None and tensor_type(x).shape[1:] != tensor_type(one).shape[1:] for x in rows):
        raise node.unsupported(f"{node.op_type} of elements that differ in type")
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
    if sequence in node.folder.ragged:
        raise node.unsupported(f"{node.op_type} of elements that differ in type")
    items = items_of(node, sequence)
    if any(item.type != items[0].type for item in items):
        raise node.unsupported(f"{node.op_type} of elements that differ in type")
    rows = [node.reshape(item, (1, *sizes_of(item))) for item in items]
    return node.concat(rows, 0) if rows else None


def appended(node: NodeContext, sequence: Expr, rows: Expr) -> Expr:
    """Put elements at the end of a sequence.

    Args:
        node: The node.
        sequence: The sequence.
        rows: A tensor whose slices along its first axis are the elements, or a ragged sequence.
    """
    ragged = ragged_items(node, rows)
    if ragged is None and not isinstance(sequence, Tuple):
        raise node.model_error("the operand is no sequence")
    if ragged is None and sequence not in node.folder.ragged:
        fields = () if is_open_sequence(node, sequence) else items_of(node, sequence)
        alike = _are_alike(fields)
        first = joined_items(node, sequence) if alike else None
        if first is None and alike:
            return stacked_sequence(node, rows)
        if first is not None and _has_elements_of(first, rows):
            return stacked_sequence(node, node.concat([first, rows], 0))
    before, behind = as_ragged(node, sequence), ragged or ragged_rows(node, rows)
    if before is None:
        return rows
    return joined(node, before, behind)


def _are_alike(items: Sequence[Expr]) -> bool:
    """Whether values are equal in type."""
    return all(item.type == items[0].type for item in items[1:])


def _has_elements_of(a: Expr, b: Expr) -> bool:
    """Whether slices of two tensors along the first axis are equal in type."""
    return sizes_of(a)[1:] == sizes_of(b)[1:] and dtype_of(a) is dtype_of(b)


def sequence_construct(node: NodeContext) -> Expr:
    """Convert SequenceConstruct."""
    return make_tuple(node.variadic(), span=node.span)


def sequence_empty(node: NodeContext) -> Expr:
    """Convert SequenceEmpty."""
    made = make_tuple((), span=node.span)
    node.folder.empties[made] = node.element_type("dtype") if node.has("dtype") else DType.FLOAT32
    return made


def sequence_insert(node: NodeContext) -> Expr:
    """Convert SequenceInsert; at the end if no position is given."""
    sequence, item = node.input(0), node.input(1)
    if is_open_sequence(node, sequence) or not node.is_fixed(2):
        if node.optional(2) is None:
            return appended(node, sequence, node.reshape(item, (1, *sizes_of(item))))
        whole = as_ragged(node, sequence)
        if whole is not None:
            return inserted(node, whole, item, node.input(2))
    items = items_of(node, sequence)
    position = _position(node, 2, len(items), len(items)) if items else 0
    return make_tuple((*items[:position], item, *items[position:]), span=node.span)


def sequence_erase(node: NodeContext) -> Expr:
    """Convert SequenceErase; of the last element if no position is given."""
    sequence = node.input(0)
    if is_open_sequence(node, sequence) or not node.is_fixed(1):
        whole = as_ragged(node, sequence)
        if whole is None:
            raise node.model_error("the sequence has no elements")
        last = node.scalar(-1, DType.INT64)
        return erased(node, whole, last if node.optional(1) is None else node.input(1))
    items = items_of(node, sequence)
    position = _position(node, 1, len(items), len(items) - 1)
    return make_tuple((*items[:position], *items[position + 1 :]), span=node.span)


def sequence_at(node: NodeContext) -> Expr:
    """Convert SequenceAt; a position of the run takes a slice of the stacked elements."""
    sequence = node.input(0)
    if node.constant_value(1) is not None and not is_open_sequence(node, sequence):
        items = items_of(node, sequence)
        return items[_position(node, 1, len(items), len(items) - 1)]
    ragged = ragged_items(node, sequence)
    if ragged is not None:
        return element(node, ragged, node.input(1))
    if not is_open_sequence(node, sequence) and not _are_alike(items_of(node, sequence)):
        return element(node, ragged_list(node, items_of(node, sequence)), node.input(1))
    stacked = joined_items(node, sequence)
    if stacked is None:
        raise node.model_error("the sequence has no elements")
    position = in_range(node, node.reshape(node.input(1), ()), sizes_of(stacked)[0])
    return node.call(Take, stacked, position, attrs=Take.Attrs(axis=0))


def sequence_length(node: NodeContext) -> Expr:
    """Convert SequenceLength."""
    sequence = node.input(0)
    ragged, stacked = ragged_items(node, sequence), stacked_items(node, sequence)
    if ragged is not None:
        return node.reshape(node.size_tensor(ragged.count), ())
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


def concat_from_sequence(node: NodeContext) -> Expr:
    """Convert ConcatFromSequence along a dimension of the elements, or a new one."""
    sequence = node.input(0)
    is_new = bool(node.integer("new_axis", 0))
    stacked, ragged = stacked_items(node, sequence), ragged_items(node, sequence)
    if ragged is not None and ragged.sizes is not None and is_new:
        stacked = stacked_elements(node, ragged, ragged.sizes)
    elif ragged is not None and ragged.sizes is not None:
        return joined_elements(node, ragged, ragged.sizes, node.axis("axis", len(ragged.sizes)))
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


CONVERTERS = MappingProxyType(
    {
        "ConcatFromSequence": concat_from_sequence,
        "SequenceAt": sequence_at,
        "SequenceConstruct": sequence_construct,
        "SequenceEmpty": sequence_empty,
        "SequenceErase": sequence_erase,
        "SequenceInsert": sequence_insert,
        "SequenceLength": sequence_length,
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
