# SPDX-License-Identifier: Apache-2.0
"""Convolution and matrix product of quantized tensors, with int32 accumulators.

Operands come in the order of ONNX's ``QLinearConv`` and ``QLinearMatMul``: a tensor, its scale, its
zero point; the same for the weight; scale and zero point of the result; then, optionally, a bias in
units of the accumulator, int32. The accumulator is ``sum((x - x_zero) * (w - w_zero)) + bias``,
wrapping; the result is ``saturate(round(accumulator * (x_scale * w_scale / y_scale)) + y_zero)``.
Padding stands for the real number 0.

``qnn.conv_integer`` and ``qnn.matmul_integer`` give the accumulator itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import PrimExpr, cast
from ..tir.tensor import Tensor, compute
from . import nn
from .arrays import Array
from .qnn import centred, is_stored, rounded, rounded_element
from .type_rules import (
    check_dtype,
    check_vector,
    operands,
    same_dtype,
    shape_text,
)

PARAMETERS = 8
"""Operands of the requantizing operators before the bias."""


def _is_byte(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits == 8


def _is_float32(dtype: DType) -> bool:
    return dtype is DType.FLOAT32


def _is_int32(dtype: DType) -> bool:
    return dtype is DType.INT32


def _check_integers(name: str, *tensors: TensorType) -> None:
    """Check data, zero point, weight, zero point: 8-bit, each zero point of its tensor's type."""
    check_dtype(name, _is_byte, "8-bit integer", *tensors)
    same_dtype(name, *tensors[:2])
    same_dtype(name, *tensors[2:])
    if tensors[1].rank != 0:
        raise TypeRuleError(
            f"{name}: the zero point of the data must be a scalar, got"
            f" {shape_text(tensors[1].shape)}"
        )


def _check_channels(name: str, what: str, parameter: TensorType, channels: TensorType) -> None:
    """Check that a parameter is a scalar or has one element for each output channel."""
    if parameter.rank:
        check_vector(name, what, parameter, channels.shape[0])


def _check_scales(name: str, types: Sequence[TensorType], channels: TensorType) -> None:
    """Check scales, the result's zero point and the bias of a requantizing operator."""
    _, x_scale, _, _, w_scale, _, y_scale, y_zero, *bias = types
    for scale in (x_scale, w_scale, y_scale):
        check_dtype(name, _is_float32, "float32", scale)
    for scalar in (x_scale, y_scale, y_zero):
        if scalar.rank:
            raise TypeRuleError(
                f"{name}: scales and zero points of data and result must be scalars, got"
                f" {shape_text(scalar.shape)}"
            )
    _check_channels(name, "weight scale", w_scale, channels)
    check_dtype(name, is_stored, "8 to 32-bit integer", y_zero)
    if bias:
        check_vector(name, "bias", bias[0], channels.shape[0])
        check_dtype(name, _is_int32, "int32", bias[0])


def _as_int32(*tensors: TensorType) -> list[TensorType]:
    return [tensor.with_dtype(DType.INT32) for tensor in tensors]


def _along(vector: Array, axis: int, rank: int) -> Array:
    """Give a scalar or vector a shape that broadcasts along ``axis``."""
    if vector.ndim == 0:
        return vector
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def _wrapped(exact: Array) -> Array:
    """Return whole numbers in float64 as int32."""
    return exact.astype(np.int64).astype(np.int32)


def _requantized(total: Array, scales: Sequence[Array], zero: Array, axis: int) -> Array:
    """Bring accumulators to the result's scale; ``scales`` are of data, weight and result."""
    x_scale, w_scale, y_scale = scales
    with np.errstate(all="ignore"):
        factor = np.asarray((x_scale * w_scale) / y_scale)
        return rounded(total.astype(np.float32) * _along(factor, axis, total.ndim), zero)


def _at(vector: Tensor, place: PrimExpr) -> PrimExpr:
    """Read a scalar, or the element of a vector."""
    return vector[()] if vector.rank == 0 else vector[place]


