# SPDX-License-Identifier: Apache-2.0
"""Heavy reductions: convolution, transposed convolution and matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct

from intarsia_runtime.errors import TypeRuleError

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Shape, TensorType, Type
from ..tir.expr import IntImm, PrimExpr, all_of, cast, equal, if_then_else
from ..tir.tensor import Reduction, Tensor, compute, extents, reduce_axis, sum_over
from .arrays import Array, in_float32
from .elements import inside, narrowed, static_broadcast, wide
from .type_rules import (
    broadcast,
    check_dtype,
    check_vector,
    is_number,
    operands,
    same_dtype,
    same_size,
    shape_text,
)
from .windows import Padding, Windows


def _static(name: str, what: str, shape: Shape) -> tuple[int, ...]:
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise TypeRuleError(f"{name}: {what} {shape_text(shape)} must be static")
    return sizes


def _check_operands(name: str, tensors: Sequence[TensorType]) -> None:
    """Check what both convolutions ask of data and weight."""
    data, weight = tensors[:2]
    check_dtype(name, is_number, "integer or floating-point", *tensors)
    same_dtype(name, *tensors)
    if data.rank < 3 or weight.rank != data.rank:
        raise TypeRuleError(
            f"{name}: data {shape_text(data.shape)} and weight {shape_text(weight.shape)} must have"
            " the same rank, at least 3"
        )


def _check_groups(name: str, groups: int, channels: int, what: str) -> None:
    if groups < 1 or channels % groups != 0:
        raise TypeRuleError(
            f"{name}: groups={groups} does not divide the {channels} {what} channels"
        )


def _group_channel(output: PrimExpr, inner: PrimExpr, outputs: int, inputs: int) -> PrimExpr:
    """Return the input channel of ``inner`` in the group that output channel ``output`` is in.

    Args:
        output: Output channel.
        inner: Input channel, counted in its group.
        outputs: Output channels of a group.
        inputs: Input channels of a group.
    """
    return (output // outputs) * inputs + inner


def _add_bias(x: Tensor, bias: Sequence[Tensor], name: str) -> Tensor:
    """Add ``bias[0]``, if there is one, to every channel; the result has its element type."""
    if not bias:
        return x

    def element(*indices: PrimExpr) -> PrimExpr:
        return cast(x[indices] + wide(bias[0][indices[1]]), bias[0].dtype)

    return compute(x.shape, element, name=name)


def _bias_array(bias: Sequence[Array], rank: int) -> Array | int:
    return bias[0].reshape(-1, *[1] * rank) if bias else 0


@operator("nn.conv", OpKind.ANCHOR)
class Conv(Op):
    """Convolution of ``data[N, C, *S]``, ``weight[O, C / groups, *K]``, optional ``bias[O]``."""

    fixed_sizes = "the weight's: it is packed when it is compiled"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """One entry for each spatial dimension; padding is (before, after)."""

        strides: tuple[int, ...]
        padding: Padding
        dilation: tuple[int, ...]
        groups: int = 1

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[N, O, *windows]``."""
        tensors = operands(cls.name, types, 2, 3)
        _check_operands(cls.name, tensors)
        data, weight = tensors[:2]
        outputs, inner, *kernel = _static(cls.name, "weight", weight.shape)
        windows = Windows(tuple(kernel), attrs.strides, attrs.padding, attrs.dilation)
        windows.check(cls.name, data.shape[2:])
        _check_groups(cls.name, attrs.groups, outputs, "output")
        if not same_size(data.shape[1], inner * attrs.groups):
            raise TypeRuleError(
                f"{cls.name}: data {shape_text(data.shape)} has {data.shape[1]} channels, but"
                f" weight {shape_text(weight.shape)} with groups={attrs.groups} takes"
                f" {inner * attrs.groups}"
            )
        if len(tensors) == 3:
            check_vector(cls.name, "bias", tensors[2], outputs)
        return data.with_shape(
            (data.shape[0], outputs, *windows.output_shape(cls.name, data.shape[2:]))
        )

    @staticmethod
    def reference(attrs: Attrs, data: Array, weight: Array, *bias: Array) -> Array:
        """One matrix product for each group, of the weights and the windows."""
        return in_float32(_Convolution(attrs), data, weight, *bias)

    @staticmethod
    def products(attrs: Attrs, result: TensorType, *types: TensorType) -> int:
        """One for each element of the result, input channel of its group, and tap."""
        return result.elements * prod(types[1].static_shape[1:])

    @staticmethod
    def compute(attrs: Attrs, data: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        """Sum over the input channels of the group and the window; padding is read as 0."""
        outputs, inner, *kernel = weight.shape
        windows = Windows(tuple(kernel), attrs.strides, attrs.padding, attrs.dilation)
        spatial = windows.output_shape("nn.conv", data.shape[2:])
        shape = (data.shape[0], outputs, *extents(spatial))
        channel = reduce_axis(inner, "channel")
        taps = [reduce_axis(size, f"k{n}") for n, size in enumerate(kernel)]

        def element(n: PrimExpr, o: PrimExpr, *place: PrimExpr) -> Reduction:
            source = channel.var
            if attrs.groups > 1:
                source = _group_channel(o, channel.var, outputs // attrs.groups, inner)
            positions = [
                i * attrs.strides[d] + taps[d].var * attrs.dilation[d] - attrs.padding[d][0]
                for d, i in enumerate(place)
            ]
            value = wide(data[(n, source, *positions)])
            edges = [
                (positions[d], data.shape[2 + d])
                for d in range(len(place))
                if attrs.padding[d] != (0, 0)
            ]
            if edges:
                value = if_then_else(inside(edges), value, 0)
            taken = weight[(o, channel.var, *(tap.var for tap in taps))]
            return sum_over(value * wide(taken), (channel, *taps))

        result = _add_bias(compute(shape, element, name="nn_conv"), bias, "nn_conv_bias")
        return narrowed(result, data.dtype, "nn_conv_rounded")


class _Convolution(Struct, frozen=True):
    """The convolution of arrays under some attributes."""

    attrs: Conv.Attrs

    def __call__(self, data: Array, weight: Array, *bias: Array) -> Array:
        attrs, groups = self.attrs, self.attrs.groups
        kernel = weight.shape[2:]
        windows = Windows(kernel, attrs.strides, attrs.padding, attrs.dilation)
        sizes = windows.output_shape("nn.conv", data.shape[2:])
        output = tuple(n for n in sizes if isinstance(n, int))
        view = windows.view(data, 0, output)
        rank = len(output)
        # (N, C, *output, *kernel) -> (N, C, *kernel, *output)
        order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
        points = int(np.prod(output))
        depth = weight.shape[1] * int(np.prod(kernel))
        columns = view.transpose(order).reshape(data.shape[0], groups, depth, points)
        filters = weight.reshape(groups, weight.shape[0] // groups, depth)
        result = np.matmul(filters, columns).reshape(data.shape[0], weight.shape[0], *output)
        return result + _bias_array(bias, rank)


@operator("nn.conv_transpose", OpKind.ANCHOR)
class ConvTranspose(Op):
    """A convolution's gradient: ``data[N, C, *S]``, ``weight[C, O / groups, *K]``, ``bias[O]``."""

    fixed_sizes = "the weight's: it is packed when it is compiled"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Padding takes away from the result (negative adds); output_padding adds at its end."""

        strides: tuple[int, ...]
        padding: Padding
        dilation: tuple[int, ...]
        groups: int = 1
        output_padding: tuple[int, ...] = ()

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[N, O, *S']`` with ``S' = (S - 1) * stride + extent + output_padding - padding``."""
        tensors = operands(cls.name, types, 2, 3)
        _check_operands(cls.name, tensors)
        data, weight = tensors[:2]
        inputs, inner, *kernel = _static(cls.name, "weight", weight.shape)
        windows = Windows(tuple(kernel), attrs.strides, attrs.padding, attrs.dilation)
        windows.check(cls.name, data.shape[2:], signed_padding=True)
        if not same_size(data.shape[1], inputs):
            raise TypeRuleError(
                f"{cls.name}: data {shape_text(data.shape)} has {data.shape[1]} channels, weight"
                f" {shape_text(weight.shape)} takes {inputs}"
            )
        _check_groups(cls.name, attrs.groups, inputs, "input")
        if len(tensors) == 3:
            check_vector(cls.name, "bias", tensors[2], inner * attrs.groups)
        extra = attrs.output_padding or (0,) * len(kernel)
        if len(extra) != len(kernel) or min(extra) < 0:
            raise TypeRuleError(
                f"{cls.name}: output_padding {extra} must have one entry, not negative, for each of"
                f" the {len(kernel)} spatial dimensions"
            )
        spatial = _transposed_shape(attrs, kernel, data.shape[2:])
        why = f"{cls.name}: the padding must leave some of the result"
        if not all(require_at_most(1, size, why) for size in spatial):
            raise TypeRuleError(
                f"{cls.name}: padding {attrs.padding} leaves nothing of the result for data"
                f" {shape_text(data.shape)} and weight {shape_text(weight.shape)}"
            )
        return data.with_shape((data.shape[0], inner * attrs.groups, *spatial))

    @staticmethod
    def reference(attrs: Attrs, data: Array, weight: Array, *bias: Array) -> Array:
        """Add the product of data and each tap of the weight where the tap lands."""
        return in_float32(_TransposedConvolution(attrs), data, weight, *bias)

    @staticmethod
    def products(attrs: Attrs, result: TensorType, *types: TensorType) -> int:
        """One for each element of the data, output channel of its group, and tap."""
        return types[0].elements * prod(types[1].static_shape[1:])

    @staticmethod
    def compute(attrs: Attrs, data: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        """Sum over the taps that land on an element; the others are read as 0."""
        inputs, inner, *kernel = weight.shape
        depth = inputs // attrs.groups
        spatial = _transposed_shape(attrs, kernel, data.shape[2:])
        shape = (
            data.shape[0],
            inner * attrs.groups,
            *extents(spatial),
        )
        channel = reduce_axis(depth, "channel")
        taps = [reduce_axis(size, f"k{n}") for n, size in enumerate(kernel)]

        def element(n: PrimExpr, o: PrimExpr, *place: PrimExpr) -> Reduction:
            source = channel.var
            if attrs.groups > 1:
                source = _group_channel(o, channel.var, inner, depth)
            conditions: list[PrimExpr] = []
            positions: list[PrimExpr] = []
            for d, i in enumerate(place):
                landed = i + attrs.padding[d][0] - taps[d].var * attrs.dilation[d]
                position = landed // attrs.strides[d]
                if attrs.strides[d] > 1:
                    conditions.append(equal(landed % attrs.strides[d], 0))
                conditions.append(inside([(position, data.shape[2 + d])]))
                positions.append(position)
            value = wide(data[(n, source, *positions)])
            taken = weight[(source, o % inner, *(tap.var for tap in taps))]
            return sum_over(
                if_then_else(all_of(conditions), value, 0) * wide(taken), (channel, *taps)
            )

        name = "nn_conv_transpose"
        result = _add_bias(compute(shape, element, name=name), bias, f"{name}_bias")
        return narrowed(result, data.dtype, f"{name}_rounded")


def _transposed_shape(attrs: ConvTranspose.Attrs, kernel: Sequence[int], spatial: Shape) -> Shape:
    extra = attrs.output_padding or (0,) * len(kernel)
    return tuple(
        (size - 1) * attrs.strides[d]
        + ((kernel[d] - 1) * attrs.dilation[d] + 1 + extra[d] - sum(attrs.padding[d]))
        for d, size in enumerate(spatial)
    )


class _TransposedConvolution(Struct, frozen=True):
    """The transposed convolution of arrays under some attributes."""

    attrs: ConvTranspose.Attrs

    def __call__(self, data: Array, weight: Array, *bias: Array) -> Array:
        attrs, groups = self.attrs, self.attrs.groups
        inner, kernel = weight.shape[1], weight.shape[2:]
        spatial = data.shape[2:]
        batch = data.shape[0]
        sizes = _transposed_shape(attrs, kernel, spatial)
        # Everything that lands anywhere, with room for the result at both ends.
        before = [max(0, -low) for low, _ in attrs.padding]
        full = [
            before[d]
            + max(
                (spatial[d] - 1) * attrs.strides[d] + (kernel[d] - 1) * attrs.dilation[d] + 1,
                attrs.padding[d][0] + size,
            )
            for d, size in enumerate(sizes)
            if isinstance(size, int)
        ]
        canvas = np.zeros((batch, inner * groups, *full), data.dtype)
        points = int(np.prod(spatial))
        grouped = data.reshape(batch, groups, data.shape[1] // groups, points)
        filters = weight.reshape(groups, -1, inner, *kernel)
        for tap in np.ndindex(*kernel):
            product = np.matmul(filters[(..., *tap)].transpose(0, 2, 1), grouped)
            place = [
                slice(b + t * d, b + t * d + (n - 1) * s + 1, s)
                for b, t, d, n, s in zip(
                    before, tap, attrs.dilation, spatial, attrs.strides, strict=True
                )
            ]
            canvas[(slice(None), slice(None), *place)] += product.reshape(
                batch, inner * groups, *spatial
            )
        crop = [
            slice(before[d] + attrs.padding[d][0], before[d] + attrs.padding[d][0] + size)
            for d, size in enumerate(sizes)
            if isinstance(size, int)
        ]
        return canvas[(slice(None), slice(None), *crop)] + _bias_array(bias, len(kernel))


@operator("matmul", OpKind.ANCHOR)
class Matmul(Op):
    """Matrix product over the last two dimensions; those before broadcast."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Whether the last two dimensions of an operand are swapped first."""

        transpose_a: bool = False
        transpose_b: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[*batch, M, N]`` of ``[*batch, M, K]`` and ``[*batch, K, N]``."""
        a, b = operands(cls.name, types, 2)
        check_dtype(cls.name, is_number, "integer or floating-point", a, b)
        dtype = same_dtype(cls.name, a, b)
        if a.rank < 2 or b.rank < 2:
            raise TypeRuleError(
                f"{cls.name}: both operands must have rank 2 or more, got {shape_text(a.shape)} and"
                f" {shape_text(b.shape)}"
            )
        rows, depth = _matrix(a.shape, swap=attrs.transpose_a)
        height, columns = _matrix(b.shape, swap=attrs.transpose_b)
        if not same_size(depth, height):
            raise TypeRuleError(
                f"{cls.name}: inner sizes {depth} and {height} of {shape_text(a.shape)} and"
                f" {shape_text(b.shape)} differ"
            )
        batch = broadcast(cls.name, a.with_shape(a.shape[:-2]), b.with_shape(b.shape[:-2]))
        return TensorType((*batch, rows, columns), dtype)

    @staticmethod
    def reference(attrs: Attrs, a: Array, b: Array) -> Array:
        """NumPy's matrix product."""
        left = np.swapaxes(a, -1, -2) if attrs.transpose_a else a
        right = np.swapaxes(b, -1, -2) if attrs.transpose_b else b
        return in_float32(np.matmul, left, right)

    @staticmethod
    def products(attrs: Attrs, result: TensorType, *types: TensorType) -> int:
        """One for each element of the result and of the inner dimension."""
        return result.elements * types[0].static_shape[-2 if attrs.transpose_a else -1]

    @staticmethod
    def compute(attrs: Attrs, a: Tensor, b: Tensor) -> Tensor:
        """Sum over the inner dimension."""
        batch = static_broadcast(a.shape[:-2], b.shape[:-2])
        rows, depth = a.shape[-2:] if not attrs.transpose_a else (a.shape[-1], a.shape[-2])
        columns = b.shape[-2] if attrs.transpose_b else b.shape[-1]
        loop = reduce_axis(depth)

        def element(*indices: PrimExpr) -> Reduction:
            *outer, i, j = indices
            left = (loop.var, i) if attrs.transpose_a else (i, loop.var)
            right = (j, loop.var) if attrs.transpose_b else (loop.var, j)
            return sum_over(
                wide(_read_matrix(a, outer, batch, left))
                * wide(_read_matrix(b, outer, batch, right)),
                (loop,),
            )

        result = compute((*batch, rows, columns), element, name="matmul")
        return narrowed(result, a.dtype, "matmul_rounded")


def _matrix(shape: Shape, *, swap: bool) -> Shape:
    """Return rows and columns of the last two dimensions."""
    return (shape[-1], shape[-2]) if swap else shape[-2:]


def _read_matrix(
    x: Tensor, outer: Sequence[PrimExpr], batch: Sequence[int], inner: Sequence[PrimExpr]
) -> PrimExpr:
    """Read an element of the matrix that broadcasting puts at ``outer``."""
    own = x.shape[:-2]
    skip = len(batch) - len(own)
    leading = [
        IntImm(0) if size == 1 != extent else index
        for size, index, extent in zip(own, outer[skip:], batch[skip:], strict=True)
    ]
    return x[(*leading, *inner)]
