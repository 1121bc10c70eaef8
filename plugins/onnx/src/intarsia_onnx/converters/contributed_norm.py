# SPDX-License-Identifier: Apache-2.0
"""Normalizations of the domain ``com.microsoft``, which ONNX Runtime's optimizer writes.

Most add a residual (``skip``) and a bias first, and may give the sum as an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.op import Op
from intarsia_ir.ops import activation, binary, compare, indexing, normalization, qnn, reduce, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .contributed_dynamic import counted
from .index_range import in_range


def skip_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SkipLayerNormalization: ``x + skip + bias``, normalized over its last dimension."""
    return _skip(node, normalization.LayerNorm, (2, 3), 4)


def skip_simplified_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SkipSimplifiedLayerNormalization, which divides by the root mean square alone."""
    return _skip(node, normalization.RmsNorm, (2,), 3)


def _skip(node: NodeContext, op: type[Op], affine: Sequence[int], bias: int) -> tuple[Expr, ...]:
    """Add in float32, normalize the sum, and give both in the type of the data."""
    x = node.input(0)
    _refuse_statistics(node)
    kind = _wide(dtype_of(x))
    total = node.call(binary.Add, *(node.cast(node.input(index), kind) for index in (0, 1)))
    if node.optional(bias) is not None:
        total = node.call(binary.Add, total, node.cast(node.input(bias), kind))
    result = _normalized(node, op, total, [node.optional(index) for index in affine])
    result, total = (node.cast(value, dtype_of(x)) for value in (result, total))
    return result, total, total, total


def _refuse_statistics(node: NodeContext) -> None:
    for index, name in ((1, "mean"), (2, "inv_std_var")):
        if node.wants(index):
            raise node.unsupported(f"output '{name}' of {node.op_type}, which only training uses")


def _normalized(node: NodeContext, op: type[Op], x: Expr, affine: Sequence[Expr | None]) -> Expr:
    """Normalize over the last dimension; parameters that are left out do nothing."""
    operands = [node.cast(each, dtype_of(x)) for each in affine if each is not None]
    epsilon = node.number("epsilon", 1e-12)
    attrs = (
        normalization.LayerNorm.Attrs(axis=rank_of(x) - 1, epsilon=epsilon)
        if op is normalization.LayerNorm
        else normalization.RmsNorm.Attrs(axis=rank_of(x) - 1, epsilon=epsilon)
    )
    return node.call(op, x, *operands, attrs=attrs)


def _wide(dtype: DType) -> DType:
    return DType.FLOAT32 if dtype.bits < 32 else dtype


def simplified_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SimplifiedLayerNormalization, an old name of RMSNormalization."""
    x, scale = node.input(0), node.input(1)
    sizes = node.static_shape(0)
    axis = node.axis("axis", len(sizes), -1)
    epsilon = node.number("epsilon", 1e-5)
    kind = _wide(dtype_of(x))
    wide = node.cast(x, kind)
    attrs = normalization.RmsNorm.Attrs(axis=axis, epsilon=epsilon)
    factor = node.broadcast(node.cast(scale, kind), sizes[axis:])
    result = node.cast(node.call(normalization.RmsNorm, wide, factor, attrs=attrs), dtype_of(scale))
    if not node.wants(1):
        return (result,)
    over = reduce.Mean.Attrs(axes=tuple(range(axis, len(sizes))), keepdims=True)
    square = node.call(reduce.Mean, node.call(binary.Multiply, wide, wide), attrs=over)
    shifted = node.call(binary.Add, square, node.scalar(epsilon, kind))
    return result, node.call(unary.Rsqrt, shifted)


def embed_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert EmbedLayerNormalization: word, position and segment embeddings, normalized."""
    tables = [_rows(node, node.input(2), node.input(0))]
    tables.append(_rows(node, node.input(3), _positions(node, 8)))
    if node.optional(1) is not None:
        tables.append(_rows(node, node.input(4), node.input(1)))
    result, total = _embedded(node, tables, [node.input(5), node.input(6)])
    return result, _unmasked(node), total


def quantized_embed_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert QEmbedLayerNormalization, whose tables and parameters are bytes."""

    def real(x: Expr, place: int) -> Expr:
        # Scales are inputs 8 to 12, zero points 13 to 17, in the order of the tables.
        parameters = (node.reshape(node.input(start + place), ()) for start in (8, 13))
        return node.call(qnn.Dequantize, x, *parameters)

    ids = [node.input(0), _positions(node, None), node.optional(1)]
    tables = [
        real(_rows(node, node.input(2 + place), each), place)
        for place, each in enumerate(ids)
        if each is not None
    ]
    affine = [real(node.input(2 + place), place) for place in (3, 4)]
    result, _ = _embedded(node, tables, affine)
    return result, _unmasked(node)


