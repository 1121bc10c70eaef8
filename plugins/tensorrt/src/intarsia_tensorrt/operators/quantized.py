# SPDX-License-Identifier: Apache-2.0
"""Quantised operators, as quantise and dequantise layers that the library fuses.

Its 8-bit integers are signed and symmetric: zero points are 0, and only weights have a scale for
each channel. Everything between the two layers is float32, as the operators are defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr
from intarsia.partition.support import Support

from ..draft import Draft, Tensor, sizes
from .convolution import two, with_height
from .linear import product
from .pooling import pool, supports_pool
from .row import INT8, Row, attribute, never, shape

_FLOAT = (DType.FLOAT32,)


def _data(expr: Expr) -> np.ndarray:
    assert isinstance(expr, Constant)  # the row asks for it
    return expr.data


def _symmetric(call: Call, zeros: tuple[int, ...], scales: tuple[int, ...]) -> Support:
    """Refuse zero points that are not 0, and scales that are not one positive number."""
    for index in zeros:
        points = _data(call.args[index])
        if points.any():
            return attribute(f"a zero point of {points[points != 0].flat[0]}, only 0 is taken")
    for index in scales:
        if _data(call.args[index]).size != 1:
            return attribute(f"argument {index} of {call.name} is not one scale")
    if any(not (_data(call.args[index]) > 0).all() for index in scales):
        return attribute("a scale that is not positive")
    return Support.yes()


def dequantize(draft: Draft, x: Tensor, scale: np.ndarray, axis: int | None = None) -> Tensor:
    """Return what 8-bit integers stand for, in float32; ``axis`` has a scale for each element."""
    flat = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
    by = draft.constant(flat.astype(np.float32), DType.FLOAT32)
    layer = draft.network.add_dequantize(x, by, draft.type_of(DType.FLOAT32))
    return _along(draft, layer, flat, axis)


def quantize(draft: Draft, x: Tensor, scale: np.ndarray) -> Tensor:
    """Return float32 numbers as 8-bit integers."""
    by = draft.constant(scale.reshape(()).astype(np.float32), DType.FLOAT32)
    layer = draft.network.add_quantize(x, by, draft.type_of(DType.INT8))
    return _along(draft, layer, by, None)


def _along(draft: Draft, layer: Any, scale: Any, axis: int | None) -> Tensor:
    if layer is None:
        raise draft.refused()
    if axis is not None and np.ndim(scale):
        layer.axis = axis
    return draft.finish(layer)


@dataclass(frozen=True, slots=True)
class Symmetric:
    """Where an operator has zero points that must be 0, and scales that must be single."""

    zeros: tuple[int, ...]
    scales: tuple[int, ...]

    def supports(self, call: Call) -> Support:
        """Check them."""
        return _symmetric(call, self.zeros, self.scales)


def _lower_quantize(draft: Draft, call: Call) -> Tensor:
    return quantize(draft, draft.exact(call.args[0]), _data(call.args[1]))


def _lower_dequantize(draft: Draft, call: Call) -> Tensor:
    return dequantize(draft, draft.value(call.args[0]), _data(call.args[1]))


def _lower_requantize(draft: Draft, call: Call) -> Tensor:
    real = dequantize(draft, draft.value(call.args[0]), _data(call.args[1]))
    return quantize(draft, real, _data(call.args[3]))


_CONV_ZEROS, _LINEAR_SCALES = (2, 5, 7), (1, 6)


def _supports_conv(call: Call) -> Support:
    rank = len(sizes(call))
    if not 3 <= rank <= 5:
        return shape(f"{rank - 2} spatial dimensions (1 to 3 are taken)")
    return _supports_linear(call)


def _supports_linear(call: Call) -> Support:
    verdict = _symmetric(call, _CONV_ZEROS, _LINEAR_SCALES)
    if verdict and not (_data(call.args[4]) > 0).all():
        return attribute("a scale that is not positive")
    return verdict


def _real_bias(call: Call) -> np.ndarray | None:
    """Return the bias as real numbers: it is stored in units of both scales."""
    if len(call.args) < 9:
        return None
    unit = _data(call.args[1]).reshape(()) * _data(call.args[4])
    return (_data(call.args[8]).astype(np.float64) * unit).astype(np.float32)


def _lower_conv(draft: Draft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    data = draft.value(call.args[0])
    data = draft.reshape(data, with_height(draft.shape_of(data)))
    real = dequantize(draft, data, _data(call.args[1]))
    stored = _data(call.args[3])
    stored = stored.reshape(with_height(stored.shape))
    weight = dequantize(draft, draft.constant(stored), _data(call.args[4]), 0)
    bias, none = _real_bias(call), draft.trt.Weights(draft.type_of(DType.FLOAT32))
    layer = draft.network.add_convolution_nd(
        real,
        stored.shape[0],
        stored.shape[2:],
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
    result = quantize(draft, draft.finish(layer), _data(call.args[6]))
    return draft.reshape(result, sizes(call))


def _supports_matmul(call: Call) -> Support:
    if len(sizes(call.args[3])) != 2 and _data(call.args[4]).size > 1:
        return attribute("a scale for each column of several matrices")
    return _supports_linear(call)


def _lower_matmul(draft: Draft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    left = dequantize(draft, draft.value(call.args[0]), _data(call.args[1]))
    axis = 0 if attrs.transpose_b else 1
    right = dequantize(draft, draft.value(call.args[3]), _data(call.args[4]), axis)
    result = product(draft, left, right, attrs)
    bias = _real_bias(call)
    if bias is not None:
        result = draft.binary(result, draft.constant(bias, DType.FLOAT32), "SUM")
    return quantize(draft, result, _data(call.args[6]))


@dataclass(frozen=True, slots=True)
class Binary:
    """One ``ElementWiseOperation`` of the real numbers."""

    operation: str

    def lower(self, draft: Draft, call: Call) -> Tensor:
        """Dequantise both, apply it, quantise."""
        a, b = (
            dequantize(draft, draft.value(call.args[at]), _data(call.args[at + 1])) for at in (0, 3)
        )
        return quantize(draft, draft.binary(a, b, self.operation), _data(call.args[6]))


_BINARY = MappingProxyType({"qnn.add": "SUM", "qnn.subtract": "SUB", "qnn.multiply": "PROD"})


def _supports_mean(call: Call) -> Support:
    attrs: Any = call.attrs
    if not attrs.axes:
        return attribute("no axes: nothing is reduced")
    return _symmetric(call, (2, 4), (1, 3))


def _lower_mean(draft: Draft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    real = dequantize(draft, draft.value(call.args[0]), _data(call.args[1]))
    mean = draft.reduce(real, "AVG", attrs.axes, keep=attrs.keepdims)
    return quantize(draft, mean, _data(call.args[3]))


def _supports_avg_pool(call: Call) -> Support:
    verdict = supports_pool(call)
    return _symmetric(call, (2, 4), (1, 3)) if verdict else verdict


def _lower_avg_pool(draft: Draft, call: Call) -> Tensor:
    real = dequantize(draft, draft.value(call.args[0]), _data(call.args[1]))
    return quantize(draft, pool(draft, call, real), _data(call.args[3]))


_WORDS = "zero points of 0"
_EIGHT = (1, 2, 4, 5, 6, 7)

ROWS = (
    Row(
        "qnn.quantize",
        _lower_quantize,
        Symmetric((2,), (1,)).supports,
        _FLOAT,
        others=INT8,
        constant=(1, 2),
        limits=f"{_WORDS}; one scale",
    ),
    Row(
        "qnn.dequantize",
        _lower_dequantize,
        Symmetric((2,), (1,)).supports,
        INT8,
        others=_FLOAT,
        constant=(1, 2),
        limits=f"{_WORDS}; one scale",
    ),
    Row(
        "qnn.requantize",
        _lower_requantize,
        Symmetric((2, 4), (1, 3)).supports,
        INT8,
        others=_FLOAT,
        constant=(1, 2, 3, 4),
        limits=f"{_WORDS}; one scale",
    ),
    Row(
        "qnn.conv",
        _lower_conv,
        _supports_conv,
        INT8,
        others=(*_FLOAT, DType.INT32),
        constant=(*_EIGHT, 3, 8),
        limits=f"{_WORDS}; as nn.conv",
    ),
    Row(
        "qnn.matmul",
        _lower_matmul,
        _supports_matmul,
        INT8,
        others=(*_FLOAT, DType.INT32),
        constant=(*_EIGHT, 8),
        limits=_WORDS,
    ),
    *(
        Row(
            name,
            Binary(operation).lower,
            Symmetric((2, 5, 7), (1, 4, 6)).supports,
            INT8,
            others=_FLOAT,
            constant=_EIGHT,
            limits=_WORDS,
        )
        for name, operation in _BINARY.items()
    ),
    Row(
        "qnn.mean",
        _lower_mean,
        _supports_mean,
        INT8,
        others=_FLOAT,
        constant=(1, 2, 3, 4),
        limits=f"{_WORDS}; at least one axis",
    ),
    Row(
        "qnn.avg_pool",
        _lower_avg_pool,
        _supports_avg_pool,
        INT8,
        others=_FLOAT,
        constant=(1, 2, 3, 4),
        limits=f"{_WORDS}; as nn.avg_pool",
    ),
    never("qnn.conv_integer", "the library gives no 32-bit sums of 8-bit products"),
    never("qnn.matmul_integer", "the library gives no 32-bit sums of 8-bit products"),
)
