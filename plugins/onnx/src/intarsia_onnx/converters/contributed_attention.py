# SPDX-License-Identifier: Apache-2.0
"""Attention of the domain ``com.microsoft``: projections, masks of several kinds, past and present.

All become products, additions and a softmax: ``softmax(scale * q k' + mask) v``. Letters in shapes:
batch B, heads N, queries S, new keys L, past keys P, all keys T = P + L, size of a head H.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, nn
from intarsia_ir.ops import softmax as softmaxes
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .contributed_dynamic import counted, weighted
from .linear import scaled

LOWEST = float(np.finfo(np.float32).min)
"""The score of a key that a query must not see: its chance is 0."""


def attention(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Attention: one product gives queries, keys and values of the same sequence."""
    _refuse_attributes(node, ("do_rotary", "past_present_share_buffer"))
    _refuse_inputs(node, {6: "past_sequence_length"})
    product = node.call(nn.Matmul, node.input(0), node.input(1))
    if node.optional(2) is not None:
        product = node.call(binary.Add, product, node.input(2))
    return _self_attention(node, product, mask=3, past=4, bias=5)


def quantized_attention(node: NodeContext) -> tuple[Expr, ...]:
    """Convert QAttention: Attention whose projection is a product of bytes."""
    _refuse_attributes(node, ("do_rotary", "past_present_share_buffer"))
    data = (node.input(0), node.input(3), node.optional(6))
    product = weighted(node, data, node.input(1), node.input(4), node.optional(7))
    product = node.call(binary.Add, product, node.input(2))
    return _self_attention(node, product, mask=5, past=8)


def _refuse_attributes(node: NodeContext, names: Sequence[str]) -> None:
    for name in names:
        if node.integer(name, 0):
            raise node.unsupported(f"{node.op_type} with {name}={node.integer(name)}")


def _refuse_inputs(node: NodeContext, names: dict[int, str]) -> None:
    for index, name in names.items():
        if node.optional(index) is not None:
            raise node.unsupported(f"{node.op_type} with input {index} ({name})")


