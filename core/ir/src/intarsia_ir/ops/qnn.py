# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors: real numbers stored as ``(q - zero) * scale`` in small integers.

A scale is float and positive, its zero point has the integer type of the tensor it belongs to. Both
are operands, so that per-channel vectors are constants like any other weight and scales that are
only known at run time need no operators of their own.

Rounding is to nearest, ties to even, everywhere; arithmetic on scales is in float32, one operation
after the other; results saturate.
"""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import PrimExpr, cast
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, convert, numpy_dtype
from .elements import read, wide
from .type_rules import broadcasts_to, check_dtype, is_float, is_integer, operands, same_dtype

STORED = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)
"""Element types of quantized tensors."""


def is_stored(dtype: DType) -> bool:
    """Whether quantized tensors may have this element type."""
    return dtype in STORED


def check_parameters(name: str, x: TensorType, scale: TensorType, zero: TensorType) -> None:
    """Check that a scale and a zero point fit a tensor, with which they broadcast.

    Raises:
        TypeRuleError: An element type or a shape does not fit.
    """
    check_dtype(name, is_float, "floating-point scales; their", scale)
    check_dtype(name, is_stored, "8 to 32-bit integer", zero)
    broadcasts_to(name, scale, x, "scale")
    broadcasts_to(name, zero, x, "zero point")


def dequantized(x: Array, scale: Array, zero: Array) -> Array:
    """Return ``(x - zero) * scale`` in float32; the difference is one of 32-bit integers."""
    with np.errstate(all="ignore"):
        whole = np.subtract(x.astype(np.int32), zero.astype(np.int32))
        return np.asarray(whole.astype(np.float32) * scale.astype(np.float32))


def quantized(x: Array, scale: Array, zero: Array) -> Array:
    """Return ``saturate(round(x / scale) + zero)`` in the zero point's type; NaN gives 0."""
    with np.errstate(all="ignore"):
        return rounded(x.astype(np.float32) / scale.astype(np.float32), zero)


def rounded(x: Array, zero: Array) -> Array:
    """Return ``saturate(round(x) + zero)`` of float32 elements in the zero point's type."""
    moved = np.rint(x.astype(np.float32)) + zero.astype(np.float32)
    return convert(np.asarray(moved), DType(zero.dtype.name))


def centred(x: PrimExpr, zero: PrimExpr) -> PrimExpr:
    """Return ``x - zero`` in int32."""
    return cast(x, DType.INT32) - cast(zero, DType.INT32)


def dequantized_element(x: PrimExpr, scale: PrimExpr, zero: PrimExpr) -> PrimExpr:
    """Return ``(x - zero) * scale`` in float32."""
    return cast(centred(x, zero), DType.FLOAT32) * cast(scale, DType.FLOAT32)


def quantized_element(x: PrimExpr, scale: PrimExpr, zero: PrimExpr) -> PrimExpr:
    """Return ``saturate(round(x / scale) + zero)``."""
    return rounded_element(wide(x) / cast(scale, DType.FLOAT32), zero)


def rounded_element(x: PrimExpr, zero: PrimExpr) -> PrimExpr:
    """Return ``saturate(round(x) + zero)`` in the zero point's type."""
    moved = tir.intrinsic(Intrinsic.ROUND, x) + cast(zero, DType.FLOAT32)
    return cast(moved, zero.dtype)


