# SPDX-License-Identifier: Apache-2.0
"""Sums, products and means of quantized tensors.

Every tensor comes with its scale and zero point, which are scalars; those of the result come last.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import BinaryOp, PrimExpr, binary, cast, intrinsic
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from . import pooling
from .arrays import Array, convert
from .elements import read, static_broadcast
from .qnn import (
    centred,
    check_parameters,
    dequantized,
    dequantized_element,
    quantized,
    quantized_element,
    rounded,
    rounded_element,
)
from .reduce import ReduceOp, Sum, reduce_tensor
from .type_rules import broadcast, operands, same_dtype, shape_text


def _check(name: str, types: Sequence[TensorType]) -> None:
    """Check triples of a tensor, its scale and its zero point; the last pair is the result's."""
    inputs = [types[first : first + 3] for first in range(0, len(types) - 2, 3)]
    for tensor, scale, zero in inputs:
        same_dtype(name, tensor, zero)
        check_parameters(name, tensor, scale, zero)
    check_parameters(name, inputs[0][0], *types[-2:])
    for number, type_ in enumerate(types):
        if type_.rank and (number % 3 or number == len(types) - 2):
            raise TypeRuleError(
                f"{name}: scales and zero points must be scalars, got {shape_text(type_.shape)}"
            )


class QuantizedBinary(Op):
    """``a op b`` of ``a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero``.

    Equal to dequantizing both, computing in float32 and quantizing. A subclass gives ``function``
    and ``combine``; and ``of_bytes`` if 8 bits are computed with fewer operations.
    """

    function: ClassVar[Callable[..., Array]]
    combine: ClassVar[BinaryOp]

    @staticmethod
    def of_bytes(*operands: PrimExpr) -> PrimExpr | None:
        """Return the result, still to be rounded, of all operands as float32; or ``None``."""
        return None

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """What the shapes broadcast to, in the type of ``y_zero``."""
        tensors = operands(cls.name, types, 8)
        _check(cls.name, tensors)
        return TensorType(broadcast(cls.name, tensors[0], tensors[3]), tensors[7].dtype)

    @classmethod
    def reference(cls, attrs: OpAttrs, *arrays: Array) -> Array:
        """In float32."""
        with np.errstate(all="ignore"):
            # Arrays are added and multiplied as expressions are.
            floats = typing.cast("list[PrimExpr]", [x.astype(np.float32) for x in arrays])
            value = cls.of_bytes(*floats) if arrays[7].itemsize == 1 else None
            if value is not None:
                number = typing.cast("Array", value)
                return convert(np.rint(number), DType(arrays[7].dtype.name))
            result = cls.function(dequantized(*arrays[:3]), dequantized(*arrays[3:6]))
        return quantized(result, *arrays[6:])

    @classmethod
    def compute(cls, attrs: OpAttrs, *tensors: Tensor) -> Tensor:
        """In float32."""
        shape = static_broadcast(tensors[0].shape, tensors[3].shape)

        def element(*indices: PrimExpr) -> PrimExpr:
            items = [read(tensor, indices, shape) for tensor in tensors]
            is_byte = tensors[7].dtype.bits == 8
            value = cls.of_bytes(*(cast(x, DType.FLOAT32) for x in items)) if is_byte else None
            if value is not None:
                return cast(intrinsic(Intrinsic.ROUND, value), tensors[7].dtype)
            a, b = dequantized_element(*items[:3]), dequantized_element(*items[3:6])
            return quantized_element(binary(cls.combine, a, b), *items[6:])

        return compute(shape, element, name=cls.name.replace(".", "_"))


@operator("qnn.add", OpKind.ELEMWISE)
class Add(QuantizedBinary):
    """Sum of two quantized tensors, which broadcast.

    Of bytes it is ``saturate(round(a * p + b * q + c))`` with three numbers of the scales and zero
    points: as ONNX Runtime's ``QLinearAdd`` on x86, which rounds ties after the zero point is added
    (onnxruntime/core/mlas/lib/qladd.cpp).
    """

    function = staticmethod(np.add)
    combine = BinaryOp.ADD

    @staticmethod
    def of_bytes(*operands: PrimExpr) -> PrimExpr:
        """``a * p + b * q + c``."""
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
        first, second = a_scale / y_scale, b_scale / y_scale
        return b * second + (a * first + (y_zero - (first * a_zero + second * b_zero)))


@operator("qnn.subtract", OpKind.ELEMWISE)
class Subtract(QuantizedBinary):
    """Difference of two quantized tensors, which broadcast."""

    function = staticmethod(np.subtract)
    combine = BinaryOp.SUB


@operator("qnn.multiply", OpKind.ELEMWISE)
class Multiply(QuantizedBinary):
    """Product of two quantized tensors, which broadcast.

    Of bytes it is ``saturate(round((a - a_zero) * (b - b_zero) * p + y_zero))`` with one number of
    the scales: as ONNX Runtime's ``QLinearMul`` on x86 (onnxruntime/core/mlas/lib/qlmul.cpp).
    """

    function = staticmethod(np.multiply)
    combine = BinaryOp.MUL

    @staticmethod
    def of_bytes(*operands: PrimExpr) -> PrimExpr:
        """``(a - a_zero) * (b - b_zero) * p + y_zero``."""
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
        return (a - a_zero) * (b - b_zero) * (a_scale * b_scale / y_scale) + y_zero


