# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators of two operands of one element type, which the result keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from intarsia_runtime.dtype import DType

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp, PrimExpr
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor
from . import arrays
from .arrays import Array, in_float32, is_floating
from .elements import map_elements
from .type_rules import (
    broadcast,
    check_dtype,
    is_bool,
    is_integer,
    is_number,
    operands,
    same_dtype,
)


class ElementwiseBinaryOp(Op):
    """An operator on pairs of elements; a subclass gives ``function`` and ``element``."""

    broadcasts = True
    accepts: ClassVar[Callable[[DType], bool]] = staticmethod(is_number)
    wanted: ClassVar[str] = "integer or floating-point"
    function: ClassVar[Callable[..., Array]]
    element: ClassVar[Callable[[PrimExpr, PrimExpr], PrimExpr]]

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The operands' element type in the shape they broadcast to."""
        a, b = operands(cls.name, types, 2)
        check_dtype(cls.name, cls.accepts, cls.wanted, a, b)
        return TensorType(broadcast(cls.name, a, b), same_dtype(cls.name, a, b))

    @classmethod
    def reference(cls, attrs: OpAttrs, a: Array, b: Array) -> Array:
        """``function`` of the arrays."""
        return in_float32(cls.function, a, b)

    @classmethod
    def compute(cls, attrs: OpAttrs, a: Tensor, b: Tensor) -> Tensor:
        """``element`` of every pair."""
        return map_elements(cls.element, a, b, name=cls.name)


class MachineOp(ElementwiseBinaryOp):
    """An operator that is one binary operator of the loop IR."""

    machine: ClassVar[BinaryOp]

    @classmethod
    def compute(cls, attrs: OpAttrs, a: Tensor, b: Tensor) -> Tensor:
        """The machine operator of every pair."""

        def element(x: PrimExpr, y: PrimExpr) -> PrimExpr:
            return tir.binary(cls.machine, x, y)

        return map_elements(element, a, b, name=cls.name)


class LogicalOp(MachineOp):
    """An operator on truth values."""

    accepts = staticmethod(is_bool)
    wanted = "bool"


class BitwiseOp(MachineOp):
    """An operator on the bits of integers."""

    accepts = staticmethod(is_integer)
    wanted = "integer"


@operator("add", OpKind.ELEMWISE)
class Add(MachineOp):
    """The sum; integers wrap."""

    commutative = True
    function = staticmethod(np.add)
    machine = BinaryOp.ADD


@operator("subtract", OpKind.ELEMWISE)
class Subtract(MachineOp):
    """The difference; integers wrap."""

    function = staticmethod(np.subtract)
    machine = BinaryOp.SUB


@operator("multiply", OpKind.ELEMWISE)
class Multiply(MachineOp):
    """The product; integers wrap."""

    commutative = True
    function = staticmethod(np.multiply)
    machine = BinaryOp.MUL


@operator("maximum", OpKind.ELEMWISE)
class Maximum(MachineOp):
    """The larger; NaN if either is NaN."""

    commutative = True
    function = staticmethod(np.maximum)
    machine = BinaryOp.MAX


@operator("minimum", OpKind.ELEMWISE)
class Minimum(MachineOp):
    """The smaller; NaN if either is NaN."""

    commutative = True
    function = staticmethod(np.minimum)
    machine = BinaryOp.MIN


@operator("logical_and", OpKind.ELEMWISE)
class LogicalAnd(LogicalOp):
    """Whether both are true."""

    commutative = True
    function = staticmethod(np.logical_and)
    machine = BinaryOp.AND


@operator("logical_or", OpKind.ELEMWISE)
class LogicalOr(LogicalOp):
    """Whether at least one is true."""

    commutative = True
    function = staticmethod(np.logical_or)
    machine = BinaryOp.OR


@operator("logical_xor", OpKind.ELEMWISE)
class LogicalXor(LogicalOp):
    """Whether exactly one is true."""

    commutative = True
    function = staticmethod(np.logical_xor)
    machine = BinaryOp.XOR


@operator("bitwise_and", OpKind.ELEMWISE)
class BitwiseAnd(BitwiseOp):
    """Bits set in both."""

    commutative = True
    function = staticmethod(np.bitwise_and)
    machine = BinaryOp.AND


@operator("bitwise_or", OpKind.ELEMWISE)
class BitwiseOr(BitwiseOp):
    """Bits set in at least one."""

    commutative = True
    function = staticmethod(np.bitwise_or)
    machine = BinaryOp.OR


@operator("bitwise_xor", OpKind.ELEMWISE)
class BitwiseXor(BitwiseOp):
    """Bits set in exactly one."""

    commutative = True
    function = staticmethod(np.bitwise_xor)
    machine = BinaryOp.XOR


@operator("left_shift", OpKind.ELEMWISE)
class LeftShift(BitwiseOp):
    """Bits moved up; an amount that is negative, or not less than the width, leaves none."""

    function = staticmethod(np.left_shift)
    machine = BinaryOp.SHL


@operator("right_shift", OpKind.ELEMWISE)
class RightShift(BitwiseOp):
    """Bits moved down with the sign; an amount that is negative, or too large, leaves 0 or -1."""

    function = staticmethod(np.right_shift)
    machine = BinaryOp.SHR


def _divide(a: Array, b: Array) -> Array:
    if is_floating(a):
        return np.divide(a, b)
    zero = b == 0
    divisor = np.where(zero, 1, b).astype(b.dtype)
    quotient = a // divisor
    rest = a - quotient * divisor
    quotient = quotient + ((rest != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(zero, 0, quotient)


def _divide_element(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return tir.binary(BinaryOp.DIV if a.dtype.is_float else BinaryOp.TRUNC_DIV, a, b)


@operator("divide", OpKind.ELEMWISE)
class Divide(ElementwiseBinaryOp):
    """The quotient; integers truncate towards 0, ``x / 0`` is 0 and ``INT_MIN / -1`` wraps."""

    function = staticmethod(_divide)
    element = staticmethod(_divide_element)


def _power(a: Array, b: Array) -> Array:
    if is_floating(a):
        return np.power(a, b)
    real = np.power(a.astype(np.float64), b.astype(np.float64))
    return arrays.convert(real, DType(a.dtype.name))


def _power_element(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if a.dtype.is_float:
        return tir.intrinsic(Intrinsic.POW, a, b)
    wide = (tir.cast(a, DType.FLOAT64), tir.cast(b, DType.FLOAT64))
    real = tir.intrinsic(Intrinsic.POW, *wide)
    # The exact result is a whole number, or at most a half; a machine's may be a little less.
    return tir.cast(tir.select(real < 0, real - 0.25, real + 0.25), a.dtype)


@operator("power", OpKind.ELEMWISE)
class Power(ElementwiseBinaryOp):
    """``a`` to the power of ``b``; of integers it is taken in float64, truncated and saturated."""

    function = staticmethod(_power)
    element = staticmethod(_power_element)


@operator("floor_mod", OpKind.ELEMWISE)
class FloorMod(MachineOp):
    """The rest of a division that rounds down, with the sign of ``b``; integer ``x % 0`` is 0."""

    function = staticmethod(np.mod)
    machine = BinaryOp.FLOOR_MOD


@operator("trunc_mod", OpKind.ELEMWISE)
class TruncMod(MachineOp):
    """The rest of a division that truncates, with the sign of ``a``; ``x % 0`` of integers is 0."""

    function = staticmethod(np.fmod)
    machine = BinaryOp.TRUNC_MOD
