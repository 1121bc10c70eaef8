# SPDX-License-Identifier: Apache-2.0
"""Pools over sliding windows, and local response normalization over neighbouring channels.

Pools over whole dimensions are ``mean`` and ``max``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp, PrimExpr, binary, cast, const, if_then_else
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import (
    Axis,
    Reduction,
    Tensor,
    compute,
    extents,
    lowest,
    reduce_axis,
    sum_over,
)
from .arrays import Array, in_float32
from .elements import accumulator, inside, narrowed, wide
from .type_rules import check_dtype, is_float, is_number, operands, shape_text
from .windows import Padding, Windows


class PoolAttrs(OpAttrs, frozen=True, kw_only=True):
    """How the window moves; one entry for each spatial dimension, padding is (before, after)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def windows(self) -> Windows:
        """The same as windows."""
        return Windows(self.kernel, self.strides, self.padding, self.dilation, self.ceil_mode)


def _pool_type(name: str, attrs: PoolAttrs, x: TensorType) -> TensorType:
    """Return the type of ``x[N, C, *S]`` pooled.

    Raises:
        TypeRuleError: The rank is below 3, or the window does not fit.
    """
    if x.rank < 3:
        raise TypeRuleError(f"{name}: needs a tensor (N, C, spatial...), got {x}")
    attrs.windows.check(name, x.shape[2:], may_be_none=True)
    sizes = attrs.windows.output_shape(name, x.shape[2:], may_be_none=True)
    return x.with_shape((*x.shape[:2], *sizes))


