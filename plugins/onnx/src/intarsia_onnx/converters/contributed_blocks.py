# SPDX-License-Identifier: Apache-2.0
"""Weights in blocks of few bits, as ``com.microsoft`` has them: real numbers when compiled."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary

from ..builder import dtype_of
from ..context import NodeContext
from ..graph import UnsupportedAttribute
from .contributed import DOMAIN
from .linear import product

_BITS = (2, 4, 8)


def matmul_nbits(node: NodeContext) -> Expr:
    """Convert MatMulNBits: ``A`` times the transpose of weights in blocks along their columns."""
    if node.optional(4) is not None:
        raise node.unsupported("MatMulNBits whose columns are in another order")
    depth, columns = node.integer("K"), node.integer("N")
    bits, block = node.integer("bits", 4), node.integer("block_size")
    if any(isinstance(value, UnsupportedAttribute) for value in node.node.attrs.values()):
        raise node.unsupported("MatMulNBits with attributes of another kind")
    if bits not in _BITS or block < 1 or depth < 1 or columns < 1:
        raise node.unsupported(f"MatMulNBits of {bits} bits in blocks of {block}")
    packed = node.required_value(1, "the weight")
    blocks = -(-depth // block)
    if packed.dtype != np.uint8 or packed.size * 8 != columns * blocks * block * bits:
        raise node.model_error(f"a weight of shape {packed.shape} is none of {columns} x {depth}")
    values = _unpacked(packed.reshape(columns, -1), bits).reshape(columns, blocks, block)
    scales = node.required_value(2, "the scales").astype(np.float32)
    if scales.size != columns * blocks:
        raise node.model_error(f"{scales.size} scales for {columns * blocks} blocks")
    zero = _zero_points(node, columns, blocks, bits)
    real = (values.astype(np.float32) - zero) * scales.reshape(columns, blocks, 1)
    weight = real.reshape(columns, blocks * block)[:, :depth].T
    a = node.input(0)
    kind = np.dtype(dtype_of(a).value)
    made = product(node, a, node.array(np.ascontiguousarray(weight.astype(kind))))
    bias = node.optional(5)
    return made if bias is None else node.call(binary.Add, made, bias)


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers of rows of bytes; the first is in the lowest bits of its byte."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (data[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(len(data), -1)


def _zero_points(node: NodeContext, columns: int, blocks: int, bits: int) -> np.ndarray:
    """Return the zero point of each block, ``[columns, blocks, 1]``; half of the range without."""
    if node.optional(3) is None:
        return np.full((1, 1, 1), 1 << (bits - 1), np.float32)
    points = node.required_value(3, "the zero points")
    if points.dtype == np.uint8:
        points = _unpacked(points.reshape(columns, -1), bits)[:, :blocks]
    if points.size != columns * blocks:
        raise node.model_error(f"{points.size} zero points for {columns * blocks} blocks")
    return points.astype(np.float32).reshape(columns, blocks, 1)


CONVERTERS = MappingProxyType({f"{DOMAIN}::MatMulNBits": matmul_nbits})
