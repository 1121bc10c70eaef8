# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers for CPUs: four products of neighbouring channels at a time.

Four bytes of a pixel's channels are read as one 32-bit element, and so are four weights. Data is
taken as unsigned (signed data moved up by 128), and padding has the value of its zero point, so
that the zero point costs one number for each output channel, which ``quantise.py`` adds to the
bias.
"""

from __future__ import annotations

import numpy as np

from ...dtype import DType
from ...ir.op import Op, OpAttrs, OpKind, operator
from ...ir.types import TensorType
from ...ops.nn import Conv, Matmul
from ...tir.expr import BinaryOp, IntImm, PrimExpr, all_of, binary, cast, if_then_else
from ...tir.tensor import Reduction, Tensor, compute, reduce_axis, sum_over
from .operators import ConvAttrs
from .packing import pack_conv, pack_dense, unpack_conv, unpack_dense, unpack_depthwise

Array = np.ndarray
_TO_FIRST = (0, 3, 1, 2)
_TO_LAST = (0, 2, 3, 1)
QUAD = 4
"""Products that one instruction adds up."""


class QuantConvAttrs(ConvAttrs, frozen=True, kw_only=True):
    """As of ``cpu.conv``; ``zero``: what padding holds, in unsigned bytes."""

    zero: int


def as_quads(weight: Array) -> Array:
    """Return ``[..., depth, width]`` of int8 as ``[..., depth / 4, width]`` of int32."""
    *outer, depth, width = weight.shape
    split = weight.reshape(*outer, depth // QUAD, QUAD, width)
    bytes_last = np.ascontiguousarray(np.moveaxis(split, -2, -1))
    return bytes_last.view("<i4").reshape(*outer, depth // QUAD, width)


def from_quads(packed: Array) -> Array:
    """Undo :func:`as_quads`."""
    *outer, quads, width = packed.shape
    split = np.ascontiguousarray(packed).view(np.int8).reshape(*outer, quads, width, QUAD)
    joined = np.moveaxis(split, -1, -2).reshape(*outer, quads * QUAD, width)
    return np.ascontiguousarray(joined)


def pack_quad_conv(weight: Array, groups: int, width: int) -> Array:
    """Return int8 ``weight[O, I, KH, KW]``, ``I`` a multiple of 4, packed as ``cpu.qconv`` has."""
    return as_quads(pack_conv(weight, groups, width))


def pack_quad_dense(weight: Array, width: int) -> Array:
    """Return int8 ``weight[K, N]``, ``K`` a multiple of 4, packed as ``cpu.qdense`` has it."""
    return as_quads(pack_dense(weight, width))


def unsigned(x: Array) -> Array:
    """Return bytes as the kernels take them, in int32."""
    return x.astype(np.int32) + (128 if x.dtype == np.int8 else 0)


def _unsigned(x: PrimExpr) -> PrimExpr:
    whole = cast(x, DType.INT32)
    return whole + 128 if x.dtype.is_signed else whole


def _byte(quads: PrimExpr, number: PrimExpr) -> PrimExpr:
    """Return byte ``number`` of four weights, with its sign."""
    shift = cast(number, DType.INT32) * 8
    return cast(cast(binary(BinaryOp.SHR, quads, shift), DType.INT8), DType.INT32)


@operator("cpu.qconv", OpKind.ANCHOR)
class QuadConv(Op):
    """Convolution of bytes ``data[N, H, W, C]`` and packed weights, in int32."""

    Attrs = QuantConvAttrs

    @staticmethod
    def type_rule(attrs: QuantConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]`` in int32."""
        spatial = attrs.windows.output_shape("cpu.qconv", data.shape[1:3])
        return TensorType((data.shape[0], *spatial, attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: QuantConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution of padded data, in float64, which is exact."""
        plain = unpack_conv(from_quads(weight), attrs.outputs, attrs.kernel, attrs.groups)
        widths = ((0, 0), (0, 0), *attrs.padding)
        first = np.pad(unsigned(data).transpose(_TO_FIRST), widths, constant_values=attrs.zero)
        free = Conv.Attrs(
            strides=attrs.strides,
            padding=((0, 0), (0, 0)),
            dilation=attrs.dilation,
            groups=attrs.groups,
        )
        found = Conv.reference(free, first.astype(np.float64), plain.astype(np.float64))
        return np.ascontiguousarray(found.transpose(_TO_LAST)).astype(np.int32)

    @staticmethod
    def compute(attrs: QuantConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        _, rows, columns, channels = data.shape
        inner, width = channels // attrs.groups, weight.shape[2]
        own, blocks = attrs.outputs // attrs.groups, weight.shape[0] // attrs.groups
        kh, kw = (reduce_axis(n, f"k{d}") for d, n in enumerate(attrs.kernel))
        c = reduce_axis(inner, "channel")

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            at_y = y * attrs.strides[0] + kh.var * attrs.dilation[0] - attrs.padding[0][0]
            at_x = x * attrs.strides[1] + kw.var * attrs.dilation[1] - attrs.padding[1][0]
            group, column = o // own, o % own
            value = _unsigned(data[n, at_y, at_x, group * inner + c.var])
            inside = all_of([at_y >= 0, at_y < rows, at_x >= 0, at_x < columns])
            depth = (kh.var * attrs.kernel[1] + kw.var) * inner + c.var
            quads = weight[group * blocks + column // width, depth // QUAD, column % width]
            padded = if_then_else(inside, value, IntImm(attrs.zero, DType.INT32))
            return sum_over(padded * _byte(quads, depth % QUAD), (kh, kw, c))

        spatial = attrs.windows.output_shape("cpu.qconv", (rows, columns))
        sizes = tuple(n for n in spatial if isinstance(n, int))
        return compute((data.shape[0], *sizes, attrs.outputs), element, name="cpu_qconv")


@operator("cpu.qdense", OpKind.ANCHOR)
class QuadDense(Op):
    """Product of bytes ``a[..., K]`` and packed weights, in int32."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``outputs``: columns of the result."""

        outputs: int

    @staticmethod
    def type_rule(attrs: Attrs, a: TensorType, _weight: TensorType) -> TensorType:
        """``[..., outputs]`` in int32."""
        return TensorType((*a.shape[:-1], attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: Attrs, a: Array, weight: Array) -> Array:
        """The product with the unpacked matrix, in float64, which is exact."""
        matrix = unpack_dense(from_quads(weight), attrs.outputs).astype(np.float64)
        found = Matmul.reference(Matmul.Attrs(), unsigned(a).astype(np.float64), matrix)
        return found.astype(np.int32)

    @staticmethod
    def compute(attrs: Attrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        k, width = reduce_axis(a.shape[-1]), weight.shape[2]

        def element(*indices: PrimExpr) -> Reduction:
            *outer, o = indices
            quads = weight[o // width, k.var // QUAD, o % width]
            return sum_over(_unsigned(a[(*outer, k.var)]) * _byte(quads, k.var % QUAD), (k,))

        return compute((*a.shape[:-1], attrs.outputs), element, name="cpu_qdense")


@operator("cpu.qdepthwise", OpKind.ANCHOR)
class QuantDepthwise(Op):
    """Convolution of each channel of bytes with its own int8 ``weight[KH, KW, C]``, in int32.

    ``zero`` is the zero point of the data as it is stored; padding counts as nothing.
    """

    Attrs = QuantConvAttrs

    @staticmethod
    def type_rule(attrs: QuantConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, C]`` in int32."""
        spatial = attrs.windows.output_shape("cpu.qdepthwise", data.shape[1:3])
        return TensorType((data.shape[0], *spatial, attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: QuantConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution between two transposes."""
        moved = data.astype(np.float64).transpose(_TO_FIRST) - attrs.zero
        plain = unpack_depthwise(weight).astype(np.float64)
        found = Conv.reference(attrs.plain, moved, plain).transpose(_TO_LAST)
        return np.ascontiguousarray(found).astype(np.int32)

    @staticmethod
    def compute(attrs: QuantConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps."""
        _, rows, columns, _ = data.shape
        kh, kw = (reduce_axis(n, f"k{d}") for d, n in enumerate(attrs.kernel))

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            at_y = y * attrs.strides[0] + kh.var * attrs.dilation[0] - attrs.padding[0][0]
            at_x = x * attrs.strides[1] + kw.var * attrs.dilation[1] - attrs.padding[1][0]
            inside = all_of([at_y >= 0, at_y < rows, at_x >= 0, at_x < columns])
            value = cast(data[n, at_y, at_x, o], DType.INT32) - attrs.zero
            taken = cast(weight[kh.var, kw.var, o], DType.INT32)
            return sum_over(if_then_else(inside, value, 0) * taken, (kh, kw))

        spatial = attrs.windows.output_shape("cpu.qdepthwise", (rows, columns))
        sizes = tuple(n for n in spatial if isinstance(n, int))
        return compute((data.shape[0], *sizes, attrs.outputs), element, name="cpu_qdepthwise")
