# SPDX-License-Identifier: Apache-2.0
"""Normalizations of the domain ``com.microsoft``, which ONNX Runtime's optimizer writes.

Most add a residual (``skip``) and a bias first, and may give the sum as an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.op import Op
from intarsia_ir.ops import activation, binary, compare, indexing, normalization, reduce, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .contributed_dynamic import counted


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
    ids, words, positions = node.input(0), node.input(2), node.input(3)
    if rank_of(ids) != 2:
        raise node.model_error(f"input_ids must be a matrix, got {ids.type}")
    length = sizes_of(ids)[1]
    if node.optional(8) is None:
        places: Expr = node.reshape(counted(node, 0, length), (1, length))
    else:
        places = node.input(8)
    total = node.call(binary.Add, _rows(node, words, ids), _rows(node, positions, places))
    if node.optional(1) is not None:
        segments = _rows(node, node.input(4), node.input(1))
        total = node.call(binary.Add, total, segments)
    dtype = dtype_of(total)
    affine = [node.input(5), node.input(6)]
    wide = node.cast(total, _wide(dtype))
    result = node.cast(_normalized(node, normalization.LayerNorm, wide, affine), dtype)
    return result, _unmasked(node), total


def _rows(node: NodeContext, table: Expr, ids: Expr) -> Expr:
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
                "SimplifiedLayerNormalization": simplified_layer_normalization,
                "SkipGroupNorm": skip_group_norm,
                "SkipLayerNormalization": skip_layer_normalization,
                "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
            }.items()
        },
    }
)
"""Converters by domain and name; ONNX Runtime has one in the standard domain."""
