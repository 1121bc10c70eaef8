# SPDX-License-Identifier: Apache-2.0
"""Weights that a model stores in 8 bits and fewer, as operators that a pass may leave stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia_ir.graph.expr import Constant, Expr
from intarsia_ir.ops import narrow_formats, qnn
from intarsia_runtime.dtype import DType

from ..context import NodeContext


def stored_weight(
    node: NodeContext, wanted: DType, shaped: Callable[[NodeContext, Expr], Expr]
) -> Expr | None:
    """Return a constant of bytes or fewer bits, dequantized in whole blocks, else ``None``.

    Numbers of 2 and 4 bits become bytes; a block has a dimension of its own.

    Args:
        node: DequantizeLinear.
        wanted: Element type of its result; others than float32 are left alone.
        shaped: Gives a scale or zero point without blocks a shape that broadcasts.
    """
    few_bits, block = node.stored(0) is not None, node.integer("block_size", 0)
    if not few_bits and not block:
        return None
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    given = node.folded(x), None if zero is None else node.folded(zero)
    numbers = [
        _bytes_of(one, node.stored(index))
        for index, one in zip((0, 2), given, strict=True)
        if one is not None
    ]
    data, points = numbers[0], numbers[1] if len(numbers) == 2 else None
    factors = node.folder.value(scale)
    if data is None or factors is None or (zero is not None and points is None):
        return None
    if wanted is not DType.FLOAT32 or factors.dtype != np.float32:
        return None
    if points is None:
        points = np.zeros(factors.shape, data.dtype)
    if block:
        axis = node.axis("axis", data.ndim, 1)
        sizes = data.shape
        if factors.ndim != data.ndim or sizes[axis] != block * factors.shape[axis]:
            return None
        data = data.reshape(*sizes[:axis], -1, block, *sizes[axis + 1 :])
        factors, points = (np.expand_dims(each, axis + 1) for each in (factors, points))
        real = node.call(qnn.Dequantize, *map(node.array, (data, factors, points)))
        return node.reshape(real, sizes)
    tables = (shaped(node, node.array(each)) for each in (factors, points))
    return node.call(qnn.Dequantize, node.array(data), *tables)


def _bytes_of(value: Expr, stored: np.dtype | None) -> np.ndarray | None:
    """Return the numbers of a constant of 8 bits or fewer; ``None`` if it is something else."""
    match value:
        case Constant(data=data):
            pass
        case _:
            return None
    if stored is None:
        return data if data.dtype.name in ("int8", "uint8") else None
    if stored.name not in narrow_formats.INTEGERS:
        return None
    return data.view(stored).astype(np.uint8 if stored.name.startswith("u") else np.int8)
