# SPDX-License-Identifier: Apache-2.0
"""Softmax and its logarithm."""

from __future__ import annotations

import numpy as np

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp, PrimExpr, cast, const
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute, lowest
from .arrays import Array, in_float32
from .elements import accumulator, wide
from .reduce import reduce_tensor, reduced_place
from .type_rules import check_axis, check_dtype, is_float, operands


def _exp(x: PrimExpr) -> PrimExpr:
    return tir.intrinsic(Intrinsic.EXP, x)


class SoftmaxOp(Op):
    """What softmax and log_softmax share."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension along which the exponentials add to 1."""

        axis: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_float, "floating-point", x)
        check_axis(cls.name, attrs.axis, x.rank)
        return x


def _shifted(x: Tensor, axis: int) -> Tensor:
    """Return ``x`` minus its largest element along the axis, so that no exponential overflows."""
    kind = accumulator(x.dtype)
    largest = reduce_tensor(x, (axis,), wide, BinaryOp.MAX, lowest(kind), name="softmax_max")

    def element(*indices: PrimExpr) -> PrimExpr:
        return wide(x[indices]) - largest[tuple(reduced_place(x, (axis,), indices))]

    return compute(x.shape, element, name="softmax_shifted")


@operator("nn.softmax", OpKind.OPAQUE)
class Softmax(SoftmaxOp):
    """Exponentials, scaled to add to 1 along an axis."""

    @staticmethod
    def reference(attrs: SoftmaxOp.Attrs, x: Array) -> Array:
        """Shift by the maximum, exponentiate, divide by the sum."""

        def function(data: Array) -> Array:
            grown = np.exp(data - np.max(data, axis=attrs.axis, keepdims=True))
            return grown / np.sum(grown, axis=attrs.axis, keepdims=True)

        return in_float32(function, x) if x.size else x

    @staticmethod
    def compute(attrs: SoftmaxOp.Attrs, x: Tensor) -> Tensor:
        """Maximum, exponentials, sum, its inverse, product: one tensor each."""
        axes = (attrs.axis,)
        shifted = _shifted(x, attrs.axis)

        def grow(*indices: PrimExpr) -> PrimExpr:
            return _exp(shifted[indices])

        grown = compute(x.shape, grow, name="softmax_exp")
        total = reduce_tensor(grown, axes, wide, BinaryOp.ADD, 0, name="softmax_sum")

        def invert(*indices: PrimExpr) -> PrimExpr:
            return const(1, total.dtype) / total[indices]

        scale = compute(total.shape, invert, name="softmax_scale")

        def element(*indices: PrimExpr) -> PrimExpr:
            return cast(grown[indices] * scale[tuple(reduced_place(x, axes, indices))], x.dtype)

        return compute(x.shape, element, name="nn_softmax")


@operator("nn.log_softmax", OpKind.OPAQUE)
class LogSoftmax(SoftmaxOp):
    """The logarithm of softmax, without the loss of taking it afterwards."""

    @staticmethod
    def reference(attrs: SoftmaxOp.Attrs, x: Array) -> Array:
        """Shift by the maximum, subtract the logarithm of the sum of exponentials."""

        def function(data: Array) -> Array:
            shifted = data - np.max(data, axis=attrs.axis, keepdims=True)
            return shifted - np.log(np.sum(np.exp(shifted), axis=attrs.axis, keepdims=True))

        return in_float32(function, x) if x.size else x

    @staticmethod
    def compute(attrs: SoftmaxOp.Attrs, x: Tensor) -> Tensor:
        """Maximum, sum of exponentials, difference: one tensor each."""
        axes = (attrs.axis,)
        shifted = _shifted(x, attrs.axis)
        total = reduce_tensor(shifted, axes, _exp, BinaryOp.ADD, 0, name="log_softmax_sum")

        def element(*indices: PrimExpr) -> PrimExpr:
            place = tuple(reduced_place(x, axes, indices))
            return cast(shifted[indices] - tir.intrinsic(Intrinsic.LOG, total[place]), x.dtype)

        return compute(x.shape, element, name="nn_log_softmax")
