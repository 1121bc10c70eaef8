# SPDX-License-Identifier: Apache-2.0
"""Quantized operators, as quantize and dequantize layers that the library fuses.

Its 8-bit integers are signed and symmetric, and only weights have a scale for each channel. Where
all zero points are 0, it may compute in 8 bits. Another zero point is added in layers of float32,
which the library does not fuse: such an operator computes in float32, as it is defined.
"""

from __future__ import annotations

import math
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Constant,
    DType,
    Expr,
    Support,
    operator_row,
    sizes,
    tensor_type,
)

from ..draft import NetworkDraft, Quantized, Tensor
from .convolution import convolve_back, supports_transposed, two, with_height
from .elementwise import clip
from .linear import product
from .normalization import layer_norm, softmax
from .pooling import pool, supports_pool
from .row import BYTES, FLOATS, Lower, NetworkRow, Supports, attribute, shape

_FLOAT = (DType.FLOAT32,)


def _data(expr: Expr) -> np.ndarray:
    assert isinstance(expr, Constant)  # the row asks for it
    return expr.data


def _single(call: Call, scales: tuple[int, ...]) -> Support:
    """Refuse scales that are not one positive number with one zero point, the next argument."""
    for index in scales:
        if any(_data(call.args[at]).size != 1 for at in (index, index + 1)):
            return attribute(f"argument {index} of {call.name} is not one scale")
        if not (_data(call.args[index]) > 0).all():
            return attribute("a scale that is not positive")
    return Support.yes()


def _zero(zero: np.ndarray) -> int:
    """Return a zero point of the int8 elements that stand for it."""
    return int(zero.reshape(-1)[0]) - (128 if zero.dtype == np.uint8 else 0)


def _whole(draft: NetworkDraft, x: Tensor, zero: int) -> Tensor:
    """Return 8-bit integers less their zero point, as float32."""
    levels = draft.cast(x, DType.FLOAT32)
    return draft.binary(levels, draft.number(-zero, levels), "SUM")


def _placed(draft: NetworkDraft, x: Tensor, zero: int) -> Tensor:
    """Round to whole numbers, then add a zero point: ties are even before it."""
    whole = draft.unary(x, "ROUND")
    return draft.stored(draft.binary(whole, draft.number(zero, whole), "SUM"))


def dequantize(draft: NetworkDraft, x: Tensor, scale: Expr, zero: Expr) -> Tensor:
    """Return what 8-bit integers stand for, in float32."""
    by, at = _data(scale).reshape(()).astype(np.float32), _zero(_data(zero))
    if at:
        whole = _whole(draft, x, at)
        return draft.binary(whole, draft.number(float(by), whole), "PROD")
    factor = draft.constant(by, DType.FLOAT32)
    return draft.output_of(draft.network.add_dequantize(x, factor, draft.type_of(DType.FLOAT32)))


def quantize(draft: NetworkDraft, x: Tensor, scale: Expr, zero: Expr) -> Tensor:
    """Return float32 numbers as 8-bit integers; a zero point is added to what is rounded."""
    by, at = _data(scale).reshape(()).astype(np.float32), _zero(_data(zero))
    if at:
        stored = _placed(draft, draft.binary(x, draft.number(float(by), x), "DIV"), at)
    else:
        factor = draft.constant(by, DType.FLOAT32)
        layer = draft.network.add_quantize(x, factor, draft.type_of(DType.INT8))
        stored = draft.output_of(layer)
    draft.quantized[stored.name] = Quantized(x, scale, zero)
    return stored


def _supports_clip(call: Call) -> Support:
    attrs: Any = call.attrs
    if tensor_type(call).dtype not in BYTES:
        return Support.yes()
    if any(math.isfinite(limit) and limit != int(limit) for limit in (attrs.min, attrs.max)):
        return attribute(f"limits {attrs.min} and {attrs.max} of integers")
    return Support.yes()


