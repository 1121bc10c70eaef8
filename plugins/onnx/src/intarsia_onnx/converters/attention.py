# SPDX-License-Identifier: Apache-2.0
"""Attention whose scores and probabilities graphs inside the node may change."""

from __future__ import annotations

import math
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.ops import nn
from intarsia_ir.ops import softmax as softmaxes
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import NodeContext
from ..tensors import element_type
from .linear import scaled


def flex_attention(node: NodeContext) -> Expr:
    """Convert FlexAttention: products in float32 (or float64), scores in ``softmax_precision``."""
    q, k, v = (node.input(index) for index in range(3))
    shapes = [node.static_shape(index) for index in range(3)]
    if any(len(shape) != 4 for shape in shapes) or shapes[0][1] % max(shapes[1][1], 1):
        raise node.model_error(f"queries, keys and values of shapes {shapes}")
    kind = dtype_of(q)
    wide = DType.FLOAT64 if kind is DType.FLOAT64 else DType.FLOAT32
    code = node.integer("softmax_precision", 0)
    precision = element_type(code, str(node.span)) if code else wide
    scale = node.number("scale", 1 / math.sqrt(shapes[0][-1]))
    keys, values = (_repeated(node, node.cast(x, wide), shapes[0][1]) for x in (k, v))
    attrs = nn.Matmul.Attrs(transpose_a=False, transpose_b=True)
    scores = scaled(node, node.call(nn.Matmul, node.cast(q, wide), keys, attrs=attrs), scale)
    scores = node.cast(_modified(node, "score_mod", node.cast(scores, precision)), wide)
    chances = node.call(softmaxes.Softmax, scores, attrs=softmaxes.Softmax.Attrs(axis=3))
    chances = node.cast(_modified(node, "prob_mod", node.cast(chances, precision)), wide)
    return node.cast(node.call(nn.Matmul, chances, values), kind)


def _repeated(node: NodeContext, x: Expr, heads: int) -> Expr:
    """Give each head of the queries the keys or values of its group."""
    batch, own, length, size = tensor_type(x).static_shape
    if own == heads:
        return x
    grouped = node.reshape(x, (batch, own, 1, length, size))
    spread = node.broadcast(grouped, (batch, own, heads // own, length, size))
    return node.reshape(spread, (batch, heads, length, size))


def _modified(node: NodeContext, name: str, x: Expr) -> Expr:
    if not node.has(name):
        return x
    (result,) = node.body(name, [x])
    if tensor_type(result).shape != tensor_type(x).shape:
        raise node.model_error(f"'{name}' changes the shape of its tensor")
    return result


CONVERTERS = MappingProxyType({"ai.onnx.preview::FlexAttention": flex_attention})
