# SPDX-License-Identifier: Apache-2.0
"""The library's own network object, read back layer by layer and evaluated with NumPy.

Knows nothing of how the plugin writes networks: what a layer computes is read from its attributes,
by the library's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from intarsia_ir.ops.arrays import erf, sigmoid, softplus

from .resampling import resized
from .windows import convolve, deconvolve, pooled

Array = np.ndarray
DTYPES = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


def evaluate(trt: Any, network: Any, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of a network."""
    values: dict[str, Array] = {}
    for number, array in enumerate(inputs):
        tensor = network.get_input(number)
        assert fits(tuple(tensor.shape), array.shape)
        assert DTYPES[tensor.dtype.name] == array.dtype
        values[tensor.name] = array
    reader = Reader(trt)
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        args = [_value(values, layer, n) for n in range(layer.num_inputs)]
        with np.errstate(all="ignore"):
            for n, result in enumerate(reader.compute(layer, args)):
                tensor = layer.get_output(n)
                assert fits(tuple(tensor.shape), result.shape), f"{layer.name}: {result.shape}"
                values[tensor.name] = np.asarray(result).astype(DTYPES[tensor.dtype.name])
    return [values[network.get_output(n).name] for n in range(network.num_outputs)]


def _value(values: dict[str, Array], layer: Any, number: int) -> Array | None:
    tensor = layer.get_input(number)
    return None if tensor is None else values[tensor.name]


def fits(shape: tuple[int, ...], found: tuple[int, ...]) -> bool:
    """Whether a shape is that of a tensor; -1 is any size."""
    return len(shape) == len(found) and all(a in (-1, b) for a, b in zip(shape, found, strict=True))


def wide(x: Array) -> Array:
    """Return floats as float32, others as they are."""
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x


class Reader:
    """Evaluates single layers.

    Args:
        trt: The vendor's module.
    """

    def __init__(self, trt: Any) -> None:
        self._trt = trt

    def compute(self, layer: Any, args: list[Array | None]) -> list[Array]:
        """Return the results of a layer."""
        kind = layer.type.name
        layer.__class__ = vars(self._trt)[_CLASSES[kind]]
        present = [wide(arg) for arg in args if arg is not None]
        if kind in ("SLICE", "RESIZE"):  # a shape may come as an input
            at = 2 if kind == "SLICE" else 1
            given = args[at] if len(args) > at else None
            shape = tuple(layer.shape if given is None else given.tolist())
            return _LAYERS[kind](layer, shape, *present)
        return _LAYERS[kind](layer, *present)


def _constant(layer: Any) -> list[Array]:
    return [_array(layer.weights).reshape(tuple(layer.shape))]


def _array(given: Any) -> Array:
    """Return weights as an array; those that NumPy has no type for come as another object."""
    if isinstance(given, np.ndarray):
        return given
    assert given.size == 0
    return np.zeros(0, np.float32)


def _weights(given: Any, kernel: Sequence[int], outputs: int) -> Array:
    return wide(given).reshape(outputs, -1, *kernel)


def _bias(layer: Any) -> Array:
    return wide(_array(layer.bias)).reshape(-1)


def _half_weights(layer: Any, args: Sequence[Array]) -> tuple[Array, Array]:
    """Kernel and bias, which come as attributes or as inputs."""
    return (args[0] if args else _array(layer.kernel)), _bias(layer)


def _convolution(layer: Any, x: Array, *rest: Array) -> list[Array]:
    assert layer.padding_mode.name == "EXPLICIT_ROUND_DOWN"
    given, bias = _half_weights(layer, rest)
    kernel = _weights(given, tuple(layer.kernel_size_nd), layer.num_output_maps)
    pads = list(zip(layer.pre_padding, layer.post_padding, strict=True))
    settings = (tuple(layer.stride_nd), pads, tuple(layer.dilation_nd), layer.num_groups)
    return [convolve(x, kernel, bias, *settings)]


def _deconvolution(layer: Any, x: Array, *rest: Array) -> list[Array]:
    assert layer.padding_mode.name == "EXPLICIT_ROUND_DOWN"
    given, bias = _half_weights(layer, rest)
    inner = layer.num_output_maps // layer.num_groups
    kernel = wide(given).reshape(x.shape[1], inner, *tuple(layer.kernel_size_nd))
    pads = list(zip(layer.pre_padding, layer.post_padding, strict=True))
    settings = (tuple(layer.stride_nd), pads, tuple(layer.dilation_nd), layer.num_groups)
    return [deconvolve(x, kernel, bias, *settings)]


def _pooling(layer: Any, x: Array) -> list[Array]:
    assert layer.padding_mode.name == "EXPLICIT_ROUND_DOWN"
    kind = layer.__class__.type.fget(layer).name
    pads = list(zip(layer.pre_padding, layer.post_padding, strict=True))
    excludes = kind != "AVERAGE" or layer.average_count_excludes_padding
    assert excludes or pads == [(0, 0)] * len(pads)
    return [pooled(x, kind, tuple(layer.window_size_nd), tuple(layer.stride_nd), pads)]


