# SPDX-License-Identifier: Apache-2.0
"""From quantized operators to Int8x4 ones: packed weights and a requantization chain.

The int32 accumulator becomes the result by canonical operators that fuse as an epilogue, in the
order of the reference: ``cast(round(float(accumulator + bias) * factor) + zero)``.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Constant, Expr, Span, call, constant, tensor_type
from intarsia_ir.graph.op import OpAttrs
from intarsia_ir.ops.binary import Add, Multiply
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.slicing import Pad
from intarsia_ir.ops.unary import Cast, Round
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, product

from .int8x4 import (
    Int8ConvAttrs,
    Int8Depthwise,
    Int8x4Conv,
    Int8x4Dense,
    data_offset,
    has_narrow_pairs,
)
from .matrix_unit import suits_matrix_unit
from .ordered_words import pack_ordered
from .packing import (
    INT8_PER_WORD,
    pack_conv,
    pack_dense,
    pack_depthwise,
    pack_int8x4,
    pair_columns,
)
from .prefetch import STREAMED_BYTES
from .row_pairs import suits_pairs
from .tiling import CpuTiling, int8x4_width
from .window_words import row_windows

Array = np.ndarray

_IMAGE_RANK = 4
_MATRIX_RANK = 2


class ByteWeight(Struct, frozen=True):
    """Weights of 8 bits less their zero point, which may take nine bits.

    ``sum(x * (w - zero)) = sum(x * bytes) + rest * sum(x)``: the second sum is that of a channel of
    ones.

    Attributes:
        bytes: int8, as the operator has them.
        rest: int64, one for each channel, or one for all; ``None`` if it is 0.
    """

    bytes: Array
    rest: Array | None = None


class Linear(Struct, frozen=True):
    """The constants of a quantized convolution or product.

    Attributes:
        weight: Less its zero point.
        factor: What takes the accumulator to the units of the result; a scalar, or one a channel.
        bias: For each channel, int64.
        x_zero: Zero point of the data.
        y_zero: Zero point of the result, in its type.
    """

    weight: ByteWeight
    factor: Array
    bias: Array
    x_zero: int
    y_zero: Array


def linear_of(node: Call, channel_axis: int) -> Linear | None:
    """Return the constants of a call; ``None`` if one is not known."""
    arrays = [arg.data for arg in node.args[1:] if isinstance(arg, Constant)]
    if len(arrays) != len(node.args) - 1 or tensor_type(node).dtype.bits != 8:
        return None
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, *bias = arrays
    whole = centred(weight, w_zero, channel_axis)
    if whole is None:
        return None
    with np.errstate(all="ignore"):
        factor = np.asarray((x_scale * w_scale) / y_scale)
    outputs = weight.shape[channel_axis]
    total = bias[0].astype(np.int64) if bias else np.zeros(outputs, np.int64)
    return Linear(whole, factor, total, int(x_zero), y_zero)


def centred(weight: Array, zero: Array, channel_axis: int) -> ByteWeight | None:
    """Return weights less their zero point; ``None`` if there are none.

    Args:
        weight: 8-bit integers.
        zero: A scalar, or one for each channel.
        channel_axis: Where weights have their channels.
    """
    if weight.size == 0:
        return None
    along = [1] * weight.ndim
    along[channel_axis] = -1
    whole = weight.astype(np.int32) - zero.astype(np.int32).reshape(along if zero.ndim else ())
    if whole.min() >= -128 and whole.max() <= 127:
        return ByteWeight(whole.astype(np.int8))
    base = 128 if weight.dtype == np.uint8 else 0
    rest: Array = base - zero.astype(np.int64)
    return ByteWeight((weight.astype(np.int32) - base).astype(np.int8), rest)


def conv_of(node: Call, source: Expr, tiling: CpuTiling) -> Expr | None:
    """Return ``qnn.conv`` over channels-last ``source``, channels last; ``None`` if it is not ours.

    Args:
        node: The convolution of an image.
        source: Its data, channels last.
        tiling: Register tile of the machine.
    """
    linear, attrs = linear_of(node, 0), node.attrs
    if linear is None or not isinstance(attrs, Conv.Attrs):
        return None
    made = conv_sums(attrs, source, (linear.weight, linear.x_zero), tiling, node.span)
    if made is None:
        return None
    return _rescaled(node, made[0], linear, linear.bias + made[1])


def conv_sums(
    plain: Conv.Attrs, source: Expr, weight_and_zero: tuple[ByteWeight, int], tiling: CpuTiling,
    span: Span,
) -> tuple[Expr, Array] | None:  # fmt: skip
    """Return sums of products, and what each output channel lacks; ``None`` if it is not ours.

    Args:
        plain: What the convolution does.
        source: Its data, channels last.
        weight_and_zero: Weights less their zero point, and the zero point of the data.
        tiling: Register tile of the machine.
        span: The convolution.
    """
    weight, x_zero = weight_and_zero
    made = _byte_sums(plain, source, (weight.bytes, x_zero), tiling, span)
    if made is None or weight.rest is None:
        return made
    if not takes_rest(plain, weight):
        return None
    is_depthwise = is_depthwise_weight(plain, weight.bytes)
    shape = weight.bytes.shape if is_depthwise else (1, *weight.bytes.shape[1:])
    ones = _byte_sums(plain, source, (np.ones(shape, np.int8), x_zero), tiling, span)
    return None if ones is None else _with_rest(made, ones, weight.rest, span)


def takes_rest(attrs: OpAttrs, weight: ByteWeight) -> bool:
    """Whether the sums of a channel of ones are those of all channels, if they are needed."""
    if weight.rest is None or not isinstance(attrs, Conv.Attrs):
        return True
    return attrs.groups == 1 or is_depthwise_weight(attrs, weight.bytes)


def _with_rest(
    made: tuple[Expr, Array], ones: tuple[Expr, Array], rest: Array, span: Span
) -> tuple[Expr, Array]:
    """Add ``rest`` times the sums of a channel of ones to sums; both with what they lack."""
    factor = constant(rest.astype(np.int32))
    total = call(Add, made[0], call(Multiply, ones[0], factor, span=span), span=span)
    return total, made[1] + ones[1] * rest


def _byte_sums(
    plain: Conv.Attrs, source: Expr, weight_and_zero: tuple[Array, int], tiling: CpuTiling,
    span: Span,
) -> tuple[Expr, Array] | None:  # fmt: skip
    """As :func:`conv_sums`, of weights of 8 bits."""
    weight, x_zero = weight_and_zero
    depthwise = is_depthwise_weight(plain, weight)
    if not depthwise:
        # A procedure that multiplies few columns at a time is called once a window.
        int8x4 = tiling.int8x4
        whole = int8x4 is not None and int8x4.micro_kernel is not None and int8x4.columns > 0
        windows = row_windows(plain, source, weight, x_zero, whole=whole)
        plain, source, weight = windows or (plain, source, weight)
    outputs, _, kh, kw = weight.shape
    if not has_whole_groups(plain, weight):
        return None
    kind = tensor_type(source).dtype
    attrs = Int8ConvAttrs(
        outputs=outputs,
        kernel=(kh, kw),
        strides=(plain.strides[0], plain.strides[1]),
        padding=plain.padding,
        dilation=(plain.dilation[0], plain.dilation[1]),
        groups=plain.groups,
        zero=x_zero if depthwise else counted_zero(x_zero, kind, tiling),
        signed=counts_signed(kind, tiling),
    )
    if depthwise:
        packed = constant(pack_depthwise(weight), span=span)
        total = call(Int8Depthwise, source, packed, attrs=attrs, span=span)
        return total, np.zeros(int(outputs), np.int64)
    padded_weight = _padded_to_words(weight, 1)
    by_unit = _suits_matrix_unit_conv(attrs, source, padded_weight, tiling)
    is_paired = _is_paired(padded_weight.shape[1], tiling)
    own = outputs // plain.groups
    width = int8x4_width(own, tiling, by_unit=by_unit, is_paired=is_paired)
    is_ordered = _orders_words(source, weight, tiling)
    width = tiling.lanes if is_ordered else width
    blocks = pack_conv(padded_weight, plain.groups, width)
    words = _words(source, blocks, padded_weight.shape[1], tiling, is_ordered=is_ordered)
    attrs = replace(
        attrs,
        is_narrow=words.is_narrow,
        is_ordered=words.is_ordered,
        is_paired=words.is_paired,
    )
    packed = constant(words.weight, span=span)
    source = padded(source, padded_weight.shape[1] * plain.groups, x_zero)
    total = call(Int8x4Conv, source, packed, attrs=attrs, span=span)
    sums: Array = padded_weight.astype(np.int64).sum(axis=(1, 2, 3))
    return total, -attrs.zero * sums


def _suits_matrix_unit_conv(
    attrs: Int8ConvAttrs, source: Expr, weight: Array, tiling: CpuTiling
) -> bool:
    kind, (_, inner, _, kw) = tensor_type(source), weight.shape
    batch, *image = kind.shape[:3]
    rows, columns = attrs.windows.output_shape("cpu.qconv", tuple(image))
    if _is_product(attrs):
        return _suits_matrix_unit(product((batch, rows, columns)), inner, tiling)
    neighbours = rows if columns == 1 else columns
    return any(_suits_matrix_unit(neighbours, depth, tiling) for depth in (inner, kw * inner))


def _suits_matrix_unit(rows: Size, depth: int, tiling: CpuTiling) -> bool:
    """Whether a matrix unit will multiply ``rows`` neighbours of ``depth`` bytes."""
    unit = None if tiling.int8x4 is None else tiling.int8x4.unit
    return unit is not None and suits_matrix_unit(rows, depth // INT8_PER_WORD, unit)


def _is_paired(inner: int, tiling: CpuTiling) -> bool:
    """Whether two columns are multiplied at a time, of so many neighbours along K."""
    pairs = None if tiling.int8x4 is None else tiling.int8x4.row_pairs
    return pairs is not None and suits_pairs(inner // INT8_PER_WORD)


class _Words(Struct, frozen=True):
    """Packed weights, and how they are multiplied."""

    weight: Array
    is_narrow: bool = False
    is_ordered: bool = False
    is_paired: bool = False


def _orders_words(source: Expr, weight: Array, tiling: CpuTiling) -> bool:
    """Whether words of weights get an order of their own.

    One row of streamed weights is as fast as these arrive, and places of words are an eighth more
    of them (1.11 of the time). Where batches alone are open, as in the last layer of a classifier,
    one row is likely; sequences and images have several.

    Args:
        source: The data.
        weight: Of the product or convolution.
        tiling: Register tile of the machine.
    """
    if tiling.ordered is None:
        return False
    kind = tensor_type(source)
    is_streamed = weight.nbytes >= STREAMED_BYTES
    return kind.is_static or kind.rank > _MATRIX_RANK or not is_streamed


def _is_product(attrs: Int8ConvAttrs) -> bool:
    """Whether a convolution is a product of pixels, with nothing left away between them."""
    padding = [side for pair in attrs.padding for side in pair]
    return {*attrs.kernel, *attrs.strides, attrs.groups} == {1} and not any(padding)


def _words(
    source: Expr, blocks: Array, inner: int, tiling: CpuTiling, *, is_ordered: bool
) -> _Words:
    """Pack blocks of int8: four a word, in their order or as they are multiplied, or pairs.

    Args:
        source: The data.
        blocks: ``[blocks, K, width]``.
        inner: Neighbours along K in the data.
        tiling: Register tile of the machine.
        is_ordered: Whether words get an order of their own.
    """
    kind, int8x4 = tensor_type(source), tiling.int8x4
    signed = counts_signed(kind.dtype, tiling)
    if is_ordered:
        has_masks = blocks.nbytes < STREAMED_BYTES
        words = pack_ordered(blocks, signed=kind.dtype.is_signed, has_masks=has_masks)
        return _Words(words, is_ordered=True)
    if _is_paired(inner, tiling):
        return _Words(pair_columns(pack_int8x4(blocks)), is_paired=True)
    if int8x4 is None or int8x4.int16x2 is None or not kind.is_static:
        return _Words(pack_int8x4(blocks), has_narrow_pairs(blocks, 1, signed=signed))
    return _Words(pack_int8x4(blocks, DType.INT16))


def has_whole_groups(attrs: Conv.Attrs, weight: Array) -> bool:
    """Whether there are loops for the groups: one, or of whole words, or of one channel."""
    inner = weight.shape[1]
    return attrs.groups == 1 or inner % INT8_PER_WORD == 0 or is_depthwise_weight(attrs, weight)


def is_depthwise_weight(attrs: Conv.Attrs, weight: Array) -> bool:
    """Whether each channel has a window of its own."""
    outputs, inner = weight.shape[:2]
    return attrs.groups == outputs and inner == 1 and outputs > 1


def dense_of(node: Call, source: Expr, tiling: CpuTiling) -> Expr | None:
    """Return ``qnn.matmul`` of ``source`` and a constant matrix; ``None`` if it is not ours."""
    is_flipped = flipped(node, node.args[3])
    linear = None if is_flipped is None else linear_of(node, 0 if is_flipped else 1)
    if linear is None:
        return None
    total, sums = dense_sums(node, source, linear.weight, tiling, is_flipped=bool(is_flipped))
    zero = counted_zero(linear.x_zero, tensor_type(source).dtype, tiling)
    return _rescaled(node, total, linear, linear.bias - zero * sums)


def flipped(node: Call, weight: Expr) -> bool | None:
    """Whether a product's constant matrix is transposed; ``None`` if the product is not ours."""
    attrs = node.attrs
    if not isinstance(weight, Constant) or weight.data.ndim != 2:
        return None
    if not isinstance(attrs, Matmul.Attrs) or attrs.transpose_a:
        return None
    return attrs.transpose_b


