# SPDX-License-Identifier: Apache-2.0
"""Operations of the device in NumPy: exact sums, one rounding to nearest, ties up.

This is what ``-simulate`` computes; what the silicon does on a tie is not published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from intarsia_runtime.plugin import ArtifactError

from .curves import function
from .network import Network, NetworkBorder, NetworkOperation, NetworkTensor

Array: TypeAlias = np.ndarray
Rule: TypeAlias = Callable[
    [NetworkOperation, Sequence[Array], Sequence[NetworkTensor], NetworkTensor], Array
]


def execute(
    network: Network, constants: Mapping[str, Array], inputs: Sequence[Array]
) -> list[Array]:
    """Return the outputs for inputs as the model has them.

    Args:
        network: The region.
        constants: Content of ``network.constants``.
        inputs: In the order of ``network.inputs``.

    Raises:
        ArtifactError: The network has an operation that this release does not know.
    """
    values = dict(constants)
    for border, array in zip(network.inputs, inputs, strict=True):
        values[border.name] = _inwards(network, border, array)
    for operation in network.operations:
        rule = RULES.get(operation.kind)
        if rule is None:
            raise ArtifactError(
                f"the network has an operation '{operation.kind}' that this release does not know",
                hint="install the intarsia-ethos-n that compiled it",
            )
        tensors = [network.tensors[name] for name in operation.inputs]
        result = network.tensors[operation.output]
        arrays = [values[name] for name in operation.inputs]
        values[operation.output] = rule(operation, arrays, tensors, result).reshape(result.shape)
    return [_outwards(border, values[border.name]) for border in network.outputs]


def _inwards(network: Network, border: NetworkBorder, array: Array) -> Array:
    moved = array.transpose((0, 2, 3, 1)) if border.image else array
    return moved.reshape(network.tensors[border.name].shape)


def _outwards(border: NetworkBorder, array: Array) -> Array:
    moved = array.transpose((0, 3, 1, 2)) if border.image else array
    return moved.reshape(border.shape)


def _stored(real: Array, result: NetworkTensor) -> Array:
    """Round quotients of the result's scale, add the zero point, saturate."""
    dtype = np.uint8 if result.dtype == "u8" else np.int8
    limits = np.iinfo(dtype)
    moved = np.floor(real + 0.5) + result.quantization.zero
    return np.clip(moved, limits.min, limits.max).astype(dtype)


def _real(array: Array, tensor: NetworkTensor) -> Array:
    return (array.astype(np.float64) - tensor.quantization.zero) * tensor.quantization.scale


def _windows(x: Array, operation: NetworkOperation, kernel: Sequence[int], value: float) -> Array:
    """Return ``[N, OH, OW, C, KH, KW]`` of the padded data."""
    top, bottom, left, right = operation.ints("padding")
    across, down = operation.ints("stride")
    widths = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, widths, constant_values=value)
    return sliding_window_view(padded, tuple(kernel), axis=(1, 2))[:, ::down, ::across]