def _self_attention(
    node: NodeContext, product: Expr, *, mask: int, past: int, bias: int | None = None
) -> tuple[Expr, ...]:
    """Attend with the parts of a projection ``[B, S, hidden of q, k and v]``."""
    if rank_of(product) != 3:
        raise node.model_error(f"the projection must have three dimensions, got {product.type}")
    total = sizes_of(product)[2]
    sizes = node.integers("qkv_hidden_sizes", ()) or (int(total) // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != total:
        raise node.model_error(f"qkv_hidden_sizes={sizes} of a projection to {total}")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    parts = [
        split_heads(node, node.slice(product, 2, start, start + size))
        for start, size in zip(starts, sizes, strict=True)
    ]
    q, k, v = parts
    if node.optional(past) is not None:
        k, v = (
            node.concat([node.item(node.input(past), 0, n), new], 2) for n, new in ((0, k), (1, v))
        )
    extra = None if bias is None else node.optional(bias)
    result, _ = attend(node, q, k, v, [extra, key_mask(node, mask, q, k)])
    if not node.wants(1):
        return (result,)
    joined = [node.reshape(x, (1, *extents(sizes_of(x)))) for x in (k, v)]
    return result, node.concat(joined, 0)


def split_heads(node: NodeContext, x: Expr, heads: int | None = None) -> Expr:
    """Bring ``[B, S, N * H]`` to ``[B, N, S, H]``; ``num_heads`` if no number is given."""
    count = node.integer("num_heads") if heads is None else heads
    batch, length, hidden = extents(sizes_of(x))
    if count < 1 or hidden % count:
        raise node.model_error(f"{hidden} columns in {count} heads")
    return node.transpose(node.reshape(x, (batch, length, count, hidden // count)), (0, 2, 1, 3))


def join_heads(node: NodeContext, x: Expr) -> Expr:
    """Bring ``[B, N, S, H]`` to ``[B, S, N * H]``."""
    batch, heads, length, size = extents(sizes_of(x))
    return node.reshape(node.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def attend(
    node: NodeContext, q: Expr, k: Expr, v: Expr, additions: Sequence[Expr | None]
) -> tuple[Expr, Expr]:
    """Return the result ``[B, S, N * H]`` and the masked scores ``[B, N, S, T]``.

    Args:
        node: The node, with ``scale`` and ``unidirectional``.
        q: Queries ``[B, N, S, H]``.
        k: Keys ``[B, N, T, H]``.
        v: Values ``[B, N, T, size of theirs]``.
        additions: What is added to the scores, if anything.
    """
    dtype = dtype_of(q)
    kind = DType.FLOAT32 if dtype.bits < 32 else dtype
    wide = [node.cast(x, kind) for x in (q, k, v)]
    scores = scaled(node, scores_of(node, *wide[:2]), scale_of(node, q))
    for each in additions:
        if each is not None:
            scores = node.call(binary.Add, scores, node.cast(each, kind))
    if node.integer("unidirectional", 0):
        visible = _not_after(node, sizes_of(q)[2], sizes_of(k)[2])
        scores = node.call(compare.Where, visible, scores, node.scalar(LOWEST, kind))
    chances = node.call(softmaxes.Softmax, scores, attrs=softmaxes.Softmax.Attrs(axis=3))
    result = join_heads(node, node.call(nn.Matmul, chances, wide[2]))
    return node.cast(result, dtype), node.cast(scores, dtype)


def scores_of(node: NodeContext, q: Expr, k: Expr) -> Expr:
    """Return the products of queries and keys."""
    return node.call(nn.Matmul, q, k, attrs=nn.Matmul.Attrs(transpose_b=True))


def scale_of(node: NodeContext, q: Expr) -> float:
    """Return ``scale``; one by the root of the size of a head if it is 0 or left out."""
    return node.number("scale", 0.0) or 1 / math.sqrt(extents(sizes_of(q))[-1])


def _not_after(node: NodeContext, queries: Size, keys: Size) -> Expr:
    """Whether a key is not after a query, the last of which is at the last key."""
    rows = node.reshape(counted(node, keys - queries, keys), (queries, 1))
    return node.call(compare.LessEqual, node.reshape(counted(node, 0, keys), (1, keys)), rows)


def key_mask(node: NodeContext, index: int, q: Expr, k: Expr) -> Expr | None:
    """Return what a mask of keys adds to scores ``[B, N, S, T]``: ``mask_filter_value`` or 0.

    A matrix ``[B, T]`` or ``[B, S, T]`` has 0 for keys that are not seen; a vector has the end of
    each sample's keys, or all ends and then all starts.

    Raises:
        UnsupportedError: The mask is of another kind.
    """
    mask = node.optional(index)
    if mask is None:
        return None
    batch, keys, shape = sizes_of(q)[0], sizes_of(k)[2], sizes_of(mask)
    kind = dtype_of(mask)
    if len(shape) in (2, 3):
        whole = node.call(compare.NotEqual, mask, node.scalar(0, kind))
        rows = shape[1] if len(shape) == 3 else 1
        seen = node.reshape(whole, (shape[0], 1, rows, shape[-1]))
    elif shape == (batch,):
        seen = node.call(compare.Less, _places(node, keys, kind), _samples(node, mask, batch))
    elif shape == (2 * batch,):
        ends, starts = (
            _samples(node, node.slice(mask, 0, *extents((n * batch, (n + 1) * batch))), batch)
            for n in range(2)
        )
        places = _places(node, keys, kind)
        after = node.call(compare.GreaterEqual, places, starts)
        seen = node.call(binary.LogicalAnd, node.call(compare.Less, places, ends), after)
    else:
        message = f"{node.op_type} with a mask (input {index}) of shape {mask.type}"
        raise node.unsupported(message, "masks are [B], [2 * B], [B, T] or [B, S, T]")
    dtype = DType.FLOAT32 if dtype_of(q).bits < 32 else dtype_of(q)
    hidden = node.scalar(node.number("mask_filter_value", -10000.0), dtype)
    return node.call(compare.Where, seen, node.scalar(0, dtype), hidden)


def _places(node: NodeContext, keys: Size, kind: DType) -> Expr:
    return node.reshape(node.cast(counted(node, 0, keys), kind), (1, 1, 1, keys))


def _samples(node: NodeContext, x: Expr, batch: Size) -> Expr:
    return node.reshape(x, (batch, 1, 1, 1))


def multi_head_attention(node: NodeContext) -> tuple[Expr, ...]:
    """Convert MultiHeadAttention: queries, keys and values are given, each with a bias."""
    _refuse_inputs(node, {8: "past_sequence_length", 9: "cache_indirection"})
    q, k, v = _operands(node)
    if node.optional(6) is not None:
        k, v = (node.concat([node.input(index), new], 2) for index, new in ((6, k), (7, v)))
    result, scores = attend(node, q, k, v, [node.optional(5), key_mask(node, 4, q, k)])
    return result, k, v, scores


def _operands(node: NodeContext) -> tuple[Expr, Expr, Expr]:
    """Return queries, keys and values by heads, however they are packed."""
    first = node.input(0)
    if rank_of(first) == 5:  # [B, S, N, 3, H]
        if node.optional(3) is not None:
            raise node.unsupported("MultiHeadAttention of packed queries with a bias (input 3)")
        q, k, v = (node.transpose(node.item(first, 3, n), (0, 2, 1, 3)) for n in range(3))
        return q, k, v
    if rank_of(first) != 3:
        raise node.model_error(f"queries must have three or five dimensions, got {first.type}")
    hidden = int(sizes_of(first)[2])
    q = split_heads(node, _biased(node, first, 0))
    second = node.input(1)
    if rank_of(second) == 5:  # [B, L, N, 2, H]
        if node.optional(3) is not None:
            raise node.unsupported("MultiHeadAttention of packed keys with a bias (input 3)")
        k, v = (node.transpose(node.item(second, 3, n), (0, 2, 1, 3)) for n in range(2))
    elif rank_of(second) == 4:  # [B, N, L, H]
        k, v = second, node.input(2)
    else:
        k = split_heads(node, _biased(node, second, hidden))
        v = split_heads(node, _biased(node, node.input(2), 2 * hidden))
    return q, k, v


def _biased(node: NodeContext, x: Expr, start: int) -> Expr:
    """Add the part of the bias that begins at ``start``."""
    bias = node.optional(3)
    if bias is None:
        return x
    stop = start + int(sizes_of(x)[2])
    return node.call(binary.Add, x, node.folded(node.slice(bias, 0, start, stop)))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::{name}": converter
        for name, converter in {
            "Attention": attention,
            "MultiHeadAttention": multi_head_attention,
            "QAttention": quantized_attention,
        }.items()
    }
)
"""Converters by domain and name."""