_UNARY: dict[str, Callable[[Array], Array]] = {
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RECIP": lambda x: 1 / x,
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "ASINH": np.arcsinh,
    "ACOSH": np.arccosh,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ERF": erf,
    "NOT": np.logical_not,
    "SIGN": np.sign,
    "ROUND": np.rint,
    "ISINF": np.isinf,
    "ISNAN": np.isnan,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": np.divide,
    "POW": np.power,
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}


def _operation(layer: Any) -> str:
    return layer.op.name


def _unary(layer: Any, x: Array) -> list[Array]:
    return [_UNARY[_operation(layer)](x)]


def _elementwise(layer: Any, a: Array, b: Array) -> list[Array]:
    assert a.ndim == b.ndim
    return [_BINARY[_operation(layer)](a, b)]


def _activation(layer: Any, x: Array) -> list[Array]:
    kind = layer.__class__.type.fget(layer).name
    return [_activated(kind, x, np.float32(layer.alpha), np.float32(layer.beta))]


def _activated(kind: str, x: Array, alpha: Any, beta: Any) -> Array:
    below = np.expm1(np.minimum(x, 0))
    match kind:
        case "RELU":
            return np.maximum(x, 0)
        case "SIGMOID":
            return sigmoid(x)
        case "TANH":
            return np.tanh(x)
        case "LEAKY_RELU":
            return np.where(x >= 0, x, alpha * x)
        case "ELU":
            return np.where(x >= 0, x, alpha * below)
        case "SELU":
            return beta * np.where(x > 0, x, alpha * below)
        case "SOFTSIGN":
            return x / (1 + np.abs(x))
        case "SOFTPLUS":
            return alpha * softplus(beta * x)
        case "CLIP":
            return np.minimum(np.maximum(x, alpha), beta)
        case "HARD_SIGMOID":
            return np.clip(alpha * x + beta, 0, 1)
        case "THRESHOLDED_RELU":
            return np.where(x > alpha, x, 0)
        case "GELU_ERF":
            return 0.5 * x * (1 + erf(x * np.float32(np.sqrt(0.5))))
        case "GELU_TANH":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        case _:
            raise AssertionError(f"no activation {kind}")


def _axes(bits: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(8) if bits >> axis & 1)


def _reduce(layer: Any, x: Array) -> list[Array]:
    functions = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}
    function = functions[_operation(layer)]
    return [np.asarray(function(x, axis=_axes(layer.axes), keepdims=layer.keep_dims))]


def _topk(layer: Any, x: Array) -> list[Array]:
    assert layer.k == 1
    (axis,) = _axes(layer.axes)
    search = np.argmax if _operation(layer) == "MAX" else np.argmin
    found = search(x, axis=axis, keepdims=True)
    return [np.take_along_axis(x, found, axis), found]


def _softmax(layer: Any, x: Array) -> list[Array]:
    (axis,) = _axes(layer.axes)
    grown = np.exp(x - np.max(x, axis, keepdims=True))
    return [grown / np.sum(grown, axis, keepdims=True)]


def _matrix_multiply(layer: Any, a: Array, b: Array) -> list[Array]:
    assert a.ndim == b.ndim
    sides = [(a, layer.op0), (b, layer.op1)]
    left, right = (np.swapaxes(x, -1, -2) if o.name == "TRANSPOSE" else x for x, o in sides)
    return [np.matmul(left, right)]


def _shuffle(layer: Any, x: Array) -> list[Array]:
    rank = x.ndim
    moved = x.transpose(tuple(layer.first_transpose)[:rank]) if rank else x
    dims = tuple(layer.get_output(0).shape)
    return [np.ascontiguousarray(moved).reshape(dims)]


def _slice(layer: Any, shape: tuple[int, ...], x: Array, *more: Array) -> list[Array]:
    start, stride = tuple(layer.start), tuple(layer.stride)
    mode = layer.mode.name
    outside = np.zeros(shape, bool)
    places: list[Array] = []
    for axis, (first, count, step, n) in enumerate(zip(start, shape, stride, x.shape, strict=True)):
        place = first + step * np.arange(count)
        out = (place < 0) | (place >= n)
        assert mode != "STRICT_BOUNDS" or not out.any()
        column = [-1 if d == axis else 1 for d in range(len(shape))]
        outside |= out.reshape(column)
        places.append(_sampled(mode, place, n))
    picked = x[np.ix_(*places)]
    return [np.where(outside, more[-1], picked) if mode == "FILL" else picked]


def _sampled(mode: str, place: Array, n: int) -> Array:
    if mode == "WRAP":
        return place % n
    if mode == "REFLECT":
        period = max(2 * (n - 1), 1)
        folded = place % period
        return np.minimum(folded, period - folded) if n > 1 else np.zeros_like(place)
    return np.clip(place, 0, n - 1)


def _concatenation(layer: Any, *xs: Array) -> list[Array]:
    return [np.concatenate(xs, layer.axis)]