def _convolution(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    """Sums over windows, channels apart or together, times a factor for each channel."""
    x, w, bias = arrays
    data = x.astype(np.float64) - tensors[0].quantization.zero
    weight = w.astype(np.float64) - tensors[1].quantization.zero
    if operation.kind == "fully-connected":
        total = data.reshape(1, 1, 1, -1) @ weight.reshape(weight.shape[2:])
    elif operation.kind == "convolution":
        windows = _windows(data, operation, weight.shape[:2], 0.0)
        total = np.tensordot(windows, weight, axes=((3, 4, 5), (2, 0, 1)))
    else:
        windows = _windows(data, operation, weight.shape[:2], 0.0)
        total = np.einsum("nhwcyx,yxcm->nhwcm", windows, weight, optimize=True)
        total = total.reshape(*total.shape[:3], -1)
    scales = np.asarray(tensors[1].quantization.scales, np.float64)
    if operation.kind == "depthwise" and scales.size > 1:
        scales = np.repeat(scales, weight.shape[3])
    factor = tensors[0].quantization.scale * scales / result.quantization.scale
    return _stored((total + bias.reshape(-1)) * factor, result)


def _transposed(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    """Each element is spread over a window of the result by the weights; windows add up."""
    x, w, bias = arrays
    data = x.astype(np.float64) - tensors[0].quantization.zero
    weight = w.astype(np.float64) - tensors[1].quantization.zero
    (top, bottom, left, right), (across, down) = operation.ints("padding"), operation.ints("stride")
    _, tall, wide, _ = result.shape
    total = np.zeros((1, tall + top + bottom, wide + left + right, weight.shape[3]))
    height, width = data.shape[1:3]
    for y, x_ in np.ndindex(*weight.shape[:2]):
        rows = slice(y, y + (height - 1) * down + 1, down)
        columns = slice(x_, x_ + (width - 1) * across + 1, across)
        total[:, rows, columns] += data @ weight[y, x_]
    total = total[:, top : top + tall, left : left + wide]
    scales = np.asarray(tensors[1].quantization.scales, np.float64)
    factor = tensors[0].quantization.scale * scales / result.quantization.scale
    return _stored((total + bias.reshape(-1)) * factor, result)


def _binary(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    a, b = (_real(array, tensor) for array, tensor in zip(arrays, tensors, strict=True))
    whole = a + b if operation.kind == "addition" else a * b
    return _stored(whole / result.quantization.scale, result)


def _relu(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    low, high = operation.integer("lower"), operation.integer("upper")
    return np.clip(arrays[0].astype(np.int32), low, high).astype(arrays[0].dtype)


def _requantize(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    return _stored(_real(arrays[0], tensors[0]) / result.quantization.scale, result)


def _same(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    return arrays[0]


def _curve(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    alpha = operation.number("alpha") if operation.kind == "leaky-relu" else 0.0
    values = function(operation.kind, _real(arrays[0], tensors[0]), alpha)
    return _stored(values / result.quantization.scale, result)


def _depth_to_space(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    """Channels are a square of pixels, row by row, and then the remainder."""
    block = operation.integer("block")
    n, height, width, depth = arrays[0].shape
    split = arrays[0].reshape(n, height, width, block, block, depth // block**2)
    return split.transpose(0, 1, 3, 2, 4, 5)


def _split(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    cuts = np.cumsum(operation.ints("sizes"))[:-1].tolist()
    return np.split(arrays[0], cuts, operation.integer("axis"))[operation.integer("part")]


def _transpose(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    return arrays[0].transpose(operation.ints("order"))


def _resize(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    return arrays[0].repeat(2, axis=1).repeat(2, axis=2)


def _mean(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    zero = tensors[0].quantization.zero
    total = (arrays[0].astype(np.float64) - zero).sum(axis=(1, 2), keepdims=True)
    return _stored(total / np.prod(arrays[0].shape[1:3]), result)


def _pooling(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    """The largest, or the mean of what lies inside."""
    x, kernel = arrays[0], operation.ints("size")[::-1]
    if operation.attrs["type"] == "max":
        least = int(np.iinfo(x.dtype).min)
        return _windows(x, operation, kernel, least).max(axis=(4, 5))
    data = x.astype(np.float64) - tensors[0].quantization.zero
    ones = np.ones((1, *x.shape[1:3], 1))
    total = _windows(data, operation, kernel, 0.0).sum(axis=(4, 5))
    return _stored(total / _windows(ones, operation, kernel, 0.0).sum(axis=(4, 5)), result)


def _concatenation(
    operation: NetworkOperation,
    arrays: Sequence[Array],
    tensors: Sequence[NetworkTensor],
    result: NetworkTensor,
) -> Array:
    parts = [
        array
        if tensor.quantization == result.quantization
        else _stored(_real(array, tensor) / result.quantization.scale, result)
        for array, tensor in zip(arrays, tensors, strict=True)
    ]
    return np.concatenate(parts, axis=operation.integer("axis"))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "addition": _binary,
        "concatenation": _concatenation,
        "convolution": _convolution,
        "depth-to-space": _depth_to_space,
        "depthwise": _convolution,
        "fully-connected": _convolution,
        "leaky-relu": _curve,
        "mean": _mean,
        "multiplication": _binary,
        "pooling": _pooling,
        "reinterpret": _same,
        "relu": _relu,
        "requantize": _requantize,
        "reshape": _same,
        "resize": _resize,
        "sigmoid": _curve,
        "split": _split,
        "tanh": _curve,
        "transpose": _transpose,
        "transpose-convolution": _transposed,
    }
)
"""What each operation computes."""