def dense_sums(
    node: Call, source: Expr, weight: ByteWeight, tiling: CpuTiling, *, is_flipped: bool
) -> tuple[Expr, Array]:
    """Return sums of products with the bytes of ``source`` as they count, and of weights.

    Args:
        node: The product.
        source: Its left operand.
        weight: The matrix less its zero point.
        tiling: Register tile of the machine.
        is_flipped: Whether the matrix is transposed.
    """
    matrix = weight.bytes.T if is_flipped else weight.bytes
    total, sums = _dense_byte_sums(node, source, matrix, tiling)
    if weight.rest is None:
        return total, sums
    depth = len(matrix)
    ones, _ = _dense_byte_sums(node, source, np.ones((depth, 1), np.int8), tiling)
    total, _ = _with_rest((total, sums), (ones, sums[:1]), weight.rest, node.span)
    return total, sums + weight.rest * depth


def _dense_byte_sums(
    node: Call, source: Expr, weight: Array, tiling: CpuTiling
) -> tuple[Expr, Array]:
    matrix, signed = _padded_to_words(weight, 0), counts_signed(tensor_type(source).dtype, tiling)
    outputs, (*rows, _) = matrix.shape[1], tensor_type(source).shape
    by_unit = _suits_matrix_unit(product(rows), len(matrix), tiling)
    is_one_row = product(rows) == 1  # whose weights arrive no faster than any are multiplied
    is_paired = _is_paired(len(matrix), tiling) and not is_one_row
    width = int8x4_width(
        outputs, tiling, is_one_row=is_one_row, by_unit=by_unit, is_paired=is_paired
    )
    if is_one_row:
        is_narrow = has_narrow_pairs(matrix, 0, signed=signed)
        words = _Words(pack_int8x4(pack_dense(matrix, width)), is_narrow)
    else:
        is_ordered = _orders_words(source, matrix, tiling)
        width = tiling.lanes if is_ordered else width
        packed = pack_dense(matrix, width)
        words = _words(source, packed, len(matrix), tiling, is_ordered=is_ordered)
    attrs = Int8x4Dense.Attrs(
        outputs=outputs,
        is_narrow=words.is_narrow,
        is_ordered=words.is_ordered,
        is_paired=words.is_paired,
        signed=signed,
    )
    packed = constant(words.weight, span=node.span)
    source = padded(source, matrix.shape[0], 0)
    total = call(Int8x4Dense, source, packed, attrs=attrs, span=node.span)
    return total, matrix.astype(np.int64).sum(axis=0)


