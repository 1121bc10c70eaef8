# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators of one operand.

The element-wise family is three files: this one, ``binary`` and ``compare``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp, IntImm, PrimExpr
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute, highest, lowest
from . import arrays
from .arrays import Array, in_float32
from .elements import map_elements
from .type_rules import check_dtype, is_bool, is_float, is_number, operands


class UnaryOp(Op):
    """An operator on each element by itself; a subclass gives ``function`` and ``element``."""

    accepts: ClassVar[Callable[[DType], bool]] = staticmethod(is_float)
    wanted: ClassVar[str] = "floating-point"
    function: ClassVar[Callable[..., Array]]
    element: ClassVar[Callable[[PrimExpr], PrimExpr]]

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, cls.accepts, cls.wanted, x)
        return x

    @classmethod
    def reference(cls, attrs: OpAttrs, x: Array) -> Array:
        """``function`` of every element."""
        return in_float32(cls.function, x)

    @classmethod
    def compute(cls, attrs: OpAttrs, x: Tensor) -> Tensor:
        """``element`` of every element."""
        return map_elements(cls.element, x, name=cls.name)


class IntrinsicOp(UnaryOp):
    """A floating-point operator that is one machine function."""

    intrinsic: ClassVar[Intrinsic]

    @classmethod
    def compute(cls, attrs: OpAttrs, x: Tensor) -> Tensor:
        """The machine function of every element."""

        def element(value: PrimExpr) -> PrimExpr:
            return tir.intrinsic(cls.intrinsic, value)

        return map_elements(element, x, name=cls.name)


class NumberOp(UnaryOp):
    """An operator on integers and floats."""

    accepts = staticmethod(is_number)
    wanted = "integer or floating-point"


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


@operator("exp", OpKind.ELEMWISE)
class Exp(IntrinsicOp):
    """e to the power of x."""

    function = staticmethod(np.exp)
    intrinsic = Intrinsic.EXP


@operator("log", OpKind.ELEMWISE)
class Log(IntrinsicOp):
    """Natural logarithm; NaN below 0, minus infinity at 0."""

    function = staticmethod(np.log)
    intrinsic = Intrinsic.LOG


@operator("sqrt", OpKind.ELEMWISE)
class Sqrt(IntrinsicOp):
    """Square root; NaN below 0."""

    function = staticmethod(np.sqrt)
    intrinsic = Intrinsic.SQRT


@operator("rsqrt", OpKind.ELEMWISE)
class Rsqrt(IntrinsicOp):
    """Reciprocal of the square root; infinity at 0, NaN below."""

    function = staticmethod(_rsqrt)
    intrinsic = Intrinsic.RSQRT


@operator("sin", OpKind.ELEMWISE)
class Sin(IntrinsicOp):
    """Sine of an angle in radians."""

    function = staticmethod(np.sin)
    intrinsic = Intrinsic.SIN


@operator("cos", OpKind.ELEMWISE)
class Cos(IntrinsicOp):
    """Cosine of an angle in radians."""

    function = staticmethod(np.cos)
    intrinsic = Intrinsic.COS


@operator("tan", OpKind.ELEMWISE)
class Tan(IntrinsicOp):
    """Tangent of an angle in radians."""

    function = staticmethod(np.tan)
    intrinsic = Intrinsic.TAN


@operator("sinh", OpKind.ELEMWISE)
class Sinh(IntrinsicOp):
    """Hyperbolic sine."""

    function = staticmethod(np.sinh)
    intrinsic = Intrinsic.SINH


@operator("cosh", OpKind.ELEMWISE)
class Cosh(IntrinsicOp):
    """Hyperbolic cosine."""

    function = staticmethod(np.cosh)
    intrinsic = Intrinsic.COSH


@operator("asin", OpKind.ELEMWISE)
class Asin(IntrinsicOp):
    """Inverse sine in radians; NaN outside -1..1."""

    function = staticmethod(np.arcsin)
    intrinsic = Intrinsic.ASIN


