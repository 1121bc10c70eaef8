# SPDX-License-Identifier: Apache-2.0
"""Values of operands that follow from the shape which the model declares for a result.

``axes``, ``shape``, ``k`` ... may be inputs of a model that declares its results' sizes all the
same. Few values lead to those sizes; the model is compiled for them, and a run checks that its
value is one. Values that are written differently and mean the same have the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations, permutations, product
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, indexing, reduce

from .builder import Builder, dtype_of, sizes_of
from .graph import Graph, Node

MOST_FORMS = 512
"""Values that may be told from each other."""

MOST_KEYS = 8
"""Results that may be computed to choose one of."""

_MOST_AXES = 3

Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"
"""Elements of an operand, and the key of what they mean."""

Shape: TypeAlias = "tuple[int, ...]"


class UnknownOperands(Struct, frozen=True):
    """A node of which operands are not known.

    Attributes:
        node: The node.
        places: Numbers of those operands.
        operands: Shapes of all operands; that of one left out is empty.
        results: Shapes of all results.
    """

    node: Node
    places: tuple[int, ...]
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]

    @property
    def count(self) -> int:
        """Elements of the operands that are not known."""
        return sum(prod(self.operands[place]) for place in self.places)

    def parts(self, value: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Cut the elements of a form by operand."""
        ends = list(accumulate(prod(self.operands[place]) for place in self.places))
        return tuple(value[a:b] for a, b in zip([0, *ends], ends, strict=False))

    def axis(self, default: int, rank: int) -> int:
        """The attribute ``axis``, counted from the front."""
        value = self.node.attrs.get("axis", default)
        return value % rank if isinstance(value, int) and rank else 0


def _axes(case: UnknownOperands) -> Iterator[Form]:
    """Sets of axes of the operand, in any order, counted from the front or from the back."""
    yield from _sets_of_axes(len(case.operands[0]), case.count)


def _lone_axes(case: UnknownOperands) -> Iterator[Form]:
    """Axes of size 1 that the operand has and the result has not, or the other way round."""
    old, new = case.operands[0], case.results[0]
    longer, shorter = (old, new) if case.node.op_type == "Squeeze" else (new, old)
    for value, axes in _sets_of_axes(len(longer), case.count):
        left = tuple(size for axis, size in enumerate(longer) if axis not in axes)
        if left == shorter and all(longer[axis] == 1 for axis in axes):
            yield value, ()


def _sets_of_axes(rank: int, count: int) -> Iterator[Form]:
    if count > min(rank, _MOST_AXES):
        return
    for key in combinations(range(rank), count):
        for order in permutations(key):
            for signs in product((0, rank), repeat=count):
                yield tuple(axis - sign for axis, sign in zip(order, signs, strict=True)), key


def _axis(case: UnknownOperands) -> Iterator[Form]:
    rank = len(case.operands[0])
    for axis in range(-rank, rank):
        yield (axis,), (axis % rank,)


def _count(case: UnknownOperands) -> Iterator[Form]:
    shape = case.results[0]
    if shape:
        yield (shape[case.axis(-1, len(shape))],), ()


def _sizes(case: UnknownOperands) -> Iterator[Form]:
    """The sizes themselves, or those of the axes that an attribute names."""
    shape, axes = case.results[0], case.node.attrs.get("axes")
    if isinstance(axes, tuple):
        picked = [shape[axis] for axis in axes if isinstance(axis, int)]
        yield tuple(picked), ()
    else:
        yield shape, ()


def _reshaped(case: UnknownOperands) -> Iterator[Form]:
    """Sizes; one may be left open, and 0 keeps the size of the operand."""
    old, new = case.operands[0], case.results[0]
    keeps = not case.node.attrs.get("allowzero", 0)
    same = [keeps and axis < len(old) and old[axis] == size for axis, size in enumerate(new)]
    choices = [
        (size, 0) if kept and size else (size,) for size, kept in zip(new, same, strict=True)
    ]
    for form in product(*choices):
        yield form, ()
        if prod(new) or not keeps:
            for axis in range(len(form)):
                if prod(new[:axis] + new[axis + 1 :]):
                    yield (*form[:axis], -1, *form[axis + 1 :]), ()


def _expanded(case: UnknownOperands) -> Iterator[Form]:
    """Sizes of the last dimensions, 1 where the operand has as many elements already."""
    old, new = case.operands[0], case.results[0]
    if len(old) > len(new) or case.count > len(new):
        return  # the declared result is none of this node
    padded = (0,) * (len(new) - len(old)) + old
    last = slice(len(new) - case.count, None)
    choices = [
        (size, 1) if size == own and size != 1 else (size,)
        for size, own in zip(new[last], padded[last], strict=True)
    ]
    yield from ((form, ()) for form in product(*choices))


