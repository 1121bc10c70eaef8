# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions: what an operator computes of one element, without saying in which order.

An operator's ``compute`` rule takes and returns these; ``intarsia_loops`` inlines, fuses and turns
them into loops. ``reads`` of a tensor are written ``x[i, j]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .expr import BinaryOp, PrimExpr, Read, TirVar, const, index


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop over ``range(extent)``."""

    var: TirVar
    extent: int


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """``combine`` of ``value`` over all ``axes``, starting from ``init``."""

    combine: BinaryOp  # ADD, MUL, MIN, MAX, AND, OR
    value: PrimExpr
    axes: tuple[Axis, ...]
    init: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class ArgReduction:
    """Index along ``axis`` of the smallest or largest ``value``; the first (or last) wins a tie."""

    largest: bool
    value: PrimExpr
    axis: Axis
    last: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A named array, either given (``body is None``) or defined per element.

    A :class:`~intarsia_runtime.size.Dim` may stand where an extent is an ``int``: it does the same
    arithmetic, and refuses to be compared, so rules that need a number say so.

    Attributes:
        axes: One loop for each dimension, outermost first; empty for a given tensor.
        body: The element at ``axes``, or a reduction that gives it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[Axis, ...] = ()
    body: PrimExpr | Reduction | ArgReduction | None = None

    def __getitem__(self, indices: PrimExpr | int | tuple[PrimExpr | int, ...]) -> PrimExpr:
        """Read one element; a rank-0 tensor is read with ``x[()]``."""
        items = indices if isinstance(indices, tuple) else (indices,)
        return Read(self, tuple(index(item) for item in items), self.dtype)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


def extents(sizes: Iterable[Size]) -> tuple[int, ...]:
    """Return a shape for tensors, in which an expression stands for a number."""
    return cast("tuple[int, ...]", tuple(sizes))


def placeholder(name: str, shape: Sequence[int], dtype: DType) -> Tensor:
    """Return a tensor whose elements are given."""
    return Tensor(name, tuple(shape), dtype)


def compute(
    shape: Sequence[int],
    element: Callable[..., PrimExpr | Reduction | ArgReduction],
    *,
    name: str = "t",
    dtype: DType | None = None,
) -> Tensor:
    """Define a tensor by its element: ``compute((4, 8), lambda i, j: x[i, j] + 1.0)``.

    Args:
        shape: Static sizes.
        element: Called once with one loop variable for each dimension.
        name: Shown in text.
        dtype: Element type; taken from the element if left out (INT64 for an ArgReduction).
    """
    axes = tuple(Axis(TirVar(f"i{n}"), size) for n, size in enumerate(shape))
    body = element(*(axis.var for axis in axes))
    if dtype is None:
        if isinstance(body, Reduction):
            dtype = body.value.dtype
        elif isinstance(body, ArgReduction):
            dtype = DType.INT64
        else:
            dtype = body.dtype
    return Tensor(name, tuple(shape), dtype, axes, body)


def reduce_axis(extent: int, name: str = "k") -> Axis:
    """Return a loop to reduce over."""
    return Axis(TirVar(name), extent)


def sum_over(value: PrimExpr, axes: Sequence[Axis]) -> Reduction:
    """Sum of ``value`` over ``axes``, starting from 0."""
    return Reduction(BinaryOp.ADD, value, tuple(axes), const(0, value.dtype))


def max_over(value: PrimExpr, axes: Sequence[Axis]) -> Reduction:
    """Maximum of ``value`` over ``axes``, starting from the lowest value of its type."""
    return Reduction(BinaryOp.MAX, value, tuple(axes), const(lowest(value.dtype), value.dtype))


def min_over(value: PrimExpr, axes: Sequence[Axis]) -> Reduction:
    """Minimum of ``value`` over ``axes``, starting from the highest value of its type."""
    return Reduction(BinaryOp.MIN, value, tuple(axes), const(highest(value.dtype), value.dtype))


def lowest(dtype: DType) -> float:
    """The smallest value of a type; minus infinity for floats."""
    if dtype.is_float:
        return float("-inf")
    return -(2 ** (dtype.bits - 1)) if dtype.is_signed else 0


def highest(dtype: DType) -> float:
    """The largest value of a type; infinity for floats."""
    if dtype.is_float:
        return float("inf")
    if dtype is DType.BOOL:
        return 1
    return 2 ** (dtype.bits - 1) - 1 if dtype.is_signed else 2**dtype.bits - 1