@operator("qnn.mean", OpKind.REDUCTION)
class Mean(Op):
    """Mean over ``axes`` of ``x, x_scale, x_zero, y_scale, y_zero``.

    The sum is int32; the result is ``saturate(round(sum * (x_scale / (y_scale * n))) + y_zero)``.
    """

    fixed_sizes = "those reduced over: the sum must fit into 32 bits"

    Attrs = ReduceOp.Attrs

    @classmethod
    def type_rule(cls, attrs: ReduceOp.Attrs, *types: Type) -> TensorType:
        """As of ``mean``, in the type of ``y_zero``; the sizes of ``axes`` are static."""
        tensors = operands(cls.name, types, 5)
        _check(cls.name, tensors)
        result = Sum.type_rule(attrs, tensors[0])
        if not all(isinstance(tensors[0].shape[axis], int) for axis in attrs.axes):
            raise TypeRuleError(f"{cls.name}: {tensors[0]} must be static along {attrs.axes}")
        return result.with_dtype(tensors[4].dtype)

    @staticmethod
    def reference(attrs: ReduceOp.Attrs, x: Array, *parameters: Array) -> Array:
        """An exact sum, then one multiplication in float32."""
        scale, zero, new_scale, new_zero = parameters
        whole = x.astype(np.int32) - zero.astype(np.int32)
        total = np.sum(whole, axis=attrs.axes, keepdims=attrs.keepdims, dtype=np.int32)
        count = np.float32(max(prod(x.shape[axis] for axis in attrs.axes), 1))
        with np.errstate(all="ignore"):
            factor = scale.astype(np.float32) / (new_scale.astype(np.float32) * count)
            return rounded(np.asarray(total.astype(np.float32) * factor), new_zero)

    @staticmethod
    def compute(attrs: ReduceOp.Attrs, x: Tensor, *parameters: Tensor) -> Tensor:
        """The sum, then one multiplication in float32."""
        scale, zero, new_scale, new_zero = parameters
        count = float(max(prod(x.shape[axis] for axis in attrs.axes), 1))

        def whole(value: PrimExpr) -> PrimExpr:
            return centred(value, zero[()])

        total = reduce_tensor(
            x, attrs.axes, whole, BinaryOp.ADD, 0, keepdims=attrs.keepdims, name="qnn_sum"
        )

        def element(*indices: PrimExpr) -> PrimExpr:
            factor = cast(scale[()], DType.FLOAT32) / (cast(new_scale[()], DType.FLOAT32) * count)
            return rounded_element(cast(total[indices], DType.FLOAT32) * factor, new_zero[()])

        return compute(total.shape, element, name="qnn_mean")


@operator("qnn.avg_pool", OpKind.REDUCTION)
class AvgPool(Op):
    """Mean of every window of ``x, x_scale, x_zero, y_scale, y_zero``; padding stands for 0.

    The result is ``saturate(round(sum(x - x_zero) / count * (x_scale / y_scale) + y_zero))``: ties
    are rounded after the zero point is added, as ONNX Runtime's ``QLinearAveragePool`` does
    (onnxruntime/contrib_ops/cpu/quantization/qlinear_pool.cc).
    """

    Attrs = pooling.AvgPool.Attrs

    @classmethod
    def type_rule(cls, attrs: pooling.AvgPool.Attrs, *types: Type) -> TensorType:
        """As of ``nn.avg_pool``, in the type of ``y_zero``."""
        tensors = operands(cls.name, types, 5)
        _check(cls.name, tensors)
        result = pooling.AvgPool.type_rule(attrs, tensors[0].with_dtype(DType.FLOAT32))
        return result.with_dtype(tensors[4].dtype)

    @staticmethod
    def reference(attrs: pooling.AvgPool.Attrs, x: Array, *parameters: Array) -> Array:
        """A mean of whole numbers in float32, then one multiplication."""
        scale, zero, new_scale, new_zero = parameters
        whole = (x.astype(np.int32) - zero.astype(np.int32)).astype(np.float32)
        with np.errstate(all="ignore"):
            factor = scale.astype(np.float32) / new_scale.astype(np.float32)
            mean = pooling.AvgPool.reference(attrs, whole) * factor + new_zero.astype(np.float32)
            return convert(np.rint(mean), DType(new_zero.dtype.name))

    @staticmethod
    def compute(attrs: pooling.AvgPool.Attrs, x: Tensor, *parameters: Tensor) -> Tensor:
        """The mean of every window, then one multiplication."""
        scale, zero, new_scale, new_zero = parameters

        def whole(*indices: PrimExpr) -> PrimExpr:
            return cast(centred(x[indices], zero[()]), DType.FLOAT32)

        mean = pooling.AvgPool.compute(attrs, compute(x.shape, whole, name="qnn_data"))

        def element(*indices: PrimExpr) -> PrimExpr:
            factor = cast(scale[()], DType.FLOAT32) / cast(new_scale[()], DType.FLOAT32)
            value = mean[indices] * factor + cast(new_zero[()], DType.FLOAT32)
            return cast(intrinsic(Intrinsic.ROUND, value), new_zero.dtype)

        return compute(mean.shape, element, name="qnn_avg_pool")