def _output(attrs: PoolAttrs, spatial: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of windows."""
    return extents(attrs.windows.output_shape("pool", tuple(spatial), may_be_none=True))


def _reduce_windows(
    attrs: PoolAttrs, x: Tensor, combine: BinaryOp, start: float, name: str
) -> Tensor:
    """Combine the elements of every window; positions outside the input count as ``start``."""
    output = _output(attrs, x.shape[2:])
    taps = [reduce_axis(size, f"k{n}") for n, size in enumerate(attrs.kernel)]

    def element(n: PrimExpr, c: PrimExpr, *place: PrimExpr) -> Reduction:
        positions = [
            i * attrs.strides[d] + taps[d].var * attrs.dilation[d] - attrs.padding[d][0]
            for d, i in enumerate(place)
        ]
        value = wide(x[(n, c, *positions)])
        edges = [
            (positions[d], x.shape[2 + d])
            for d in range(len(place))
            if attrs.padding[d] != (0, 0) or attrs.ceil_mode
        ]
        if edges:
            value = if_then_else(inside(edges), value, start)
        return Reduction(combine, value, tuple(taps), const(start, value.dtype))

    return compute((*x.shape[:2], *output), element, name=name)


@operator("nn.max_pool", OpKind.REDUCTION)
class MaxPool(Op):
    """The largest element of every window; padding never wins."""

    Attrs = PoolAttrs

    @classmethod
    def type_rule(cls, attrs: PoolAttrs, *types: Type) -> TensorType:
        """``[N, C, *windows]``."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_number, "integer or floating-point", x)
        return _pool_type(cls.name, attrs, x)

    @staticmethod
    def reference(attrs: PoolAttrs, x: Array) -> Array:
        """The maximum of every window."""
        axes = tuple(range(-len(attrs.kernel), 0))

        def function(data: Array) -> Array:
            fill = lowest(DType(data.dtype.name))
            view = attrs.windows.view(data, fill, _output(attrs, data.shape[2:]))
            return np.max(view, axis=axes)

        return in_float32(function, x)

    @staticmethod
    def compute(attrs: PoolAttrs, x: Tensor) -> Tensor:
        """The maximum over the taps."""
        start = lowest(accumulator(x.dtype))
        result = _reduce_windows(attrs, x, BinaryOp.MAX, start, "nn_max_pool")
        return narrowed(result, x.dtype, "nn_max_pool_rounded")


@operator("nn.avg_pool", OpKind.REDUCTION)
class AvgPool(Op):
    """The mean of every window, over the input's elements, or over padding as well."""

    class Attrs(PoolAttrs, frozen=True, kw_only=True):
        """``count_include_pad``: padding counts as elements of 0 (but not what ceil_mode adds)."""

        count_include_pad: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[N, C, *windows]``."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_float, "floating-point", x)
        return _pool_type(cls.name, attrs, x)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """The sum of every window by the number of its elements."""
        output = _output(attrs, x.shape[2:])
        axes = tuple(range(-len(attrs.kernel), 0))
        ones = np.ones((1, 1, *x.shape[2:]), np.float32)
        if attrs.count_include_pad:
            ones = np.pad(ones, [(0, 0), (0, 0), *attrs.padding], constant_values=1)
        unpadded = ((0, 0),) * len(attrs.kernel)
        counted = Windows(
            attrs.kernel,
            attrs.strides,
            unpadded if attrs.count_include_pad else attrs.padding,
            attrs.dilation,
        )
        count = np.maximum(np.sum(counted.view(ones, 0, output), axis=axes), 1)

        def function(data: Array) -> Array:
            total = np.sum(attrs.windows.view(data, 0, output), axis=axes)
            return total / count.astype(data.dtype)

        return in_float32(function, x)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Sum over the taps, then divide by their number."""
        total = _reduce_windows(attrs, x, BinaryOp.ADD, 0, "nn_avg_pool_sum")

        def element(n: PrimExpr, c: PrimExpr, *place: PrimExpr) -> PrimExpr:
            count = _window_elements(attrs, place, x.shape[2:])
            divisor = cast(tir.maximum(count, 1), total.dtype)
            return cast(total[(n, c, *place)] / divisor, x.dtype)

        return compute(total.shape, element, name="nn_avg_pool")


def _window_elements(
    attrs: AvgPool.Attrs, place: Sequence[PrimExpr], spatial: Sequence[int]
) -> PrimExpr:
    """Return how many elements the window at ``place`` averages."""
    count: PrimExpr = tir.index(1)
    for d, i in enumerate(place):
        low, high = attrs.padding[d]
        kernel, dilation = attrs.kernel[d], attrs.dilation[d]
        if (low, high) == (0, 0) and not attrs.ceil_mode:
            count = count * kernel
            continue
        start = i * attrs.strides[d] - low
        end = spatial[d] + (high if attrs.count_include_pad else 0)
        last = tir.minimum((end - 1 + dilation - start) // dilation, kernel)
        if attrs.count_include_pad:
            count = count * last
            continue
        first = tir.maximum((tir.index(dilation - 1) - start) // dilation, 0)
        count = count * tir.maximum(last - first, 0)
    return count


@operator("nn.lrn", OpKind.REDUCTION)
class Lrn(Op):
    """Each element by a power of the squares of its neighbours along axis 1, the channels."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``x / (bias + alpha / size * sum of squares) ** beta`` over ``size`` channels."""

        size: int
        alpha: float = 0.0001
        beta: float = 0.75
        bias: float = 1.0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_float, "floating-point", x)
        if x.rank < 2:
            raise TypeRuleError(f"{cls.name}: needs a channel dimension, got {shape_text(x.shape)}")
        if attrs.size < 1:
            raise TypeRuleError(f"{cls.name}: size {attrs.size} must be at least 1")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Sum the squares of shifted channels."""
        before, channels = (attrs.size - 1) // 2, x.shape[1]
        widths = [(0, 0), (before, attrs.size - 1 - before), *[(0, 0)] * (x.ndim - 2)]

        def function(data: Array) -> Array:
            squares = np.pad(data * data, widths)
            total = sum(squares[:, k : k + channels] for k in range(attrs.size))
            return data / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta

        return in_float32(function, x)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Sum the squares, then divide."""
        before = (attrs.size - 1) // 2
        tap: Axis = reduce_axis(attrs.size)

        def square(n: PrimExpr, c: PrimExpr, *rest: PrimExpr) -> Reduction:
            position = c + tap.var - before
            value = wide(x[(n, position, *rest)])
            guarded = if_then_else(inside([(position, x.shape[1])]), value, 0)
            return sum_over(guarded * guarded, (tap,))

        squares = compute(x.shape, square, name="nn_lrn_squares")

        def element(*indices: PrimExpr) -> PrimExpr:
            grown = squares[indices] * (attrs.alpha / attrs.size) + attrs.bias
            divisor = tir.intrinsic(Intrinsic.POW, grown, const(attrs.beta, grown.dtype))
            return cast(binary(BinaryOp.DIV, wide(x[indices]), divisor), x.dtype)

        return compute(x.shape, element, name="nn_lrn")
