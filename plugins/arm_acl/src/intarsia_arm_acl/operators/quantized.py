# SPDX-License-Identifier: Apache-2.0
"""Quantized operators: integers whose scales and zero points the library keeps with the tensors.

The library multiplies accumulators by a fixed-point number where the operators multiply by a
float32; so a result may differ by one unit in the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Code,
    Constant,
    DType,
    Expr,
    Match,
    Support,
    label_of,
    op,
    scalar,
    sizes,
    tensor_type,
)

from ..draft import AclDraft, AclQuantization, AclTensor
from .convolution import (
    accepts_conv,
    accepts_transposed,
    convolve,
    convolve_back,
    supports_conv,
    supports_transposed,
    with_height,
)
from .pooling import pool_info, reached, supports_pool
from .row import BYTES, FLOATS, AclRow

QUANTIZED = (*FLOATS, *BYTES, DType.INT32)
"""Element types of quantized tensors, their scales and zero points."""


def _quantization(scale: Expr, zero: Expr) -> AclQuantization:
    """Return constant parameters as numbers."""
    assert isinstance(scale, Constant)
    assert isinstance(zero, Constant)
    numbers = tuple(float(number) for number in scale.data.reshape(-1))
    return AclQuantization(numbers, int(zero.data.reshape(-1)[0]))


def supports_parameters(match: Match, *places: int) -> Support:
    """Ask for constant scalars at some places."""
    for place in places:
        if scalar(match.root.args[place]) is None:
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"argument {place} of {match.root.name} is no scalar known at compile time",
            )
    return Support.yes()


def quantized_value(draft: AclDraft, match: Match, place: int) -> AclTensor:
    """Return the tensor at a place; what it stands for follows it."""
    value, scale, zero = match.root.args[place : place + 3]
    tensor = draft.value(value)
    draft.quantize(tensor, _quantization(scale, zero))
    return tensor


def quantized_result(
    draft: AclDraft, match: Match, place: int, *, shape: tuple[int, ...] | None = None
) -> AclTensor:
    """Return the tensor of the result, or one of its elements under another shape.

    Its parameters are the arguments at ``place``.
    """
    type_ = tensor_type(match.root)
    result = draft.new_tensor(type_.static_shape if shape is None else shape, type_.dtype)
    draft.quantize(result, _quantization(*match.root.args[place : place + 2]))
    return result


def _supports_quantize(match: Match) -> Support:
    if tensor_type(match.root).dtype not in BYTES:
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{match.root.type} has no 8-bit elements")
    return supports_parameters(match, 1, 2)


def _lower_quantize(draft: AclDraft, match: Match) -> AclTensor:
    value = draft.value(match.root.args[0])
    result = quantized_result(draft, match, 1)
    label = label_of(match.root)
    return draft.add("NEQuantizationLayer", value, result, result=result, label=label)


def _supports_dequantize(match: Match) -> Support:
    if tensor_type(match.root.args[0]).dtype not in BYTES:
        return Support.no(
            Code.UNSUPPORTED_DTYPE, f"{match.root.args[0].type} has no 8-bit elements"
        )
    return supports_parameters(match, 1, 2)


def _lower_dequantize(draft: AclDraft, match: Match) -> AclTensor:
    value = quantized_value(draft, match, 0)
    result = draft.new_result(match)
    label = label_of(match.root)
    return draft.add("NEDequantizationLayer", value, result, result=result, label=label)


def _supports_weights(match: Match) -> Support:
    """Check data, weights and parameters of a convolution or a matrix product."""
    verdict = supports_parameters(match, 1, 2, 6, 7)
    if not verdict:
        return verdict
    for place in (3, 4, 5, 8):
        if place < len(match.root.args) and not match.is_constant(place):
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"argument {place} of {match.root.name} must be known at compile time",
            )
    data, weight = (tensor_type(match.root.args[place]).dtype for place in (0, 3))
    result = tensor_type(match.root).dtype
    if data is not result:
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{data} gives {result}, not {data}")
    zero = match.root.args[5]
    assert isinstance(zero, Constant)
    if weight is not DType.INT8 or np.any(zero.data):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "weights that are not int8 with zero points of 0"
        )
    return Support.yes()


def _supports_conv(match: Match) -> Support:
    verdict = supports_conv(match)
    return _supports_weights(match) if verdict else verdict


def _weight(draft: AclDraft, match: Match, data: np.ndarray) -> AclTensor:
    """Take in weights with a scale for each output, which are outermost."""
    scale = match.root.args[4]
    assert isinstance(scale, Constant)
    scales = np.broadcast_to(scale.data.reshape(-1), (data.shape[0],))
    tensor = draft.constant(data, per_channel=True)
    draft.quantize(tensor, AclQuantization(tuple(float(number) for number in scales)))
    return tensor


def _lower_conv(draft: AclDraft, match: Match) -> AclTensor:
    given = match.root.args[3]
    assert isinstance(given, Constant)
    data = quantized_value(draft, match, 0)
    weight = _weight(draft, match, given.data)
    bias = draft.value(match.root.args[8]) if len(match.root.args) > 8 else None
    result = quantized_result(draft, match, 6)
    return convolve(draft, match, data, weight, bias, result)


def _supports_transposed(match: Match) -> Support:
    verdict = supports_transposed(match)
    if not verdict:
        return verdict
    verdict = supports_parameters(match, 1, 2, 4, 5, 6, 7)
    if not verdict:
        return verdict
    for place in (3, 8):
        if place < len(match.root.args) and not match.is_constant(place):
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"argument {place} of {match.root.name} must be known at compile time",
            )
    dtypes = {tensor_type(expr).dtype for expr in (match.root, *match.root.args[0:4:3])}
    if len(dtypes) != 1 or not dtypes <= set(BYTES):
        names = ", ".join(sorted(dtype.value for dtype in dtypes))
        return Support.no(Code.UNSUPPORTED_DTYPE, f"data, weights and result are {names}")
    return Support.yes()


def _lower_transposed(draft: AclDraft, match: Match) -> AclTensor:
    given = match.root.args[3]
    assert isinstance(given, Constant)
    data = quantized_value(draft, match, 0)
    # The library wants output channels outermost.
    weight = draft.constant(np.swapaxes(given.data.reshape(with_height(sizes(given))), 0, 1))
    draft.quantize(weight, _quantization(*match.root.args[4:6]))
    bias = draft.value(match.root.args[8]) if len(match.root.args) > 8 else None
    result = quantized_result(draft, match, 6, shape=with_height(sizes(match.root)))
    return convolve_back(draft, match, data, weight, bias, result)


def _supports_matmul(match: Match) -> Support:
    attrs: Any = match.attrs
    if attrs.transpose_a:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "the data are transposed")
    if len(sizes(match.root.args[3])) != 2:
        return Support.no(Code.UNSUPPORTED_SHAPE, "the weights are no matrix")
    return _supports_weights(match)


def _lower_matmul(draft: AclDraft, match: Match) -> AclTensor:
    """A convolution of 1 x 1, because it takes a scale for each output."""
    attrs: Any = match.attrs
    label = label_of(match.root)
    given = match.root.args[3]
    assert isinstance(given, Constant)
    matrix = given.data if attrs.transpose_b else np.swapaxes(given.data, 0, 1)
    data = quantized_value(draft, match, 0)
    depth = data.shape[-1]
    rows = int(np.prod(data.shape[:-1], dtype=np.int64))
    data = draft.view(data, (rows, depth, 1, 1), label)
    weight = _weight(draft, match, matrix.reshape(*matrix.shape, 1, 1))
    bias = draft.value(match.root.args[8]) if len(match.root.args) > 8 else None
    result = draft.new_tensor((rows, matrix.shape[0], 1, 1), data.dtype)
    draft.quantize(result, _quantization(*match.root.args[6:8]))
    draft.add(
        "NEConvolutionLayer",
        *(data, weight, bias, result, "PadStrideInfo()"),
        result=result,
        label=label,
    )
    return draft.view(result, sizes(match.root), label)


_BINARY = {
    "qnn.add": ("NEArithmeticAddition", ("ConvertPolicy::SATURATE",)),
    "qnn.subtract": ("NEArithmeticSubtraction", ("ConvertPolicy::SATURATE",)),
    "qnn.multiply": (
        "NEPixelWiseMultiplication",
        ("1.0f", "ConvertPolicy::SATURATE", "RoundingPolicy::TO_ZERO"),
    ),
}


def _supports_binary(match: Match) -> Support:
    dtypes = {tensor_type(expr).dtype for expr in (match.root, *match.root.args[0:4:3])}
    if len(dtypes) != 1 or not dtypes <= set(BYTES):
        names = ", ".join(sorted(dtype.value for dtype in dtypes))
        return Support.no(Code.UNSUPPORTED_DTYPE, f"operands and result are {names}")
    return supports_parameters(match, 1, 2, 4, 5, 6, 7)


def _lower_binary(draft: AclDraft, match: Match) -> AclTensor:
    function, rest = _BINARY[match.root.name]
    left, right = (quantized_value(draft, match, place) for place in (0, 3))
    result = quantized_result(draft, match, 6)
    label = label_of(match.root)
    return draft.add(function, left, right, result, *rest, result=result, label=label)


def _supports_avg_pool(match: Match) -> Support:
    verdict = supports_pool(match)
    if not verdict:
        return verdict
    if tensor_type(match.root).dtype is not tensor_type(match.root.args[0]).dtype:
        return Support.no(Code.UNSUPPORTED_DTYPE, "data and result have different types")
    attrs: Any = match.attrs
    if attrs.count_include_pad and any(max(pair) for pair in reached(match.root)):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "count_include_pad")
    return supports_parameters(match, 1, 2, 3, 4)


def _lower_avg_pool(draft: AclDraft, match: Match) -> AclTensor:
    data = quantized_value(draft, match, 0)
    result = quantized_result(draft, match, 3)
    info = pool_info(match.root, "AVG", exclude_padding=True)
    label = label_of(match.root)
    return draft.add("NEPoolingLayer", data, result, info, result=result, label=label)


ROWS = (
    AclRow(
        "qnn.quantize",
        op("qnn.quantize"),
        _lower_quantize,
        _supports_quantize,
        dtypes=QUANTIZED,
        doc="to 8 bits, scalar parameters",
    ),
    AclRow(
        "qnn.dequantize",
        op("qnn.dequantize"),
        _lower_dequantize,
        _supports_dequantize,
        dtypes=QUANTIZED,
        doc="from 8 bits, scalar parameters",
    ),
    AclRow(
        "qnn.conv",
        op("qnn.conv"),
        _lower_conv,
        _supports_conv,
        dtypes=QUANTIZED,
        validates=accepts_conv,
        doc="as nn.conv; int8 weights around 0, one scale or one for each channel",
    ),
    AclRow(
        "qnn.conv_transpose",
        op("qnn.conv_transpose"),
        _lower_transposed,
        _supports_transposed,
        dtypes=QUANTIZED,
        validates=accepts_transposed,
        doc="as nn.conv_transpose; data, weights and result of one 8-bit type, scalar parameters",
    ),
    AclRow(
        "qnn.matmul",
        op("qnn.matmul"),
        _lower_matmul,
        _supports_matmul,
        dtypes=QUANTIZED,
        doc="a constant matrix of int8 weights around 0, one scale or one for each output",
    ),
    *(
        AclRow(
            name,
            op(name),
            _lower_binary,
            _supports_binary,
            dtypes=QUANTIZED,
            doc="operands and result of one 8-bit type",
        )
        for name in _BINARY
    ),
    AclRow(
        "qnn.avg_pool",
        op("qnn.avg_pool"),
        _lower_avg_pool,
        _supports_avg_pool,
        dtypes=QUANTIZED,
        doc="as nn.avg_pool, without counting padding",
    ),
)