def _repeats(case: UnknownOperands) -> Iterator[Form]:
    old, new = case.operands[0], case.results[0]
    if len(old) == len(new) and all(old):
        yield tuple(b // a for a, b in zip(old, new, strict=True)), ()


def _parts(case: UnknownOperands) -> Iterator[Form]:
    axis = case.axis(0, len(case.operands[0]))
    yield tuple(shape[axis] for shape in case.results), ()


def _resized(case: UnknownOperands) -> Iterator[Form]:
    """Sizes to resize to, unless they are limits that the form of the picture may not reach."""
    if case.node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch":
        yield from _sizes(case)


def _blocks(case: UnknownOperands) -> Iterator[Form]:
    """Size of the image, and sizes of blocks with as many elements as a column has."""
    image, channels = case.results[0][2:], case.results[0][1]
    taps = case.operands[0][1] // channels if channels else 0
    sizes = [size for size in range(1, taps + 1) if taps % size == 0]
    for block in product(sizes, repeat=len(image)):
        if prod(block) == taps:
            yield (*image, *block), block


def _frames(case: UnknownOperands) -> Iterator[Form]:
    """Steps, and lengths if they are asked for, that give as many frames and frequencies."""
    shape, (_, frames, bins, _) = case.operands[0], case.results[0]
    half = case.node.attrs.get("onesided", 1) and shape[2:] in ((), (1,))
    sizes = (2 * bins - 2, 2 * bins - 1) if half else (bins,)
    for size in sizes:
        for step in range(1, shape[1] + 1):
            if 1 <= size <= shape[1] and (shape[1] - size) // step + 1 == frames:
                value = (step, size) if len(case.places) > 1 else (step,)
                yield value, (step if frames > 1 else 1, *value[1:])


FORMS: Mapping[str, tuple[tuple[int, ...], Callable[[UnknownOperands], Iterator[Form]]]] = (
    MappingProxyType(
        {
            **dict.fromkeys(
                (
                    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
                    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
                ),
                ((1,), _axes),
            ),
            **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), ((0,), _sizes)),
            "CenterCropPad": ((1,), _sizes),
            "Col2Im": ((1, 2), _blocks),
            "ConstantOfShape": ((0,), _sizes),
            "CumProd": ((1,), _axis),
            "CumSum": ((1,), _axis),
            "DFT": ((2,), _axis),
            "Expand": ((1,), _expanded),
            "MaxUnpool": ((2,), _sizes),
            "OneHot": ((1,), _count),
            "Reshape": ((1,), _reshaped),
            "Resize": ((3,), _resized),
            "STFT": ((1, 3), _frames),
            "Split": ((1,), _parts),
            "Squeeze": ((1,), _lone_axes),
            "Tile": ((1,), _repeats),
            "TopK": ((1,), _count),
            "Unsqueeze": ((1,), _lone_axes),
        }
    )
)
"""By operator: which operands may follow from the shapes of the results, and possible values."""

SAME_SHAPE = frozenset(
    {"Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt"}
    | {"CastLike", "Tanh"}
)
"""Operators whose result has the shape of their first operand."""


def declared_shapes(graph: Graph, known: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return shapes of values by name: the known ones, and those of what must have the same."""
    found = dict(known)
    for node in reversed(graph.nodes):
        if node.op_type == "TopK":
            shape = next((found[name] for name in node.outputs if name in found), None)
            found |= {} if shape is None else dict.fromkeys(node.outputs, shape)
        if node.op_type in SAME_SHAPE and node.outputs[0] in found and node.inputs[0]:
            found.setdefault(node.inputs[0], found[node.outputs[0]])
    return found


def forms(case: UnknownOperands) -> list[Form]:
    """Return the values that an operand may have; none if there are too many.

    The shapes are what a model declares: there are none either if they are none of the operator.
    """
    found: list[Form] = []
    try:
        for form in FORMS[case.node.op_type][1](case):
            found.append(form)
            if len(found) > MOST_FORMS:
                return []
    except (ValueError, LookupError, ArithmeticError):  # ranks and sizes that do not fit
        return []
    return [form for form in found if len(form[0]) == case.count]


def independent(
    values: Sequence[tuple[tuple[int, ...], ...]],
) -> list[list[tuple[int, ...]]] | None:
    """Return the values of each operand; ``None`` if there are none, or not all go together."""
    found = [list(dict.fromkeys(column)) for column in zip(*values, strict=True)]
    return found if found and prod(map(len, found)) == len(set(values)) else None


def choose(
    builder: Builder,
    operands: Sequence[Expr],
    values: Sequence[Form],
    results: Mapping[tuple[int, ...], Sequence[Expr]],
) -> tuple[Expr, ...]:
    """Return the results of the key that the operands' values have when the code runs.

    Args:
        builder: Makes calls for the node.
        operands: The operands, integers.
        values: What their elements may be.
        results: By key, expressions of the same types.
    """
    keys = list(results)
    items = np.array([value for value, _ in values], np.int64)
    low = int(items.min())
    base = int(items.max()) - low + 1
    weights: np.ndarray = base ** np.arange(int(items.shape[1]))
    table = np.zeros(base ** items.shape[1], np.int64)
    table[(items - low) @ weights] = [keys.index(key) for _, key in values]
    dtype = dtype_of(operands[0])
    parts = [
        builder.cast(builder.reshape(operand, (prod(shape_of(operand)),)), dtype)
        for operand in operands
    ]
    flat = builder.concat(parts, 0)
    moved = builder.call(binary.Subtract, flat, builder.scalar(low, dtype))
    factors = builder.array(weights.astype(dtype.value))
    terms = builder.call(binary.Multiply, moved, factors)
    code = builder.call(reduce.Sum, terms, attrs=reduce.Sum.Attrs(axes=(0,), keepdims=False))
    attrs = indexing.Take.Attrs(axis=0)
    number = builder.call(indexing.Take, builder.array(table), code, attrs=attrs)
    chosen = tuple(results[keys[0]])
    for place, key in enumerate(keys[1:], 1):
        this = builder.call(compare.Equal, number, builder.array(np.array(place, np.int64)))
        chosen = tuple(
            builder.call(compare.Where, this, new, old)
            for new, old in zip(results[key], chosen, strict=True)
        )
    return chosen


def shape_of(value: Expr | None) -> Shape:
    """Return the shape of a static operand; that of one left out, or of another, is empty."""
    sizes = () if value is None else sizes_of(value)
    return tuple(size for size in sizes if isinstance(size, int))
