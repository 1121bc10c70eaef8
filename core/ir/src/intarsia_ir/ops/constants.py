# SPDX-License-Identifier: Apache-2.0
"""What rules ask of operands, and how they make constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, constant
from ..graph.types import TensorType
from .arrays import Array, numpy_dtype


def scalar_value(expr: Expr) -> float | None:
    """Return the value of a constant all of whose elements are one number, else ``None``.

    Only constants of at most 65 536 elements are looked at.
    """
    if not isinstance(expr, Constant) or not 0 < expr.data.size <= 65_536:
        return None
    first = expr.data.flat[0]
    same = expr.data.size == 1 or bool((expr.data == first).all())
    return float(first) if same else None


def is_scalar(expr: Expr, value: float) -> bool:
    """Whether every element of ``expr`` is known to be ``value``."""
    return scalar_value(expr) == value


def is_float(expr: Expr) -> bool:
    """Whether ``expr`` is a tensor of floating-point numbers."""
    return isinstance(expr.type, TensorType) and expr.type.dtype.is_float


def is_whole(expr: Expr) -> bool:
    """Whether every element is known to be a whole number: rounded, then perhaps shifted by one."""
    match expr:
        case Call("round"):
            return True
        case Call("add" | "subtract", (Call("round"), shift)) | Call("add", (shift, Call("round"))):
            value = scalar_value(shift)
            return value is not None and value.is_integer() and abs(value) <= 65536
        case _:
            return False


def make_constant(values: Array, dtype: DType, *, name: str = "") -> Constant | None:
    """Return ``values`` rounded to ``dtype``, or ``None`` if they are not finite in it."""
    with np.errstate(all="ignore"):
        rounded = values.astype(numpy_dtype(dtype))
    if dtype.is_float and not bool(np.isfinite(rounded.astype(np.float64)).all()):
        return None
    return constant(np.ascontiguousarray(rounded).reshape(values.shape), name=name)


def per_channel(expr: Expr, rank: int, axis: int, channels: int) -> Array | None:
    """Return the constant ``expr`` as ``channels`` float64 numbers along one axis.

    Args:
        expr: An operand that broadcasts against a tensor of ``rank`` dimensions.
        rank: Rank of the other operand.
        axis: The only axis along which ``expr`` may vary.
        channels: Size of that axis.

    Returns:
        ``None`` if ``expr`` is not constant, varies along another axis, or adds dimensions.
    """
    if not isinstance(expr, Constant) or expr.data.ndim > rank:
        return None
    shape = (1,) * (rank - expr.data.ndim) + expr.data.shape
    if any(size != 1 for i, size in enumerate(shape) if i != axis):
        return None
    if shape[axis] not in (1, channels):
        return None
    values = expr.data.astype(np.float64).reshape(-1)
    return np.broadcast_to(values, (channels,))


def along_axis(values: Array, rank: int, axis: int) -> Array:
    """Return a vector shaped so that it broadcasts along ``axis`` of a tensor of ``rank``."""
    shape: Sequence[int] = [values.size if i == axis else 1 for i in range(rank)]
    return values.reshape(shape)
