# SPDX-License-Identifier: Apache-2.0
"""What an Ethos-N78 takes, operator by operator, as the Support Library of driver stack 25.03 says.

Three answers: *supported*; *estimate only*, whose performance can be estimated but which cannot be
compiled; *unsupported*. Everything but *supported* has a reason in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from .move_rules import (
    BRICK,
    DEPTH_BRICK,
    PLE_BYTES,
    block,
    doubled,
    elements,
    joined,
    not_batch,
    only_estimated,
    rescaled,
    rows_fit,
    squares,
    turned,
    whole,
)
from .network import NetworkOperation, NetworkTensor, Shape
from .variants import Variant
from .verdict import (
    BYTES,
    YES,
    Check,
    LibraryVerdict,
    Tensors,
    check_depth,
    check_elements,
    check_shape,
    check_zero,
    estimated,
    no,
)

KERNELS = (1, 2, 3, 5, 7, 9)
STRIDES = (1, 2)
MAX_PADDING = 7
MAX_SCALE = 65536.0
MAX_POOL_VALID = 9
MAX_POOL_SAME = 17
MAX_POOL_WIDTH = 417
MEANS = (7, 8)


def check(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict:
    """Say whether the device takes an operation."""
    rules = RULES.get(operation.kind)
    if rules is None:
        return no(f"there is no operator '{operation.kind}'")
    for rule in rules:
        verdict = rule(operation, tensors, variant)
        if verdict is not None:
            return verdict
    return YES


def _data(operation: NetworkOperation) -> tuple[str, ...]:
    """Return the inputs that are activations."""
    return operation.inputs[:1] if operation.kind in WEIGHTED else operation.inputs


def _shapes(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    for name in _data(operation):
        verdict = check_shape(tensors[name], variant)
        if verdict is not None:
            return verdict
    return None


def _zeros(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    for name in _data(operation):
        verdict = check_zero(tensors[name])
        if verdict is not None:
            return verdict
    return None


def _depth(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    return check_depth(tensors[operation.output], variant)


def _zero(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    return check_zero(tensors[operation.output])


def _weights(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    data, weight, bias = (tensors[name] for name in operation.inputs)
    if weight.dtype not in BYTES:
        return no(f"weights are {weight.dtype}: only 8 bits are taken")
    if bias.dtype != "s32":
        return no(f"the bias is {bias.dtype}: only s32 is taken")
    channels = weight.shape[2] * weight.shape[3] if _is_depthwise(operation) else weight.shape[3]
    if bias.shape != (1, 1, 1, channels):
        return no(f"the bias has shape {list(bias.shape)}, not [1, 1, 1, {channels}]")
    if weight.shape[2] != data.shape[3]:
        return no(f"weights for {weight.shape[2]} channels, the data has {data.shape[3]}")
    axis = 2 if _is_depthwise(operation) else 3
    for tensor, along, what in ((weight, axis, "weights"), (bias, 3, "bias")):
        given = tensor.quantization
        if given.axis >= 0 and given.axis != along:
            return no(f"scales of the {what} run along axis {given.axis}: only {along} is taken")
        if given.axis >= 0 and len(given.scales) != tensor.shape[along]:
            return no(f"{len(given.scales)} scales for {tensor.shape[along]} channels")
    if 0 in tensors[operation.output].shape or min(tensors[operation.output].shape) < 1:
        return no("the result would be empty")
    if operation.kind != TRANSPOSED and check_zero(weight) is not None:
        return no(f"zero point {weight.quantization.zero} of the weights: not of {weight.dtype}")
    return None


def _is_depthwise(operation: NetworkOperation) -> bool:
    return operation.kind == "depthwise"


def _products(data: NetworkTensor, weight: NetworkTensor) -> np.ndarray:
    """Return input scale times weight scale as the library has it: float32."""
    by = np.asarray(weight.quantization.scales, np.float32)
    return np.float32(data.quantization.scale) * by


def _multiplier(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    weight = tensors[operation.inputs[1]]
    if weight.shape[3] != 1 and weight.shape[2] != 1:
        return estimated(
            f"{weight.shape[3]} results for each of {weight.shape[2]} channels: only 1 is taken"
        )
    return None


def _bias(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    data, weight, bias = (tensors[name] for name in operation.inputs)
    if not _is_depthwise(operation) and bias.quantization.zero != 0:
        return estimated("the zero point of the bias is not 0")
    wanted = _products(data, weight)
    given = np.asarray(bias.quantization.scales, np.float32)
    if wanted.shape != given.shape or not np.array_equal(wanted, given):
        return estimated("the scale of the bias is not that of the data times that of the weights")
    return None


def _kernel(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    height, width = tensors[operation.inputs[1]].shape[:2]
    depthwise = _is_depthwise(operation)
    if height not in KERNELS or width not in KERNELS or (depthwise and height != width):
        square = " and square" if depthwise else ""
        return estimated(f"kernel {height}x{width}: sides are 1, 2, 3, 5, 7 or 9{square}")
    x, y = operation.ints("stride")
    if x != y or x not in STRIDES:
        return estimated(f"strides ({y}, {x}): equal, 1 or 2")
    if depthwise and x != 1 and (height, width) == (1, 1):
        return estimated("a stride of 2 with a 1x1 kernel")
    if not depthwise and x > 1 and max(height, width) > 7:
        return estimated(f"a stride of 2 with kernel {height}x{width}: at most 7 a side")
    return None


def same_paddings(size: int, kernel: int, stride: int) -> tuple[tuple[int, int], ...]:
    """Return the paddings that keep ``ceil(size / stride)``: symmetric, more before, more after."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    half = -(-total // 2)
    return ((half, half), (half, total - half), (total - half, half))


