# SPDX-License-Identifier: Apache-2.0
"""What type rules share: operand checks, and how sizes that may be symbolic go together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.guards import require_equal
from ..graph.types import Dim, Shape, Size, TensorType, Type


def shape_text(shape: Sequence[Size]) -> str:
    """Return a shape as messages show it, e.g. ``(N, 3)``."""
    return f"({', '.join(str(size) for size in shape)}{',' if len(shape) == 1 else ''})"


def operands(
    name: str, types: Sequence[Type], least: int, most: int | None = None
) -> tuple[TensorType, ...]:
    """Return the operand types as tensor types.

    Args:
        name: Operator, for the message.
        types: Types of the operands.
        least: How many operands there must be.
        most: How many there may be; ``least`` if left out.

    Raises:
        TypeRuleError: Another number of operands, or one that is a tuple.
    """
    limit = least if most is None else most
    if not least <= len(types) <= limit:
        wanted = str(least) if least == limit else f"{least} to {limit}"
        raise TypeRuleError(f"{name}: takes {wanted} operands, got {len(types)}")
    tensors = tuple(t for t in types if isinstance(t, TensorType))
    if len(tensors) != len(types):
        raise TypeRuleError(f"{name}: every operand must be a tensor, got {_types_text(types)}")
    return tensors


def _types_text(types: Iterable[Type]) -> str:
    return ", ".join(str(t) for t in types)


def check_dtype(
    name: str, accepts: Callable[[DType], bool], wanted: str, *types: TensorType
) -> None:
    """Check the element type of every operand.

    Raises:
        TypeRuleError: ``accepts`` refuses one; the message says ``wanted``.
    """
    for type_ in types:
        if not accepts(type_.dtype):
            raise TypeRuleError(f"{name}: needs {wanted} elements, got {type_}")


def is_number(dtype: DType) -> bool:
    """Whether the type is an integer or floating-point type."""
    return dtype is not DType.BOOL


def is_float(dtype: DType) -> bool:
    """Whether the type is a floating-point type."""
    return dtype.is_float


def is_bool(dtype: DType) -> bool:
    """Whether the type is bool."""
    return dtype is DType.BOOL


def is_integer(dtype: DType) -> bool:
    """Whether the type is an integer type."""
    return dtype.is_integer


def is_index(dtype: DType) -> bool:
    """Whether the type can index a dimension."""
    return dtype in (DType.INT32, DType.INT64)


def same_dtype(name: str, *types: TensorType) -> DType:
    """Return the element type that all operands have.

    Raises:
        TypeRuleError: They differ.
    """
    if any(t.dtype is not types[0].dtype for t in types):
        raise TypeRuleError(f"{name}: element types of {_types_text(types)} differ")
    return types[0].dtype


def broadcast(name: str, *types: TensorType) -> Shape:
    """Return the shape that all operands broadcast to, by NumPy's rule.

    A symbolic size broadcasts with 1 and itself; next to a number it must turn out to be that
    number (or 1), so the result is the number.

    Raises:
        TypeRuleError: Two sizes do not fit.
    """
    rank = max(t.rank for t in types)
    result: list[Size] = [1] * rank
    for type_ in types:
        for axis, size in enumerate(type_.shape, rank - type_.rank):
            joined = _join(name, result[axis], size)
            if joined is None:
                shapes = " and ".join(shape_text(t.shape) for t in types)
                raise TypeRuleError(
                    f"{name}: shapes {shapes} do not broadcast (sizes {result[axis]} and {size})"
                )
            result[axis] = joined
    return tuple(result)


def _join(name: str, a: Size, b: Size) -> Size | None:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    is_required = require_equal(a, b, f"{name}: sizes that are broadcast must be equal")
    if isinstance(a, Dim) and isinstance(b, Dim):
        return a if is_required else None
    if isinstance(a, Dim):
        return b
    return a if isinstance(b, Dim) else None


def broadcasts_to(name: str, small: TensorType, big: TensorType, what: str) -> None:
    """Check that ``small`` broadcasts to the shape of ``big`` without growing it.

    Raises:
        TypeRuleError: It does not.
    """
    if small.rank <= big.rank and all(
        a == 1
        or require_equal(a, b, f"{name}: {what} must broadcast")
        or isinstance(a, Dim)
        or isinstance(b, Dim)
        for a, b in zip(reversed(small.shape), reversed(big.shape), strict=False)
    ):
        return
    raise TypeRuleError(
        f"{name}: {what} {shape_text(small.shape)} does not broadcast to {shape_text(big.shape)}"
    )


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes may be equal: equal numbers, equal symbols, or a number and a symbol.

    That they are becomes a guard where guards are collected.
    """
    return require_equal(a, b, "sizes that go together must be equal") or (
        isinstance(a, Dim) != isinstance(b, Dim)
    )


def check_axis(name: str, axis: int, rank: int) -> None:
    """Check that an axis names a dimension.

    Raises:
        TypeRuleError: It is negative or not below ``rank``.
    """
    if not 0 <= axis < rank:
        raise TypeRuleError(f"{name}: axis {axis} is out of range for a tensor of rank {rank}")


def check_axes(name: str, axes: Sequence[int], rank: int) -> None:
    """Check that axes name distinct dimensions in ascending order.

    Raises:
        TypeRuleError: One is out of range, or they are not strictly ascending.
    """
    for axis in axes:
        check_axis(name, axis, rank)
    if list(axes) != sorted(set(axes)):
        raise TypeRuleError(f"{name}: axes {tuple(axes)} must be ascending and distinct")


def check_vector(name: str, what: str, vector: TensorType, size: Size) -> None:
    """Check a parameter that has one element for each channel.

    Raises:
        TypeRuleError: It has another rank or size.
    """
    if vector.rank != 1 or not same_size(vector.shape[0], size):
        raise TypeRuleError(
            f"{name}: {what} must have shape ({size},), got {shape_text(vector.shape)}"
        )
