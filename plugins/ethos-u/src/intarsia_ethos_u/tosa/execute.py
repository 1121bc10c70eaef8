# SPDX-License-Identifier: Apache-2.0
"""TOSA arithmetic in NumPy: exact integers, as the specification defines them.

This is the reference that a region's results come from; no Ethos-U takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from intarsia_runtime.plugin import ArtifactError

from .program import TosaBorder, TosaNode, TosaProgram

Array: TypeAlias = np.ndarray
Rule: TypeAlias = Callable[[TosaNode, Sequence[Array]], Array]


def execute(
    program: TosaProgram, constants: Mapping[str, Array], inputs: Sequence[Array]
) -> list[Array]:
    """Return the outputs for inputs as the model has them.

    Args:
        program: The region.
        constants: Arrays by the names of ``program.constants``.
        inputs: In the order of ``program.inputs``.

    Raises:
        ArtifactError: The program has an operator that this release does not know.
    """
    values = {name: constants[key] for name, key in program.constants.items()}
    for border, array in zip(program.inputs, inputs, strict=True):
        values[border.name] = inwards(border, array)
    for node in program.nodes:
        rule = RULES.get(node.op)
        if rule is None:
            raise ArtifactError(
                f"the program has an operator {node.op} that this release does not know",
                hint="install the intarsia-ethos-u that compiled it",
            )
        result = rule(node, [values[name] for name in node.inputs])
        values[node.output] = result.reshape(program.tensors[node.output].shape)
    return [outwards(border, values[border.name]) for border in program.outputs]


def inwards(border: TosaBorder, array: Array) -> Array:
    """Bring a tensor of the model into the graph's order of axes and signedness."""
    if border.unsigned:
        array = (array ^ np.uint8(128)).view(np.int8)
    return np.ascontiguousarray(array.transpose(border.axes)) if border.axes else array


def outwards(border: TosaBorder, array: Array) -> Array:
    """Bring a tensor of the graph into the model's order of axes and signedness."""
    if border.axes:
        array = array.transpose(np.argsort(border.axes))
    if border.unsigned:
        array = np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(128)
    return array


def _padded(x: Array, pad: Sequence[int], value: float) -> Array:
    top, bottom, left, right = pad
    widths = ((0, 0), (top, bottom), (left, right), (0, 0))
    return np.pad(x, widths, constant_values=value) if any(pad) else x


def _windows(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Return ``[N, OH, OW, C, KH, KW]``, a view."""
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    windows = sliding_window_view(x, reach, axis=(1, 2))
    return windows[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]


def _conv(node: TosaNode, arrays: Sequence[Array]) -> Array:
    """int8 data and weight, int32 sums; float64 holds them exactly."""
    x, weight, bias, x_zero, w_zero = arrays
    data = x.astype(np.float64) - float(x_zero.reshape(-1)[0])
    kernel = weight.astype(np.float64) - float(w_zero.reshape(-1)[0])
    data = _padded(data, node.ints("pad"), 0.0)
    if node.op == "CONV2D":
        windows = _windows(data, kernel.shape[1:3], node.ints("stride"), node.ints("dilation"))
        total = np.tensordot(windows, kernel, axes=((3, 4, 5), (3, 1, 2)))
    else:
        windows = _windows(data, kernel.shape[:2], node.ints("stride"), node.ints("dilation"))
        total = np.einsum("nhwcyx,yxcm->nhwcm", windows, kernel, optimize=True)
        total = total.reshape(*total.shape[:3], -1)
    return (total.astype(np.int64) + bias.astype(np.int64)).astype(np.int32)


def _max_pool(node: TosaNode, arrays: Sequence[Array]) -> Array:
    x = _padded(arrays[0], node.ints("pad"), int(np.iinfo(arrays[0].dtype).min))
    return _windows(x, node.ints("kernel"), node.ints("stride"), (1, 1)).max(axis=(4, 5))


def _avg_pool(node: TosaNode, arrays: Sequence[Array]) -> Array:
    """Sums over what lies inside, times a reciprocal in whole numbers."""
    x, x_zero, y_zero = arrays
    pad, kernel, stride = node.ints("pad"), node.ints("kernel"), node.ints("stride")
    data = _padded(x.astype(np.int64) - int(x_zero.reshape(-1)[0]), pad, 0)
    inside = _padded(np.ones((1, *x.shape[1:3], 1), np.int64), pad, 0)
    total = _windows(data, kernel, stride, (1, 1)).sum(axis=(4, 5))
    count = _windows(inside, kernel, stride, (1, 1)).sum(axis=(4, 5))
    bits = np.asarray([int(n - 1).bit_length() for n in range(int(count.max()) + 1)])[count]
    multiplier = ((np.int64(1) << 30) + 1 << bits) // count
    shift = 30 + bits
    mean = (total * multiplier + (np.int64(1) << (shift - 1))) >> shift
    return np.clip(mean + int(y_zero.reshape(-1)[0]), -128, 127).astype(np.int8)


def _rescale(node: TosaNode, arrays: Sequence[Array]) -> Array:
    """One multiplication of 64 bits, one rounding; per-channel multipliers run along the last."""
    x, multiplier, shift, x_zero, y_zero = arrays
    value = x.astype(np.int64) - int(x_zero.reshape(-1)[0])
    by = multiplier.astype(np.int64)
    down = shift.astype(np.int64)
    total = value * by + (np.int64(1) << (down - 1))
    limits = np.iinfo(np.int32 if node.attrs["to"] == "INT32" else np.int8)
    moved = (total >> down) + int(y_zero.reshape(-1)[0])
    return np.clip(moved, limits.min, limits.max).astype(limits.dtype)


def _clamp(node: TosaNode, arrays: Sequence[Array]) -> Array:
    return np.clip(arrays[0], node.integer("min_val"), node.integer("max_val")).astype(np.int8)


def _add(_node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[0] + arrays[1]


def _sub(_node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[0] - arrays[1]


def _mul(_node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[0] * arrays[1]


def _table(_node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[1][arrays[0].astype(np.int64) + 128]


def _concat(node: TosaNode, arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays, axis=node.integer("axis"))


def _pad(node: TosaNode, arrays: Sequence[Array]) -> Array:
    widths = np.asarray(node.ints("padding")).reshape(-1, 2)
    return np.pad(arrays[0], widths, constant_values=int(arrays[1].reshape(-1)[0]))


def _reshape(node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[0].reshape(node.ints("shape"))


def _slice(node: TosaNode, arrays: Sequence[Array]) -> Array:
    pairs = zip(node.ints("start"), node.ints("size"), strict=True)
    return arrays[0][tuple(slice(start, start + size) for start, size in pairs)]


def _transpose(node: TosaNode, arrays: Sequence[Array]) -> Array:
    return arrays[0].transpose(node.ints("perms"))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ADD": _add,
        "AVG_POOL2D": _avg_pool,
        "CLAMP": _clamp,
        "CONCAT": _concat,
        "CONV2D": _conv,
        "DEPTHWISE_CONV2D": _conv,
        "MAX_POOL2D": _max_pool,
        "MUL": _mul,
        "PAD": _pad,
        "RESCALE": _rescale,
        "RESHAPE": _reshape,
        "SLICE": _slice,
        "SUB": _sub,
        "TABLE": _table,
        "TRANSPOSE": _transpose,
    }
)
"""What each operator computes."""
