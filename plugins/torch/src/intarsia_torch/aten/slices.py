# SPDX-License-Identifier: Apache-2.0
"""Operators that take or replace a part of a tensor: slices, items, splits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_at_most
from intarsia_ir.ops import slicing
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.size import Dim, Size

from .context import AtenContext, Converter, rank_of, sizes_of


def cut(node: AtenContext, x: Expr, axis: int, begin: Size, length: Size, step: int = 1) -> Expr:
    """Take ``length`` elements of one dimension from ``begin`` on, ``step`` apart.

    PyTorch says how many there are; that they are no fewer than 0 is required before the slice is
    typed, so that it has this size whatever later operators require.
    """
    sizes = sizes_of(x)
    if begin == 0 and length == sizes[axis] and step == 1:
        return x
    begins, ends, strides = [0] * len(sizes), list(extents(sizes)), [1] * len(sizes)
    require_at_most(0, length, f"{node.name}: a part has at least 0 elements")
    last = begin + length if step == 1 else begin + (length - 1) * step + 1
    begins[axis], ends[axis] = extents([begin, last])
    strides[axis] = step
    attrs = slicing.StridedSlice.Attrs(begin=tuple(begins), end=tuple(ends), strides=tuple(strides))
    return node.call(slicing.StridedSlice, x, attrs=attrs)


def begin_of(node: AtenContext, start: Size, size: Size) -> Size:
    """Return where a slice begins; what is negative counts from the end."""
    if node.symbols.is_negative(start):
        start = start + size
        if node.symbols.is_negative(start):
            return 0
    beyond = start - size
    if beyond == 0 or not node.symbols.is_negative(beyond):
        return size
    return start


def _slice(node: AtenContext) -> Expr:
    x = node.tensor("self")
    axis = node.axis("dim", rank_of(x))
    start = node.size("start") if node.args.get("start") is not None else 0
    length, step = node.sizes[axis], node.integer("step", 1)
    if length == 0:
        return node.full(node.sizes, 0, node.dtype)
    return cut(node, x, axis, begin_of(node, start, sizes_of(x)[axis]), length, step)


def _narrowed(node: AtenContext) -> Expr:
    x = node.tensor("self")
    axis = node.axis("dim", rank_of(x))
    begin = begin_of(node, node.size("start"), sizes_of(x)[axis])
    return cut(node, x, axis, begin, node.size("length"))


def _selected(node: AtenContext) -> Expr:
    x = node.tensor("self")
    axis = node.axis("dim", rank_of(x))
    begin = begin_of(node, node.size("index"), sizes_of(x)[axis])
    return node.reshape(cut(node, x, axis, begin, 1), node.sizes)


def _parts(node: AtenContext) -> tuple[Expr, ...]:
    """``split``, ``chunk``, ``unbind`` and their kin, by the sizes of their results."""
    x = node.tensor("self")
    axis, place = node.axis("dim", rank_of(x)), 0
    parts: list[Expr] = []
    for type_ in node.types:
        assert type_ is not None  # a list of tensors
        length = 1 if node.name == "unbind" else type_.shape[axis]
        parts.append(node.reshape(cut(node, x, axis, place, length), type_.shape))
        place = place + length
    return tuple(parts)


def _rolled(node: AtenContext) -> Expr:
    x = node.tensor("self")
    if not node.integers("dims"):
        node.unsupported("no dimension")
    for shift, axis in zip(node.integers("shifts"), node.integers("dims"), strict=True):
        axis = axis % rank_of(x)
        size = sizes_of(x)[axis]
        if isinstance(size, Dim):
            node.unsupported("an open size")
        border = -shift % size if size else 0
        parts = [cut(node, x, axis, border, size - border), cut(node, x, axis, 0, border)]
        x = node.concat([part for part in parts if sizes_of(part)[axis] != 0] or [x], axis)
    return x


def _slice_written(node: AtenContext) -> Expr:
    """``slice_scatter`` and ``select_scatter``: a tensor with a part of it replaced."""
    x, source = node.tensor("self"), node.tensor("src")
    axis = node.axis("dim", rank_of(x))
    whole = sizes_of(x)[axis]
    if node.name == "select_scatter":
        begin, length = begin_of(node, node.size("index"), whole), 1
        unit = (*sizes_of(x)[:axis], 1, *sizes_of(x)[axis + 1 :])
        source = node.reshape(source, unit)
    else:
        if node.integer("step", 1) != 1:
            node.unsupported("a step")
        start = node.size("start") if node.args.get("start") is not None else 0
        begin, length = begin_of(node, start, whole), sizes_of(source)[axis]
    end = begin + length
    parts = [cut(node, x, axis, 0, begin), node.cast(source, node.dtype)]
    parts.append(cut(node, x, axis, end, whole - end))
    return node.concat([part for part in parts if sizes_of(part)[axis] != 0], axis)


def _windows(node: AtenContext) -> Expr:
    """``unfold`` whose windows do not overlap."""
    x = node.tensor("self")
    axis = node.integer("dimension") % max(rank_of(x), 1)
    size, step = node.integer("size"), node.integer("step")
    if size != step:
        node.unsupported("windows that overlap")
    count = node.sizes[axis]
    sizes = sizes_of(x)
    part = cut(node, x, axis, 0, count * size)
    rows = node.reshape(part, (*sizes[:axis], count, size, *sizes[axis + 1 :]))
    axes = [n for n in range(len(sizes) + 1) if n != axis + 1]
    return node.transpose(rows, [*axes, axis + 1])


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        "narrow": _narrowed,
        "roll": _rolled,
        "select": _selected,
        "slice": _slice,
        "unfold": _windows,
        **dict.fromkeys(("slice_scatter", "select_scatter"), _slice_written),
        **dict.fromkeys(
            ("split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_split"), _parts
        ),
    }
)
