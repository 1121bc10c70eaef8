# SPDX-License-Identifier: Apache-2.0
"""Normalizations: an element by statistics of its row, its channel or given ones.

Softmax is in ``softmax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp, PrimExpr, cast, const
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, in_float32
from .elements import accumulator, read, wide
from .reduce import reduce_tensor, reduced_place
from .type_rules import (
    broadcasts_to,
    check_axis,
    check_dtype,
    check_vector,
    is_float,
    operands,
    same_dtype,
    shape_text,
)


def _normalized_type(name: str, tensors: Sequence[TensorType], epsilon: float) -> TensorType:
    """Check what all normalizations with a scale ask; return the type of the data."""
    check_dtype(name, is_float, "floating-point", *tensors)
    same_dtype(name, *tensors)
    if not epsilon >= 0:
        raise TypeRuleError(f"{name}: epsilon {epsilon} must not be negative")
    return tensors[0]


def _square(x: PrimExpr) -> PrimExpr:
    return wide(x) * wide(x)


def _mean(x: Tensor, axes: tuple[int, ...], name: str) -> Tensor:
    """Return the mean over ``axes``, kept as 1."""
    count = prod(x.shape[axis] for axis in axes)
    total = reduce_tensor(x, axes, wide, BinaryOp.ADD, 0, name=f"{name}_sum")

    def element(*indices: PrimExpr) -> PrimExpr:
        return total[indices] / const(count, total.dtype)

    return compute(total.shape, element, name=f"{name}_mean")


def _centred(x: Tensor, axes: tuple[int, ...], name: str) -> Tensor:
    """Return ``x`` minus its mean over ``axes``."""
    mean = _mean(x, axes, name)

    def element(*indices: PrimExpr) -> PrimExpr:
        return wide(x[indices]) - mean[tuple(reduced_place(x, axes, indices))]

    return compute(x.shape, element, name=f"{name}_centred")


def _inverse_deviation(x: Tensor, axes: tuple[int, ...], epsilon: float, name: str) -> Tensor:
    """Return ``1 / sqrt(mean of squares + epsilon)`` over ``axes``, kept as 1."""
    count = prod(x.shape[axis] for axis in axes)
    total = reduce_tensor(x, axes, _square, BinaryOp.ADD, 0, name=f"{name}_squares")

    def element(*indices: PrimExpr) -> PrimExpr:
        mean = total[indices] / const(count, total.dtype)
        return 1.0 / tir.intrinsic(Intrinsic.SQRT, mean + epsilon)

    return compute(total.shape, element, name=f"{name}_inverse")


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float, *, centre: bool) -> Array:
    """Return ``x`` (less its mean) by its root mean square over ``axes``."""
    shifted = x - np.mean(x, axis=axes, keepdims=True) if centre else x
    square = np.mean(shifted * shifted, axis=axes, keepdims=True)
    return shifted / np.sqrt(square + epsilon)


@operator("nn.layer_norm", OpKind.OPAQUE)
class LayerNorm(Op):
    """Zero mean and unit variance over ``axis`` and all after it, times scale, plus bias if any."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: first normalized dimension; ``epsilon``: added to the variance."""

        axis: int
        epsilon: float = 1e-5

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        tensors = operands(cls.name, types, 2, 3)
        x = _normalized_type(cls.name, tensors, attrs.epsilon)
        check_axis(cls.name, attrs.axis, x.rank)
        for what, tensor in zip(("scale", "bias"), tensors[1:], strict=False):
            broadcasts_to(cls.name, tensor, x, what)
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array, scale: Array, *bias: Array) -> Array:
        """Standardize, scale and shift."""

        def function(data: Array, scale: Array, *bias: Array) -> Array:
            axes = tuple(range(attrs.axis, data.ndim))
            result = _standardize(data, axes, attrs.epsilon, centre=True) * scale
            return result + bias[0] if bias else result

        return in_float32(function, x, scale, *bias)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, scale: Tensor, *bias: Tensor) -> Tensor:
        """Mean, variance, result: the variance of the centred data."""
        axes = tuple(range(attrs.axis, x.rank))
        centred = _centred(x, axes, "layer_norm")
        return _scaled(centred, axes, attrs.epsilon, (scale, *bias), x.dtype, "nn_layer_norm")


def _scaled(
    x: Tensor,
    axes: tuple[int, ...],
    epsilon: float,
    affine: Sequence[Tensor],
    dtype: DType,
    name: str,
) -> Tensor:
    """Return ``x`` by its deviation, times ``affine[0]``, plus ``affine[1]`` if there is one."""
    inverse = _inverse_deviation(x, axes, epsilon, name)

    def element(*indices: PrimExpr) -> PrimExpr:
        value = x[indices] * inverse[tuple(reduced_place(x, axes, indices))]
        value = value * wide(read(affine[0], indices, x.shape))
        if len(affine) > 1:
            value = value + wide(read(affine[1], indices, x.shape))
        return cast(value, dtype)

    return compute(x.shape, element, name=name)


