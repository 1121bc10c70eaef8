# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements.

The injective family is five files: this one, ``slicing``, ``indexing`` (positions from data),
``resize``, and ``generate`` (elements from positions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import exact_quotient, numbers, product

from ..graph.guards import require_at_most, require_equal
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, Shape, Size, TensorType, TupleType, Type
from ..tir.expr import PrimExpr, if_then_else
from ..tir.tensor import Tensor, compute, extents
from .arrays import Array
from .elements import flatten_index, read, unflatten_index
from .type_rules import (
    check_axes,
    check_axis,
    operands,
    same_dtype,
    same_size,
    shape_text,
)

_MANY_PARTS = 16  # of a concatenation


def _check_sizes(name: str, sizes: Sequence[int]) -> None:
    why = f"{name}: a size must not be negative"
    if not all(require_at_most(0, size, why) for size in sizes):
        raise TypeRuleError(f"{name}: shape {shape_text(sizes)} has a negative size")


@operator("reshape", OpKind.INJECTIVE)
class Reshape(Op):
    """The same elements in row-major order in another shape; one size may be -1: what is left."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``shape``: the new shape."""

        shape: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The new shape, -1 replaced."""
        (x,) = operands(cls.name, types, 1)
        known = [size for size in attrs.shape if size != -1]
        if len(known) < len(attrs.shape) - 1:
            raise TypeRuleError(f"{cls.name}: shape {shape_text(attrs.shape)} has more than one -1")
        _check_sizes(cls.name, known)
        elements = product(x.shape)
        if len(known) == len(attrs.shape):
            wanted, why = product(known), f"{cls.name}: the elements must be as many as before"
            is_open = isinstance(elements, Dim) or isinstance(wanted, Dim)
            if not require_equal(elements, wanted, why) and (
                not is_open or isinstance(wanted, Dim)
            ):
                raise TypeRuleError(
                    f"{cls.name}: {shape_text(x.shape)} has {elements} elements, shape"
                    f" {shape_text(attrs.shape)} has {wanted}"
                )
            return x.with_shape(attrs.shape)
        left = cls.size_left(x.shape, product(known), attrs.shape)
        return x.with_shape(left if size == -1 else size for size in attrs.shape)

    @classmethod
    def size_left(cls, shape: Shape, known: Size, wanted: tuple[int, ...]) -> Size:
        """Return what -1 stands for when the other sizes have ``known`` elements.

        Raises:
            TypeRuleError: No size fits.
        """
        if isinstance(known, Dim):
            quotient = exact_quotient(product(shape), known)
            return product(shape) // known if quotient is None else quotient
        number = prod(size for size in shape if isinstance(size, int))
        symbols = [size for size in shape if isinstance(size, Dim)]
        if known == 0 or (not symbols and number % known != 0):
            raise TypeRuleError(
                f"{cls.name}: no size for -1 in {shape_text(wanted)} gives the elements of"
                f" {shape_text(shape)}"
            )
        if number % known == 0:
            return product([*symbols, number // known])
        return product(shape) // known

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's reshape."""
        return np.ascontiguousarray(x).reshape(attrs.shape)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read by the row-major number, one matching group of dimensions at a time."""
        known = prod(size for size in attrs.shape if size != -1)
        left = 0 if -1 not in attrs.shape or known == 0 else prod(x.shape) // known
        shape = tuple(left if s == -1 else s for s in attrs.shape)
        groups = list(_matching_groups(x.shape, shape))

        def element(*indices: PrimExpr) -> PrimExpr:
            place: list[PrimExpr] = []
            for old, new in groups:
                number = flatten_index(indices[new], shape[new])
                place += unflatten_index(number, x.shape[old])
            return x[tuple(place)]

        return compute(shape, element, name="reshape")


def _matching_groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Yield the shortest runs of dimensions of two shapes that have equally many elements."""
    if 0 in old:
        yield slice(0, len(old)), slice(0, len(new))
        return
    i = j = 0
    while i < len(old) or j < len(new):
        start_i, start_j = i, j
        a = b = 1
        i, a = (i + 1, old[i]) if i < len(old) else (i, 1)
        j, b = (j + 1, new[j]) if j < len(new) else (j, 1)
        while a != b:
            if isinstance(a, Dim) or isinstance(b, Dim):
                if i < len(old) and (j == len(new) or exact_quotient(b, a) is not None):
                    a, i = a * old[i], i + 1
                elif j < len(new):
                    b, j = b * new[j], j + 1
                else:
                    break  # all that is left: a guard says that both are as many
            elif a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        yield slice(start_i, i), slice(start_j, j)


@operator("transpose", OpKind.INJECTIVE)
class Transpose(Op):
    """Dimensions in another order."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axes``: which dimension of the operand comes first, second, ..."""

        axes: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The permuted shape."""
        (x,) = operands(cls.name, types, 1)
        if sorted(attrs.axes) != list(range(x.rank)):
            raise TypeRuleError(
                f"{cls.name}: axes {attrs.axes} are no permutation of the dimensions of"
                f" {shape_text(x.shape)}"
            )
        return x.with_shape(x.shape[axis] for axis in attrs.axes)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's transpose, contiguous."""
        return np.ascontiguousarray(np.transpose(x, attrs.axes)) if x.ndim else x

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read with the indices in the old order."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return x[tuple(indices[attrs.axes.index(axis)] for axis in range(x.rank))]

        return compute(tuple(x.shape[axis] for axis in attrs.axes), element, name="transpose")


@operator("concatenate", OpKind.INJECTIVE)
class Concatenate(Op):
    """Tensors one after the other along a dimension."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension that grows."""

        axis: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The sum of the sizes along the axis; the other sizes are equal."""
        tensors = operands(cls.name, types, 1, max(len(types), 1))
        first = tensors[0]
        same_dtype(cls.name, *tensors)
        check_axis(cls.name, attrs.axis, first.rank)
        shape = list(first.shape)
        for tensor in tensors:
            if tensor.rank != first.rank or not all(
                d == attrs.axis or same_size(a, b)
                for d, (a, b) in enumerate(zip(tensor.shape, shape, strict=False))
            ):
                raise TypeRuleError(
                    f"{cls.name}: {shape_text(tensor.shape)} does not fit to"
                    f" {shape_text(first.shape)} along axis {attrs.axis}"
                )
        shape = _joined_sizes([tensor.shape for tensor in tensors])
        shape[attrs.axis] = sum((tensor.shape[attrs.axis] for tensor in tensors), 0)
        return first.with_shape(shape)

    @staticmethod
    def reference(attrs: Attrs, *xs: Array) -> Array:
        """NumPy's concatenate."""
        return np.concatenate(xs, axis=attrs.axis)

    @staticmethod
    def compute(attrs: Attrs, *xs: Tensor) -> Tensor:
        """Read the tensor that the index along the axis falls into."""
        at = attrs.axis
        shape = list(extents(_joined_sizes([x.shape for x in xs])))
        shape[at] = sum(x.shape[at] for x in xs)
        parts = [x for x in xs if x.shape[at] != 0] or [xs[0]]
        starts = [0, *accumulate(x.shape[at] for x in parts)]

        def element(*indices: PrimExpr) -> PrimExpr:
            def among(first: int, last: int) -> PrimExpr:
                """Choose between two halves of many parts: a chain of choices would be as deep."""
                if first == last:
                    place = indices[at] - starts[first]
                    return parts[first][(*indices[:at], place, *indices[at + 1 :])]
                middle = (first + last) // 2 if last - first >= _MANY_PARTS else first
                return if_then_else(
                    indices[at] < starts[middle + 1], among(first, middle), among(middle + 1, last)
                )

            return among(0, len(parts) - 1)

        return compute(shape, element, name="concatenate")


def _joined_sizes(shapes: Sequence[Sequence[Size]]) -> list[Size]:
    """Return sizes that are equal in all shapes: the number if one has it, else those of the first.

    The sizes along the axis of a concatenation are not equal, and replaced.
    """
    made: list[Size] = []
    for sizes in zip(*shapes, strict=True):
        known = numbers(sizes)
        made.append(known[0] if known else sizes[0])
    return made


@operator("split", OpKind.INJECTIVE)
class Split(Op):
    """Consecutive parts of a tensor along a dimension, as a tuple."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``sections``: the size of each part; ``axis``: the dimension that is cut."""

        sections: tuple[int, ...]
        axis: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """One tensor for each section."""
        (x,) = operands(cls.name, types, 1)
        check_axis(cls.name, attrs.axis, x.rank)
        size = x.shape[attrs.axis]
        _check_sizes(cls.name, attrs.sections)
        if not attrs.sections or not same_size(size, sum(attrs.sections)):
            raise TypeRuleError(
                f"{cls.name}: sections {attrs.sections} do not add to the size {size} of axis"
                f" {attrs.axis} of {shape_text(x.shape)}"
            )
        before, after = x.shape[: attrs.axis], x.shape[attrs.axis + 1 :]
        return TupleType(tuple(x.with_shape((*before, n, *after)) for n in attrs.sections))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> tuple[Array, ...]:
        """NumPy's split, contiguous."""
        cuts = np.cumsum(attrs.sections)[:-1]
        return tuple(np.ascontiguousarray(part) for part in np.split(x, cuts, attrs.axis))

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> tuple[Tensor, ...]:
        """One tensor for each section, read at its offset."""
        starts = [sum(attrs.sections[:number]) for number in range(len(attrs.sections))]
        return tuple(
            _section(x, attrs.axis, start, size)
            for start, size in zip(starts, attrs.sections, strict=True)
        )


def _section(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    def element(*indices: PrimExpr) -> PrimExpr:
        return x[(*indices[:axis], indices[axis] + start, *indices[axis + 1 :])]

    return compute((*x.shape[:axis], size, *x.shape[axis + 1 :]), element, name="split")


@operator("broadcast_to", OpKind.INJECTIVE)
class BroadcastTo(Op):
    """The elements repeated along dimensions of size 1 and new leading ones."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``shape``: the new shape."""

        shape: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The new shape."""
        (x,) = operands(cls.name, types, 1)
        _check_sizes(cls.name, attrs.shape)
        skip = len(attrs.shape) - x.rank
        if skip < 0 or not all(
            a == 1 or same_size(a, b) for a, b in zip(x.shape, attrs.shape[skip:], strict=True)
        ):
            raise TypeRuleError(
                f"{cls.name}: {shape_text(x.shape)} does not broadcast to {shape_text(attrs.shape)}"
            )
        return x.with_shape(attrs.shape)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's broadcast, copied."""
        return np.array(np.broadcast_to(x, attrs.shape), order="C")

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read index 0 of what is repeated."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return read(x, indices, attrs.shape)

        return compute(attrs.shape, element, name="broadcast_to")


@operator("flip", OpKind.INJECTIVE)
class Flip(Op):
    """The order of elements reversed along some dimensions."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axes``: the reversed dimensions, in ascending order."""

        axes: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_axes(cls.name, attrs.axes, x.rank)
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's flip, contiguous."""
        return np.array(np.flip(x, attrs.axes), order="C")

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read from the end."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return x[
                tuple(x.shape[d] - 1 - i if d in attrs.axes else i for d, i in enumerate(indices))
            ]

        return compute(x.shape, element, name="flip")


@operator("copy", OpKind.INJECTIVE)
class Copy(Op):
    """The same tensor in other memory."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of the operand."""
        return operands(cls.name, types, 1)[0]

    @staticmethod
    def reference(attrs: OpAttrs, x: Array) -> Array:
        """A copy."""
        return np.array(x, order="C")

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor) -> Tensor:
        """Read every element."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return x[indices]

        return compute(x.shape, element, name="copy")
