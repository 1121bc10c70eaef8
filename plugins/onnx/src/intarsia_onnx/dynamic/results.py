# SPDX-License-Identifier: Apache-2.0
"""Types of what a step of a program gives, as far as they are known before it runs.

A size that only the step shows is a size variable of its own, so that compiled code can go on after
the step: how many rows ``NonZero`` found, or how long a ``Range`` is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.types import Dim, Size, TensorType, variable
from intarsia_runtime.dtype import DType, parse_dtype

from ..graph import Node
from ..tensors import element_type, is_element_type

_Mark: TypeAlias = str
"""A size that only the step shows; equal marks of one node are one size."""

_Row: TypeAlias = "tuple[Sequence[Size | _Mark], DType] | None"
"""Shape and element type of a result; ``None`` if not even the rank is known."""


class Operands(Struct, frozen=True):
    """What is known of the operands of a node.

    Attributes:
        types: Their types; ``None`` for one left out, or of unknown rank.
        sizes: Returns the sizes that the operand of a number lists, ``None`` in the place of one
            that is not known, or instead of all if even their count is not.
    """

    types: Sequence[TensorType | None]
    sizes: Callable[[int], Sequence[Size | None] | None]

    def type(self, number: int) -> TensorType | None:
        """Return the type of an operand; ``None`` for one left out, or of unknown rank."""
        return self.types[number] if number < len(self.types) else None

    def length(self, number: int) -> int | None:
        """Return the length of an operand that is a vector of known length."""
        found = self.type(number)
        if found is None or found.rank != 1 or not isinstance(found.shape[0], int):
            return None
        return found.shape[0]


_Rule: TypeAlias = "Callable[[Node, Operands], Sequence[_Row]]"


def result_types(node: Node, operands: Operands) -> dict[str, TensorType]:
    """Return the types of the results of a step, by name, of those whose rank is known.

    Sizes that only the run shows are variables named after the result and its axis.
    """
    rule = RULES.get(node.op_type)
    if rule is None:
        return {}
    marks: dict[_Mark, Size] = {}
    found: dict[str, TensorType] = {}
    for name, row in zip(node.outputs, rule(node, operands), strict=False):
        if not name or row is None:
            continue
        sizes, dtype = row
        shape = tuple(
            marks.setdefault(size, variable(f"{name}.{axis}")) if isinstance(size, str) else size
            for axis, size in enumerate(sizes)
        )
        found[name] = TensorType(shape, dtype)
    return found


def opened(name: str, type_: TensorType, known: Callable[[Size], bool]) -> TensorType:
    """Return a type in which sizes that are not known outside are variables of the value."""
    shape = tuple(
        size if known(size) else variable(f"{name}.{axis}") for axis, size in enumerate(type_.shape)
    )
    return type_.with_shape(shape)


def _marked(rank: int) -> list[Size | _Mark]:
    return [str(axis) for axis in range(rank)]


def _same_rank(node: Node, operands: Operands) -> Sequence[_Row]:
    first = operands.type(0)
    return () if first is None else [(_marked(first.rank), first.dtype)]


def _reshape(node: Node, operands: Operands) -> Sequence[_Row]:
    first, wanted = operands.type(0), operands.sizes(1)
    if first is None or wanted is None:
        return ()
    sizes = _marked(len(wanted))
    for axis, size in enumerate(wanted):
        if size == 0 and axis < first.rank and not node.attrs.get("allowzero"):
            sizes[axis] = first.shape[axis]
        elif isinstance(size, Dim) or (isinstance(size, int) and size > 0):
            sizes[axis] = size
    return [(sizes, first.dtype)]


def _expand(node: Node, operands: Operands) -> Sequence[_Row]:
    first, wanted = operands.type(0), operands.sizes(1)
    if first is None or wanted is None:
        return ()
    rank = max(len(wanted), first.rank)
    own: list[Size] = [*(1,) * (rank - first.rank), *first.shape]
    asked = [*(1,) * (rank - len(wanted)), *wanted]
    sizes = _marked(rank)
    for axis, (size, to) in enumerate(zip(own, asked, strict=True)):
        if (isinstance(size, int) and size > 1) or size == to or to == 1:
            sizes[axis] = size
        elif to is not None and (size == 1 or (isinstance(to, int) and to > 1)):
            sizes[axis] = to
    return [(sizes, first.dtype)]


def _constant_of_shape(node: Node, operands: Operands) -> Sequence[_Row]:
    wanted, value = operands.sizes(0), node.attrs.get("value")
    if wanted is None:
        return ()
    sizes = [str(axis) if size is None else size for axis, size in enumerate(wanted)]
    dtype = parse_dtype(value.dtype.name) if isinstance(value, np.ndarray) else DType.FLOAT32
    return [(sizes, dtype)]


def _resize(node: Node, operands: Operands) -> Sequence[_Row]:
    first, wanted = operands.type(0), operands.sizes(3)
    if first is None:
        return ()
    sizes = _marked(first.rank)
    if wanted is not None and len(wanted) == first.rank and "axes" not in node.attrs:
        sizes = [s if to is None else to for s, to in zip(sizes, wanted, strict=True)]
    return [(sizes, first.dtype)]


def _along(places: int) -> _Rule:
    """The rule of an operator that changes the axes which the operand of a number lists."""

    def rule(node: Node, operands: Operands) -> Sequence[_Row]:
        first = operands.type(0)
        if first is None:
            return ()
        sizes: list[Size | _Mark] = [*first.shape]
        axes, count = operands.sizes(places), operands.length(places - 1)
        if operands.type(places) is None and count is not None:
            axes = list(range(count))
        numbers = [axis for axis in axes or () if isinstance(axis, int)]
        if axes is None or len(numbers) < len(axes):
            return [(_marked(first.rank), first.dtype)]
        for axis in numbers:
            sizes[axis] = f"{axis % first.rank}"
        return [(sizes, first.dtype)]

    return rule


def _non_zero(node: Node, operands: Operands) -> Sequence[_Row]:
    first = operands.type(0)
    return () if first is None else [((max(first.rank, 1), "n"), DType.INT64)]


def _compress(node: Node, operands: Operands) -> Sequence[_Row]:
    first, axis = operands.type(0), node.attrs.get("axis")
    if first is None:
        return ()
    if not isinstance(axis, int):
        return [(("n",), first.dtype)]
    sizes: list[Size | _Mark] = [*first.shape]
    sizes[axis] = "n"
    return [(sizes, first.dtype)]


def _unique(node: Node, operands: Operands) -> Sequence[_Row]:
    first, axis = operands.type(0), node.attrs.get("axis")
    if first is None:
        return ()
    sizes: list[Size | _Mark] = [*first.shape] if isinstance(axis, int) else ["n"]
    if isinstance(axis, int):
        sizes[axis] = "n"
    found, counts = ("n",), DType.INT64
    return [(sizes, first.dtype), (found, counts), (("m",), counts), (found, counts)]


def _suppression(node: Node, operands: Operands) -> Sequence[_Row]:
    return [(("n", 3), DType.INT64)]


def _range(node: Node, operands: Operands) -> Sequence[_Row]:
    first = operands.type(0)
    return () if first is None else [(("n",), first.dtype)]


def _top_k(node: Node, operands: Operands) -> Sequence[_Row]:
    first, axis = operands.type(0), node.attrs.get("axis", -1)
    if first is None or not isinstance(axis, int):
        return ()
    sizes: list[Size | _Mark] = [*first.shape]
    sizes[axis] = "k"
    return [(sizes, first.dtype), (sizes, DType.INT64)]


def _one_hot(node: Node, operands: Operands) -> Sequence[_Row]:
    first, values, axis = operands.type(0), operands.type(2), node.attrs.get("axis", -1)
    if first is None or values is None or not isinstance(axis, int):
        return ()
    sizes: list[Size | _Mark] = [*first.shape]
    sizes.insert(axis % (first.rank + 1), "n")
    return [(sizes, values.dtype)]


def _drawn_like(node: Node, operands: Operands) -> Sequence[_Row]:
    first, code = operands.type(0), node.attrs.get("dtype")
    if first is None:
        return ()
    if isinstance(code, int) and not is_element_type(code):
        return ()
    dtype = element_type(code, node.span.name) if isinstance(code, int) else first.dtype
    return [(first.shape, dtype)]


def _max_pool(node: Node, operands: Operands) -> Sequence[_Row]:
    """The largest elements and their places have the same sizes."""
    first = operands.type(0)
    if first is None or first.rank < 3:
        return ()
    sizes = [*first.shape[:2], *_marked(first.rank)[2:]]
    return [(sizes, first.dtype), (sizes, DType.INT64)]


RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "Bernoulli": _drawn_like,
        "ChosenBoxes": _suppression,
        "Compress": _compress,
        "ConstantOfShape": _constant_of_shape,
        "Expand": _expand,
        "MaxPool": _max_pool,
        "NonMaxSuppression": _suppression,
        "NonZero": _non_zero,
        "OneHot": _one_hot,
        "Pad": _same_rank,
        "RandomNormalLike": _drawn_like,
        "RandomUniformLike": _drawn_like,
        "Range": _range,
        "Reshape": _reshape,
        "Resize": _resize,
        "Slice": _along(3),
        "Tile": _same_rank,
        "TopK": _top_k,
        "Unique": _unique,
    }
)
"""By operator of the standard domain, or our own."""
