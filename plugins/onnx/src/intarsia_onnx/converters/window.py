# SPDX-License-Identifier: Apache-2.0
"""Window attributes that convolutions and pools share: kernel, strides, padding, dilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops.slicing import Pad, StridedSlice
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.size import Size, floor_divide, maximum, numbers

from ..builder import STATIC_HINT, sizes_of
from ..context import NodeContext

Padding: TypeAlias = tuple[tuple[int, int], ...]
MAX_WINDOW = 1 << 31


class OpenPadding(Struct, frozen=True):
    """Elements added before and after a dimension, and the most of them that there can be."""

    before: Size
    after: Size
    most: tuple[int, int]


class NodeWindow(Struct, frozen=True):
    """A checked window, one number (or pair) for each spatial dimension.

    Attributes:
        kernel: Sizes.
        strides: Steps between two positions.
        dilation: Steps between two taps.
        padding: Elements added before and after.
        open: Dimension to padding that only the run knows, which ``padding`` does not have.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Padding
    open: Mapping[int, OpenPadding] = MappingProxyType({})

    @property
    def extent(self) -> tuple[int, ...]:
        """Sizes with dilation counted in."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def read_window(
    node: NodeContext,
    kernel: Sequence[int] | None,
    *,
    own_padding: bool = False,
    may_be_open: bool = False,
) -> NodeWindow:
    """Read and check the window attributes of a node whose first operand is ``[N, C, *spatial]``.

    Args:
        node: The node.
        kernel: Kernel sizes if a weight gives them; else ``kernel_shape`` is required.
        own_padding: Leave ``auto_pad`` to the caller.
        may_be_open: Whether the caller takes padding that only the run knows (:func:`padded`).
    """
    spatial = node.type_of(0).rank - 2
    if spatial < 1:
        raise node.model_error(
            f"needs a batch, a channel and spatial dimensions, got {node.type_of(0)}"
        )
    sizes = tuple(kernel) if kernel is not None else node.integers("kernel_shape")
    if kernel is not None and node.has("kernel_shape") and node.integers("kernel_shape") != sizes:
        declared = node.integers("kernel_shape")
        raise node.model_error(f"kernel_shape {declared} is not the weight's {sizes}")
    strides = node.integers("strides", (1,) * spatial)
    dilation = node.integers("dilations", (1,) * spatial)
    for name, values in (("kernel_shape", sizes), ("strides", strides), ("dilations", dilation)):
        if len(values) != spatial:
            raise node.model_error(f"{name} {values} for {spatial} spatial dimensions")
        if any(not 1 <= value < MAX_WINDOW for value in values):
            raise node.model_error(f"{name} {values} must be positive")
    window = NodeWindow(sizes, strides, dilation, ((0, 0),) * spatial)
    auto = node.string("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return NodeWindow(sizes, strides, dilation, _explicit(node, spatial))
    if auto not in ("VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.model_error(f"auto_pad='{auto}' is not defined")
    if auto == "VALID" or own_padding:
        return window
    return _same(node, window, lower=auto == "SAME_LOWER", may_be_open=may_be_open)


def _explicit(node: NodeContext, spatial: int) -> Padding:
    pads = node.integers("pads", (0,) * (2 * spatial))
    if len(pads) != 2 * spatial:
        raise node.model_error(f"pads {pads} for {spatial} spatial dimensions")
    if any(not 0 <= pad < MAX_WINDOW for pad in pads):
        raise node.model_error(f"pads {pads} must not be negative")
    return tuple(zip(pads[:spatial], pads[spatial:], strict=True))


def _same(node: NodeContext, window: NodeWindow, *, lower: bool, may_be_open: bool) -> NodeWindow:
    """Pad so that the output has the input's size over the stride, rounded up."""
    result: list[tuple[int, int]] = []
    late: dict[int, OpenPadding] = {}
    sizes = sizes_of(node.input(0))[2:]
    for axis, (size, extent, stride) in enumerate(
        zip(sizes, window.extent, window.strides, strict=True)
    ):
        total: Size = extent - 1
        if isinstance(size, int) or stride > 1:
            total = (floor_divide(size + (stride - 1), stride) - 1) * stride + extent - size
            if isinstance(total, int) or extent < stride:
                total = maximum(total, 0)
        if not isinstance(total, int) and not may_be_open:
            raise node.unsupported(f"padding for the size {size}", STATIC_HINT)
        small = floor_divide(total, 2)
        pair = (total - small, small) if lower else (small, total - small)
        known = numbers(pair)
        result.append((known[0], known[1]) if len(known) == 2 else (0, 0))
        if len(known) < 2:
            half = (extent - 1) // 2
            most = (extent - 1 - half, half) if lower else (half, extent - 1 - half)
            late[axis] = OpenPadding(*pair, most)
    return replace(window, padding=tuple(result), open=late)


def padded(node: NodeContext, x: Expr, window: NodeWindow, value: float) -> Expr:
    """Return the operand of a window with the padding that only the run knows.

    It grows by the most that there can be, of which a slice with computed ends is left: one loop.
    """
    if not window.open:
        return x
    sizes = sizes_of(x)
    widths = [(0, 0)] * len(sizes)
    begin, end = [0] * len(sizes), list(extents(sizes))
    for axis, padding in window.open.items():
        before, _ = widths[axis + 2] = padding.most
        begin[axis + 2] = extents((before - padding.before,))[0]
        end[axis + 2] = extents((before + sizes[axis + 2] + padding.after,))[0]
    grown = node.call(Pad, x, attrs=Pad.Attrs(widths=tuple(widths), value=value))
    attrs = StridedSlice.Attrs(begin=tuple(begin), end=tuple(end), strides=(1,) * len(sizes))
    return node.call(StridedSlice, grown, attrs=attrs)