def _embedded(
    node: NodeContext, tables: Sequence[Expr], affine: Sequence[Expr]
) -> tuple[Expr, Expr]:
    """Return the normalized sum of embeddings, and the sum."""
    total = tables[0]
    for each in tables[1:]:
        total = node.call(binary.Add, total, each)
    dtype = dtype_of(total)
    wide = node.cast(total, _wide(dtype))
    return node.cast(_normalized(node, normalization.LayerNorm, wide, affine), dtype), total


def _positions(node: NodeContext, index: int | None) -> Expr:
    """Return the places of the words: an operand, or those along the sequence."""
    ids = node.input(0)
    if rank_of(ids) != 2:
        raise node.model_error(f"input_ids must be a matrix, got {ids.type}")
    if index is not None and node.optional(index) is not None:
        return node.input(index)
    length = sizes_of(ids)[1]
    return node.reshape(counted(node, 0, length), (1, length))


def _rows(node: NodeContext, table: Expr, ids: Expr) -> Expr:
    ids = in_range(node, ids, sizes_of(table)[0])
    return node.call(indexing.Take, table, ids, attrs=indexing.Take.Attrs(axis=0))


def _unmasked(node: NodeContext) -> Expr:
    """Return how many elements of each row of the mask are 1; zeros without a mask."""
    mask = node.optional(7)
    if mask is None:
        return node.full(extents(sizes_of(node.input(0))[:1]), 0, DType.INT32)
    ones = node.call(compare.Equal, mask, node.scalar(1, dtype_of(mask)))
    attrs = reduce.Sum.Attrs(axes=(1,), keepdims=False)
    return node.call(reduce.Sum, node.cast(ones, DType.INT32), attrs=attrs)


def group_norm(node: NodeContext) -> Expr:
    """Convert GroupNorm: channels last by default, with SiLU behind it if ``activation`` is 1."""
    return _grouped(node, node.input(0))


def skip_group_norm(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SkipGroupNorm: GroupNorm of ``x + skip + bias``, which is the second output."""
    x, skip = node.input(0), node.input(3)
    last = bool(node.integer("channels_last", 1))
    rank = rank_of(x)
    channels = rank - 1 if last else 1
    if rank_of(skip) == 2:
        batch, count = sizes_of(skip)
        shape = [batch, *[1] * (rank - 1)]
        shape[channels] = count
        skip = node.reshape(skip, shape)
    total = node.call(binary.Add, x, skip)
    if node.optional(4) is not None:
        total = node.call(binary.Add, total, node.along(node.input(4), channels, rank))
    return _grouped(node, total), total


def _grouped(node: NodeContext, x: Expr) -> Expr:
    chosen = node.integer("activation")
    if chosen not in (0, 1):
        raise node.unsupported(f"activation={chosen} of {node.op_type}")
    rank, dtype = rank_of(x), dtype_of(x)
    last = bool(node.integer("channels_last", 1))
    inner = (0, rank - 1, *range(1, rank - 1))
    data = node.transpose(x, inner) if last else x
    attrs = normalization.GroupNorm.Attrs(
        groups=node.integer("groups"), epsilon=node.number("epsilon", 1e-5)
    )
    kind = _wide(dtype)
    operands = [node.cast(each, kind) for each in (data, node.input(1), node.input(2))]
    result = node.call(normalization.GroupNorm, *operands, attrs=attrs)
    if chosen == 1:
        result = node.call(activation.Silu, result)
    result = node.cast(result, dtype)
    return node.transpose(result, (0, *range(2, rank), 1)) if last else result


CONVERTERS = MappingProxyType(
    {
        "SimplifiedLayerNormalization": simplified_layer_normalization,
        **{
            f"{DOMAIN}::{name}": converter
            for name, converter in {
                "EmbedLayerNormalization": embed_layer_normalization,
                "GroupNorm": group_norm,
                "QEmbedLayerNormalization": quantized_embed_layer_normalization,
                "SimplifiedLayerNormalization": simplified_layer_normalization,
                "SkipGroupNorm": skip_group_norm,
                "SkipLayerNormalization": skip_layer_normalization,
                "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
            }.items()
        },
    }
)
"""Converters by domain and name; ONNX Runtime has one in the standard domain."""