def _lower_clip(draft: NetworkDraft, call: Call) -> Tensor:
    """Limit numbers; 8-bit integers as what they stand for, where a layer in front made them.

    The library fuses a convolution with the activation behind it, and not with a limit on integers:
    rounding keeps the order, so the real number may be limited before it is rounded.
    """
    attrs: Any = call.attrs
    value = draft.value(call.args[0])
    dtype = tensor_type(call).dtype
    if dtype not in BYTES:
        return clip(draft, value, attrs.min, attrs.max)
    shift = 128.0 if dtype is DType.UINT8 else 0.0
    low, high = attrs.min - shift, attrs.max - shift
    made = draft.quantized.get(value.name)
    if made is None:
        levels = draft.cast(value, DType.FLOAT32)
        return draft.stored(clip(draft, levels, low, high))
    by, at = float(_data(made.scale).reshape(())), _zero(_data(made.zero))
    real = clip(draft, made.real, (low - at) * by, (high - at) * by)
    return quantize(draft, real, made.scale, made.zero)


def _operand(draft: NetworkDraft, call: Call, place: int) -> Tensor:
    """Return what an operand with a scale and a zero point behind it stands for."""
    value, scale, zero = call.args[place : place + 3]
    if isinstance(value, Constant):
        numbers = (value.data.astype(np.int32) - _data(zero).astype(np.int32)) * _data(scale)
        return draft.constant(numbers.astype(np.float32), DType.FLOAT32)
    return dequantize(draft, draft.value(call.args[place]), scale, zero)


def _real_weight(call: Call, axis: int) -> np.ndarray:
    """Return constant weights as real numbers."""
    stored, scale, zero = (_data(call.args[index]) for index in (3, 4, 5))
    along = [-1 if d == axis else 1 for d in range(stored.ndim)]
    by, at = (part.reshape(along) if part.size > 1 else part.reshape(()) for part in (scale, zero))
    return ((stored.astype(np.int32) - at.astype(np.int32)) * by).astype(np.float32)


def _weight(draft: NetworkDraft, call: Call, axis: int) -> Tensor:
    """Return constant weights through a dequantize layer, or as real ones if that cannot be."""
    stored, scale, zero = (_data(call.args[index]) for index in (3, 4, 5))
    if zero.any() or stored.dtype == np.uint8:
        real = _real_weight(call, axis)
        return draft.constant(real.reshape(with_height(real.shape)), DType.FLOAT32)
    flat = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
    factor = draft.constant(flat.astype(np.float32), DType.FLOAT32)
    given = draft.constant(stored.reshape(with_height(stored.shape)))
    layer = draft.network.add_dequantize(given, factor, draft.type_of(DType.FLOAT32))
    if layer is not None and flat.ndim:
        layer.axis = axis
    return draft.output_of(layer)


class Single(Struct, frozen=True):
    """Where an operator has scales that must be single, each before its zero point."""

    scales: tuple[int, ...]

    def supports(self, call: Call) -> Support:
        """Check them."""
        return _single(call, self.scales)


def _lower_quantize(draft: NetworkDraft, call: Call) -> Tensor:
    return quantize(draft, draft.exact(call.args[0]), *call.args[1:3])


def _lower_dequantize(draft: NetworkDraft, call: Call) -> Tensor:
    return _operand(draft, call, 0)


def _lower_requantize(draft: NetworkDraft, call: Call) -> Tensor:
    return quantize(draft, _operand(draft, call, 0), *call.args[3:5])


_LINEAR_SCALES = (1, 6)


def _supports_conv(call: Call) -> Support:
    rank = len(sizes(call))
    if not 3 <= rank <= 5:
        return shape(f"{rank - 2} spatial dimensions (1 to 3 are taken)")
    return _supports_linear(call)


def _supports_linear(call: Call) -> Support:
    verdict = _single(call, _LINEAR_SCALES)
    if verdict and not (_data(call.args[4]) > 0).all():
        return attribute("a scale that is not positive")
    return verdict


def _real_bias(call: Call) -> np.ndarray | None:
    """Return the bias as real numbers: it is stored in units of both scales."""
    if len(call.args) < 9:
        return None
    unit = _data(call.args[1]).reshape(()) * _data(call.args[4])
    return (_data(call.args[8]).astype(np.float64) * unit).astype(np.float32)


