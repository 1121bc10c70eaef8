# SPDX-License-Identifier: Apache-2.0
"""Activation functions of neural networks: element-wise, the type of the operand kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import PrimExpr
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor
from . import arrays
from .arrays import Array, in_float32
from .derivative import derivative
from .elements import map_elements
from .type_rules import broadcasts_to, check_dtype, is_float, is_number, operands, same_dtype
from .unary import NumberOp, UnaryOp

if TYPE_CHECKING:
    from .terms import Contributions, DerivativeStep


class ActivationOp(Op):
    """An activation with attributes; a subclass gives ``apply`` and ``element``."""

    apply: ClassVar[Callable[..., Array]]
    element: ClassVar[Callable[..., PrimExpr]]

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of the operand, which must be floating-point."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_float, "floating-point", x)
        cls.check(attrs)
        return x

    @classmethod
    def check(cls, attrs: Any) -> None:
        """Raise TypeRuleError for attributes that mean nothing; every value is good by default."""

    @classmethod
    def reference(cls, attrs: OpAttrs, x: Array) -> Array:
        """``apply``, in float32 for half precision."""

        def function(wide: Array) -> Array:
            return cls.apply(attrs, wide)

        return in_float32(function, x)

    @classmethod
    def compute(cls, attrs: OpAttrs, x: Tensor) -> Tensor:
        """``element`` of every element."""

        def element(value: PrimExpr) -> PrimExpr:
            return cls.element(attrs, value)

        return map_elements(element, x, name=cls.name)


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


def _relu_element(x: PrimExpr) -> PrimExpr:
    return tir.maximum(x, 0)


@operator("nn.relu", OpKind.ELEMWISE)
class Relu(NumberOp):
    """The larger of x and 0; NaN stays NaN."""

    function = staticmethod(_relu)
    element = staticmethod(_relu_element)


@operator("nn.leaky_relu", OpKind.ELEMWISE)
class LeakyRelu(ActivationOp):
    """x, times ``alpha`` below 0."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``alpha``: slope below 0."""

        alpha: float = 0.01

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Scale the negative elements."""
        return np.where(x < 0, x * attrs.alpha, x)

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Scale a negative element."""
        return tir.select(x < 0, x * attrs.alpha, x)


def _expm1_below_zero(x: PrimExpr) -> PrimExpr:
    """Return ``exp(x) - 1`` for negative x, and 0 for others."""
    return tir.intrinsic(Intrinsic.EXP, tir.minimum(x, 0)) - 1.0


@operator("nn.elu", OpKind.ELEMWISE)
class Elu(ActivationOp):
    """x, and ``alpha * (exp(x) - 1)`` below 0."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``alpha``: minus the limit at minus infinity."""

        alpha: float = 1.0

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Bend the negative elements."""
        return np.where(x < 0, attrs.alpha * np.expm1(np.minimum(x, 0)), x)

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Bend a negative element."""
        return tir.select(x < 0, _expm1_below_zero(x) * attrs.alpha, x)


@operator("nn.selu", OpKind.ELEMWISE)
class Selu(ActivationOp):
    """``gamma`` times x, and ``gamma * alpha * (exp(x) - 1)`` up to 0."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """The defaults are ONNX's."""

        alpha: float = 1.67326319217681884765625
        gamma: float = 1.05070102214813232421875

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Bend the negative elements and scale."""
        return attrs.gamma * np.where(x <= 0, attrs.alpha * np.expm1(np.minimum(x, 0)), x)

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Bend a negative element and scale."""
        return tir.select(x <= 0, _expm1_below_zero(x) * attrs.alpha, x) * attrs.gamma


@operator("nn.celu", OpKind.ELEMWISE)
class Celu(ActivationOp):
    """x, and ``alpha * (exp(x / alpha) - 1)`` below 0."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``alpha``: not 0."""

        alpha: float = 1.0

    @classmethod
    def check(cls, attrs: Attrs) -> None:
        """Refuse an alpha of 0."""
        if attrs.alpha == 0:
            raise TypeRuleError(f"{cls.name}: alpha must not be 0")

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Bend the negative elements."""
        bent = np.minimum(attrs.alpha * np.expm1(x / attrs.alpha), 0)
        return np.maximum(x, 0) + bent

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Bend a negative element."""
        grown = tir.intrinsic(Intrinsic.EXP, x / attrs.alpha) - 1.0
        return tir.maximum(x, 0) + tir.minimum(grown * attrs.alpha, 0)


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(x * alpha + beta, 0, 1)


def _hard_sigmoid_element(x: PrimExpr, alpha: float, beta: float) -> PrimExpr:
    return tir.minimum(tir.maximum(x * alpha + beta, 0), 1)


@operator("nn.hard_sigmoid", OpKind.ELEMWISE)
class HardSigmoid(ActivationOp):
    """``alpha * x + beta``, limited to 0..1."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Slope and offset of the line."""

        alpha: float = 0.2
        beta: float = 0.5

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Limit the line."""
        return _hard_sigmoid(x, attrs.alpha, attrs.beta)

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Limit the line."""
        return _hard_sigmoid_element(x, attrs.alpha, attrs.beta)


def _hard_swish(x: Array) -> Array:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def _hard_swish_element(x: PrimExpr) -> PrimExpr:
    return x * _hard_sigmoid_element(x, 1 / 6, 0.5)


@operator("nn.hard_swish", OpKind.ELEMWISE)
class HardSwish(UnaryOp):
    """x times ``x / 6 + 0.5`` limited to 0..1."""

    function = staticmethod(_hard_swish)
    element = staticmethod(_hard_swish_element)


