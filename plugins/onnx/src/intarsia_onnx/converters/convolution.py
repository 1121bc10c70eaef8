# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one to three dimensions."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import nn

from ..context import NodeContext
from .open_convolution import conv_of_patches, has_open_weight
from .window import NodeWindow, Padding, padded, read_window


def conv(node: NodeContext) -> Expr:
    """Convert Conv."""
    bias = node.optional(2)
    data, weight = node.input(0), node.input(1)
    groups = node.integer("group", 1)
    if groups < 1:
        raise node.model_error(f"group={groups} must be positive")
    if has_open_weight(node):
        return conv_of_patches(node, groups, data, weight, bias)
    window = read_window(node, _kernel(node), may_be_open=True)
    data = padded(node, data, window, 0.0)
    attrs = nn.Conv.Attrs(
        strides=window.strides, padding=window.padding, dilation=window.dilation, groups=groups
    )
    operands = [data, weight] if bias is None else [data, weight, bias]
    return node.call(nn.Conv, *operands, attrs=attrs)


def _kernel(node: NodeContext, index: int = 1) -> tuple[int, ...]:
    shape = node.static_shape(index)
    if len(shape) != node.type_of(0).rank or len(shape) < 3:
        raise node.model_error(f"weight {node.type_of(index)} for data {node.type_of(0)}")
    return shape[2:]


def conv_transpose(node: NodeContext) -> Expr:
    """Convert ConvTranspose; ``output_shape`` and ``auto_pad`` become padding.

    A result that is shorter than ``output_shape`` grows; one that is shorter than ``auto_pad`` asks
    for does not, as in ONNX Runtime.
    """
    window = read_window(node, _kernel(node), own_padding=True)
    spatial = len(window.kernel)
    extra = node.integers("output_padding", (0,) * spatial)
    groups = node.integer("group", 1)
    if groups < 1 or len(extra) != spatial or any(not 0 <= e < (1 << 31) for e in extra):
        raise node.model_error(f"group={groups}, output_padding={extra}")
    padding, extra = _transposed_padding(node, window, extra)
    attrs = nn.ConvTranspose.Attrs(
        strides=window.strides,
        padding=padding,
        dilation=window.dilation,
        groups=groups,
        output_padding=extra,
    )
    bias = node.optional(2)
    operands = [node.input(0), node.input(1), *([] if bias is None else [bias])]
    return node.call(nn.ConvTranspose, *operands, attrs=attrs)


def _transposed_padding(
    node: NodeContext, window: NodeWindow, extra: tuple[int, ...]
) -> tuple[Padding, tuple[int, ...]]:
    auto = node.string("auto_pad", "NOTSET")
    same = auto in ("SAME_UPPER", "SAME_LOWER")
    if not same and not node.has("output_shape"):
        return window.padding, extra
    padding: list[tuple[int, int]] = []
    grown: list[int] = []
    for more, total in zip(extra, _cut(node, window, extra), strict=True):
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        padding.append((small, large) if auto == "SAME_UPPER" else (large, small))
        grown.append(more + (max(-total, 0) if node.has("output_shape") else 0))
    return tuple(padding), tuple(grown)


def _cut(node: NodeContext, window: NodeWindow, extra: tuple[int, ...]) -> tuple[int, ...]:
    """Return how much longer a dimension is without padding than it is to be.

    ``auto_pad`` alone asks for ``stride * size``. The difference has no size in it then, so that
    sizes may be open.
    """
    strides, extents = window.strides, window.extent
    without = tuple(e + m - s for e, m, s in zip(extents, extra, strides, strict=True))
    if not node.has("output_shape"):
        return without
    sizes, wanted = node.static_shape(0)[2:], node.integers("output_shape")
    if len(wanted) == len(sizes) + 2:
        wanted = wanted[2:]
    if len(wanted) != len(sizes):
        raise node.model_error(f"output_shape {wanted} for {len(sizes)} spatial dimensions")
    places = zip(without, strides, sizes, wanted, strict=True)
    return tuple(rest + stride * size - out for rest, stride, size, out in places)


CONVERTERS = MappingProxyType({"Conv": conv, "ConvTranspose": conv_transpose})
