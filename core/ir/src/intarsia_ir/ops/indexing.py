# SPDX-License-Identifier: Apache-2.0
"""Operators whose positions come from data.

A negative index counts from the end; one that is out of range at run time is clamped. A frontend
whose models call that an error checks the indices in front of the operator.
"""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import minimum as smaller_size
from intarsia_runtime.size import product

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, TensorType, Type
from ..tir.expr import (
    INDEX,
    BinaryOp,
    PrimExpr,
    binary,
    cast,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from ..tir.tensor import Tensor, compute
from .arrays import Array, numpy_dtype
from .type_rules import (
    check_axis,
    check_dtype,
    is_index,
    is_integer,
    operands,
    same_size,
    shape_text,
)


def _clamped(indices: Array, size: int) -> Array:
    """Return indices in ``range(size)``."""
    wide = indices.astype(np.int64, copy=False)
    counted = np.where(wide < 0, wide + size, wide)
    return np.minimum(np.maximum(counted, 0), max(size - 1, 0))  # np.clip takes twice as long


def _clamped_element(index: PrimExpr, size: int) -> PrimExpr:
    """Return an index in ``range(size)``."""
    wide = cast(index, INDEX)
    counted = select(wide < 0, wide + size, wide)
    return minimum(maximum(counted, 0), size - 1)


def _check_not_empty(name: str, x: TensorType, axis: int, indices: TensorType) -> None:
    why = f"{name}: what is indexed must have elements"
    if not require_at_most(smaller_size(1, product(indices.shape)), x.shape[axis], why):
        raise TypeRuleError(f"{name}: axis {axis} of {shape_text(x.shape)} has no elements")


@operator("take", OpKind.INJECTIVE)
class Take(Op):
    """Slices of a tensor along a dimension, picked by a tensor of indices."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension; ``mode``: how indices count, only ``wrap-negative`` so far."""

        axis: int
        mode: str = "wrap-negative"

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The shape of the data with the shape of the indices in place of the axis."""
        x, indices = operands(cls.name, types, 2)
        check_dtype(cls.name, is_index, "int32 or int64", indices)
        check_axis(cls.name, attrs.axis, x.rank)
        if attrs.mode != "wrap-negative":
            raise TypeRuleError(f"{cls.name}: mode '{attrs.mode}' is not wrap-negative")
        _check_not_empty(cls.name, x, attrs.axis, indices)
        return x.with_shape((*x.shape[: attrs.axis], *indices.shape, *x.shape[attrs.axis + 1 :]))

    @staticmethod
    def reference(attrs: Attrs, x: Array, indices: Array) -> Array:
        """NumPy's take of clamped indices."""
        return np.take(x, _clamped(indices, x.shape[attrs.axis]), axis=attrs.axis)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, indices: Tensor) -> Tensor:
        """Read the index, then the data there."""
        at, size = attrs.axis, x.shape[attrs.axis]
        shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])

        def clamped(*place: PrimExpr) -> PrimExpr:
            return _clamped_element(indices[place], size)

        places = compute(indices.shape, clamped, name="take_places")

        def element(*place: PrimExpr) -> PrimExpr:
            picked = places[place[at : at + indices.rank]]
            rest = place[at + indices.rank :]
            return x[(*place[:at], picked, *rest)]

        return compute(shape, element, name="take")


@operator("gather_elements", OpKind.INJECTIVE)
class GatherElements(Op):
    """For each index, the element at its own place but for one dimension, which the index gives."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension that indices give."""

        axis: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The element type of the data in the shape of the indices."""
        x, indices = operands(cls.name, types, 2)
        check_dtype(cls.name, is_index, "int32 or int64", indices)
        check_axis(cls.name, attrs.axis, x.rank)
        why = f"{cls.name}: indices must lie within the data"
        if indices.rank != x.rank or any(
            d != attrs.axis and not require_at_most(a, b, why)
            for d, (a, b) in enumerate(zip(indices.shape, x.shape, strict=False))
        ):
            raise TypeRuleError(
                f"{cls.name}: indices {shape_text(indices.shape)} reach beyond data"
                f" {shape_text(x.shape)} outside axis {attrs.axis}"
            )
        _check_not_empty(cls.name, x, attrs.axis, indices)
        return x.with_shape(indices.shape)

    @staticmethod
    def reference(attrs: Attrs, x: Array, indices: Array) -> Array:
        """NumPy's take_along_axis of clamped indices."""
        cut = tuple(
            slice(None) if d == attrs.axis else slice(size) for d, size in enumerate(indices.shape)
        )
        picked = _clamped(indices, x.shape[attrs.axis])
        return np.take_along_axis(x[cut], picked, axis=attrs.axis)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, indices: Tensor) -> Tensor:
        """Read the index, then the data there."""
        at = attrs.axis

        def element(*place: PrimExpr) -> PrimExpr:
            return x[(*place[:at], _clamped_element(indices[place], x.shape[at]), *place[at + 1 :])]

        return compute(indices.shape, element, name="gather_elements")