def _centred(x: Tensor, zero: Tensor, axis: int, name: str) -> Tensor:
    """Return ``x - zero`` in int32; ``zero`` is a scalar or runs along ``axis``."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return centred(x[indices], _at(zero, indices[axis]))

    return compute(x.shape, element, name=name)


def _requantized_tensor(
    total: Tensor, parameters: Sequence[Tensor], axis: int, name: str
) -> Tensor:
    """Add the bias and bring accumulators to the result's scale."""
    x_scale, w_scale, y_scale, y_zero, *bias = parameters

    def element(*indices: PrimExpr) -> PrimExpr:
        value = total[indices]
        if bias:
            value = value + bias[0][indices[axis]]
        factor = x_scale[()] * _at(w_scale, indices[axis]) / y_scale[()]
        return rounded_element(cast(value, DType.FLOAT32) * factor, y_zero[()])

    return compute(total.shape, element, name=name)


@operator("qnn.conv_integer", OpKind.ANCHOR)
class ConvInteger(Op):
    """``sum((x - x_zero) * (w - w_zero))`` of ``x, x_zero, w, w_zero`` in int32."""

    fixed_sizes = "the weight's: it is packed when it is compiled"

    Attrs = nn.Conv.Attrs

    @classmethod
    def type_rule(cls, attrs: nn.Conv.Attrs, *types: Type) -> TensorType:
        """``[N, O, *windows]`` in int32; ``w_zero`` is a scalar or ``[O]``."""
        x, x_zero, w, w_zero = operands(cls.name, types, 4)
        _check_integers(cls.name, x, x_zero, w, w_zero)
        result = nn.Conv.type_rule(attrs, *_as_int32(x, w))
        _check_channels(cls.name, "weight zero point", w_zero, w)
        return result

    @staticmethod
    def reference(attrs: nn.Conv.Attrs, x: Array, x_zero: Array, w: Array, w_zero: Array) -> Array:
        """A convolution in float64, which is exact."""
        data = x.astype(np.float64) - x_zero
        weight = w.astype(np.float64) - _along(w_zero, 0, w.ndim)
        return _wrapped(nn.Conv.reference(attrs, data, weight))

    @staticmethod
    def products(attrs: nn.Conv.Attrs, result: TensorType, *types: TensorType) -> int:
        """As of ``nn.conv``."""
        return nn.Conv.products(attrs, result, types[0], types[2])

    @staticmethod
    def compute(
        attrs: nn.Conv.Attrs, x: Tensor, x_zero: Tensor, w: Tensor, w_zero: Tensor
    ) -> Tensor:
        """A convolution of int32 tensors."""
        data = _centred(x, x_zero, 1, "qnn_data")
        return nn.Conv.compute(attrs, data, _centred(w, w_zero, 0, "qnn_weight"))