def _gather(layer: Any, x: Array, indices: Array) -> list[Array]:
    mode, axis, batch = layer.mode.name, layer.axis, layer.num_elementwise_dims
    assert indices.min() >= 0
    match mode:
        case "DEFAULT":
            assert batch == 0
            return [np.take(x, indices, axis)]
        case "ELEMENT":
            return [np.take_along_axis(x, indices, axis)]
        case _:
            depth = indices.shape[-1]
            outer = np.indices(indices.shape[:-1], sparse=True)[:batch]
            return [x[(*outer, *(indices[..., k] for k in range(depth)))]]


def _normalization(layer: Any, x: Array, scale: Array, bias: Array) -> list[Array]:
    assert layer.num_groups == 1
    axes = _axes(layer.axes)
    centred = x - np.mean(x, axes, keepdims=True)
    square = np.mean(centred * centred, axes, keepdims=True)
    return [centred / np.sqrt(square + np.float32(layer.epsilon)) * scale + bias]


def _scale(layer: Any, x: Array) -> list[Array]:
    assert layer.mode.name == "CHANNEL"
    assert layer.channel_axis == 1
    column = (-1, *[1] * (x.ndim - 2))
    shift, scale = (wide(_array(v)).reshape(column) for v in (layer.shift, layer.scale))
    assert _array(layer.power).size == 0
    return [x * scale + shift]


def _lrn(layer: Any, x: Array) -> list[Array]:
    half = layer.window_size // 2
    squares = np.pad(x * x, [(0, 0), (half, half), (0, 0), (0, 0)])
    total = sum(squares[:, k : k + x.shape[1]] for k in range(layer.window_size))
    scaled = np.float32(layer.alpha) / layer.window_size * total
    return [x / (np.float32(layer.k) + scaled) ** np.float32(layer.beta)]


def _cast(layer: Any, x: Array) -> list[Array]:
    return [x]


def _select(layer: Any, condition: Array, a: Array, b: Array) -> list[Array]:
    assert condition.ndim == a.ndim == b.ndim
    return [np.where(condition, a, b)]


def _prelu(layer: Any, x: Array, slope: Array) -> list[Array]:
    return [np.where(x < 0, x * slope, x)]


def _per_axis(layer: Any, x: Array, scale: Array) -> Array:
    return (
        scale
        if scale.ndim == 0
        else scale.reshape([-1 if d == layer.axis else 1 for d in range(x.ndim)])
    )


def _quantize(layer: Any, x: Array, scale: Array) -> list[Array]:
    return [np.clip(np.rint(x / _per_axis(layer, x, scale)), -128, 127)]


def _dequantize(layer: Any, x: Array, scale: Array) -> list[Array]:
    return [x.astype(np.float32) * _per_axis(layer, x, scale)]


def _resize(layer: Any, shape: tuple[int, ...], x: Array, *_: Array) -> list[Array]:
    return [resized(layer, x, shape)]


def _shape(layer: Any, x: Array) -> list[Array]:
    return [np.array(x.shape)]


_LAYERS: dict[str, Callable[..., list[Array]]] = {
    "CONSTANT": _constant,
    "CONVOLUTION": _convolution,
    "DECONVOLUTION": _deconvolution,
    "POOLING": _pooling,
    "UNARY": _unary,
    "ELEMENTWISE": _elementwise,
    "ACTIVATION": _activation,
    "REDUCE": _reduce,
    "TOPK": _topk,
    "SOFTMAX": _softmax,
    "MATRIX_MULTIPLY": _matrix_multiply,
    "SHUFFLE": _shuffle,
    "SLICE": _slice,
    "CONCATENATION": _concatenation,
    "GATHER": _gather,
    "NORMALIZATION": _normalization,
    "SCALE": _scale,
    "LRN": _lrn,
    "CAST": _cast,
    "IDENTITY": _cast,
    "SELECT": _select,
    "PARAMETRIC_RELU": _prelu,
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "RESIZE": _resize,
    "SHAPE": _shape,
}
_CLASSES = {
    "CONSTANT": "IConstantLayer",
    "CONVOLUTION": "IConvolutionLayer",
    "DECONVOLUTION": "IDeconvolutionLayer",
    "POOLING": "IPoolingLayer",
    "UNARY": "IUnaryLayer",
    "ELEMENTWISE": "IElementWiseLayer",
    "ACTIVATION": "IActivationLayer",
    "REDUCE": "IReduceLayer",
    "TOPK": "ITopKLayer",
    "SOFTMAX": "ISoftMaxLayer",
    "MATRIX_MULTIPLY": "IMatrixMultiplyLayer",
    "SHUFFLE": "IShuffleLayer",
    "SLICE": "ISliceLayer",
    "CONCATENATION": "IConcatenationLayer",
    "GATHER": "IGatherLayer",
    "NORMALIZATION": "INormalizationLayer",
    "SCALE": "IScaleLayer",
    "LRN": "ILRNLayer",
    "CAST": "ICastLayer",
    "IDENTITY": "IIdentityLayer",
    "SELECT": "ISelectLayer",
    "PARAMETRIC_RELU": "IParametricReLULayer",
    "QUANTIZE": "IQuantizeLayer",
    "DEQUANTIZE": "IDequantizeLayer",
    "RESIZE": "IResizeLayer",
    "SHAPE": "IShapeLayer",
}
