# SPDX-License-Identifier: Apache-2.0
"""Sums of neighbours along a dimension, each with weights of its own: filters of images."""

from __future__ import annotations

import numpy as np

from intarsia_runtime.errors import TypeRuleError

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import INDEX, PrimExpr, cast, maximum, minimum
from ..tir.tensor import Reduction, Tensor, compute, reduce_axis, sum_over
from .arrays import Array, widen
from .derivative import DERIVATIVES
from .elements import narrowed, wide
from .integer_forms import INTEGER_FORMS
from .type_rules import check_axis, check_dtype, is_float, is_index, operands, shape_text


@operator("nn.resample", OpKind.REDUCTION)
class Resample(Op):
    """Element ``i`` along a dimension is ``sum_k weights[i, k] * x[starts[i] + k]``.

    Every start must leave room for all the weights; one that does not is moved. Half precision is
    added up in float32.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension."""

        axis: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The data's type with as many elements along the axis as there are starts."""
        x, starts, weights = operands(cls.name, types, 3)
        check_dtype(cls.name, is_float, "floating-point", x, weights)
        check_dtype(cls.name, is_index, "int32 or int64", starts)
        check_axis(cls.name, attrs.axis, x.rank)
        size = x.shape[attrs.axis]
        fits = starts.rank == 1 and weights.rank == 2 and weights.shape[0] == starts.shape[0]
        taps = weights.shape[1] if fits else 0
        why = f"{cls.name}: there must be as many elements as are weighted"
        if taps == 0 or not require_at_most(taps, size, why):
            raise TypeRuleError(
                f"{cls.name}: starts {shape_text(starts.shape)} and weights"
                f" {shape_text(weights.shape)} do not fit axis {attrs.axis} of"
                f" {shape_text(x.shape)}"
            )
        shape = (*x.shape[: attrs.axis], starts.shape[0], *x.shape[attrs.axis + 1 :])
        return x.with_shape(shape)

    @staticmethod
    def reference(attrs: Attrs, x: Array, starts: Array, weights: Array) -> Array:
        """Take each neighbour in turn."""
        data = widen(x)
        first = np.clip(starts.astype(np.int64), 0, x.shape[attrs.axis] - weights.shape[1])
        column = (-1, *[1] * (x.ndim - 1 - attrs.axis))
        total = np.zeros((), data.dtype)
        for tap in range(weights.shape[1]):
            taken = np.take(data, first + tap, axis=attrs.axis)
            total = total + taken * weights[:, tap].astype(data.dtype).reshape(column)
        return total.astype(x.dtype)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Sum over the neighbours."""
        at, taps = attrs.axis, weights.shape[1]
        last = x.shape[at] - taps
        tap = reduce_axis(taps, "tap")

        def element(*indices: PrimExpr) -> Reduction:
            first = minimum(maximum(cast(starts[indices[at]], INDEX), 0), last)
            value = wide(x[(*indices[:at], first + tap.var, *indices[at + 1 :])])
            return sum_over(value * cast(weights[indices[at], tap.var], value.dtype), (tap,))

        shape = (*x.shape[:at], starts.shape[0], *x.shape[at + 1 :])
        return narrowed(compute(shape, element, name="nn_resample"), x.dtype, "resample_rounded")


DERIVATIVES.refuse("no operator adds elements up at the places they were taken from", Resample)
INTEGER_FORMS.refuse("it weighs neighbours with real numbers", Resample)