@operator("acos", OpKind.ELEMWISE)
class Acos(IntrinsicOp):
    """Inverse cosine in radians; NaN outside -1..1."""

    function = staticmethod(np.arccos)
    intrinsic = Intrinsic.ACOS


@operator("atan", OpKind.ELEMWISE)
class Atan(IntrinsicOp):
    """Inverse tangent in radians."""

    function = staticmethod(np.arctan)
    intrinsic = Intrinsic.ATAN


@operator("asinh", OpKind.ELEMWISE)
class Asinh(IntrinsicOp):
    """Inverse hyperbolic sine."""

    function = staticmethod(np.arcsinh)
    intrinsic = Intrinsic.ASINH


@operator("acosh", OpKind.ELEMWISE)
class Acosh(IntrinsicOp):
    """Inverse hyperbolic cosine; NaN below 1."""

    function = staticmethod(np.arccosh)
    intrinsic = Intrinsic.ACOSH


@operator("atanh", OpKind.ELEMWISE)
class Atanh(IntrinsicOp):
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""

    function = staticmethod(np.arctanh)
    intrinsic = Intrinsic.ATANH


@operator("tanh", OpKind.ELEMWISE)
class Tanh(IntrinsicOp):
    """Hyperbolic tangent."""

    function = staticmethod(np.tanh)
    intrinsic = Intrinsic.TANH


@operator("erf", OpKind.ELEMWISE)
class Erf(IntrinsicOp):
    """The error function."""

    function = staticmethod(arrays.erf)
    intrinsic = Intrinsic.ERF


@operator("sigmoid", OpKind.ELEMWISE)
class Sigmoid(IntrinsicOp):
    """The logistic function 1 / (1 + exp(-x))."""

    function = staticmethod(arrays.sigmoid)
    intrinsic = Intrinsic.SIGMOID


@operator("floor", OpKind.ELEMWISE)
class Floor(IntrinsicOp):
    """The largest whole number not above x."""

    function = staticmethod(np.floor)
    intrinsic = Intrinsic.FLOOR


@operator("ceil", OpKind.ELEMWISE)
class Ceil(IntrinsicOp):
    """The smallest whole number not below x."""

    function = staticmethod(np.ceil)
    intrinsic = Intrinsic.CEIL


@operator("round", OpKind.ELEMWISE)
class Round(IntrinsicOp):
    """The nearest whole number; ties go to the even one."""

    function = staticmethod(np.rint)
    intrinsic = Intrinsic.ROUND


def _abs_element(x: PrimExpr) -> PrimExpr:
    if x.dtype.is_float:
        return tir.intrinsic(Intrinsic.ABS, x)
    return x if x.dtype.is_unsigned else tir.select(x < 0, tir.const(0, x.dtype) - x, x)


@operator("abs", OpKind.ELEMWISE)
class Abs(NumberOp):
    """Magnitude; the smallest signed integer stays as it is."""

    function = staticmethod(np.abs)
    element = staticmethod(_abs_element)


def _negative_element(x: PrimExpr) -> PrimExpr:
    # 0 - x would lose the sign of zero.
    return x * -1.0 if x.dtype.is_float else tir.const(0, x.dtype) - x


@operator("negative", OpKind.ELEMWISE)
class Negative(NumberOp):
    """The number with the other sign; integers wrap."""

    function = staticmethod(np.negative)
    element = staticmethod(_negative_element)


def _reciprocal(x: Array) -> Array:
    return 1 / x


def _reciprocal_element(x: PrimExpr) -> PrimExpr:
    return 1.0 / x


@operator("reciprocal", OpKind.ELEMWISE)
class Reciprocal(UnaryOp):
    """1 / x; infinity at 0."""

    function = staticmethod(_reciprocal)
    element = staticmethod(_reciprocal_element)


def _sign_element(x: PrimExpr) -> PrimExpr:
    positive = tir.select(x > 0, tir.const(1, x.dtype), x)
    return positive if x.dtype.is_unsigned else tir.select(x < 0, tir.const(-1, x.dtype), positive)