@operator("gather_nd", OpKind.INJECTIVE)
class GatherNd(Op):
    """Slices of a tensor, each picked by a vector, the last dimension of ``indices``."""

    fixed_sizes = "the last of the indices': it says how many dimensions they pick from"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``batch_dims``: how many leading dimensions data and indices share."""

        batch_dims: int = 0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The indices' shape without the last dimension, then what one slice has."""
        x, indices = operands(cls.name, types, 2)
        check_dtype(cls.name, is_index, "int32 or int64", indices)
        batch = attrs.batch_dims
        if not 0 <= batch < min(x.rank, indices.rank) or not all(
            same_size(a, b) for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True)
        ):
            raise TypeRuleError(
                f"{cls.name}: data {shape_text(x.shape)} and indices {shape_text(indices.shape)} do"
                f" not share {batch} leading dimensions"
            )
        depth = indices.shape[-1]
        if isinstance(depth, Dim) or not 1 <= depth <= x.rank - batch:
            raise TypeRuleError(
                f"{cls.name}: the last dimension of indices {shape_text(indices.shape)} must be a"
                f" number from 1 to {x.rank - batch}"
            )
        for axis in range(batch, batch + depth):
            _check_not_empty(cls.name, x, axis, indices)
        return x.with_shape((*indices.shape[:-1], *x.shape[batch + depth :]))

    @staticmethod
    def reference(attrs: Attrs, x: Array, indices: Array) -> Array:
        """Index with one array for each picked dimension."""
        batch, depth = attrs.batch_dims, indices.shape[-1]
        outer = np.indices(indices.shape[:-1], sparse=True)[:batch]
        picked = [_clamped(indices[..., k], x.shape[batch + k]) for k in range(depth)]
        return np.array(x[(*outer, *picked)], order="C")

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, indices: Tensor) -> Tensor:
        """Read the vector of indices, then the data there."""
        batch, depth = attrs.batch_dims, indices.shape[-1]
        outer = indices.rank - 1
        shape = (*indices.shape[:-1], *x.shape[batch + depth :])

        def element(*place: PrimExpr) -> PrimExpr:
            picked = [
                _clamped_element(indices[(*place[:outer], k)], x.shape[batch + k])
                for k in range(depth)
            ]
            return x[(*place[:batch], *picked, *place[outer:])]

        return compute(shape, element, name="gather_nd")


@operator("one_hot", OpKind.INJECTIVE)
class OneHot(Op):
    """A new dimension that holds ``on_value`` at the index and ``off_value`` elsewhere.

    An index outside ``-depth..depth-1`` gives ``off_value`` everywhere.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``depth``: size of the new dimension; ``axis``: its place; the values and their type."""

        depth: int
        axis: int
        on_value: float = 1.0
        off_value: float = 0.0
        dtype: DType = DType.FLOAT32

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The indices' shape with ``depth`` at ``axis``."""
        (indices,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_integer, "integer", indices)
        check_axis(cls.name, attrs.axis, indices.rank + 1)
        if not require_at_most(0, attrs.depth, f"{cls.name}: the depth must not be negative"):
            raise TypeRuleError(f"{cls.name}: depth {attrs.depth} must not be negative")
        before, after = indices.shape[: attrs.axis], indices.shape[attrs.axis :]
        return TensorType((*before, attrs.depth, *after), attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, indices: Array) -> Array:
        """Compare the indices with every position."""
        wide = np.expand_dims(indices.astype(np.int64), attrs.axis)
        counted = np.where(wide < 0, wide + attrs.depth, wide)
        column = (-1, *[1] * (indices.ndim - attrs.axis))
        hit = counted == np.arange(attrs.depth).reshape(column)
        values = np.asarray([attrs.off_value, attrs.on_value]).astype(numpy_dtype(attrs.dtype))
        return values[hit.astype(np.int64)]

    @staticmethod
    def compute(attrs: Attrs, indices: Tensor) -> Tensor:
        """Compare the index with the position."""
        at = attrs.axis
        on, off = const(attrs.on_value, attrs.dtype), const(attrs.off_value, attrs.dtype)

        def element(*place: PrimExpr) -> PrimExpr:
            index = cast(indices[(*place[:at], *place[at + 1 :])], INDEX)
            hit = equal(index, place[at])
            wrapped = equal(index + attrs.depth, place[at])
            return select(binary(BinaryOp.OR, hit, wrapped), on, off)

        shape = (*indices.shape[:at], attrs.depth, *indices.shape[at:])
        return compute(shape, element, name="one_hot")


@operator("reverse_sequence", OpKind.INJECTIVE)
class ReverseSequence(Op):
    """The first elements of each sequence of a batch reversed, as many as ``lengths`` says."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``time``: the dimension that is reversed; ``batch``: the one that lengths are for."""

        time: int
        batch: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        x, lengths = operands(cls.name, types, 2)
        check_dtype(cls.name, is_index, "int32 or int64", lengths)
        check_axis(cls.name, attrs.time, x.rank)
        check_axis(cls.name, attrs.batch, x.rank)
        fits = lengths.rank == 1 and same_size(lengths.shape[0], x.shape[attrs.batch])
        if attrs.time == attrs.batch or not fits:
            raise TypeRuleError(
                f"{cls.name}: lengths {shape_text(lengths.shape)} do not fit data"
                f" {shape_text(x.shape)} with time {attrs.time} and batch {attrs.batch}"
            )
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array, lengths: Array) -> Array:
        """Take each position's counterpart."""
        size = int(x.shape[attrs.time])
        shape = [1] * x.ndim
        shape[attrs.batch] = -1
        ends = np.clip(lengths.astype(np.int64), 0, size).reshape(shape)
        shape[attrs.batch], shape[attrs.time] = 1, size
        steps = np.arange(size).reshape(shape)
        places = np.where(steps < ends, ends - 1 - steps, steps)
        return np.take_along_axis(x, np.broadcast_to(places, x.shape), attrs.time)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, lengths: Tensor) -> Tensor:
        """Read the length, then the data at the counterpart."""
        size = x.shape[attrs.time]

        def element(*place: PrimExpr) -> PrimExpr:
            step = place[attrs.time]
            end = minimum(maximum(cast(lengths[place[attrs.batch]], INDEX), 0), size)
            source = list(place)
            source[attrs.time] = select(step < end, end - 1 - step, step)
            return x[tuple(source)]

        return compute(x.shape, element, name="reverse_sequence")
