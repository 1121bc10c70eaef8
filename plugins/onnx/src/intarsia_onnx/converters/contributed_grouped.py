# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding and GroupQueryAttention of ``com.microsoft``, of which language models are made.

Letters in shapes are those of :mod:`.contributed_attention`; keys and values have fewer heads than
queries, each for a group of them.
"""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, indexing, nn, scatter, unary
from intarsia_ir.ops import softmax as softmaxes
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, maximum

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .contributed_attention import LOWEST, join_heads, scale_of, scores_of, split_heads
from .contributed_dynamic import counted
from .linear import scaled

_NOT_TAKEN = MappingProxyType(
    {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens"}
)
"""Optional inputs of GroupQueryAttention that change what it computes."""


def rotary_embedding(node: NodeContext) -> Expr:
    """Convert RotaryEmbedding of ``[B, S, N * H]`` or ``[B, N, S, H]``."""
    if node.integer("is_packed_batching", 0):
        raise node.unsupported("RotaryEmbedding with is_packed_batching")
    if node.number("scale", 1.0) != 1.0:
        raise node.unsupported(f"RotaryEmbedding with scale={node.number('scale')}")
    x, places = node.input(0), node.input(1)
    turning = node.integer("rotary_embedding_dim", 0)
    given = rank_of(x) == 4
    if not given:
        hidden = extents(sizes_of(x))[-1]
        own = hidden // max(node.integer("num_heads", 0), 1)
        size = own if turning else 2 * extents(node.type_of(2).shape)[1]
        x = split_heads(node, x, hidden // size)
    length = sizes_of(x)[2]
    if rank_of(places) == 1:
        steps = node.cast(counted(node, 0, length), dtype_of(places))
        places = node.reshape(node.call(binary.Add, steps, places), (1, length))
    rotated = rotate(node, x, places, (2, 3), interleaved=bool(node.integer("interleaved", 0)))
    return rotated if given else join_heads(node, rotated)


def rotate(
    node: NodeContext, x: Expr, places: Expr, caches: tuple[int, int], *, interleaved: bool
) -> Expr:
    """Turn pairs of elements of each head by the angles of their places.

    Args:
        node: The node.
        x: Heads ``[B, N, S, H]``; elements behind twice the columns of the caches stay.
        places: Rows of the caches, ``[B or 1, S]``.
        caches: Operands with cosines and sines.
        interleaved: Whether the elements of a pair are neighbours, not half of the head apart.
    """
    batch, heads, length, size = extents(sizes_of(x))
    tables = [node.input(index) for index in caches]
    half = extents(sizes_of(tables[0]))[1]
    if 2 * half > size:
        raise node.model_error(f"{half} angles for heads of {size} elements")
    attrs = indexing.Take.Attrs(axis=0)
    rows, count = extents(sizes_of(places))
    cosines, sines = (
        node.reshape(node.call(indexing.Take, table, places, attrs=attrs), (rows, 1, count, half))
        for table in tables
    )
    part = node.slice(x, 3, 0, 2 * half)
    if interleaved:
        pairs = node.reshape(part, (batch, heads, length, half, 2))
        first, second = (node.item(pairs, 4, n) for n in range(2))
    else:
        first, second = (node.slice(part, 3, n * half, (n + 1) * half) for n in range(2))

    def mixed(op: type[binary.Add] | type[binary.Subtract], a: Expr, b: Expr) -> Expr:
        left = node.call(binary.Multiply, a, cosines)
        return node.call(op, left, node.call(binary.Multiply, b, sines))

    turned = [mixed(binary.Subtract, first, second), mixed(binary.Add, second, first)]
    if interleaved:
        single = (batch, heads, length, half, 1)
        joined = node.concat([node.reshape(each, single) for each in turned], 4)
        result = node.reshape(joined, (batch, heads, length, 2 * half))
    else:
        result = node.concat(turned, 3)
    return node.concat([result, *_rest(node, x, 2 * half)], 3)


def _rest(node: NodeContext, x: Expr, start: int) -> list[Expr]:
    size = extents(sizes_of(x))[3]
    return [node.slice(x, 3, start, size)] if start < size else []


def group_query_attention(node: NodeContext) -> tuple[Expr, ...]:
    """Convert GroupQueryAttention: a cache grows by the new keys, which are seen up to each query.

    ``total_sequence_length`` must be known, or a size of a shape. Where a batch has samples of
    several lengths, each has its own place in the cache.
    """
    _check_grouped(node)
    own = node.integer("kv_num_heads")
    q, k, v = _grouped_operands(node, own)
    length = sizes_of(q)[2]
    total = node.required_sizes(6, "total_sequence_length (input 6)")[0]
    starts = _starts(node, length)
    batch = sizes_of(q)[0]
    if node.integer("do_rotary", 0):
        places = _query_places(node, starts, length)
        pairs = bool(node.integer("rotary_interleaved", 0))
        q, k = (rotate(node, x, places, (7, 8), interleaved=pairs) for x in (q, k))
    keys, values = (_present(node, index, new, starts, total) for index, new in ((3, k), (4, v)))
    room = sizes_of(keys)[2]
    kind = DType.FLOAT32
    wide = [node.cast(each, kind) for each in (q, keys, values)]
    heads, size = extents(sizes_of(q))[1::2]
    grouped = (batch, own, heads // own * length, size)
    scores = scores_of(node, node.reshape(wide[0], extents(grouped)), wide[1])
    scores = node.reshape(scores, extents((batch, heads, length, room)))
    chances = _chances(node, scaled(node, scores, scale_of(node, q)), starts)
    chances = node.reshape(chances, extents((*grouped[:3], room)))
    result = node.call(nn.Matmul, chances, wide[2])
    result = join_heads(node, node.reshape(result, extents((batch, heads, length, size))))
    return node.cast(result, dtype_of(q)), keys, values


def _check_grouped(node: NodeContext) -> None:
    """Refuse what is not one graph, or has no counterpart here."""
    for index, name in _NOT_TAKEN.items():
        if node.optional(index) is not None:
            raise node.unsupported(f"GroupQueryAttention with input {index} ({name})")
    refused = {"sliding_window_cache": 0, "qk_output": 0, "causal": 1}
    for name, usual in refused.items():
        if node.integer(name, usual) != usual:
            raise node.unsupported(f"GroupQueryAttention with {name}={node.integer(name)}")
    for name in ("k_quant_type", "v_quant_type"):
        if node.string(name, "NONE") != "NONE":
            raise node.unsupported(f"GroupQueryAttention with {name}='{node.string(name)}'")
    heads, own = node.integer("num_heads"), node.integer("kv_num_heads")
    if heads < 1 or own < 1 or heads % own:
        raise node.model_error(f"{heads} heads of queries in {own} groups")


def _grouped_operands(node: NodeContext, own: int) -> tuple[Expr, Expr, Expr]:
    """Return queries, keys and values by heads; without keys, all lie in the first operand."""
    heads = node.integer("num_heads")
    q = node.input(0)
    if rank_of(q) != 3:
        raise node.model_error(f"queries must have three dimensions, got {q.type}")
    if node.optional(1) is not None:
        parts = [q, node.input(1), node.input(2)]
    else:
        size = int(sizes_of(q)[2]) // (heads + 2 * own)
        ends = [heads * size, (heads + own) * size, (heads + 2 * own) * size]
        starts = [0, *ends[:2]]
        parts = [node.slice(q, 2, *pair) for pair in zip(starts, ends, strict=True)]
    counts = (heads, own, own)
    q, k, v = (split_heads(node, x, count) for x, count in zip(parts, counts, strict=True))
    return q, k, v


def _starts(node: NodeContext, length: Size) -> Expr:
    """Return how many keys each sample has in the cache: its length less the new ones ``[B]``."""
    lengths = node.input(5)
    new = node.cast(counted(node, length - 1, length), dtype_of(lengths))
    before = node.call(binary.Subtract, node.reshape(lengths, (sizes_of(node.input(0))[0],)), new)
    return node.call(binary.Maximum, before, node.scalar(0, dtype_of(lengths)))


def _query_places(node: NodeContext, starts: Expr, length: Size) -> Expr:
    """Return the positions of the queries ``[B, S]``: given, or behind the cached keys."""
    if node.optional(9) is not None:
        return node.input(9)
    steps = node.reshape(node.cast(counted(node, 0, length), dtype_of(starts)), (1, length))
    return node.call(binary.Add, node.reshape(starts, (sizes_of(starts)[0], 1)), steps)


def _present(node: NodeContext, index: int, new: Expr, starts: Expr, total: Size) -> Expr:
    """Return the cache with the new keys behind those of each sample, and zeros behind them."""
    batch, heads, length, size = extents(sizes_of(new))
    past = node.optional(index)
    if past is None or sizes_of(past)[2] == 0:
        before: Size = 0
        parts: list[Expr] = []
    else:
        if dtype_of(past) is not dtype_of(new):
            raise node.unsupported(f"GroupQueryAttention with a cache of {past.type}")
        before, parts = sizes_of(past)[2], [past]
    room = maximum(before, total)
    if room == length and not parts:
        return new
    if room != before:
        behind = extents((batch, heads, room - before, size))
        parts = [*parts, node.full(behind, 0.0, dtype_of(new))]
    attrs = scatter.TensorScatter.Attrs(axis=2)
    cache = node.call(scatter.TensorScatter, node.concat(parts, 2), new, starts, attrs=attrs)
    ends = node.call(
        binary.Add, starts, node.cast(counted(node, length, length + 1), dtype_of(starts))
    )
    places = node.reshape(node.cast(counted(node, 0, room), dtype_of(starts)), (1, 1, room, 1))
    inside = node.call(compare.Less, places, node.reshape(ends, (batch, 1, 1, 1)))
    return node.call(compare.Where, inside, cache, node.scalar(0, dtype_of(cache)))


def _chances(node: NodeContext, scores: Expr, starts: Expr) -> Expr:
    """Return the softmax of scores ``[B, N, S, T]`` over the keys that each query sees."""
    batch, heads, length, room = extents(sizes_of(scores))
    cap = node.number("softcap", 0.0)
    if cap > 0:
        scores = scaled(node, node.call(unary.Tanh, scaled(node, scores, 1 / cap)), cap)
    if node.optional(10) is not None:
        scores = node.call(binary.Add, scores, node.cast(node.input(10), DType.FLOAT32))
    kind = dtype_of(starts)
    keys = node.reshape(node.cast(counted(node, 0, room), kind), (1, 1, 1, room))
    steps = node.reshape(node.cast(counted(node, 0, length), kind), (1, 1, length, 1))
    own = node.call(binary.Add, steps, node.reshape(starts, (batch, 1, 1, 1)))
    seen = node.call(compare.LessEqual, keys, own)
    window = node.integer("local_window_size", -1)
    if window > 0:
        first = node.call(binary.Subtract, own, node.scalar(window, kind))
        near = node.call(compare.Greater, keys, first)
        seen = node.call(binary.LogicalAnd, seen, near)
    scores = node.call(compare.Where, seen, scores, node.scalar(LOWEST, DType.FLOAT32))
    attrs = softmaxes.Softmax.Attrs(axis=3)
    sink = node.optional(11)
    if sink is None and not node.integer("smooth_softmax", 0):
        return node.call(softmaxes.Softmax, scores, attrs=attrs)
    column = (batch, heads, length, 1)
    if sink is None:
        extra: Expr = node.full(column, 0.0, DType.FLOAT32)
    else:
        sink = node.reshape(node.cast(sink, DType.FLOAT32), (1, heads, 1, 1))
        extra = node.broadcast(sink, column)
    chances = node.call(softmaxes.Softmax, node.concat([extra, scores], 3), attrs=attrs)
    return node.slice(chances, 3, 1, room + 1)


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::GroupQueryAttention": group_query_attention,
        f"{DOMAIN}::RotaryEmbedding": rotary_embedding,
    }
)
"""Converters by domain and name."""