@operator("qnn.conv", OpKind.ANCHOR)
class Conv(Op):
    """Convolution of ``x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero[, bias]``.

    Attributes are those of ``nn.conv``.
    """

    fixed_sizes = "the weight's: it is packed when it is compiled"

    Attrs = nn.Conv.Attrs

    @classmethod
    def type_rule(cls, attrs: nn.Conv.Attrs, *types: Type) -> TensorType:
        """``[N, O, *windows]`` in the type of ``y_zero``; weight parameters scalars or ``[O]``."""
        tensors = operands(cls.name, types, PARAMETERS, PARAMETERS + 1)
        x, _, x_zero, w, _, w_zero, _, y_zero = tensors[:PARAMETERS]
        _check_integers(cls.name, x, x_zero, w, w_zero)
        result = nn.Conv.type_rule(attrs, *_as_int32(x, w))
        _check_channels(cls.name, "weight zero point", w_zero, w)
        _check_scales(cls.name, tensors, w)
        return result.with_dtype(y_zero.dtype)

    @staticmethod
    def reference(attrs: nn.Conv.Attrs, *arrays: Array) -> Array:
        """An exact accumulator, then one multiplication in float32."""
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = arrays
        total = ConvInteger.reference(attrs, x, x_zero, w, w_zero)
        if bias:
            total = total + _along(bias[0], 1, total.ndim)
        return _requantized(total, (x_scale, w_scale, y_scale), y_zero, 1)

    @staticmethod
    def products(attrs: nn.Conv.Attrs, result: TensorType, *types: TensorType) -> int:
        """As of ``nn.conv``."""
        return nn.Conv.products(attrs, result, types[0], types[3])

    @staticmethod
    def compute(attrs: nn.Conv.Attrs, *tensors: Tensor) -> Tensor:
        """The accumulator, then one multiplication in float32."""
        x, x_scale, x_zero, w, w_scale, w_zero, *rest = tensors
        total = ConvInteger.compute(attrs, x, x_zero, w, w_zero)
        return _requantized_tensor(total, (x_scale, w_scale, *rest), 1, "qnn_conv")


@operator("qnn.conv_transpose", OpKind.ANCHOR)
class ConvTranspose(Op):
    """``nn.conv_transpose`` of the operands of ``qnn.conv``, with weights ``[C, O / groups, *K]``.

    Where no tap of the weight lands, the sum is the bias alone.
    """

    fixed_sizes = "the weight's: it is packed when it is compiled"

    Attrs = nn.ConvTranspose.Attrs

    @classmethod
    def type_rule(cls, attrs: nn.ConvTranspose.Attrs, *types: Type) -> TensorType:
        """As of ``nn.conv_transpose``, in the type of ``y_zero``.

        Weight parameters are scalars, or, in one group, ``[O]``.
        """
        tensors = operands(cls.name, types, PARAMETERS, PARAMETERS + 1)
        x, _, x_zero, w, w_scale, w_zero, _, y_zero = tensors[:PARAMETERS]
        _check_integers(cls.name, x, x_zero, w, w_zero)
        result = nn.ConvTranspose.type_rule(attrs, *_as_int32(x, w))
        channels = result.with_shape(result.shape[1:2])
        _check_channels(cls.name, "weight zero point", w_zero, channels)
        _check_scales(cls.name, tensors, channels)
        if attrs.groups > 1 and (w_scale.rank or w_zero.rank):
            raise TypeRuleError(
                f"{cls.name}: in {attrs.groups} groups the weight has one scale and zero point"
            )
        return result.with_dtype(y_zero.dtype)

    @staticmethod
    def reference(attrs: nn.ConvTranspose.Attrs, *arrays: Array) -> Array:
        """An exact accumulator, then one multiplication in float32."""
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = arrays
        data = x.astype(np.float64) - x_zero
        weight = w.astype(np.float64) - _along(w_zero, 1, w.ndim)
        total = _wrapped(nn.ConvTranspose.reference(attrs, data, weight))
        if bias:
            total = total + _along(bias[0], 1, total.ndim)
        return _requantized(total, (x_scale, w_scale, y_scale), y_zero, 1)

    @staticmethod
    def compute(attrs: nn.ConvTranspose.Attrs, *tensors: Tensor) -> Tensor:
        """The accumulator, then one multiplication in float32."""
        x, x_scale, x_zero, w, w_scale, w_zero, *rest = tensors
        data, weight = _centred(x, x_zero, 1, "qnn_data"), _centred(w, w_zero, 1, "qnn_weight")
        total = nn.ConvTranspose.compute(attrs, data, weight)
        return _requantized_tensor(total, (x_scale, w_scale, *rest), 1, "qnn_conv_transpose")