def _softplus_element(x: PrimExpr) -> PrimExpr:
    size = tir.intrinsic(Intrinsic.ABS, x)
    small = tir.intrinsic(Intrinsic.EXP, size * -1.0)
    return tir.intrinsic(Intrinsic.LOG1P, small) + tir.maximum(x, 0)


@operator("nn.softplus", OpKind.ELEMWISE)
class Softplus(UnaryOp):
    """``log(1 + exp(x))``, without overflow."""

    function = staticmethod(arrays.softplus)
    element = staticmethod(_softplus_element)


def _softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


def _softsign_element(x: PrimExpr) -> PrimExpr:
    return x / (tir.intrinsic(Intrinsic.ABS, x) + 1.0)


@operator("nn.softsign", OpKind.ELEMWISE)
class Softsign(UnaryOp):
    """``x / (1 + abs(x))``."""

    function = staticmethod(_softsign)
    element = staticmethod(_softsign_element)


@operator("nn.gelu", OpKind.ELEMWISE)
class Gelu(ActivationOp):
    """x times the normal distribution function of x."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``approximate``: by tanh instead of erf."""

        approximate: bool = False

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Weigh every element."""
        if attrs.approximate:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
            return 0.5 * x * (1 + np.tanh(inner))
        return 0.5 * x * (1 + arrays.erf(x * math.sqrt(0.5)))

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Weigh an element."""
        if attrs.approximate:
            inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
            return x * 0.5 * (tir.intrinsic(Intrinsic.TANH, inner) + 1.0)
        return x * 0.5 * (tir.intrinsic(Intrinsic.ERF, x * math.sqrt(0.5)) + 1.0)


def _silu(x: Array) -> Array:
    return x * arrays.sigmoid(x)


def _silu_element(x: PrimExpr) -> PrimExpr:
    return x * tir.intrinsic(Intrinsic.SIGMOID, x)


@operator("nn.silu", OpKind.ELEMWISE)
class Silu(UnaryOp):
    """``x * sigmoid(x)``."""

    function = staticmethod(_silu)
    element = staticmethod(_silu_element)


def _mish(x: Array) -> Array:
    return x * np.tanh(arrays.softplus(x))


def _mish_element(x: PrimExpr) -> PrimExpr:
    return x * tir.intrinsic(Intrinsic.TANH, _softplus_element(x))


@operator("nn.mish", OpKind.ELEMWISE)
class Mish(UnaryOp):
    """``x * tanh(softplus(x))``."""

    function = staticmethod(_mish)
    element = staticmethod(_mish_element)


@operator("nn.thresholded_relu", OpKind.ELEMWISE)
class ThresholdedRelu(ActivationOp):
    """x above ``alpha``, else 0."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``alpha``: the threshold."""

        alpha: float = 1.0

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Keep what is above the threshold."""
        return np.where(x > attrs.alpha, x, np.zeros((), x.dtype))

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Keep what is above the threshold."""
        return tir.select(x > attrs.alpha, x, 0)


@operator("nn.shrink", OpKind.ELEMWISE)
class Shrink(ActivationOp):
    """0 up to ``threshold`` on both sides, beyond it x moved towards 0 by ``bias``; NaN is 0.

    With ``bias`` 0 it is the hard shrinkage, with ``bias`` equal to ``threshold`` the soft one.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``threshold``: where it begins on both sides; ``bias``: how far elements are moved."""

        threshold: float = 0.5
        bias: float = 0.0

    @staticmethod
    def apply(attrs: Attrs, x: Array) -> Array:
        """Move the elements beyond the threshold, and clear the others."""
        above = np.where(x > attrs.threshold, x - attrs.bias, np.zeros((), x.dtype))
        return np.where(x < -attrs.threshold, x + attrs.bias, above)

    @staticmethod
    def element(attrs: Attrs, x: PrimExpr) -> PrimExpr:
        """Move an element beyond the threshold, or clear it."""
        above = tir.select(x > attrs.threshold, x - attrs.bias, 0)
        return tir.select(x < -attrs.threshold, x + attrs.bias, above)


@derivative(Shrink)
def _shrink_derivative(step: DerivativeStep, attrs: Shrink.Attrs) -> Contributions:
    """1 beyond the threshold on both sides, else 0."""
    (x,) = step.args
    above = step.adjoint.where(x.above(attrs.threshold), 0.0)
    return [step.adjoint.where(x.below(-attrs.threshold), above)]


def _prelu(x: Array, slope: Array) -> Array:
    return np.where(x < 0, x * slope, x)


def _prelu_element(x: PrimExpr, slope: PrimExpr) -> PrimExpr:
    return tir.select(x < 0, x * slope, x)


@operator("nn.prelu", OpKind.ELEMWISE)
class Prelu(Op):
    """x, times ``slope`` below 0; the slope broadcasts to x."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of x."""
        x, slope = operands(cls.name, types, 2)
        check_dtype(cls.name, is_number, "integer or floating-point", x, slope)
        same_dtype(cls.name, x, slope)
        broadcasts_to(cls.name, slope, x, "slope")
        return x

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, slope: Array) -> Array:
        """Scale the negative elements."""
        return in_float32(_prelu, x, slope)

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, slope: Tensor) -> Tensor:
        """Scale the negative elements."""
        return map_elements(_prelu_element, x, slope, name="nn_prelu", shape=x.shape)
