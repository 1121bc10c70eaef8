# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements; the sizes of results are those that PyTorch's tracing found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import shape
from intarsia_ir.ops.type_rules import shape_text
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


def _padded(node: AtenContext) -> Expr:
    x = node.tensor("self")
    given = cast("list[Size]", node.args["pad" if "pad" in node.args else "padding"])
    if any(isinstance(width, Dim) for width in given) and "pad" in node.args:
        return _padded_by_open_widths(node, x, given)
    widths = node.integers("pad" if "pad" in node.args else "padding")
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


def _padded_by_open_widths(node: AtenContext, x: Expr, widths: Sequence[Size]) -> Expr:
    """Join blocks of one value to a tensor; widths that are numbers may be negative, and cut."""
    if node.args.get("mode", "constant") != "constant":
        node.unsupported(f"widths {shape_text(widths)} of mode '{node.args['mode']}'")
    given = node.args.get("value")
    fill = node.as_tensor(0 if given is None else given, node.dtype)
    for number, width in enumerate(widths):
        axis, before = rank_of(x) - 1 - number // 2, number % 2 == 0
        size = sizes_of(x)[axis]
        if isinstance(width, int) and width < 0:
            start, stop = (-width, size) if before else (0, size + width)
            x = node.onnx("Slice", x, *map(node.size_values, ([start], [stop], [axis])))
            continue
        if width == 0:
            continue
        sizes = (*sizes_of(x)[:axis], width, *sizes_of(x)[axis + 1 :])
        block = node.broadcast(node.reshape(fill, [1] * len(sizes)), extents(sizes))
        x = node.concat([block, x] if before else [x, block], axis)
    return resized(node, x, node.sizes)


def _flipped(node: AtenContext) -> Expr:
    axes = node.axes("dims", rank_of(node.tensor("self")))
    return node.call(shape.Flip, node.tensor("self"), attrs=shape.Flip.Attrs(axes=axes))


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
            (
                *("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"),
                *("replication_pad1d", "replication_pad2d"),
            ),
            _padded,
        ),
        **dict.fromkeys(("tril", "triu"), _triangle),
        **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _pixels),
        **dict.fromkeys(("fill", "zero"), _filled),
        **dict.fromkeys(("movedim", "moveaxis"), _moved),
        "copy": _copied,
        "flip": _flipped,
        "native_dropout": _native_dropout,
        "permute": _permuted,
        "repeat_interleave.self_int": _repeat_each,
    }
)