@operator("qnn.quantize", OpKind.ELEMWISE)
class Quantize(Op):
    """``saturate(round(x / scale) + zero)``: float ``x`` stored in the zero point's type.

    As in ONNX, what NaN becomes is not defined.
    """

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The shape of ``x``; ``scale`` and ``zero`` broadcast to it."""
        x, scale, zero = operands(cls.name, types, 3)
        check_dtype(cls.name, is_float, "floating-point", x)
        check_parameters(cls.name, x, scale, zero)
        return x.with_dtype(zero.dtype)

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, scale: Array, zero: Array) -> Array:
        """One division in float32."""
        return quantized(x, scale, zero)

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """One division in float32."""

        def element(*indices: PrimExpr) -> PrimExpr:
            by, at = (read(tensor, indices, x.shape) for tensor in (scale, zero))
            return quantized_element(cast(x[indices], DType.FLOAT32), by, at)

        return compute(x.shape, element, name="qnn_quantize")


@operator("qnn.dequantize", OpKind.ELEMWISE)
class Dequantize(Op):
    """``(x - zero) * scale``: what a quantized tensor stands for, in the scale's type."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The shape of ``x``; ``scale`` and ``zero`` broadcast to it."""
        x, scale, zero = operands(cls.name, types, 3)
        check_parameters(cls.name, x, scale, zero)
        same_dtype(cls.name, x, zero)
        return x.with_dtype(scale.dtype)

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, scale: Array, zero: Array) -> Array:
        """One multiplication in float32."""
        return dequantized(x, scale, zero).astype(scale.dtype)

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """One multiplication in float32."""

        def element(*indices: PrimExpr) -> PrimExpr:
            by, at = (read(tensor, indices, x.shape) for tensor in (scale, zero))
            return cast(dequantized_element(x[indices], by, at), scale.dtype)

        return compute(x.shape, element, name="qnn_dequantize")


@operator("qnn.requantize", OpKind.ELEMWISE)
class Requantize(Op):
    """The same real numbers under another scale, zero point and type.

    Operands ``x, scale, zero, new_scale, new_zero``; equal to ``qnn.quantize`` of
    ``qnn.dequantize``, and computed like that.
    """

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The shape of ``x``, the type of ``new_zero``; the parameters broadcast to ``x``."""
        x, scale, zero, new_scale, new_zero = operands(cls.name, types, 5)
        check_parameters(cls.name, x, scale, zero)
        check_parameters(cls.name, x, new_scale, new_zero)
        same_dtype(cls.name, x, zero)
        return x.with_dtype(new_zero.dtype)

    @staticmethod
    def reference(
        attrs: OpAttrs, x: Array, scale: Array, zero: Array, new_scale: Array, new_zero: Array
    ) -> Array:
        """Dequantize, then quantize."""
        return quantized(dequantized(x, scale, zero), new_scale, new_zero)

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, *parameters: Tensor) -> Tensor:
        """Dequantize, then quantize."""

        def element(*indices: PrimExpr) -> PrimExpr:
            scale, zero, new_scale, new_zero = (
                read(tensor, indices, x.shape) for tensor in parameters
            )
            real = dequantized_element(x[indices], scale, zero)
            return quantized_element(real, new_scale, new_zero)

        return compute(x.shape, element, name="qnn_requantize")


@operator("qnn.lookup", OpKind.ELEMWISE)
class Lookup(Op):
    """``table[x - lowest]`` for 8-bit ``x``: any function of one quantized tensor.

    The table has 256 elements, the first for the smallest number of the type of ``x``.
    """

    fixed_sizes = "the table's: it is 256"

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The shape of ``x``, the element type of the table."""
        x, table = operands(cls.name, types, 2)
        check_dtype(cls.name, is_integer, "integer", x)
        if x.dtype.bits != 8 or table.shape != (256,):
            raise TypeRuleError(
                f"{cls.name}: needs 8-bit elements and a table of 256, got {x} and {table}"
            )
        return x.with_dtype(table.dtype)

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, table: Array) -> Array:
        """Index with every element."""
        return np.asarray(table[x.astype(np.int64) - int(np.iinfo(x.dtype).min)])

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, table: Tensor) -> Tensor:
        """Index with every element."""

        def element(*indices: PrimExpr) -> PrimExpr:
            number = cast(x[indices], tir.INDEX)
            return table[number + 128 if x.dtype.is_signed else number]

        return compute(x.shape, element, name="qnn_lookup")


def table_inputs(dtype: DType) -> Array:
    """Return all 256 elements of an 8-bit type, in the order of a table of ``qnn.lookup``."""
    limits = np.iinfo(numpy_dtype(dtype))
    return np.arange(limits.min, limits.max + 1).astype(numpy_dtype(dtype))