def _widened(x: Tensor, name: str) -> Tensor:
    """Return ``x`` in the element type that arithmetic on it is carried out in."""
    if accumulator(x.dtype) is x.dtype:
        return x

    def element(*indices: PrimExpr) -> PrimExpr:
        return wide(x[indices])

    return compute(x.shape, element, name=f"{name}_wide")


@operator("nn.rms_norm", OpKind.OPAQUE)
class RmsNorm(Op):
    """Unit root mean square over ``axis`` and all after it, times scale."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: first normalized dimension; ``epsilon``: added to the mean of squares."""

        axis: int
        epsilon: float = 1e-5

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        tensors = operands(cls.name, types, 2)
        x = _normalized_type(cls.name, tensors, attrs.epsilon)
        check_axis(cls.name, attrs.axis, x.rank)
        broadcasts_to(cls.name, tensors[1], x, "scale")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array, scale: Array) -> Array:
        """Divide and scale."""

        def function(data: Array, scale: Array) -> Array:
            axes = tuple(range(attrs.axis, data.ndim))
            return _standardize(data, axes, attrs.epsilon, centre=False) * scale

        return in_float32(function, x, scale)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, scale: Tensor) -> Tensor:
        """Mean of squares, then the result."""
        axes = tuple(range(attrs.axis, x.rank))
        data = _widened(x, "rms_norm")
        return _scaled(data, axes, attrs.epsilon, (scale,), x.dtype, "nn_rms_norm")


@operator("nn.batch_norm", OpKind.ELEMWISE)
class BatchNorm(Op):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with one of each per channel (axis 1)."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``epsilon``: added to the variance."""

        epsilon: float = 1e-5

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        tensors = operands(cls.name, types, 5)
        x = _normalized_type(cls.name, tensors, attrs.epsilon)
        if x.rank < 2:
            raise TypeRuleError(f"{cls.name}: needs a channel dimension, got {shape_text(x.shape)}")
        for what, tensor in zip(("scale", "bias", "mean", "var"), tensors[1:], strict=True):
            check_vector(cls.name, what, tensor, x.shape[1])
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array, *statistics: Array) -> Array:
        """Apply the channel's line."""

        def function(data: Array, *vectors: Array) -> Array:
            scale, bias, mean, var = (v.reshape(-1, *[1] * (data.ndim - 2)) for v in vectors)
            return (data - mean) / np.sqrt(var + attrs.epsilon) * scale + bias

        return in_float32(function, x, *statistics)

    @staticmethod
    def compute(
        attrs: Attrs, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
    ) -> Tensor:
        """Apply the channel's line."""

        def element(*indices: PrimExpr) -> PrimExpr:
            channel = indices[1]
            inverse = 1.0 / tir.intrinsic(Intrinsic.SQRT, wide(var[channel]) + attrs.epsilon)
            value = (wide(x[indices]) - wide(mean[channel])) * inverse
            return cast(value * wide(scale[channel]) + wide(bias[channel]), x.dtype)

        return compute(x.shape, element, name="nn_batch_norm")


def _check_channel_norm(name: str, tensors: Sequence[TensorType], epsilon: float) -> TensorType:
    x = _normalized_type(name, tensors, epsilon)
    if x.rank < 3:
        raise TypeRuleError(f"{name}: needs a tensor (N, C, spatial...), got {x}")
    for what, tensor in zip(("scale", "bias"), tensors[1:], strict=True):
        check_vector(name, what, tensor, x.shape[1])
    return x