def counted_zero(zero: int, kind: DType, tiling: CpuTiling) -> int:
    """Return the zero point of bytes as they count on a machine."""
    return zero + data_offset(kind, signed=counts_signed(kind, tiling))


def counts_signed(kind: DType, tiling: CpuTiling) -> bool:
    """Whether data of a type counts as signed on a machine."""
    int8x4 = tiling.int8x4
    if int8x4 is None or not int8x4.signed:
        return False
    return kind.is_signed or int8x4.add_unsigned is None


def _padded_to_words(weight: Array, axis: int) -> Array:
    """Add zeros behind the last weight along ``axis`` up to a multiple of 4."""
    missing = -weight.shape[axis] % INT8_PER_WORD
    widths = [(0, missing if d == axis else 0) for d in range(weight.ndim)]
    return np.pad(weight, widths) if missing else weight


def padded(source: Expr, channels: int, zero: int) -> Expr:
    """Add channels behind the last one of ``source``; their weights are zeros."""
    kind = tensor_type(source)
    last = kind.shape[-1]
    assert isinstance(last, int)  # channels are counted
    missing = channels - last
    if missing == 0:
        return source
    widths = (*((0, 0),) * (kind.rank - 1), (0, missing))
    return call(Pad, source, attrs=Pad.Attrs(widths=widths, value=float(zero)), span=source.span)


def _rescaled(node: Call, total: Expr, linear: Linear, bias: Array) -> Expr:
    """Append what takes an accumulator to the result; channels are last."""
    span = node.span
    wrapped = bias.astype(np.int32)
    value = total
    if wrapped.any():
        value = call(Add, value, constant(wrapped), span=span)
    value = call(Cast, value, attrs=Cast.Attrs(dtype=DType.FLOAT32), span=span)
    value = call(Multiply, value, constant(linear.factor.astype(np.float32)), span=span)
    value = call(Round, value, span=span)
    if int(linear.y_zero):  # a byte, which a kernel that layers share may be given
        zero = call(Cast, constant(linear.y_zero), attrs=Cast.Attrs(dtype=DType.FLOAT32), span=span)
        value = call(Add, value, zero, span=span)
    return call(Cast, value, attrs=Cast.Attrs(dtype=tensor_type(node).dtype), span=span)
