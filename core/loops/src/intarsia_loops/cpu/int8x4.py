# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers whose operands are packed four to a 32-bit word along K (Int8x4).

Data counts as unsigned, as ``vpdpbusd`` requires, and signed data is offset by 128; or it counts as
signed, as ``SDOT`` requires, and unsigned data is offset by -128. Padding has the value of the zero
point, so the zero point costs nothing in the loops. Its share of a sum, ``zero *
sum(weights)``, is one number for each output channel, which ``quantize.py`` adds to the bias.
gemmlowp and XNNPACK compensate zero points in the same way.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.tir.expr import BinaryOp, IntImm, PrimExpr, all_of, binary, cast, if_then_else
from intarsia_ir.tir.tensor import Reduction, Tensor, compute, extents, reduce_axis, sum_over
from intarsia_runtime.dtype import DType

from .operators import ConvAttrs
from .ordered_words import ordered_factor, unpack_ordered
from .packing import (
    INT8_PER_WORD,
    pack_conv,
    pack_dense,
    pack_int8x4,
    paired_position,
    unpack_conv,
    unpack_dense,
    unpack_depthwise,
    unpack_int8x4,
    unpair_columns,
)

Array = np.ndarray
_TO_FIRST = (0, 3, 1, 2)
_TO_LAST = (0, 2, 3, 1)
_NARROW = 128  # 255 times it is less than 2^15


class Int8ConvAttrs(ConvAttrs, frozen=True, kw_only=True):
    """As of ``cpu.conv``.

    ``zero``: what padding holds, as data counts; ``is_narrow``: :func:`has_narrow_pairs`;
    ``is_ordered``: whether words of weights are (``ordered_words.py``); ``is_paired``: whether
    they are packed by :func:`~.packing.pair_columns`; ``signed``: whether data counts as signed.
    """

    zero: int
    is_narrow: bool = False
    is_ordered: bool = False
    is_paired: bool = False
    signed: bool = False


