# SPDX-License-Identifier: Apache-2.0
"""Reductions of a tensor over some of its dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import minimum, product

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import BinaryOp, IntImm, PrimExpr, binary, cast, const
from ..tir.tensor import (
    ArgReduction,
    Axis,
    Reduction,
    Tensor,
    compute,
    highest,
    lowest,
    reduce_axis,
)
from .arrays import Array, in_float32, is_floating
from .elements import accumulator, narrowed
from .type_rules import (
    check_axes,
    check_axis,
    check_dtype,
    is_bool,
    is_number,
    operands,
    shape_text,
)


def reduce_tensor(
    x: Tensor,
    axes: tuple[int, ...],
    value: Callable[[PrimExpr], PrimExpr],
    combine: BinaryOp,
    init: float,
    *,
    keepdims: bool = True,
    name: str = "reduced",
) -> Tensor:
    """Combine ``value`` of the elements along ``axes``, in the element type ``value`` gives."""
    kept = [axis for axis in range(x.rank) if axis not in axes]
    loops = {axis: reduce_axis(x.shape[axis], f"k{axis}") for axis in axes}
    if keepdims:
        shape = tuple(1 if axis in loops else size for axis, size in enumerate(x.shape))
        positions = {axis: axis for axis in kept}
    else:
        shape = tuple(x.shape[axis] for axis in kept)
        positions = {axis: n for n, axis in enumerate(kept)}

    def element(*indices: PrimExpr) -> PrimExpr | Reduction:
        place = tuple(
            loops[axis].var if axis in loops else indices[positions[axis]] for axis in range(x.rank)
        )
        item = value(x[place])
        if not loops:
            return item
        return Reduction(combine, item, tuple(loops.values()), const(init, item.dtype))

    return compute(shape, element, name=name)


def reduced_place(x: Tensor, axes: Sequence[int], indices: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Return ``indices`` with 0 along ``axes``."""
    return [IntImm(0) if d in axes else indices[d] for d in range(x.rank)]


_ON_BOOL = MappingProxyType({BinaryOp.MAX: BinaryOp.OR, BinaryOp.MIN: BinaryOp.AND})


class ReduceOp(Op):
    """A reduction over ``axes``; without axes, the operand itself.

    A subclass gives ``function``, ``combine`` and ``start``.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Which dimensions go, in ascending order, and whether they stay as 1."""

        axes: tuple[int, ...]
        keepdims: bool = False

    accepts: ClassVar[Callable[[DType], bool]] = staticmethod(is_number)
    wanted: ClassVar[str] = "integer or floating-point"
    function: ClassVar[Callable[..., Array]]
    combine: ClassVar[BinaryOp]
    start: ClassVar[Callable[[DType], float]]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The operand without the axes, or with 1 in their place."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, cls.accepts, cls.wanted, x)
        check_axes(cls.name, attrs.axes, x.rank)
        if attrs.keepdims:
            return x.with_shape(1 if n in attrs.axes else size for n, size in enumerate(x.shape))
        return x.with_shape(size for n, size in enumerate(x.shape) if n not in attrs.axes)

    @classmethod
    def reference(cls, attrs: Attrs, x: Array) -> Array:
        """``function`` over the axes."""

        def function(wide: Array) -> Array:
            start = cls.start(DType(wide.dtype.name))
            return cls.function(wide, axis=attrs.axes, keepdims=attrs.keepdims, initial=start)

        return in_float32(function, x)

    @classmethod
    def compute(cls, attrs: Attrs, x: Tensor) -> Tensor:
        """``combine`` over the axes, in float32 for half precision."""
        wide = accumulator(x.dtype)

        def value(item: PrimExpr) -> PrimExpr:
            return cast(item, wide)

        start = cls.start(wide)
        combine = _ON_BOOL.get(cls.combine, cls.combine) if wide is DType.BOOL else cls.combine
        result = reduce_tensor(
            x, attrs.axes, value, combine, start, keepdims=attrs.keepdims, name=cls.name
        )
        return narrowed(result, x.dtype, f"{cls.name}_rounded")


def _zero(_dtype: DType) -> float:
    return 0


def _one(_dtype: DType) -> float:
    return 1


def _sum(x: Array, *, axis: tuple[int, ...], keepdims: bool, initial: float) -> Array:
    return np.sum(x, axis=axis, keepdims=keepdims, initial=initial, dtype=x.dtype)


@operator("sum", OpKind.REDUCTION)
class Sum(ReduceOp):
    """The sum; integers wrap."""

    function = staticmethod(_sum)
    combine = BinaryOp.ADD
    start = staticmethod(_zero)


def _prod(x: Array, *, axis: tuple[int, ...], keepdims: bool, initial: float) -> Array:
    return np.prod(x, axis=axis, keepdims=keepdims, initial=initial, dtype=x.dtype)


@operator("prod", OpKind.REDUCTION)
class Prod(ReduceOp):
    """The product; integers wrap."""

    function = staticmethod(_prod)
    combine = BinaryOp.MUL
    start = staticmethod(_one)


def _anything(_dtype: DType) -> bool:
    return True


@operator("max", OpKind.REDUCTION)
class Max(ReduceOp):
    """The largest; NaN if one is NaN, the lowest value of the type over an empty dimension."""

    accepts = staticmethod(_anything)
    function = staticmethod(np.max)
    combine = BinaryOp.MAX
    start = staticmethod(lowest)


@operator("min", OpKind.REDUCTION)
class Min(ReduceOp):
    """The smallest; NaN if one is NaN, the highest value of the type over an empty dimension."""

    accepts = staticmethod(_anything)
    function = staticmethod(np.min)
    combine = BinaryOp.MIN
    start = staticmethod(highest)