@operator("sign", OpKind.ELEMWISE)
class Sign(NumberOp):
    """-1, 0 or 1; NaN for NaN."""

    function = staticmethod(np.sign)
    element = staticmethod(_sign_element)


def _not_element(x: PrimExpr) -> PrimExpr:
    return tir.binary(BinaryOp.XOR, x, IntImm(1, DType.BOOL))


@operator("logical_not", OpKind.ELEMWISE)
class LogicalNot(UnaryOp):
    """True for false and false for true."""

    accepts = staticmethod(is_bool)
    wanted = "bool"
    function = staticmethod(np.logical_not)
    element = staticmethod(_not_element)


class FloatTest(IntrinsicOp):
    """A question about a floating-point element; the answer is bool."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """Bool, in the shape of the operand."""
        return super().type_rule(attrs, *types).with_dtype(DType.BOOL)

    @classmethod
    def reference(cls, attrs: OpAttrs, x: Array) -> Array:
        """The answer for every element."""
        return np.asarray(cls.function(arrays.widen(x)))


@operator("isnan", OpKind.ELEMWISE)
class Isnan(FloatTest):
    """Whether the element is NaN."""

    function = staticmethod(np.isnan)
    intrinsic = Intrinsic.ISNAN


@operator("isinf", OpKind.ELEMWISE)
class Isinf(FloatTest):
    """Whether the element is an infinity of either sign."""

    function = staticmethod(np.isinf)
    intrinsic = Intrinsic.ISINF


@operator("cast", OpKind.ELEMWISE)
class Cast(Op):
    """Another element type: floats truncate and saturate, NaN gives 0, bool is ``x != 0``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``dtype``: element type of the result."""

        dtype: DType

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The shape of the operand."""
        (x,) = operands(cls.name, types, 1)
        return x.with_dtype(attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Convert as the loop IR does."""
        return arrays.convert(x, attrs.dtype)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Convert every element."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return tir.cast(x[indices], attrs.dtype)

        return compute(x.shape, element, name="cast")


@operator("clip", OpKind.ELEMWISE)
class Clip(Op):
    """The nearest number in ``min..max``; NaN stays NaN, ``max`` wins if below ``min``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Limits; an infinity is no limit, and for integers a fraction is rounded inwards."""

        min: float = -math.inf
        max: float = math.inf

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_number, "integer or floating-point", x)
        if math.isnan(attrs.min) or math.isnan(attrs.max):
            raise TypeRuleError(f"{cls.name}: limits {attrs.min} and {attrs.max} must be numbers")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Limit from below, then from above."""
        dtype = DType(x.dtype.name)
        low, high = _limits(attrs, dtype)
        wide = arrays.widen(x)
        if low is not None:
            wide = np.maximum(wide, np.asarray(low, wide.dtype))
        if high is not None:
            wide = np.minimum(wide, np.asarray(high, wide.dtype))
        return wide.astype(x.dtype)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Limit from below, then from above."""
        low, high = _limits(attrs, x.dtype)

        def element(value: PrimExpr) -> PrimExpr:
            if low is not None:
                value = tir.maximum(value, low)
            return value if high is None else tir.minimum(value, high)

        return map_elements(element, x, name="clip")


def _limits(attrs: Clip.Attrs, dtype: DType) -> tuple[float | None, float | None]:
    """Return the limits that mean something for ``dtype``, as values of it."""
    if dtype.is_float:
        low = None if attrs.min == -math.inf else attrs.min
        return low, None if attrs.max == math.inf else attrs.max
    least, most = lowest(dtype), highest(dtype)
    low = most if attrs.min == math.inf else None
    high = least if attrs.max == -math.inf else None
    if math.isfinite(attrs.min) and attrs.min > least:
        low = min(math.ceil(attrs.min), most)
    if math.isfinite(attrs.max) and attrs.max < most:
        high = max(math.floor(attrs.max), least)
    return low, high
