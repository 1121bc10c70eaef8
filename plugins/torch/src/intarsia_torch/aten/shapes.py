# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements; the sizes of results are those that PyTorch's tracing found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import shape, slicing
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size, product

from .context import AtenContext, Converter, Operand, rank_of, sizes_of
from .elementwise import truth

_PAD_MODES: Mapping[str, str] = MappingProxyType(
    {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
)


def resized(node: AtenContext, x: Expr, sizes: Sequence[Size]) -> Expr:
    """Reshape to sizes that torch has found to hold as many elements."""
    before, after = product(sizes_of(x)), product(sizes)
    if not require_equal(before, after, f"{node.span}: a view keeps the number of elements"):
        node.unsupported(f"{before} elements as {after}")
    return node.reshape(x, sizes)


def _same_elements(node: AtenContext) -> Expr:
    if node.name == "view" and node.overload == "dtype":
        node.unsupported("elements are read as those of another type")
    return resized(node, node.tensor("self"), node.sizes)


def _itself(node: AtenContext) -> Expr:
    x = node.tensor("input") if "input" in node.args else node.tensor("self")
    return node.cast(x, node.dtype)


def _dropout(node: AtenContext) -> Expr:
    if node.flag("train") and node.number("p"):
        node.unsupported("dropout in training mode")
    return node.tensor("input")


def _native_dropout(node: AtenContext) -> tuple[Expr, ...]:
    if node.flag("train") and node.number("p"):
        node.unsupported("dropout in training mode")
    x = node.tensor("input")
    return x, node.full(node.sizes, 1, DType.BOOL)


def _transposed(node: AtenContext) -> Expr:
    x = node.tensor("self")
    axes = list(range(rank_of(x)))
    if node.name in ("transpose", "swapaxes"):
        names = ("axis0", "axis1") if node.name == "swapaxes" else ("dim0", "dim1")
        first, second = (node.axis(name, len(axes)) for name in names)
        axes[first], axes[second] = axes[second], axes[first]
    elif node.name in ("mT", "adjoint"):
        axes[-2:] = axes[:-3:-1]
    else:
        axes.reverse()
    return node.transpose(x, axes)


def _permuted(node: AtenContext) -> Expr:
    rank = rank_of(node.tensor("self"))
    return node.transpose(node.tensor("self"), [axis % rank for axis in node.integers("dims")])


def _moved(node: AtenContext) -> Expr:
    rank = rank_of(node.tensor("self"))
    source = [axis % rank for axis in node.integers("source")]
    target = [axis % rank for axis in node.integers("destination")]
    rest = iter(axis for axis in range(rank) if axis not in source)
    by_target = dict(zip(target, source, strict=True))
    axes = [by_target[axis] if axis in by_target else next(rest) for axis in range(rank)]
    return node.transpose(node.tensor("self"), axes)


def _expanded(node: AtenContext) -> Expr:
    x = node.tensor("self")
    missing = len(node.sizes) - rank_of(x)
    return node.broadcast(node.reshape(x, (*[1] * missing, *sizes_of(x))), node.sizes)


def _repeated(node: AtenContext) -> Expr:
    x, sizes = node.tensor("self"), node.sizes
    own = (*[1] * (len(sizes) - rank_of(x)), *sizes_of(x))
    counts = cast("list[Size]", node.args["repeats" if node.name == "repeat" else "dims"])
    counts = [*[1] * (len(sizes) - len(counts)), *counts]
    rows = [part for size in own for part in (1, size)]
    grown = [part for count, size in zip(counts, own, strict=True) for part in (count, size)]
    return node.reshape(node.broadcast(node.reshape(x, rows), extents(grown)), sizes)


def _repeat_each(node: AtenContext) -> Expr:
    x = node.tensor("self")
    if node.args.get("dim") is None:
        x = node.reshape(x, (product(sizes_of(x)),))
    axis = node.axis("dim", rank_of(x)) if node.args.get("dim") is not None else 0
    sizes = sizes_of(x)
    rows = [*sizes[: axis + 1], 1, *sizes[axis + 1 :]]
    grown = [*sizes[: axis + 1], node.size("repeats"), *sizes[axis + 1 :]]
    return node.reshape(node.broadcast(node.reshape(x, rows), extents(grown)), node.sizes)


def _joined(node: AtenContext) -> Expr:
    parts = [x for x in node.tensors("tensors") if sizes_of(x) != (0,) or len(node.sizes) == 1]
    parts = [node.cast(part, node.dtype) for part in parts]
    if node.name == "stack":
        axis = node.axis("dim", len(node.sizes))
        unit = (*node.sizes[:axis], 1, *node.sizes[axis + 1 :])
        return node.concat([node.reshape(part, unit) for part in parts], axis)
    return node.concat(parts, node.axis("dim", len(node.sizes)))


def cut(node: AtenContext, x: Expr, axis: int, begin: Size, length: Size, step: int = 1) -> Expr:
    """Take ``length`` elements of one dimension from ``begin`` on, ``step`` apart."""
    sizes = sizes_of(x)
    if begin == 0 and length == sizes[axis] and step == 1:
        return x
    begins, ends, strides = [0] * len(sizes), list(extents(sizes)), [1] * len(sizes)
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


def _padded(node: AtenContext) -> Expr:
    x, widths = node.tensor("self"), node.integers("pad" if "pad" in node.args else "padding")
    name = str(node.args.get("mode", node.name.split("_")[0]))
    mode = _PAD_MODES.get(name)
    if mode is None:
        node.unsupported(f"mode '{name}'")
    rank = rank_of(x)
    pairs = [(0, 0)] * (rank - len(widths) // 2)
    pairs += [(widths[n], widths[n + 1]) for n in range(len(widths) - 2, -1, -2)]
    pads = np.array([pair[side] for side in range(2) for pair in pairs], np.int64)
    fill = node.value("value", node.dtype) if node.args.get("value") is not None else None
    return node.onnx("Pad", x, node.array(pads), fill, mode=mode)


def _flipped(node: AtenContext) -> Expr:
    axes = node.axes("dims", rank_of(node.tensor("self")))
    return node.call(shape.Flip, node.tensor("self"), attrs=shape.Flip.Attrs(axes=axes))


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


def _triangle(node: AtenContext) -> Expr:
    diagonal = node.size("diagonal")
    x, upper = node.tensor("self"), int(node.name == "triu")
    wide = x if node.dtype is not DType.BOOL else node.cast(x, DType.UINT8)
    made = node.onnx("Trilu", wide, node.reshape(node.size_values([diagonal]), ()), upper=upper)
    return truth(node, made) if node.dtype is DType.BOOL else made


def _pixels(node: AtenContext) -> Expr:
    if node.name == "pixel_shuffle":
        factor = node.integer("upscale_factor")
        return node.onnx("DepthToSpace", node.tensor("self"), blocksize=factor, mode="CRD")
    x, factor = node.tensor("self"), node.integer("downscale_factor")
    batch, channels, height, width = sizes_of(x)
    high, wide = height // factor, width // factor
    split = node.reshape(x, (batch, channels, high, factor, wide, factor))
    return node.reshape(node.transpose(split, (0, 1, 3, 5, 2, 4)), node.sizes)


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


def _copied(node: AtenContext) -> Expr:
    """``copy``: the source in shape and element type of the first argument."""
    source = node.cast(node.tensor("src"), node.dtype)
    missing = len(node.sizes) - rank_of(source)
    return node.broadcast(node.reshape(source, (*[1] * missing, *sizes_of(source))), node.sizes)


def _filled(node: AtenContext) -> Expr:
    value: Operand = 0 if node.name == "zero" else node.args["value"]
    return node.broadcast(
        node.reshape(node.as_tensor(value, node.dtype), [1] * len(node.sizes)), node.sizes
    )


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


_SAME = (
    *("_reshape_alias", "_unsafe_view", "flatten", "reshape", "squeeze", "unflatten"),
    *("unsqueeze", "view", "view_as", "reshape_as", "unsqueeze_copy", "squeeze_copy", "view_copy"),
)
_ITSELF = (
    *("_to_copy", "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "lift_fresh"),
    *("to", "type_as", "positive", "resolve_conj", "resolve_neg", "_conj", "detach_copy"),
)

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_SAME, _same_elements),
        **dict.fromkeys(_ITSELF, _itself),
        **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
        **dict.fromkeys(
            ("transpose", "t", "numpy_T", "mT", "adjoint", "matrix_H", "swapaxes"), _transposed
        ),
        **dict.fromkeys(("expand", "expand_as", "broadcast_to", "expand_copy"), _expanded),
        **dict.fromkeys(("repeat", "tile"), _repeated),
        **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _joined),
        **dict.fromkeys(
            ("split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_split"), _parts
        ),
        **dict.fromkeys(
            (
                *("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"),
                *("replication_pad1d", "replication_pad2d"),
            ),
            _padded,
        ),
        **dict.fromkeys(("tril", "triu"), _triangle),
        **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _pixels),
        **dict.fromkeys(("slice_scatter", "select_scatter"), _slice_written),
        **dict.fromkeys(("fill", "zero"), _filled),
        **dict.fromkeys(("movedim", "moveaxis"), _moved),
        "copy": _copied,
        "flip": _flipped,
        "narrow": _narrowed,
        "native_dropout": _native_dropout,
        "permute": _permuted,
        "repeat_interleave.self_int": _repeat_each,
        "roll": _rolled,
        "select": _selected,
        "slice": _slice,
        "unfold": _windows,
    }
)