def _all(x: Array, *, axis: tuple[int, ...], keepdims: bool, initial: float) -> Array:
    return np.all(x, axis=axis, keepdims=keepdims) & bool(initial)


@operator("all", OpKind.REDUCTION)
class All(ReduceOp):
    """Whether every element is true."""

    accepts = staticmethod(is_bool)
    wanted = "bool"
    function = staticmethod(_all)
    combine = BinaryOp.AND
    start = staticmethod(_one)


def _any(x: Array, *, axis: tuple[int, ...], keepdims: bool, initial: float) -> Array:
    return np.any(x, axis=axis, keepdims=keepdims) | bool(initial)


@operator("any", OpKind.REDUCTION)
class Any(ReduceOp):
    """Whether an element is true."""

    accepts = staticmethod(is_bool)
    wanted = "bool"
    function = staticmethod(_any)
    combine = BinaryOp.OR
    start = staticmethod(_zero)


@operator("mean", OpKind.REDUCTION)
class Mean(ReduceOp):
    """The mean; of integers, the sum in 64 bits divided with truncation."""

    @classmethod
    def reference(cls, attrs: ReduceOp.Attrs, x: Array) -> Array:
        """Sum and divide."""
        count = prod(x.shape[axis] for axis in attrs.axes)
        if is_floating(x):

            def function(wide: Array) -> Array:
                total = np.sum(wide, axis=attrs.axes, keepdims=attrs.keepdims, dtype=wide.dtype)
                return total / np.asarray(count, wide.dtype)

            return in_float32(function, x)
        wide = np.uint64 if x.dtype.kind == "u" else np.int64
        total = np.sum(x, axis=attrs.axes, keepdims=attrs.keepdims, dtype=wide)
        quotient = np.abs(total) // np.asarray(max(count, 1), wide)
        return np.where(total < 0, np.negative(quotient), quotient).astype(x.dtype)

    @classmethod
    def compute(cls, attrs: ReduceOp.Attrs, x: Tensor) -> Tensor:
        """Sum, then divide."""
        wide = mean_accumulator(x.dtype)
        count = prod(x.shape[axis] for axis in attrs.axes)
        division = BinaryOp.DIV if wide.is_float else BinaryOp.TRUNC_DIV

        def value(item: PrimExpr) -> PrimExpr:
            return cast(item, wide)

        total = reduce_tensor(
            x, attrs.axes, value, BinaryOp.ADD, 0, keepdims=attrs.keepdims, name="mean_sum"
        )

        def element(*indices: PrimExpr) -> PrimExpr:
            return cast(binary(division, total[indices], const(count, wide)), x.dtype)

        return compute(total.shape, element, name="mean")


def mean_accumulator(dtype: DType) -> DType:
    """Return the element type in which a mean is summed: 64 bits for integers."""
    if dtype.is_float:
        return accumulator(dtype)
    return DType.UINT64 if dtype.is_unsigned else DType.INT64


class ArgOp(Op):
    """The index of an extreme element along one dimension; a subclass gives ``largest``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """The dimension, whether it stays as 1, and whether the last of equal elements wins."""

        axis: int
        keepdims: bool = False
        last: bool = False

    largest: ClassVar[bool]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """int64, without the axis or with 1 in its place."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_number, "integer or floating-point", x)
        check_axis(cls.name, attrs.axis, x.rank)
        why = f"{cls.name}: there must be elements to choose from"
        others = product((*x.shape[: attrs.axis], *x.shape[attrs.axis + 1 :]))
        if not require_at_most(minimum(others, 1), x.shape[attrs.axis], why):
            raise TypeRuleError(
                f"{cls.name}: axis {attrs.axis} of {shape_text(x.shape)} has no elements"
            )
        middle = (1,) if attrs.keepdims else ()
        shape = (*x.shape[: attrs.axis], *middle, *x.shape[attrs.axis + 1 :])
        return TensorType(shape, DType.INT64)

    @classmethod
    def reference(cls, attrs: Attrs, x: Array) -> Array:
        """Search along the axis."""
        if not x.size:  # and neither has the result elements, or the type rule refuses
            middle = (1,) if attrs.keepdims else ()
            return np.zeros((*x.shape[: attrs.axis], *middle, *x.shape[attrs.axis + 1 :]), np.int64)
        search = np.argmax if cls.largest else np.argmin
        ordered = np.flip(x, attrs.axis) if attrs.last else x
        found = search(ordered, axis=attrs.axis, keepdims=attrs.keepdims)
        last = x.shape[attrs.axis] - 1
        return np.asarray(last - found if attrs.last else found, np.int64)

    @classmethod
    def compute(cls, attrs: Attrs, x: Tensor) -> Tensor:
        """Search along the axis."""
        at = attrs.axis
        loop: Axis = reduce_axis(x.shape[at])
        shape = (*x.shape[:at], *((1,) if attrs.keepdims else ()), *x.shape[at + 1 :])

        def element(*indices: PrimExpr) -> ArgReduction:
            rest = indices[at + 1 :] if attrs.keepdims else indices[at:]
            place = (*indices[:at], loop.var, *rest)
            return ArgReduction(cls.largest, x[place], loop, attrs.last)

        return compute(shape, element, name=cls.name)


@operator("argmax", OpKind.REDUCTION)
class Argmax(ArgOp):
    """Index of the largest element."""

    largest = True


@operator("argmin", OpKind.REDUCTION)
class Argmin(ArgOp):
    """Index of the smallest element."""

    largest = False
