# SPDX-License-Identifier: Apache-2.0
"""Internal operators: channels-last data, and weights packed for the register tiles.

Packed weights are ``[blocks, K, width]``: ``width`` output columns are contiguous, padded with
zeros at the end. The pass in ``layout.py`` makes these operators; no model contains them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, tensor_type
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import Size, TensorType
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.pooling import AvgPool, MaxPool, PoolAttrs
from intarsia_ir.ops.sampling import GridSample
from intarsia_ir.ops.windows import Padding, Windows
from intarsia_ir.tir.expr import PrimExpr, all_of, cast, equal, if_then_else
from intarsia_ir.tir.tensor import Reduction, Tensor, compute, extents, reduce_axis, sum_over

from .packing import unpack_conv, unpack_dense, unpack_depthwise, unpack_winograd

Array = np.ndarray
_TO_FIRST = (0, 3, 1, 2)
_TO_LAST = (0, 2, 3, 1)


def _output(
    shape: tuple[Size, ...], windows: Windows, name: str, channels: int
) -> tuple[Size, ...]:
    return (shape[0], *windows.output_shape(name, shape[1:3]), channels)


def _static(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """A shape for tensors."""
    return extents(shape)


class ConvAttrs(OpAttrs, frozen=True, kw_only=True):
    """As of ``nn.conv``; ``outputs`` and ``kernel`` are what packing hides."""

    outputs: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    dilation: tuple[int, int]
    groups: int = 1

    @property
    def windows(self) -> Windows:
        """Size, steps and padding of each place where the kernel is laid."""
        return Windows(self.kernel, self.strides, self.padding, self.dilation)

    @property
    def plain(self) -> Conv.Attrs:
        """Attributes of the canonical operator."""
        return Conv.Attrs(
            strides=self.strides, padding=self.padding, dilation=self.dilation, groups=self.groups
        )


def packed_attrs(node: Call, weight: Expr) -> ConvAttrs:
    """Return the attributes of ``nn.conv`` of images when its weights are packed."""
    plain = node.attrs
    if not isinstance(plain, Conv.Attrs):
        raise AssertionError("nn.conv has Conv.Attrs")
    outputs, _, *kernel = tensor_type(weight).static_shape
    return ConvAttrs(
        outputs=outputs,
        kernel=(kernel[0], kernel[1]),
        strides=(plain.strides[0], plain.strides[1]),
        padding=plain.padding,
        dilation=(plain.dilation[0], plain.dilation[1]),
        groups=plain.groups,
    )


def _convolved(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
    """The canonical convolution, with weights as of a model, between two transposes."""
    result = Conv.reference(attrs.plain, data.transpose(_TO_FIRST), weight)
    return np.ascontiguousarray(result.transpose(_TO_LAST))


@operator("cpu.conv", OpKind.ANCHOR)
class PackedConv(Op):
    """Convolution of ``data[N, H, W, C]``, packed ``weight`` of depth KH * KW * C / groups."""

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]``."""
        return data.with_shape(_output(data.shape, attrs.windows, "cpu.conv", attrs.outputs))

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution between two transposes."""
        return _convolved(
            attrs, data, unpack_conv(weight, attrs.outputs, attrs.kernel, attrs.groups)
        )

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        _, rows, columns, channels = data.shape
        inner, width = channels // attrs.groups, weight.shape[2]
        own = attrs.outputs // attrs.groups
        blocks = weight.shape[0] // attrs.groups
        kh, kw = (reduce_axis(n, f"k{d}") for d, n in enumerate(attrs.kernel))
        c = reduce_axis(inner, "channel")

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            y_in = y * attrs.strides[0] + kh.var * attrs.dilation[0] - attrs.padding[0][0]
            x_in = x * attrs.strides[1] + kw.var * attrs.dilation[1] - attrs.padding[1][0]
            group, column = o // own, o % own
            value = data[n, y_in, x_in, group * inner + c.var]
            inside = all_of([y_in >= 0, y_in < rows, x_in >= 0, x_in < columns])
            depth = (kh.var * attrs.kernel[1] + kw.var) * inner + c.var
            taken = weight[group * blocks + column // width, depth, column % width]
            return sum_over(if_then_else(inside, value, 0) * taken, (kh, kw, c))

        shape = _static(_output(data.shape, attrs.windows, "cpu.conv", attrs.outputs))
        return compute(shape, element, name="cpu_conv")


@operator("cpu.plane_conv", OpKind.ANCHOR)
class PlaneConv(Op):
    """Convolution of ``data[N, C, H, W]`` with the packed weights of :class:`PackedConv`."""

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, outputs, OH, OW]``."""
        sizes = attrs.windows.output_shape("cpu.plane_conv", data.shape[2:])
        return data.with_shape((data.shape[0], attrs.outputs, *sizes))

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution."""
        plain = unpack_conv(weight, attrs.outputs, attrs.kernel, attrs.groups)
        return Conv.reference(attrs.plain, data, plain)

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """The rule of :class:`PackedConv`, read and written channels first."""
        n, c, h, w = data.shape

        def last(i: PrimExpr, y: PrimExpr, x: PrimExpr, j: PrimExpr) -> PrimExpr:
            return data[i, j, y, x]

        source = compute((n, h, w, c), last, name="channels_last")
        made = PackedConv.compute(attrs, source, weight)

        def first(i: PrimExpr, j: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
            return made[i, y, x, j]

        return compute(tuple(made.shape[a] for a in _TO_FIRST), first, name="cpu_plane_conv")


@operator("cpu.winograd", OpKind.ANCHOR)
class Winograd(Op):
    """Convolution of ``data[N, H, W, C]`` with 3x3 weights transformed by Winograd's ``G``."""

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]``."""
        return data.with_shape(_output(data.shape, attrs.windows, "cpu.winograd", attrs.outputs))

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution between two transposes."""
        return _convolved(attrs, data, unpack_winograd(weight, attrs.outputs))

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps, whose weights are sums of the transformed ones, and the channels."""
        _, rows, columns, channels = data.shape
        width = weight.shape[3]
        kh, kw = reduce_axis(3, "k0"), reduce_axis(3, "k1")
        c = reduce_axis(channels, "channel")

        def tap(k: PrimExpr, transformed: Callable[[int], PrimExpr]) -> PrimExpr:
            middle = if_then_else(equal(k, 1), transformed(1) - transformed(2), transformed(3))
            return if_then_else(equal(k, 0), transformed(0), middle)

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            y_in, x_in = y + kh.var - attrs.padding[0][0], x + kw.var - attrs.padding[1][0]
            inside = all_of([y_in >= 0, y_in < rows, x_in >= 0, x_in < columns])

            def transformed(a: int, b: int) -> PrimExpr:
                return weight[o // width, a * 4 + b, c.var, o % width]

            taken = tap(kh.var, lambda a: tap(kw.var, lambda b: transformed(a, b)))
            return sum_over(
                if_then_else(inside, data[n, y_in, x_in, c.var], 0) * taken, (kh, kw, c)
            )

        shape = _static(_output(data.shape, attrs.windows, "cpu.winograd", attrs.outputs))
        return compute(shape, element, name="cpu_winograd")


@operator("cpu.depthwise", OpKind.ANCHOR)
class Depthwise(Op):
    """Convolution of each channel of ``data[N, H, W, C]`` with its own ``weight[KH, KW, C]``.

    Data may be narrower than weights and results.
    """

    Attrs = ConvAttrs

    @staticmethod
    def type_rule(attrs: ConvAttrs, data: TensorType, weight: TensorType) -> TensorType:
        """``[N, OH, OW, C]`` of the weights' type."""
        shape = _output(data.shape, attrs.windows, "cpu.depthwise", attrs.outputs)
        return TensorType(shape, weight.dtype)

    @staticmethod
    def reference(attrs: ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution between two transposes."""
        return _convolved(attrs, data.astype(weight.dtype), unpack_depthwise(weight))

    @staticmethod
    def compute(attrs: ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps."""
        _, rows, columns, _ = data.shape
        kh, kw = (reduce_axis(n, f"k{d}") for d, n in enumerate(attrs.kernel))

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            y_in = y * attrs.strides[0] + kh.var * attrs.dilation[0] - attrs.padding[0][0]
            x_in = x * attrs.strides[1] + kw.var * attrs.dilation[1] - attrs.padding[1][0]
            inside = all_of([y_in >= 0, y_in < rows, x_in >= 0, x_in < columns])
            value = cast(if_then_else(inside, data[n, y_in, x_in, o], 0), weight.dtype)
            return sum_over(value * weight[kh.var, kw.var, o], (kh, kw))

        shape = _static(_output(data.shape, attrs.windows, "cpu.depthwise", attrs.outputs))
        return compute(shape, element, name="cpu_depthwise")


@operator("cpu.plane_depthwise", OpKind.ANCHOR)
class NchwDepthwise(Conv):
    """``nn.conv`` of each channel with its own weights, by loops over planes."""


@operator("cpu.dense", OpKind.ANCHOR)
class Dense(Op):
    """Product of ``a[..., K]`` and ``weight[blocks, K, width]``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """What the types do not say.

        Attributes:
            outputs: Columns of the result.
            few: Whether there are nearly always few rows, and little to do beside other layers.
        """

        outputs: int
        few: bool = False

    @staticmethod
    def type_rule(attrs: Attrs, a: TensorType, _weight: TensorType) -> TensorType:
        """``[..., outputs]``."""
        return a.with_shape((*a.shape[:-1], attrs.outputs))

    @staticmethod
    def reference(attrs: Attrs, a: Array, weight: Array) -> Array:
        """The product with the unpacked matrix."""
        return Matmul.reference(Matmul.Attrs(), a, unpack_dense(weight, attrs.outputs))

    @staticmethod
    def compute(attrs: Attrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        k, width = reduce_axis(a.shape[-1]), weight.shape[2]

        def element(*indices: PrimExpr) -> Reduction:
            *outer, o = indices
            return sum_over(a[(*outer, k.var)] * weight[o // width, k.var, o % width], (k,))

        return compute((*a.shape[:-1], attrs.outputs), element, name="cpu_dense")


def _pool_compute(op: type[Op], attrs: PoolAttrs, x: Tensor) -> Tensor:
    """Pool through the canonical rule, read and written channels last."""
    n, h, w, c = x.shape

    def first(i: PrimExpr, j: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
        return x[i, y, z, j]

    if op.compute is None:
        raise AssertionError("pools have a compute rule")
    pooled: Tensor = op.compute(attrs, compute((n, c, h, w), first, name="channels_first"))

    def last(i: PrimExpr, y: PrimExpr, z: PrimExpr, j: PrimExpr) -> PrimExpr:
        return pooled[i, j, y, z]

    return compute(tuple(pooled.shape[a] for a in _TO_LAST), last, name="channels_last")


def _pool_type(attrs: PoolAttrs, x: TensorType, name: str) -> TensorType:
    return x.with_shape((x.shape[0], *attrs.windows.output_shape(name, x.shape[1:3]), x.shape[3]))


@operator("cpu.max_pool", OpKind.ANCHOR)
class NhwcMaxPool(Op):
    """``nn.max_pool`` of ``x[N, H, W, C]``."""

    Attrs = PoolAttrs

    @staticmethod
    def type_rule(attrs: PoolAttrs, x: TensorType) -> TensorType:
        """``[N, OH, OW, C]``."""
        return _pool_type(attrs, x, "cpu.max_pool")

    @staticmethod
    def reference(attrs: PoolAttrs, x: Array) -> Array:
        """The canonical pool between two transposes."""
        return np.ascontiguousarray(
            MaxPool.reference(attrs, x.transpose(_TO_FIRST)).transpose(_TO_LAST)
        )

    @staticmethod
    def compute(attrs: PoolAttrs, x: Tensor) -> Tensor:
        """The canonical rule at permuted indices."""
        return _pool_compute(MaxPool, attrs, x)


@operator("cpu.avg_pool", OpKind.ANCHOR)
class NhwcAvgPool(Op):
    """``nn.avg_pool`` of ``x[N, H, W, C]``."""

    Attrs = AvgPool.Attrs

    @staticmethod
    def type_rule(attrs: AvgPool.Attrs, x: TensorType) -> TensorType:
        """``[N, OH, OW, C]``."""
        return _pool_type(attrs, x, "cpu.avg_pool")

    @staticmethod
    def reference(attrs: AvgPool.Attrs, x: Array) -> Array:
        """The canonical pool between two transposes."""
        return np.ascontiguousarray(
            AvgPool.reference(attrs, x.transpose(_TO_FIRST)).transpose(_TO_LAST)
        )

    @staticmethod
    def compute(attrs: AvgPool.Attrs, x: Tensor) -> Tensor:
        """The canonical rule at permuted indices."""
        return _pool_compute(AvgPool, attrs, x)


@operator("cpu.plane_max_pool", OpKind.ANCHOR)
class NchwMaxPool(MaxPool):
    """``nn.max_pool`` by loops over planes, which no operator before it is fused with."""


@operator("cpu.plane_avg_pool", OpKind.ANCHOR)
class NchwAvgPool(AvgPool):
    """``nn.avg_pool`` by loops over planes, which no operator before it is fused with."""


@operator("cpu.grid_sample", OpKind.OPAQUE)
class NhwcGridSample(Op):
    """``nn.grid_sample`` of ``x[N, H, W, C]``: all channels of a place with the same weights."""

    Attrs = GridSample.Attrs

    @staticmethod
    def type_rule(attrs: GridSample.Attrs, x: TensorType, grid: TensorType) -> TensorType:
        """``[N, OH, OW, C]``."""
        return x.with_shape((x.shape[0], *grid.shape[1:3], x.shape[3]))

    @staticmethod
    def reference(attrs: GridSample.Attrs, x: Array, grid: Array) -> Array:
        """The canonical operator between two transposes."""
        result = GridSample.reference(attrs, x.transpose(_TO_FIRST), grid)
        return np.ascontiguousarray(result.transpose(_TO_LAST))

    @staticmethod
    def compute(attrs: GridSample.Attrs, x: Tensor, grid: Tensor) -> Tensor:
        """The canonical rule at permuted indices."""
        n, h, w, c = x.shape

        def first(i: PrimExpr, j: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
            return x[i, y, z, j]

        result = GridSample.compute(
            attrs, compute((n, c, h, w), first, name="channels_first"), grid
        )

        def last(i: PrimExpr, y: PrimExpr, z: PrimExpr, j: PrimExpr) -> PrimExpr:
            return result[i, j, y, z]

        return compute(tuple(result.shape[a] for a in _TO_LAST), last, name="channels_last")