@operator("nn.instance_norm", OpKind.OPAQUE)
class InstanceNorm(Op):
    """Zero mean and unit variance over the spatial dimensions; scale and bias for each channel."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``epsilon``: added to the variance."""

        epsilon: float = 1e-5

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        return _check_channel_norm(cls.name, operands(cls.name, types, 3), attrs.epsilon)

    @staticmethod
    def reference(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array:
        """Standardize, scale and shift."""

        def function(data: Array, scale: Array, bias: Array) -> Array:
            column = (-1, *[1] * (data.ndim - 2))
            axes = tuple(range(2, data.ndim))
            result = _standardize(data, axes, attrs.epsilon, centre=True)
            return result * scale.reshape(column) + bias.reshape(column)

        return in_float32(function, x, scale, bias)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """Mean, variance, result."""
        axes = tuple(range(2, x.rank))
        centred = _centred(x, axes, "instance_norm")
        columns = tuple(_as_column(t, x.rank - 1) for t in (scale, bias))
        return _scaled(centred, axes, attrs.epsilon, columns, x.dtype, "nn_instance_norm")


def _as_column(vector: Tensor, rank: int) -> Tensor:
    """Return a vector as a tensor ``(size, 1, ...)`` of ``rank`` dimensions."""

    def element(*indices: PrimExpr) -> PrimExpr:
        return vector[indices[0]]

    return compute((vector.shape[0], *[1] * (rank - 1)), element, name=f"{vector.name}_column")


@operator("nn.group_norm", OpKind.OPAQUE)
class GroupNorm(Op):
    """Zero mean and unit variance over groups of channels and all spatial dimensions.

    Scale and bias have one element for each channel.
    """

    fixed_sizes = "the channels: they are told apart by the group"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``groups``: how many groups the channels form; ``epsilon``: added to the variance."""

        groups: int
        epsilon: float = 1e-5

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data."""
        x = _check_channel_norm(cls.name, operands(cls.name, types, 3), attrs.epsilon)
        channels = x.shape[1]
        if attrs.groups < 1 or not isinstance(channels, int) or channels % attrs.groups != 0:
            raise TypeRuleError(
                f"{cls.name}: groups={attrs.groups} does not divide the {channels} channels of"
                f" {shape_text(x.shape)}"
            )
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array:
        """Standardize the groups, scale and shift the channels."""

        def function(data: Array, scale: Array, bias: Array) -> Array:
            size = data.shape[1] // attrs.groups
            grouped = data.reshape(data.shape[0], attrs.groups, size, *data.shape[2:])
            axes = tuple(range(2, grouped.ndim))
            result = _standardize(grouped, axes, attrs.epsilon, centre=True).reshape(data.shape)
            column = (-1, *[1] * (data.ndim - 2))
            return result * scale.reshape(column) + bias.reshape(column)

        return in_float32(function, x, scale, bias)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """Statistics of the data seen as ``(N, groups, channels, *S)``, then the result."""
        size = x.shape[1] // attrs.groups
        shape = (x.shape[0], attrs.groups, size, *x.shape[2:])
        axes = tuple(range(2, len(shape)))

        def regroup(n: PrimExpr, g: PrimExpr, c: PrimExpr, *rest: PrimExpr) -> PrimExpr:
            return wide(x[(n, g * size + c, *rest)])

        centred = _centred(compute(shape, regroup, name="grouped"), axes, "group_norm")
        inverse = _inverse_deviation(centred, axes, attrs.epsilon, "group_norm")

        def element(n: PrimExpr, c: PrimExpr, *rest: PrimExpr) -> PrimExpr:
            group = c // size
            value = centred[(n, group, c % size, *rest)]
            value = value * inverse[(n, group, *[0] * (len(shape) - 2))]
            return cast(value * wide(scale[c]) + wide(bias[c]), x.dtype)

        return compute(x.shape, element, name="nn_group_norm")


@operator("nn.l2_normalize", OpKind.OPAQUE)
class L2Normalize(Op):
    """Unit length along an axis; a row of zeros stays as it is."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension; ``p``: 1 for the sum of magnitudes, 2 for the length."""

        axis: int
        p: int = 2

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_float, "floating-point", x)
        check_axis(cls.name, attrs.axis, x.rank)
        if attrs.p not in (1, 2):
            raise TypeRuleError(f"{cls.name}: p={attrs.p} must be 1 or 2")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Divide by the length."""

        def function(data: Array) -> Array:
            if attrs.p == 1:
                length = np.sum(np.abs(data), axis=attrs.axis, keepdims=True)
            else:
                length = np.sqrt(np.sum(data * data, axis=attrs.axis, keepdims=True))
            return data / np.where(length == 0, 1, length).astype(data.dtype)

        return in_float32(function, x)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Length, then quotient."""
        part = _square if attrs.p == 2 else _magnitude
        total = reduce_tensor(x, (attrs.axis,), part, BinaryOp.ADD, 0, name="length")

        def element(*indices: PrimExpr) -> PrimExpr:
            length = total[tuple(reduced_place(x, (attrs.axis,), indices))]
            if attrs.p == 2:
                length = tir.intrinsic(Intrinsic.SQRT, length)
            divisor = tir.select(tir.equal(length, 0), 1, length)
            return cast(wide(x[indices]) / divisor, x.dtype)

        return compute(x.shape, element, name="nn_l2_normalize")


def _magnitude(x: PrimExpr) -> PrimExpr:
    return tir.intrinsic(Intrinsic.ABS, wide(x))
