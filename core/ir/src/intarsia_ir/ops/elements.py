# SPDX-License-Identifier: Apache-2.0
"""What compute rules share: maps with broadcasting, half precision in float32, index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import prod

from intarsia_runtime.dtype import DType
from intarsia_runtime.size import numbers

from ..tir.expr import IntImm, PrimExpr, all_of, cast
from ..tir.tensor import Tensor, compute

HALF = (DType.FLOAT16, DType.BFLOAT16)


def accumulator(dtype: DType) -> DType:
    """Return the element type that arithmetic on ``dtype`` is carried out in: float32 for half."""
    return DType.FLOAT32 if dtype in HALF else dtype


def wide(value: PrimExpr) -> PrimExpr:
    """Return ``value`` in the element type that arithmetic on it is carried out in."""
    return cast(value, accumulator(value.dtype))


def static_broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes, known to fit, broadcast to: numbers before open sizes."""
    columns = zip_longest(*(tuple(reversed(shape)) for shape in shapes), fillvalue=1)
    return tuple(reversed([_joined(column) for column in columns]))


def _joined(sizes: Sequence[int]) -> int:
    """Return the size that is not 1; the number, if a guard has it equal to open sizes."""
    grown = [size for size in sizes if size != 1]
    return next(iter(numbers(grown)), grown[0] if grown else 1)


def read(x: Tensor, indices: Sequence[PrimExpr], shape: Sequence[int]) -> PrimExpr:
    """Read the element of ``x`` that broadcasting to ``shape`` puts at ``indices``."""
    skip = len(shape) - x.rank
    own = zip(x.shape, indices[skip:], shape[skip:], strict=True)
    return x[tuple(IntImm(0) if size == 1 != out else i for size, i, out in own)]


def map_elements(
    element: Callable[..., PrimExpr],
    *tensors: Tensor,
    name: str,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Apply a scalar rule to the elements of tensors that broadcast, to ``shape`` if it is given.

    Half precision is computed in float32; a result that has the wide type of the last operand is
    rounded to that operand's type.
    """
    joined = static_broadcast(*(x.shape for x in tensors)) if shape is None else tuple(shape)
    narrow = tensors[-1].dtype

    def body(*indices: PrimExpr) -> PrimExpr:
        value = element(*(wide(read(x, indices, joined)) for x in tensors))
        return cast(value, narrow) if narrow in HALF and value.dtype is DType.FLOAT32 else value

    return compute(joined, body, name=name.replace(".", "_"))


def narrowed(x: Tensor, dtype: DType, name: str) -> Tensor:
    """Return ``x`` with element type ``dtype``; the same tensor if it has that type."""
    if x.dtype is dtype:
        return x

    def body(*indices: PrimExpr) -> PrimExpr:
        return cast(x[indices], dtype)

    return compute(x.shape, body, name=name)


def inside(positions: Sequence[tuple[PrimExpr, int]]) -> PrimExpr:
    """Whether every index lies in ``range(size)``."""
    conditions: list[PrimExpr] = []
    for position, size in positions:
        conditions += [position >= 0, position < size]
    return all_of(conditions)


def flatten_index(indices: Sequence[PrimExpr], shape: Sequence[int]) -> PrimExpr:
    """Return the row-major number of the element at ``indices``."""
    result: PrimExpr = IntImm(0)
    for index, size in zip(indices, shape, strict=True):
        result = result * size + index
    return result


def unflatten_index(number: PrimExpr, shape: Sequence[int]) -> list[PrimExpr]:
    """Return the indices of the element with the row-major number ``number``."""
    result: list[PrimExpr] = []
    for axis, size in enumerate(shape):
        step = prod(shape[axis + 1 :])
        index = number if step == 1 else number // step
        if size == 1:
            index = IntImm(0)
        result.append(index % size if any(extent != 1 for extent in shape[:axis]) else index)
    return result
