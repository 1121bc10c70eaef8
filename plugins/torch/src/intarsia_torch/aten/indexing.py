# SPDX-License-Identifier: Apache-2.0
"""Operators that take or put elements where a tensor of places says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, generate, nn, reduce
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .context import AtenContext, Converter, dtype_of, rank_of, sizes_of
from .reduction import reduced


def _embedding(node: AtenContext) -> Expr:
    return node.onnx("Gather", node.tensor("weight"), node.tensor("indices"), axis=0)


def _embedding_bag(node: AtenContext) -> tuple[Expr, ...]:
    """Sums or means of rows; the bags are runs of places that begin at offsets."""
    if node.integer("mode", 0) == 2 or node.integer("padding_idx", -1) >= 0:
        node.unsupported("the largest of a bag, or places that are left out")
    weight, places = node.tensor("weight"), node.tensor("indices")
    rows = node.onnx("Gather", weight, places, axis=0)
    factors = node.optional("per_sample_weights")
    if factors is not None:
        rows = node.call(binary.Multiply, rows, node.reshape(factors, (*sizes_of(factors), 1)))
    offsets = node.tensor("offsets")
    bags, (count,) = node.sizes[0], sizes_of(places)
    inside = _bags(node, node.cast(offsets, DType.INT64), bags, count)
    total = node.call(nn.Matmul, node.cast(inside, node.dtype), rows)
    if node.integer("mode", 0) == 0:
        return (total,)
    numbers = reduced(node, reduce.Sum, node.cast(inside, node.dtype), (1,), keep=True)
    one = node.scalar(1, node.dtype)
    return (node.call(binary.Divide, total, node.call(binary.Maximum, numbers, one)),)


def _bags(node: AtenContext, offsets: Expr, bags: Size, count: Size) -> Expr:
    """Return for each bag which places are in it."""
    attrs = generate.Arange.Attrs(start=0, stop=extents([count])[0], step=1, dtype=DType.INT64)
    places = node.reshape(node.call(generate.Arange, attrs=attrs), (1, count))
    (length,) = sizes_of(offsets)
    begins = node.onnx("Slice", offsets, node.size_values([0]), node.size_values([bags]))
    ends = node.onnx("Slice", offsets, node.size_values([1]), node.size_values([length]))
    if not node.flag("include_last_offset"):
        ends = node.concat([ends, node.size_values([count])], 0)
    columns = [node.reshape(x, (bags, 1)) for x in (begins, ends)]
    after = node.call(compare.GreaterEqual, places, columns[0])
    return node.call(binary.LogicalAnd, after, node.call(compare.Less, places, columns[1]))


def _index(node: AtenContext) -> Expr:
    """``index``: tensors of places for some dimensions, which are broadcast."""
    x = node.tensor("self")
    given = cast("Sequence[object]", node.args["indices"])
    places = {axis: item for axis, item in enumerate(given) if isinstance(item, Expr)}
    if any(dtype_of(item) in (DType.BOOL, DType.UINT8) for item in places.values()):
        node.unsupported("a mask in the place of indices: how many are chosen depends on it")
    if len(places) == 1:
        ((axis, indices),) = places.items()
        return node.onnx("Gather", x, node.cast(indices, DType.INT64), axis=axis)
    axes = list(places)
    rest = [axis for axis in range(rank_of(x)) if axis not in places]
    x = node.transpose(x, [*axes, *rest])
    together = _broadcast(node, [node.cast(item, DType.INT64) for item in places.values()])
    rank = rank_of(together) - 1
    found = node.onnx("GatherND", x, together)
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0] > 0:
        order = [*range(rank, rank + axes[0]), *range(rank), *range(rank + axes[0], rank_of(found))]
        found = node.transpose(found, order)
    return found


def _broadcast(node: AtenContext, parts: Sequence[Expr]) -> Expr:
    """Return tensors of places as one whose last dimension counts them."""
    rank = max(map(rank_of, parts))
    shapes = [(*[1] * (rank - rank_of(part)), *sizes_of(part)) for part in parts]
    sizes = [next((s for s in column if s != 1), 1) for column in zip(*shapes, strict=True)]
    spread = [
        node.broadcast(node.reshape(part, shape), extents(sizes))
        for part, shape in zip(parts, shapes, strict=True)
    ]
    return node.concat([node.reshape(part, (*sizes, 1)) for part in spread], rank)


def _gathered(node: AtenContext) -> Expr:
    x, places = node.tensor("self"), node.tensor("index")
    axis = node.axis("dim", rank_of(x))
    return node.onnx("GatherElements", x, node.cast(places, DType.INT64), axis=axis)


def _chosen(node: AtenContext) -> Expr:
    x, places = node.tensor("self"), node.tensor("index")
    return node.onnx("Gather", x, node.cast(places, DType.INT64), axis=node.axis("dim", rank_of(x)))


def _scattered(node: AtenContext) -> Expr:
    x, places = node.tensor("self"), node.cast(node.tensor("index"), DType.INT64)
    axis = node.axis("dim", rank_of(x))
    if node.args.get("reduce") is not None:
        node.unsupported(f"reduce='{node.args['reduce']}'")
    if "src" in node.args:
        source = node.tensor("src")
        if sizes_of(source) != sizes_of(places):
            node.unsupported("a source that is larger than the places")
    else:
        ones = [1] * rank_of(places)
        source = node.reshape(node.value("value", node.dtype), ones)
        source = node.broadcast(source, extents(sizes_of(places)))
    how = "add" if node.name == "scatter_add" else "none"
    return node.onnx("ScatterElements", x, places, source, axis=axis, reduction=how)


def _put(node: AtenContext) -> Expr:
    """``index_put`` with places for the first dimensions."""
    given = cast("Sequence[object]", node.args["indices"])
    places = [item for item in given if isinstance(item, Expr)]
    x, values = node.tensor("self"), node.cast(node.tensor("values"), node.dtype)
    if any(dtype_of(item) is DType.BOOL for item in places):
        if len(given) != 1 or rank_of(values) != 0:
            node.unsupported("a mask with several values")
        mask = places[0]
        mask = node.reshape(mask, (*sizes_of(mask), *[1] * (rank_of(x) - rank_of(mask))))
        return node.call(compare.Where, mask, values, x)
    if any(isinstance(item, Expr) for item in given[len(places) :]):
        node.unsupported("places for later dimensions alone")
    together = _broadcast(node, [node.cast(item, DType.INT64) for item in places])
    sizes = (*sizes_of(together)[:-1], *sizes_of(x)[len(places) :])
    missing = len(sizes) - rank_of(values)
    values = node.reshape(values, (*[1] * missing, *sizes_of(values)))
    values = node.broadcast(values, extents(sizes))
    how = "add" if node.flag("accumulate") else "none"
    return node.onnx("ScatterND", x, together, values, reduction=how)


def _one_hot(node: AtenContext) -> Expr:
    classes = node.integer("num_classes", -1)
    if classes < 0:
        node.unsupported("a number of classes that depends on the elements")
    ends = node.size_values([0, 1])
    return node.onnx("OneHot", node.tensor("self"), node.size_values([classes]), ends)


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(
            ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag
        ),
        **dict.fromkeys(("scatter", "scatter_add"), _scattered),
        "embedding": _embedding,
        "gather": _gathered,
        "index": _index,
        "index_put": _put,
        "index_select": _chosen,
        "one_hot": _one_hot,
    }
)