def is_same(operation: NetworkOperation, shape: Shape, kernel: Sequence[int]) -> bool:
    """Whether a padding keeps the size, rounding in one way for both sides."""
    top, bottom, left, right = operation.ints("padding")
    x, y = operation.ints("stride")
    rows, columns = same_paddings(shape[1], kernel[0], y), same_paddings(shape[2], kernel[1], x)
    return ((top, bottom), (left, right)) in tuple(zip(rows, columns, strict=True))


def _padding(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    padding = operation.ints("padding")
    data, weight = (tensors[name] for name in operation.inputs[:2])
    if max(padding) > MAX_PADDING and not is_same(operation, data.shape, weight.shape[:2]):
        return estimated(f"padding {list(padding)}: at most {MAX_PADDING}, or what keeps the size")
    return None


def _overall(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    data, weight = (tensors[name] for name in operation.inputs[:2])
    result = np.float32(tensors[operation.output].quantization.scale)
    overall = _products(data, weight) / result
    if overall.min() < 0 or overall.max() >= MAX_SCALE:
        return estimated(f"results are scaled by {overall.max():g}: below {MAX_SCALE:g} is taken")
    return None


def _connected(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    data, weight, bias = (tensors[name] for name in operation.inputs)
    if weight.shape[:2] != (1, 1):
        return no(f"weights of shape {list(weight.shape)}: the first two sizes are 1")
    depth = data.shape[1] * data.shape[2] * data.shape[3]
    if weight.shape[2] != depth:
        return no(f"weights for {weight.shape[2]} elements, the data has {depth}")
    if weight.dtype not in BYTES:
        return no(f"weights are {weight.dtype}: only 8 bits are taken")
    if bias.dtype != "s32":
        return no(f"the bias is {bias.dtype}: only s32 is taken")
    if bias.shape != (1, 1, 1, weight.shape[3]):
        return no(f"the bias has shape {list(bias.shape)}, not [1, 1, 1, {weight.shape[3]}]")
    if len(weight.quantization.scales) != 1 or len(bias.quantization.scales) != 1:
        return no("one scale for all weights is taken, not one a channel")
    return None


def _flat(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    shape = tensors[operation.inputs[0]].shape
    if shape[:3] != (1, 1, 1):
        return estimated(f"data of shape {list(shape)}: only channels, [1, 1, 1, C]")
    return None


def _pair(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    a, b = (tensors[name] for name in operation.inputs)
    for axis, what in ((1, "heights"), (2, "widths"), (3, "channels")):
        if a.shape[axis] != b.shape[axis] and 1 not in (a.shape[axis], b.shape[axis]):
            return no(f"{what} {a.shape[axis]} and {b.shape[axis]} do not fit")
    if a.dtype != b.dtype:
        return no(f"operands are {a.dtype} and {b.dtype}: one type is taken")
    return None


def _unstretched(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    a, b = (tensors[name].shape for name in operation.inputs)
    if a != b:
        return estimated(f"operands {list(a)} and {list(b)}: nothing is broadcast")
    return None


def _bounds(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    low, high = operation.integer("lower"), operation.integer("upper")
    return no(f"limits {low} and {high} cross") if low > high else None


def _leak(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    alpha = operation.number("alpha")
    return None if 0 < alpha < 1 else estimated(f"alpha {alpha:g}: between 0 and 1")


def _fixed(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    result = tensors[operation.output]
    signed = result.dtype == "s8"
    if operation.kind == "sigmoid":
        scale, zero = 1 / 256, -128 if signed else 0
    else:
        scale, zero = 1 / 128, 0 if signed else 128
    if (result.quantization.scale, result.quantization.zero) != (scale, zero):
        return no(f"the result always has scale {scale:g} and zero point {zero}")
    return None


def _mean(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    _, height, width, _ = tensors[operation.inputs[0]].shape
    if height != width or height not in MEANS:
        return no(f"mean over {height}x{width}: 7x7 and 8x8 are taken")
    return None


def _pooling(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    rule = _average if operation.attrs["type"] == "avg" else _largest
    return rule(operation, tensors[operation.inputs[0]].shape, variant)


def _average(operation: NetworkOperation, shape: Shape, variant: Variant) -> LibraryVerdict | None:
    x, y = operation.ints("size")
    _, height, width, depth = shape
    words = f"average over {y}x{x}: all of 7x7 or 8x8, or 3x3 with stride 1 and padding 1"
    if operation.ints("padding") == (0, 0, 0, 0) and (x, y) == (width, height):
        return None if x == y and x in MEANS else estimated(words)
    if (x, y) != (3, 3) or operation.ints("stride") != (1, 1):
        return estimated(words)
    if operation.ints("padding") != (1, 1, 1, 1):
        return estimated(words)
    rows, columns = (-(-size // BRICK) * BRICK for size in (height, width))
    per_bank = -(-variant.sram // variant.srams)
    tiles = 2 * rows * columns * (1 if depth <= variant.srams else 2)
    if tiles > per_bank - PLE_BYTES:
        return estimated(f"average over 3x3 of {height}x{width}: too large for the memory")
    return None


def _largest(operation: NetworkOperation, shape: Shape, variant: Variant) -> LibraryVerdict | None:
    strides = operation.ints("stride")
    if strides == (2, 2):
        verdict = _halving(operation, shape)
    elif strides == (1, 1):
        verdict = _sliding(operation, shape, variant)
    else:
        verdict = estimated(f"strides {strides[::-1]}: (1, 1) or (2, 2)")
    if verdict is not None:
        return verdict
    x, y = operation.ints("size")
    if shape[2] < x or shape[1] < y:
        return estimated(f"window {y}x{x} is larger than {shape[1]}x{shape[2]}")
    return None


def _halving(operation: NetworkOperation, shape: Shape) -> LibraryVerdict | None:
    size, padding = operation.ints("size"), operation.ints("padding")
    _, height, width, _ = shape
    plain, after = padding == (0, 0, 0, 0), padding == (0, 1, 0, 1)
    if not ((size == (1, 1) and plain) or (size in ((2, 2), (3, 3)) and (plain or after))):
        return estimated(
            f"window {size[1]}x{size[0]} with stride 2 and padding {list(padding)}: 1x1, 2x2 or"
            " 3x3, the latter two with padding only behind"
        )
    if size == (3, 3) and width > MAX_POOL_WIDTH:
        return estimated(f"width {width} with 3x3 and stride 2: at most {MAX_POOL_WIDTH}")
    odd = plain if size == (3, 3) else after
    if size != (1, 1) and any(edge % 2 != odd for edge in (height, width)):
        return estimated(
            f"{height}x{width} with window {size[1]}x{size[0]}, stride 2 and"
            f" {'no padding' if plain else 'padding'}: sizes must be {'odd' if odd else 'even'}"
        )
    return None


def _sliding(operation: NetworkOperation, shape: Shape, variant: Variant) -> LibraryVerdict | None:
    x, y = operation.ints("size")
    plain = operation.ints("padding") == (0, 0, 0, 0)
    if not (plain and max(x, y) <= MAX_POOL_VALID) and not (
        is_same(operation, shape, (y, x)) and max(x, y) <= MAX_POOL_SAME
    ):
        return estimated(
            f"window {y}x{x} with stride 1: up to {MAX_POOL_VALID} without padding, up to"
            f" {MAX_POOL_SAME} with the size kept"
        )
    most = (variant.sram - PLE_BYTES) // 2 // (BRICK * DEPTH_BRICK)
    most = most // BRICK * BRICK
    if (x > 1 and shape[2] > most) or (y > 1 and shape[1] > most):
        return estimated(f"{shape[1]}x{shape[2]} with stride 1: at most {most} a side")
    return None


def _transposed(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    weight, result = tensors[operation.inputs[1]], tensors[operation.output]
    height, width = weight.shape[:2]
    if height not in KERNELS or width not in KERNELS:
        return estimated(f"kernel {height}x{width}: sides are 1, 2, 3, 5, 7 or 9")
    if operation.ints("stride") != (2, 2):
        return estimated(f"strides {operation.ints('stride')[::-1]}: only (2, 2) is taken")
    padding = operation.ints("padding")
    if max(padding) > MAX_PADDING and not is_same(operation, result.shape, (height, width)):
        return estimated(f"padding {list(padding)}: at most {MAX_PADDING}, or what keeps the size")
    if max(height, width) > MAX_PADDING and not any(padding):
        return estimated(f"kernel {height}x{width} without padding: at most 7 a side")
    return None


def _weight_zero(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    verdict = check_zero(tensors[operation.inputs[1]])
    return None if verdict is None else estimated(f"{verdict.reason} for the weights")


def _any_batch(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    return check_elements(tensors[operation.inputs[0]], variant)


TRANSPOSED = "transpose-convolution"
WEIGHTED = ("convolution", "depthwise", "fully-connected", TRANSPOSED)
_CONVOLUTION = (_bias, _kernel, _padding, _overall)
_TRANSPOSED = (_bias, _transposed, _overall)
_ENDS = (_zeros, _depth, _zero)
RULES: Mapping[str, tuple[Check, ...]] = MappingProxyType(
    {
        "convolution": (_shapes, _weights, *_ENDS, *_CONVOLUTION),
        "depthwise": (_shapes, _weights, _depth, _multiplier, _zeros, _zero, *_CONVOLUTION),
        TRANSPOSED: (_shapes, _weights, _depth, _weight_zero, *_ENDS, *_TRANSPOSED),
        "fully-connected": (_shapes, _connected, *_ENDS, _flat, _bias, _overall),
        "addition": (_shapes, _zeros, _pair, _zero, _unstretched),
        "multiplication": (_shapes, _zeros, _pair, _zero, _unstretched),
        "relu": (_shapes, _zeros, _bounds),
        "leaky-relu": (_shapes, _zeros, _zero, _leak),
        "sigmoid": (_shapes, _zeros, _fixed),
        "tanh": (_shapes, _zeros, _fixed),
        "requantize": (_shapes, rescaled, _zeros, _zero),
        "mean": (_shapes, _zeros, _mean),
        "pooling": (_shapes, _zeros, _pooling),
        "reshape": (_shapes, elements, _zeros, _depth),
        "concatenation": (_shapes, joined, _zeros, _zero, rescaled, _depth, not_batch),
        "split": (_shapes, whole, _zeros),
        "transpose": (_any_batch, _zeros, _depth, turned),
        "space-to-depth": (_any_batch, squares, _zeros, _depth, rows_fit, only_estimated),
        "depth-to-space": (_shapes, _zeros, block),
        "resize": (_shapes, _zeros, doubled, _zero),
    }
)
"""Rules of each operator, in the order they are asked."""