@operator("qnn.matmul_integer", OpKind.ANCHOR)
class MatmulInteger(Op):
    """``sum((a - a_zero) * (b - b_zero))`` of ``a, a_zero, b, b_zero`` in int32."""

    Attrs = nn.Matmul.Attrs

    @classmethod
    def type_rule(cls, attrs: nn.Matmul.Attrs, *types: Type) -> TensorType:
        """As of ``matmul``, in int32; ``b_zero`` is a scalar or one for each column."""
        a, a_zero, b, b_zero = operands(cls.name, types, 4)
        _check_integers(cls.name, a, a_zero, b, b_zero)
        result = nn.Matmul.type_rule(attrs, *_as_int32(a, b))
        _check_channels(cls.name, "zero point of b", b_zero, result.with_shape(result.shape[-1:]))
        return result

    @staticmethod
    def reference(
        attrs: nn.Matmul.Attrs, a: Array, a_zero: Array, b: Array, b_zero: Array
    ) -> Array:
        """A product in float64, which is exact."""
        axis = b.ndim - (2 if attrs.transpose_b else 1)
        right = b.astype(np.float64) - _along(b_zero, axis, b.ndim)
        return _wrapped(nn.Matmul.reference(attrs, a.astype(np.float64) - a_zero, right))

    @staticmethod
    def products(attrs: nn.Matmul.Attrs, result: TensorType, *types: TensorType) -> int:
        """As of ``matmul``."""
        return nn.Matmul.products(attrs, result, types[0], types[2])

    @staticmethod
    def compute(
        attrs: nn.Matmul.Attrs, a: Tensor, a_zero: Tensor, b: Tensor, b_zero: Tensor
    ) -> Tensor:
        """A product of int32 tensors."""
        axis = b.rank - (2 if attrs.transpose_b else 1)
        right = _centred(b, b_zero, axis, "qnn_b")
        return nn.Matmul.compute(attrs, _centred(a, a_zero, 0, "qnn_a"), right)


@operator("qnn.matmul", OpKind.ANCHOR)
class Matmul(Op):
    """Product of ``a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero[, bias]``.

    Attributes are those of ``matmul``; the bias is ``[N]``, one for each column.
    """

    Attrs = nn.Matmul.Attrs

    @classmethod
    def type_rule(cls, attrs: nn.Matmul.Attrs, *types: Type) -> TensorType:
        """As of ``matmul``, in the type of ``y_zero``; parameters of ``b`` scalars or ``[N]``."""
        tensors = operands(cls.name, types, PARAMETERS, PARAMETERS + 1)
        a, _, a_zero, b, _, b_zero, _, y_zero = tensors[:PARAMETERS]
        _check_integers(cls.name, a, a_zero, b, b_zero)
        result = nn.Matmul.type_rule(attrs, *_as_int32(a, b))
        columns = result.with_shape(result.shape[-1:])
        _check_channels(cls.name, "zero point of b", b_zero, columns)
        _check_scales(cls.name, tensors, columns)
        return result.with_dtype(y_zero.dtype)

    @staticmethod
    def reference(attrs: nn.Matmul.Attrs, *arrays: Array) -> Array:
        """An exact accumulator, then one multiplication in float32."""
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, *bias = arrays
        total = MatmulInteger.reference(attrs, a, a_zero, b, b_zero)
        if bias:
            total = total + bias[0]
        return _requantized(total, (a_scale, b_scale, y_scale), y_zero, total.ndim - 1)

    @staticmethod
    def products(attrs: nn.Matmul.Attrs, result: TensorType, *types: TensorType) -> int:
        """As of ``matmul``."""
        return nn.Matmul.products(attrs, result, types[0], types[3])

    @staticmethod
    def compute(attrs: nn.Matmul.Attrs, *tensors: Tensor) -> Tensor:
        """The accumulator, then one multiplication in float32."""
        a, a_scale, a_zero, b, b_scale, b_zero, *rest = tensors
        total = MatmulInteger.compute(attrs, a, a_zero, b, b_zero)
        return _requantized_tensor(total, (a_scale, b_scale, *rest), total.rank - 1, "qnn_matmul")
