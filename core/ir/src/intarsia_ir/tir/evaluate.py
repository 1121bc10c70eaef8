# SPDX-License-Identifier: Apache-2.0
"""Evaluates loop-IR expressions with NumPy, element type by element type as the IR specifies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, assert_never, cast

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

from .evaluate_intrinsic import Array, apply_intrinsic, numpy_dtype
from .expr import (
    Binary,
    BinaryOp,
    Broadcast,
    CallIntrinsic,
    CallTarget,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Read,
    ReduceLanes,
    Select,
    TirVar,
)

if TYPE_CHECKING:
    from .buffer import Buffer
    from .tensor import Tensor

__all__ = ["ExprEvaluator", "apply_binary", "cast_array", "numpy_dtype"]

_UFUNCS = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.FLOOR_DIV: np.floor_divide,
    BinaryOp.FLOOR_MOD: np.remainder,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.AND: np.bitwise_and,
    BinaryOp.OR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
}
_LOGICAL = {
    BinaryOp.MIN: np.logical_and,
    BinaryOp.MUL: np.logical_and,
    BinaryOp.MAX: np.logical_or,
    BinaryOp.ADD: np.logical_or,
}


def apply_binary(op: BinaryOp, a: Array, b: Array) -> Array:
    """Apply a binary operator to arrays or scalars of one element type, broadcasting."""
    if op is BinaryOp.TRUNC_DIV:
        return _trunc_div(a, b)
    if op is BinaryOp.TRUNC_MOD:
        return np.fmod(a, b)
    if a.dtype.kind == "b" and op in _LOGICAL:
        return _LOGICAL[op](a, b)
    return _UFUNCS[op](a, b)


def _trunc_div(a: Array, b: Array) -> Array:
    if not np.issubdtype(a.dtype, np.integer):
        return np.trunc(a / b)
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return quotient + inexact.astype(quotient.dtype)


def cast_array(value: Array, dtype: DType) -> Array:
    """Convert elements as :class:`~intarsia_ir.tir.expr.CastExpr` specifies."""
    target = numpy_dtype(dtype)
    if dtype is DType.BOOL:
        return value != value.dtype.type(0)
    if not dtype.is_integer or np.issubdtype(value.dtype, np.integer) or value.dtype == np.bool_:
        return value.astype(target)
    wide = np.asarray(value).astype(np.float64)
    limits = np.iinfo(target)
    inside = (wide > float(limits.min)) & (wide < float(limits.max))
    result = np.where(inside, wide, 0.0).astype(target)
    result = np.where(wide >= float(limits.max), target.type(limits.max), result)
    return np.where(wide <= float(limits.min), target.type(limits.min), result)[()]


class ExprEvaluator:
    """Evaluates expressions for one assignment of the variables; a shared node once.

    Args:
        env: Value of each variable: scalars, or index grids that broadcast against each other.
        memory: Contents of buffers and tensors.
        mask: Where the result matters; elsewhere a load may be out of bounds.
    """

    def __init__(
        self,
        env: Mapping[TirVar, Array],
        memory: Mapping[Buffer, Array] | Mapping[Tensor, Array] | Mapping[Buffer | Tensor, Array],
        mask: Array | None = None,
    ) -> None:
        self._env = env
        self._memory = cast("Mapping[Buffer | Tensor, Array]", memory)
        self._mask = mask
        self._memo: dict[PrimExpr, Array] = {}

    def value(self, expr: PrimExpr) -> Array:
        """Return the value of ``expr``, with its element type.

        Raises:
            VerifyError: A load is out of bounds, or a variable is not defined.
            UnsupportedError: The expression calls a function of one code generator.
        """
        found = self._memo.get(expr)
        if found is not None:
            return found
        result = self._binary_chain(expr) if isinstance(expr, Binary) else self._compute(expr)
        self._memo[expr] = result
        return result

    def _binary_chain(self, expr: Binary) -> Array:
        """Walk down the left side without recursion: sums of a thousand terms lean left."""
        spine = [expr]
        while isinstance(spine[-1].a, Binary) and spine[-1].a not in self._memo:
            spine.append(spine[-1].a)
        result = self.value(spine[-1].a)
        for node in reversed(spine):
            result = apply_binary(node.op, result, self.value(node.b))
            self._memo[node] = result
        return result

    def _compute(self, expr: PrimExpr) -> Array:
        match expr:
            case IntImm() | FloatImm():
                scalar = _immediate(expr)
                return scalar if expr.lanes == 1 else np.full(expr.lanes, scalar)
            case TirVar():
                if expr not in self._env:
                    raise VerifyError(f"the variable '{expr.name}' has no value")
                return self._env[expr]
            case Select():
                return np.where(self.value(expr.condition), self.value(expr.a), self.value(expr.b))[
                    ()
                ]
            case IfThenElse():
                return self._if_then_else(expr)
            case CastExpr():
                return cast_array(self.value(expr.value), expr.dtype)
            case CallIntrinsic():
                return apply_intrinsic(expr.intrinsic, [self.value(arg) for arg in expr.args])
            case CallTarget():
                raise UnsupportedError(
                    f"'{expr.function}' is a function of the code generator '{expr.kind}', "
                    "which the interpreter does not have"
                )
            case Load():
                at = self.position(expr.buffer, expr.indices)
                return self._memory[expr.buffer][at]
            case Read():
                at = self.position(expr.tensor, expr.indices)
                return self._memory[expr.tensor][at]
            case Ramp():
                return self.value(expr.base) + np.arange(expr.lanes) * expr.stride
            case Broadcast():
                return np.full(expr.lanes, self.value(expr.value))
            case ReduceLanes():
                lanes = self.value(expr.value)
                result = lanes[0]
                for lane in lanes[1:]:
                    result = apply_binary(expr.op, result, lane)
                return result
            case Binary():
                return self._binary_chain(expr)
            case _:
                assert_never(expr)

    def _if_then_else(self, expr: IfThenElse) -> Array:
        condition = self.value(expr.condition)
        if np.ndim(condition) == 0:
            return self.value(expr.a if condition else expr.b)
        inherited = True if self._mask is None else self._mask
        sides = (
            ExprEvaluator(self._env, self._memory, inherited & condition).value(expr.a),
            ExprEvaluator(self._env, self._memory, inherited & ~condition).value(expr.b),
        )
        return np.where(condition, *sides)

    def position(self, owner: Buffer | Tensor, indices: Sequence[PrimExpr]) -> tuple[Array, ...]:
        """Return the NumPy index of an access, checked against the bounds.

        Raises:
            VerifyError: The rank is wrong, the owner has no contents, or an index is out of bounds.
        """
        if owner not in self._memory:
            raise VerifyError(f"'{owner.name}' is accessed where it does not exist")
        shape = self._memory[owner].shape
        if len(indices) != len(shape):
            raise VerifyError(f"{len(indices)} indices for '{owner.name}' of rank {len(shape)}")
        position: list[Array] = []
        for number, (item, size) in enumerate(zip(indices, shape, strict=True)):
            at = self.value(item)
            if self._mask is not None:
                at = np.where(self._mask, at, 0 if size else at)
            if (wrong := _outside(at, size)) is not None:
                raise VerifyError(
                    f"index {wrong} of dimension {number} of '{owner.name}' "
                    f"is outside 0..{size - 1}"
                )
            position.append(at)
        return tuple(position)


def _outside(at: Array, size: int) -> int | None:
    """Return the first index that is out of bounds, if there is one."""
    if at.ndim == 0:
        return None if 0 <= at < size else int(at)
    outside = (at < 0) | (at >= size)
    return int(at[outside].flat[0]) if outside.any() else None


def _immediate(expr: IntImm | FloatImm) -> Array:
    if isinstance(expr, FloatImm):
        return numpy_dtype(expr.dtype).type(expr.value)
    return _integer(expr.dtype, expr.value)


@cache
def _integer(dtype: DType, value: int) -> Array:
    target = numpy_dtype(dtype)
    if dtype is DType.BOOL:
        return np.array(bool(value))[()]
    return np.array(value & ((1 << dtype.bits) - 1), f"u{target.itemsize}").view(target)[()]