def _lower_conv(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    data = draft.value(call.args[0])
    data = draft.reshape(data, with_height(draft.shape_of(data)))
    real = dequantize(draft, data, *call.args[1:3])
    weight = _weight(draft, call, 0)
    shape = draft.shape_of(weight)
    bias, none = _real_bias(call), draft.trt.Weights(draft.type_of(DType.FLOAT32))
    layer = draft.network.add_convolution_nd(
        real,
        shape[0],
        shape[2:],
        none,
        none if bias is None else draft.weights(bias, DType.FLOAT32),
    )
    if layer is None:
        raise draft.refused()
    layer.set_input(1, weight)
    layer.stride_nd, layer.num_groups = two(attrs.strides, 1), attrs.groups
    layer.dilation_nd = two(attrs.dilation, 1)
    layer.pre_padding = two(tuple(low for low, _ in attrs.padding), 0)
    layer.post_padding = two(tuple(high for _, high in attrs.padding), 0)
    result = quantize(draft, draft.output_of(layer), *call.args[6:8])
    return draft.reshape(result, sizes(call))


def _supports_matmul(call: Call) -> Support:
    single = all(_data(call.args[index]).size == 1 for index in (4, 5))
    if not single and not (isinstance(call.args[3], Constant) and len(sizes(call.args[3])) == 2):
        return attribute("a scale for each column of what is no constant matrix")
    return _supports_linear(call)


def _lower_matmul(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    left = _operand(draft, call, 0)
    axis = 0 if attrs.transpose_b else 1
    if isinstance(call.args[3], Constant) and len(sizes(call.args[3])) == 2:
        right = _weight(draft, call, axis)
    else:
        right = _operand(draft, call, 3)
    result = product(draft, left, right, attrs)
    bias = _real_bias(call)
    if bias is not None:
        result = draft.binary(result, draft.constant(bias, DType.FLOAT32), "SUM")
    return quantize(draft, result, *call.args[6:8])


class QuantizedElementwise(Struct, frozen=True):
    """One ``ElementWiseOperation`` of the real numbers."""

    operation: str

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Dequantize both, apply it, quantize."""
        a, b = (_operand(draft, call, place) for place in (0, 3))
        return quantize(draft, draft.binary(a, b, self.operation), *call.args[6:8])


_BINARY = MappingProxyType({"qnn.add": "SUM", "qnn.subtract": "SUB", "qnn.multiply": "PROD"})


def _supports_mean(call: Call) -> Support:
    attrs: Any = call.attrs
    if not attrs.axes:
        return attribute("no axes: nothing is reduced")
    return _single(call, (1, 3))


def _lower_mean(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    axes: tuple[int, ...] = attrs.axes
    if not _has_zeros(call):
        mean = draft.reduce(_operand(draft, call, 0), "AVG", axes, keep=attrs.keepdims)
        return quantize(draft, mean, *call.args[3:5])
    whole = _whole(draft, draft.value(call.args[0]), _zero(_data(call.args[2])))
    total = draft.reduce(whole, "SUM", axes, keep=attrs.keepdims)
    count = np.float32(prod(sizes(call.args[0])[axis] for axis in axes))
    return _averaged(draft, call, total, count)


def _has_zeros(call: Call) -> bool:
    """Whether a mean is of or to integers with a zero point."""
    return any(_zero(_data(call.args[index])) for index in (2, 4))


def _averaged(draft: NetworkDraft, call: Call, x: Tensor, count: np.float32) -> Tensor:
    """Bring whole numbers, or sums of ``count`` of them, to the result's scale at once."""
    scale, new = (_data(call.args[index]).reshape(()).astype(np.float32) for index in (1, 3))
    factor = draft.number(float(scale / (new * count)), x)
    return _placed(draft, draft.binary(x, factor, "PROD"), _zero(_data(call.args[4])))


def _supports_avg_pool(call: Call) -> Support:
    verdict = supports_pool(call)
    return _single(call, (1, 3)) if verdict else verdict


def _lower_avg_pool(draft: NetworkDraft, call: Call) -> Tensor:
    if not _has_zeros(call):
        return quantize(draft, pool(draft, call, _operand(draft, call, 0)), *call.args[3:5])
    whole = _whole(draft, draft.value(call.args[0]), _zero(_data(call.args[2])))
    return _averaged(draft, call, pool(draft, call, whole), np.float32(1))


def _supports_transposed(call: Call) -> Support:
    verdict = supports_transposed(call)
    return _supports_linear(call) if verdict else verdict


def _lower_transposed(draft: NetworkDraft, call: Call) -> Tensor:
    """Weights of a transposed convolution cannot come from a layer: they are real numbers."""
    real = _real_weight(call, 1)
    bias = _real_bias(call)
    none = draft.trt.Weights(draft.type_of(DType.FLOAT32))
    kernel = with_height(real.shape)[2:]
    given = draft.weights(real, DType.FLOAT32)
    parts = (kernel, given, none if bias is None else draft.weights(bias, DType.FLOAT32))
    result = convolve_back(draft, call, _operand(draft, call, 0), parts)
    return quantize(draft, result, *call.args[6:8])


def _lower_softmax(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    result = softmax(draft, _operand(draft, call, 0), attrs.axis)
    return quantize(draft, result, *call.args[3:5])


def _lower_layer_norm(draft: NetworkDraft, call: Call) -> Tensor:
    affine = [draft.exact(v) for v in call.args[5:]]
    result = layer_norm(draft, call, _operand(draft, call, 0), affine)
    return quantize(draft, result, *call.args[3:5])


_ONE = "one scale"
_EIGHT = (1, 2, 4, 5, 6, 7)
_LINEAR = (*_FLOAT, DType.INT32)
_NO_SUMS = "the library gives no 32-bit sums of 8-bit products"


def _row(
    name: str, lower: Lower, supports: Supports, constant: tuple[int, ...], limits: str
) -> NetworkRow:
    return operator_row(
        name, lower, supports, others=_LINEAR, constant=constant, dtypes=BYTES, doc=limits
    )


ROWS = (
    operator_row(
        "qnn.quantize",
        _lower_quantize,
        Single((1,)).supports,
        others=BYTES,
        constant=(1, 2),
        dtypes=_FLOAT,
        doc=_ONE,
    ),
    _row("qnn.dequantize", _lower_dequantize, Single((1,)).supports, (1, 2), _ONE),
    _row("qnn.requantize", _lower_requantize, Single((1, 3)).supports, (1, 2, 3, 4), _ONE),
    _row("qnn.conv", _lower_conv, _supports_conv, (*_EIGHT, 3, 8), "as nn.conv"),
    _row(
        "qnn.conv_transpose",
        _lower_transposed,
        _supports_transposed,
        (*_EIGHT, 3, 8),
        "as nn.conv_transpose",
    ),
    _row("qnn.matmul", _lower_matmul, _supports_matmul, (*_EIGHT, 8), ""),
    *(
        _row(name, QuantizedElementwise(operation).lower, Single((1, 4, 6)).supports, _EIGHT, "")
        for name, operation in _BINARY.items()
    ),
    _row("qnn.mean", _lower_mean, _supports_mean, (1, 2, 3, 4), "at least one axis"),
    _row("qnn.avg_pool", _lower_avg_pool, _supports_avg_pool, (1, 2, 3, 4), "as nn.avg_pool"),
    _row("qnn.softmax", _lower_softmax, Single((1, 3)).supports, (1, 2, 3, 4), ""),
    _row("qnn.layer_norm", _lower_layer_norm, Single((1, 3)).supports, (1, 2, 3, 4), ""),
    operator_row(
        "clip",
        _lower_clip,
        _supports_clip,
        dtypes=(*FLOATS, *BYTES),
        doc="whole limits of 8-bit integers",
    ),
    NetworkRow.refused("qnn.conv_integer", _NO_SUMS),
    NetworkRow.refused("qnn.matmul_integer", _NO_SUMS),
)