def dot4_by_shifts(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Return ``total`` and four products of bytes, by shifts: for machines without instructions."""
    for byte_number in range(INT8_PER_WORD):
        low = binary(BinaryOp.SHR, left, IntImm(8 * byte_number, left.dtype))
        high = binary(BinaryOp.SHL, right, IntImm(24 - 8 * byte_number, right.dtype))
        byte = binary(BinaryOp.SHR, high, IntImm(24, right.dtype))
        total = total + binary(BinaryOp.AND, low, IntImm(255, left.dtype)) * byte
    return total


def has_narrow_pairs(weight: Array, axis: int, *, signed: bool = False) -> bool:
    """Whether two products of neighbours along K with any bytes of data fit 16 bits together.

    ``vpmaddubsw`` saturates where they do not, and ``ADDP`` of NEON wraps around. Weights of 7 bits
    (``reduce_range`` of ONNX Runtime's quantizer) always fit; of 8 bits and signed data, all do but
    two neighbours of -128.

    Args:
        weight: Weights in int8, a multiple of 4 along ``axis``.
        axis: Neighbours along it are multiplied together.
        signed: Whether data counts as signed.
    """
    rows = np.moveaxis(weight, axis, 0)
    first, second = rows[0::2].astype(np.int16), rows[1::2].astype(np.int16)
    high = int((np.maximum(first, 0) + np.maximum(second, 0)).max(initial=0))
    low = int((np.minimum(first, 0) + np.minimum(second, 0)).min(initial=0))
    if signed:
        return low > -2 * _NARROW
    return high <= _NARROW and low >= -_NARROW


def pack_int8x4_conv(weight: Array, groups: int, width: int, word: DType = DType.INT32) -> Array:
    """Return int8 ``weight[O, I, KH, KW]``, ``I`` a multiple of 4, packed as ``cpu.qconv`` has."""
    return pack_int8x4(pack_conv(weight, groups, width), word)


def pack_int8x4_dense(weight: Array, width: int, word: DType = DType.INT32) -> Array:
    """Return int8 ``weight[K, N]``, ``K`` a multiple of 4, packed as ``cpu.qdense`` has it."""
    return pack_int8x4(pack_dense(weight, width), word)


def _bytes_of(weight: Array, depth: int, attrs: Int8ConvAttrs | Int8x4Dense.Attrs) -> Array:
    """Return blocks of packed weights as int8; ``depth`` is that in bytes."""
    if attrs.is_ordered:
        return unpack_ordered(weight, depth // INT8_PER_WORD)
    return unpack_int8x4(unpair_columns(weight) if attrs.is_paired else weight)


def data_offset(kind: DType, *, signed: bool) -> int:
    """Return what bytes of a type are moved by where they count as signed, or as unsigned."""
    return (-128 if signed else 128) if kind.is_signed is not signed else 0


def counted(x: Array, *, signed: bool) -> Array:
    """Return bytes as the kernels take them, in int32."""
    return x.astype(np.int32) + data_offset(DType(x.dtype.name), signed=signed)


def _counted(x: PrimExpr, *, signed: bool) -> PrimExpr:
    value, offset = cast(x, DType.INT32), data_offset(x.dtype, signed=signed)
    return value + offset if offset else value


class _Steps(Struct, frozen=True):
    """Packed weights of bytes along K.

    Attributes:
        weight: Blocks of words of four bytes, or of two.
        depth: Bytes along K.
        attrs: In what order words are.
    """

    weight: Tensor
    depth: int
    attrs: Int8ConvAttrs | Int8x4Dense.Attrs

    def at(self, block: PrimExpr, column: PrimExpr, step: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Return where along K the data of a step lie, and the weight, with its sign."""
        weight, size = self.weight, self.weight.dtype.bytes
        if self.attrs.is_ordered:
            return ordered_factor(weight, block, column, step, self.depth // INT8_PER_WORD)
        word = step // size
        if self.attrs.is_paired:
            word, column = paired_position(word, column)
        words = cast(weight[block, word, column], DType.INT32)
        byte = binary(BinaryOp.SHR, words, cast(step % size, DType.INT32) * 8)
        return step, cast(cast(byte, DType.INT8), DType.INT32)


@operator("cpu.qconv", OpKind.ANCHOR)
class Int8x4Conv(Op):
    """Convolution of bytes ``data[N, H, W, C]`` and packed weights, in int32."""

    Attrs = Int8ConvAttrs

    @staticmethod
    def type_rule(attrs: Int8ConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, outputs]`` in int32."""
        spatial = attrs.windows.output_shape("cpu.qconv", data.shape[1:3])
        return TensorType((data.shape[0], *spatial, attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: Int8ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution of padded data, in float64, which is exact."""
        depth = attrs.kernel[0] * attrs.kernel[1] * data.shape[3] // attrs.groups
        blocks = _bytes_of(weight, depth, attrs)
        plain = unpack_conv(blocks, attrs.outputs, attrs.kernel, attrs.groups)
        widths = ((0, 0), (0, 0), *attrs.padding)
        moved = counted(data, signed=attrs.signed).transpose(_TO_FIRST)
        first = np.pad(moved, widths, constant_values=attrs.zero)
        free = Conv.Attrs(
            strides=attrs.strides,
            padding=((0, 0), (0, 0)),
            dilation=attrs.dilation,
            groups=attrs.groups,
        )
        product = Conv.reference(free, first.astype(np.float64), plain.astype(np.float64))
        return np.ascontiguousarray(product.transpose(_TO_LAST)).astype(np.int32)

    @staticmethod
    def compute(attrs: Int8ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps and the input channels of the group."""
        _, rows, columns, channels = data.shape
        inner, width = channels // attrs.groups, weight.shape[2]
        own, blocks = attrs.outputs // attrs.groups, weight.shape[0] // attrs.groups
        depth = attrs.kernel[0] * attrs.kernel[1] * inner
        k, steps = reduce_axis(depth), _Steps(weight, depth, attrs)

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            group, column = o // own, o % own
            block = group * blocks + column // width
            at, taken = steps.at(block, column % width, k.var)
            tap, c = at // inner, at % inner
            kh, kw = tap // attrs.kernel[1], tap % attrs.kernel[1]
            y_in = y * attrs.strides[0] + kh * attrs.dilation[0] - attrs.padding[0][0]
            x_in = x * attrs.strides[1] + kw * attrs.dilation[1] - attrs.padding[1][0]
            value = _counted(data[n, y_in, x_in, group * inner + c], signed=attrs.signed)
            inside = all_of([y_in >= 0, y_in < rows, x_in >= 0, x_in < columns])
            padded = if_then_else(inside, value, IntImm(attrs.zero, DType.INT32))
            return sum_over(padded * taken, (k,))

        spatial = extents(attrs.windows.output_shape("cpu.qconv", (rows, columns)))
        return compute((data.shape[0], *spatial, attrs.outputs), element, name="cpu_qconv")


@operator("cpu.qdense", OpKind.ANCHOR)
class Int8x4Dense(Op):
    """Product of bytes ``a[..., K]`` and packed weights, in int32."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """As of :class:`Int8ConvAttrs`; ``outputs``: columns of the result."""

        outputs: int
        is_narrow: bool = False
        is_ordered: bool = False
        is_paired: bool = False
        signed: bool = False

    @staticmethod
    def type_rule(attrs: Attrs, a: TensorType, _weight: TensorType) -> TensorType:
        """``[..., outputs]`` in int32."""
        return TensorType((*a.shape[:-1], attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: Attrs, a: Array, weight: Array) -> Array:
        """The product with the unpacked matrix, in float64, which is exact."""
        blocks = _bytes_of(weight, a.shape[-1], attrs)
        matrix = unpack_dense(blocks, attrs.outputs).astype(np.float64)
        whole = counted(a, signed=attrs.signed).astype(np.float64)
        product = Matmul.reference(Matmul.Attrs(), whole, matrix)
        return product.astype(np.int32)

    @staticmethod
    def compute(attrs: Attrs, a: Tensor, weight: Tensor) -> Tensor:
        """Sum over the depth."""
        depth, width = a.shape[-1], weight.shape[2]
        k, steps = reduce_axis(depth), _Steps(weight, depth, attrs)

        def element(*indices: PrimExpr) -> Reduction:
            *outer, o = indices
            at, taken = steps.at(o // width, o % width, k.var)
            return sum_over(_counted(a[(*outer, at)], signed=attrs.signed) * taken, (k,))

        return compute((*a.shape[:-1], attrs.outputs), element, name="cpu_qdense")


@operator("cpu.qdepthwise", OpKind.ANCHOR)
class Int8Depthwise(Op):
    """Convolution of each channel of bytes with its own int8 ``weight[KH, KW, C]``, in int32.

    ``zero`` is the zero point of the data as it is stored; padding counts as nothing.
    """

    Attrs = Int8ConvAttrs

    @staticmethod
    def type_rule(attrs: Int8ConvAttrs, data: TensorType, _weight: TensorType) -> TensorType:
        """``[N, OH, OW, C]`` in int32."""
        spatial = attrs.windows.output_shape("cpu.qdepthwise", data.shape[1:3])
        return TensorType((data.shape[0], *spatial, attrs.outputs), DType.INT32)

    @staticmethod
    def reference(attrs: Int8ConvAttrs, data: Array, weight: Array) -> Array:
        """The canonical convolution between two transposes."""
        moved = data.astype(np.float64).transpose(_TO_FIRST) - attrs.zero
        plain = unpack_depthwise(weight).astype(np.float64)
        product = Conv.reference(attrs.plain, moved, plain).transpose(_TO_LAST)
        return np.ascontiguousarray(product).astype(np.int32)

    @staticmethod
    def compute(attrs: Int8ConvAttrs, data: Tensor, weight: Tensor) -> Tensor:
        """Sum over the taps."""
        _, rows, columns, _ = data.shape
        kh, kw = (reduce_axis(n, f"k{d}") for d, n in enumerate(attrs.kernel))

        def element(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Reduction:
            y_in = y * attrs.strides[0] + kh.var * attrs.dilation[0] - attrs.padding[0][0]
            x_in = x * attrs.strides[1] + kw.var * attrs.dilation[1] - attrs.padding[1][0]
            inside = all_of([y_in >= 0, y_in < rows, x_in >= 0, x_in < columns])
            value = cast(data[n, y_in, x_in, o], DType.INT32) - attrs.zero
            taken = cast(weight[kh.var, kw.var, o], DType.INT32)
            return sum_over(if_then_else(inside, value, 0) * taken, (kh, kw))

        spatial = extents(attrs.windows.output_shape("cpu.qdepthwise", (rows, columns)))
        return compute((data.shape[0], *spatial, attrs.outputs), element, name="cpu_qdepthwise")
