# SPDX-License-Identifier: Apache-2.0
"""Attention and MultiHeadAttention of the domain ``com.microsoft``, as products and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.types import Size
from intarsia_ir.ops import binary, compare, generate, nn
from intarsia_ir.ops import softmax as softmaxes
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .linear import scaled

_MASKED = -10000.0
"""What is added to scores of keys that a mask hides, where the node says nothing."""


def attention(node: NodeContext) -> Expr:
    """Convert Attention: queries, keys and values are one product of the input."""
    _refuse(node, (4, 6), ("rotary_embedding_dim", "do_rotary", "past_present_share_buffer"))
    node.only_first_output()
    x, weight, bias = node.input(0), node.input(1), node.optional(2)
    heads = node.integer("num_heads")
    made = node.call(nn.Matmul, x, weight)
    if bias is not None:
        made = node.call(binary.Add, made, bias)
    width = node.static_shape(1)[1]
    widths = node.integers("qkv_hidden_sizes", (width // 3,) * 3)
    if len(widths) != 3 or sum(widths) != width or any(size % heads for size in widths):
        raise node.model_error(f"{heads} heads do not share {width} columns as {widths}")
    parts: list[Expr] = []
    begin = 0
    for size in widths:
        parts.append(_heads(node, node.slice(made, 2, begin, begin + size), heads))
        begin += size
    return _attended(node, parts, node.optional(3), node.optional(5), "unidirectional")


def multi_head_attention(node: NodeContext) -> Expr:
    """Convert MultiHeadAttention of queries, keys and values that are three operands."""
    _refuse(node, (6, 7, 8, 9), ())
    node.only_first_output()
    heads, bias = node.integer("num_heads"), node.optional(3)
    operands = [node.input(index) for index in range(3)]
    if any(rank_of(x) != 3 for x in operands):
        raise node.unsupported(f"{node.op_type} of operands that are packed")
    begin = 0
    parts: list[Expr] = []
    for x in operands:
        size = sizes_of(x)[2]
        if not isinstance(size, int) or size % heads:
            raise node.model_error(f"{heads} heads do not share {size} columns")
        if bias is not None:
            x = node.call(binary.Add, x, node.slice(bias, 0, begin, begin + size))
        begin += size
        parts.append(_heads(node, x, heads))
    return _attended(node, parts, node.optional(4), node.optional(5), "unidirectional")


def _refuse(node: NodeContext, operands: Sequence[int], attrs: Sequence[str]) -> None:
    """Refuse operands and attributes that are not computed here."""
    for index in operands:
        if node.optional(index) is not None:
            raise node.unsupported(f"{node.op_type} with operand {index}")
    for name in attrs:
        if node.has(name) and node.integer(name):
            raise node.unsupported(f"{node.op_type} with {name}={node.integer(name)}")


def _heads(node: NodeContext, x: Expr, heads: int) -> Expr:
    """Return ``[batch, length, heads * size]`` as ``[batch, heads, length, size]``."""
    batch, length, width = extents(sizes_of(x))
    return node.transpose(node.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _attended(
    node: NodeContext, parts: Sequence[Expr], mask: Expr | None, bias: Expr | None, causal: str
) -> Expr:
    """Return what the heads make of queries, keys and values, side by side."""
    q, k, v = parts
    size = sizes_of(q)[3]
    assert isinstance(size, int)  # the heads share a number of columns
    attrs = nn.Matmul.Attrs(transpose_a=False, transpose_b=True)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(size)
    scores = scaled(node, node.call(nn.Matmul, q, k, attrs=attrs), scale)
    if bias is not None:
        scores = node.call(binary.Add, scores, bias)
    if mask is not None:
        scores = node.call(binary.Add, scores, _hidden(node, mask, scores))
    if node.integer(causal, 0):
        scores = node.call(binary.Add, scores, _later(node, scores))
    chances = node.call(softmaxes.Softmax, scores, attrs=softmaxes.Softmax.Attrs(axis=3))
    result = node.transpose(node.call(nn.Matmul, chances, v), (0, 2, 1, 3))
    batch, length, heads, width = extents(sizes_of(result))
    return node.reshape(result, (batch, length, heads * width))


def _hidden(node: NodeContext, mask: Expr, scores: Expr) -> Expr:
    """Return what is added to the scores of keys that a mask hides.

    A mask is ``[batch, keys]`` or ``[batch, queries, keys]`` of 0 and 1, or ``[batch]``: how many
    keys each text has.
    """
    batch, _, queries, keys = extents(sizes_of(scores))
    if rank_of(mask) == 1 and tensor_type(mask).shape == (batch,):
        places = node.reshape(_places(node, keys, dtype_of(mask)), (1, keys))
        mask = node.call(compare.Less, places, node.reshape(mask, (batch, 1)))
    if rank_of(mask) == 2:
        mask = node.reshape(mask, (batch, 1, 1, keys))
    elif rank_of(mask) == 3:
        mask = node.reshape(mask, (batch, 1, queries, keys))
    else:
        raise node.unsupported(f"{node.op_type} with a mask {mask.type}")
    kind = dtype_of(scores)
    seen = node.cast(node.cast(mask, DType.BOOL), kind)
    amount = node.scalar(node.number("mask_filter_value", _MASKED), kind)
    missing = node.call(binary.Subtract, node.scalar(1.0, kind), seen)
    return node.call(binary.Multiply, missing, amount)


def _later(node: NodeContext, scores: Expr) -> Expr:
    """Return what hides keys that come after a query, whose places are the last ones."""
    _, _, queries, keys = extents(sizes_of(scores))
    kind = dtype_of(scores)
    rows = node.reshape(_places(node, queries, DType.INT64), (queries, 1))
    behind = _number(node, keys - queries)
    columns = node.reshape(_places(node, keys, DType.INT64), (1, keys))
    hidden = node.call(compare.Greater, columns, node.call(binary.Add, rows, behind))
    amount = node.scalar(node.number("mask_filter_value", _MASKED), kind)
    return node.call(compare.Where, hidden, amount, node.scalar(0.0, kind))


def _places(node: NodeContext, count: int, kind: DType) -> Expr:
    return node.call(
        generate.Arange, attrs=generate.Arange.Attrs(start=0, stop=count, step=1, dtype=kind)
    )


def _number(node: NodeContext, size: Size) -> Expr:
    if isinstance(size, int):
        return node.scalar(size, DType.INT64)
    return node.call(generate.Sizes, attrs=generate.Sizes.Attrs(sizes=extents((size,))))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::Attention": attention,
        f"{DOMAIN}::MultiHeadAttention": multi_head_attention,
    }
)
