# SPDX-License-Identifier: Apache-2.0
"""What an Ethos-N78 asks of operations that move elements: joins, splits, orders of axes, sizes."""

from __future__ import annotations

import numpy as np

from .network import NetworkOperation, Shape
from .variants import Variant
from .verdict import LibraryVerdict, Tensors, estimated, no

IDENTITY = 128.0
PLE_BYTES = 4096
BRICK = 8
DEPTH_BRICK = 16
WEIGHT_HEADER = 55
"""Bytes at most in front of the weights of a channel."""


def rescaled(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """Scales do not shrink to less than 1/128."""
    to = tensors[operation.output].quantization.scale
    for name in operation.inputs:
        by = np.float32(tensors[name].quantization.scale) / np.float32(IDENTITY) / np.float32(to)
        if not 0 <= by < 1:
            return estimated("the scale of the result must be above that of the input by 1/128")
    return None


def elements(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """A reshape keeps the number of elements."""
    source, result = tensors[operation.inputs[0]].shape, tensors[operation.output].shape
    if np.prod(source) != np.prod(result):
        return no(f"{list(source)} and {list(result)} have different numbers of elements")
    return None


def joined(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """What is joined has the same size along other axes."""
    axis = operation.integer("axis")
    if not 0 <= axis <= 3:
        return no(f"axis {axis}: 0 to 3")
    first = tensors[operation.inputs[0]].shape
    for name in operation.inputs[1:]:
        other = tensors[name].shape
        if any(d != axis and first[d] != other[d] for d in range(4)):
            return no(f"{list(first)} and {list(other)} differ beside axis {axis}")
    return None


def not_batch(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """A batch is not joined."""
    return estimated("along the batch") if operation.integer("axis") == 0 else None


def block(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    """Channels become whole squares of 2x2 pixels."""
    block = operation.integer("block")
    _, _, _, depth = tensors[operation.inputs[0]].shape
    if depth % (block * block):
        return no(f"{depth} channels are no multiple of {block * block}")
    return None if block == 2 else estimated(f"block {block}: only 2 is taken")


def doubled(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """Height and width are doubled, or doubled less 1."""
    _, height, width, _ = tensors[operation.inputs[0]].shape
    _, tall, wide, _ = tensors[operation.output].shape
    for old, new, what in ((height, tall, "height"), (width, wide, "width")):
        if new not in (2 * old, 2 * old - 1):
            return no(f"{what} {old} to {new}: twice, or twice less 1")
    return None


def whole(operation: NetworkOperation, tensors: Tensors, variant: Variant) -> LibraryVerdict | None:
    """The parts of a split are what there is, and the batch is not split."""
    axis, sizes = operation.integer("axis"), operation.ints("sizes")
    if not 0 <= axis <= 3:
        return no(f"axis {axis}: 0 to 3")
    source = tensors[operation.inputs[0]].shape
    if sum(sizes) != source[axis]:
        return no(f"parts of {list(sizes)} of {source[axis]} along axis {axis}")
    return no("a batch is not split") if axis == 0 else None


def turned(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """A transposition keeps the batch, and the tensor is in memory as a whole."""
    order = operation.ints("order")
    if order[0] != 0 or sorted(order) != [0, 1, 2, 3]:
        return no(f"order {list(order)}: the batch stays, the others are 1, 2 and 3")
    n, height, width, depth = tensors[operation.inputs[0]].shape
    match order[1:]:
        case (1, 2, 3):
            return None
        case (2, 3, 1) | (3, 1, 2):
            needed = brick_bytes((n, height, width, depth))
        case (2, 1, 3):
            needed = _through_identity((n, height, width, depth), variant)
        case _:
            needed = _through_identity((1, width, depth, height), variant)
    if needed > variant.sram:
        return no(f"transposing needs {needed} bytes, the memory has {variant.sram}")
    return None


def brick_bytes(shape: Shape) -> int:
    """Return the bytes of a tensor in memory, in bricks of 8 x 8 x 16 elements."""
    n, height, width, depth = shape
    return n * _up(height, BRICK) * _up(width, BRICK) * _up(depth, DEPTH_BRICK)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _through_identity(shape: Shape, variant: Variant) -> int:
    """Return the bytes of a tensor, its copy, a depthwise kernel of ones, and the PLE's kernel."""
    most = ((1 + variant.srams // 8) * 9 + 7) // 8 + WEIGHT_HEADER
    weights = _up(most * -(-shape[3] // variant.srams), 16) * variant.srams
    return 2 * brick_bytes(shape) + weights + PLE_BYTES * variant.srams


def squares(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """Pixels become channels in whole squares, as far as an estimate."""
    block = operation.integer("block")
    _, height, width, _ = tensors[operation.inputs[0]].shape
    if block < 2:
        return no(f"block {block}: 2 or more")
    if height % block or width % block:
        return no(f"{height}x{width} is no multiple of {block}")
    return None


def rows_fit(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """One row of squares is in memory, before and after, in pieces of 8 x 8 in every bank."""
    block = operation.integer("block")
    _, _, width, depth = tensors[operation.inputs[0]].shape
    lines = block * depth
    banks = max(count for count in range(1, variant.srams + 1) if lines % count == 0)
    before = -(-width * depth // (banks * BRICK)) * BRICK**2
    after = -(-lines // (banks * BRICK)) * -(-width // (block * BRICK)) * BRICK**2
    needed = (before + max(before, after) * (block - 1) + after) * variant.srams
    if needed > variant.sram:
        return no(f"a row of squares needs {needed} bytes, the memory has {variant.sram}")
    return None


def only_estimated(
    operation: NetworkOperation, tensors: Tensors, variant: Variant
) -> LibraryVerdict | None:
    """The library has an operator that it does not compile."""
    return estimated("the library has no code for it")
