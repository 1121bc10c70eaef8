# SPDX-License-Identifier: Apache-2.0
"""Softmax and layer normalization of quantized tensors: in float32 from bytes to bytes.

Operands are ``x, x_scale, x_zero, y_scale, y_zero``, with scalars for scales and zero points, and
then those of the operator on real numbers. The result is that of ``qnn.quantize`` of the operator
of ``qnn.dequantize``; as one operator it is what accelerators have kernels for.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import PrimExpr, cast
from ..tir.tensor import Tensor, compute
from . import normalization, softmax
from .arrays import Array
from .qnn import (
    check_parameters,
    dequantized,
    dequantized_element,
    quantized,
    quantized_element,
)
from .type_rules import operands, same_dtype, shape_text

PARAMETERS = 5
"""Operands before those of the operator on real numbers."""


def _check(name: str, types: Sequence[TensorType]) -> TensorType:
    """Check the tensor and its parameters; return the type of its real numbers.

    Raises:
        TypeRuleError: An element type does not fit, or a parameter is no scalar.
    """
    x, scale, zero, new_scale, new_zero = types
    same_dtype(name, x, zero)
    check_parameters(name, x, scale, zero)
    check_parameters(name, x, new_scale, new_zero)
    for type_ in types[1:]:
        if type_.rank:
            raise TypeRuleError(
                f"{name}: scales and zero points must be scalars, got {shape_text(type_.shape)}"
            )
    return x.with_dtype(DType.FLOAT32)


def _real(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return the real numbers of a tensor, in float32."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return dequantized_element(x[indices], scale[()], zero[()])

    return compute(x.shape, element, name="qnn_real")


def _stored(x: Tensor, scale: Tensor, zero: Tensor, name: str) -> Tensor:
    """Return real numbers as integers."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return quantized_element(cast(x[indices], DType.FLOAT32), scale[()], zero[()])

    return compute(x.shape, element, name=name)


@operator("qnn.softmax", OpKind.OPAQUE)
class Softmax(Op):
    """``nn.softmax`` from quantized to quantized."""

    Attrs = softmax.SoftmaxOp.Attrs

    @classmethod
    def type_rule(cls, attrs: softmax.SoftmaxOp.Attrs, *types: Type) -> TensorType:
        """The shape of ``x``, the type of ``y_zero``."""
        tensors = operands(cls.name, types, PARAMETERS)
        real = _check(cls.name, tensors)
        return softmax.Softmax.type_rule(attrs, real).with_dtype(tensors[4].dtype)

    @staticmethod
    def reference(attrs: softmax.SoftmaxOp.Attrs, x: Array, *parameters: Array) -> Array:
        """In float32."""
        scale, zero, *new = parameters
        return quantized(softmax.Softmax.reference(attrs, dequantized(x, scale, zero)), *new)

    @staticmethod
    def compute(attrs: softmax.SoftmaxOp.Attrs, x: Tensor, *parameters: Tensor) -> Tensor:
        """In float32."""
        scale, zero, new_scale, new_zero = parameters
        value = softmax.Softmax.compute(attrs, _real(x, scale, zero))
        return _stored(value, new_scale, new_zero, "qnn_softmax")


@operator("qnn.layer_norm", OpKind.OPAQUE)
class LayerNorm(Op):
    """``nn.layer_norm`` from quantized to quantized; its ``scale`` and ``bias`` are float32."""

    Attrs = normalization.LayerNorm.Attrs

    @classmethod
    def type_rule(cls, attrs: normalization.LayerNorm.Attrs, *types: Type) -> TensorType:
        """The shape of ``x``, the type of ``y_zero``; ``scale`` and ``bias`` broadcast to it."""
        tensors = operands(cls.name, types, PARAMETERS + 1, PARAMETERS + 2)
        real = _check(cls.name, tensors[:PARAMETERS])
        result = normalization.LayerNorm.type_rule(attrs, real, *tensors[PARAMETERS:])
        return result.with_dtype(tensors[4].dtype)

    @staticmethod
    def reference(attrs: normalization.LayerNorm.Attrs, x: Array, *rest: Array) -> Array:
        """In float32."""
        scale, zero, new_scale, new_zero, *affine = rest
        real = dequantized(x, scale, zero)
        found = normalization.LayerNorm.reference(attrs, real, *affine)
        return quantized(found, new_scale, new_zero)

    @staticmethod
    def compute(attrs: normalization.LayerNorm.Attrs, x: Tensor, *rest: Tensor) -> Tensor:
        """In float32."""
        scale, zero, new_scale, new_zero, *affine = rest
        value = normalization.LayerNorm.compute(attrs, _real(x, scale, zero), *affine)
        return _stored(value, new_scale, new_zero, "qnn_layer_norm")
