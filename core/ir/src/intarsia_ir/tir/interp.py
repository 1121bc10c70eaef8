# SPDX-License-Identifier: Apache-2.0
"""The oracle: evaluates tensor expressions and runs kernels with NumPy, slowly but as specified.

Every value is a NumPy scalar or an array of lanes, so one evaluator serves both: a tensor
expression is evaluated for a whole grid of index values at once, a kernel one statement at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from intarsia_runtime.errors import VerifyError

from .evaluate import Array, ExprEvaluator, apply_binary, numpy_dtype
from .expr import BinaryOp, PrimExpr, TirVar
from .interp_kernel import KernelInterpreter, poisoned
from .tensor import ArgReduction, Axis, Reduction, Tensor
from .walk import tensors

if TYPE_CHECKING:
    from .buffer import Buffer
    from .func import PrimFunc

GRID_LIMIT = 1 << 22
"""Most index points evaluated at once; larger reductions go slice by slice."""


def evaluate(tensor: Tensor, feeds: Mapping[Tensor, Array]) -> Array:
    """Return all elements of a tensor expression.

    Args:
        tensor: What to evaluate; tensors it reads are evaluated once each.
        feeds: Values of the given tensors, by identity.

    Raises:
        VerifyError: A given tensor has no value, or a read is out of bounds.
    """
    values: dict[Tensor, Array] = dict(feeds)
    for node in tensors(tensor):
        if node in values:
            continue
        if node.body is None:
            raise VerifyError(f"no value for the tensor '{node.name}'")
        with np.errstate(all="ignore"):
            values[node] = _evaluate_body(node, node.body, values)
    return values[tensor]


def _evaluate_body(
    tensor: Tensor, body: PrimExpr | Reduction | ArgReduction, values: Mapping[Tensor, Array]
) -> Array:
    rank = len(tensor.axes)
    env = {axis.var: _grid(axis.extent, n, rank) for n, axis in enumerate(tensor.axes)}
    dtype = numpy_dtype(tensor.dtype)
    if prod(tensor.shape) == 0:
        return np.empty(tensor.shape, dtype)
    match body:
        case Reduction():
            result = _evaluate_reduction(body, tensor.shape, env, values)
        case ArgReduction():
            result = _evaluate_arg(body, tensor.shape, env, values)
        case _:
            result = ExprEvaluator(env, values).value(body)
    return np.array(np.broadcast_to(result, tensor.shape), dtype, order="C")


def _grid(extent: int, position: int, rank: int) -> Array:
    """Index values along one dimension, shaped to broadcast against ``rank`` dimensions."""
    shape = [1] * rank
    shape[position] = extent
    return np.arange(extent, dtype=np.int64).reshape(shape)


def _evaluate_reduction(
    body: Reduction,
    shape: tuple[int, ...],
    env: Mapping[TirVar, Array],
    values: Mapping[Tensor, Array],
) -> Array:
    init = np.broadcast_to(ExprEvaluator(env, values).value(body.init), shape)
    if any(axis.extent == 0 for axis in body.axes):
        return init
    outer = 0
    while outer < len(body.axes) and _points(shape, body.axes[outer:]) > GRID_LIMIT:
        outer += 1
    inner = body.axes[outer:]
    result = init
    for point in np.ndindex(*(axis.extent for axis in body.axes[:outer])):
        grid = _with_reduction_axes(env, len(shape), inner)
        for axis, at in zip(body.axes[:outer], point, strict=True):
            grid[axis.var] = np.asarray(at, np.int64)
        part = ExprEvaluator(grid, values).value(body.value)
        part = np.broadcast_to(part, (*shape, *(axis.extent for axis in inner)))
        reduced = reduce_trailing(body.combine, part, len(inner))
        result = apply_binary(body.combine, result, reduced)
    return result


def _points(shape: tuple[int, ...], axes: tuple[Axis, ...]) -> int:
    return prod(shape) * prod(axis.extent for axis in axes)


def _with_reduction_axes(
    env: Mapping[TirVar, Array], rank: int, inner: tuple[Axis, ...]
) -> dict[TirVar, Array]:
    """Append one dimension for each reduction axis to every index grid."""
    total = rank + len(inner)
    grid = {var: value.reshape(value.shape + (1,) * len(inner)) for var, value in env.items()}
    for number, axis in enumerate(inner):
        grid[axis.var] = _grid(axis.extent, rank + number, total)
    return grid


def reduce_trailing(combine: BinaryOp, values: Array, count: int) -> Array:
    """Combine the last ``count`` dimensions of an array, keeping its element type."""
    flat = values.reshape(*values.shape[: values.ndim - count], -1)
    if combine is BinaryOp.ADD and flat.dtype != np.bool_:
        return np.add.reduce(flat, axis=-1, dtype=flat.dtype)
    result = flat[..., 0]
    for position in range(1, flat.shape[-1]):
        result = apply_binary(combine, result, flat[..., position])
    return result


def _evaluate_arg(
    body: ArgReduction,
    shape: tuple[int, ...],
    env: Mapping[TirVar, Array],
    values: Mapping[Tensor, Array],
) -> Array:
    extent = body.axis.extent
    grid = _with_reduction_axes(env, len(shape), (body.axis,))
    found = np.broadcast_to(ExprEvaluator(grid, values).value(body.value), (*shape, extent))
    if body.last:
        found = found[..., ::-1]
    # NumPy takes the first NaN as the extreme, and the first of equals.
    at = np.argmax(found, axis=-1) if body.largest else np.argmin(found, axis=-1)
    return (extent - 1 - at) if body.last else at


def run(func: PrimFunc, *arrays: Array) -> None:
    """Carry out a kernel on arrays, one for each parameter; scratch parameters may be left out.

    Temporaries start as NaN or a byte pattern, so that reading what was never written shows.

    Raises:
        VerifyError: The arrays do not fit the parameters, or an access is out of bounds.
    """
    given = list(arrays)
    if len(given) == len(func.params) - func.scratch:
        given.extend(poisoned(buffer) for buffer in func.scratch_params)
    if len(given) != len(func.params):
        raise VerifyError(
            f"'{func.name}' takes {len(func.params)} arrays, {len(given)} given", where=func.name
        )
    memory: dict[Buffer, Array] = {}
    for buffer, array in zip(func.params, given, strict=True):
        if array.shape != buffer.shape or array.dtype != numpy_dtype(buffer.dtype):
            raise VerifyError(
                f"'{buffer.name}' is {buffer.dtype}{list(buffer.shape)}, "
                f"the array given is {array.dtype}{list(array.shape)}",
                where=func.name,
            )
        memory[buffer] = array
    with np.errstate(all="ignore"):
        KernelInterpreter(memory).execute(func.body)
