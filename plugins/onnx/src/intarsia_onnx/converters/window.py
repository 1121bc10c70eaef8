# SPDX-License-Identifier: Apache-2.0
"""Window attributes that convolutions and pools share: kernel, strides, padding, dilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from ..context import NodeContext

Padding: TypeAlias = tuple[tuple[int, int], ...]
MAX_WINDOW = 1 << 31


class NodeWindow(Struct, frozen=True):
    """A checked window, one number (or pair) for each spatial dimension.

    Attributes:
        kernel: Sizes.
        strides: Steps between two positions.
        dilation: Steps between two taps.
        padding: Elements added before and after.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Padding

    @property
    def extent(self) -> tuple[int, ...]:
        """Sizes with dilation counted in."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def read_window(
    node: NodeContext, kernel: Sequence[int] | None, *, transposed: bool = False
) -> NodeWindow:
    """Read and check the window attributes of a node whose first operand is ``[N, C, *spatial]``.

    Args:
        node: The node.
        kernel: Kernel sizes if a weight gives them; else ``kernel_shape`` is required.
        transposed: Leave ``auto_pad`` to the caller.
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
    if auto == "VALID" or (auto != "NOTSET" and transposed):
        return window
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        padding = _same(node, window, lower=auto == "SAME_LOWER")
    elif auto == "NOTSET":
        padding = _explicit(node, spatial)
    else:
        raise node.model_error(f"auto_pad='{auto}' is not defined")
    return NodeWindow(sizes, strides, dilation, padding)


def _explicit(node: NodeContext, spatial: int) -> Padding:
    pads = node.integers("pads", (0,) * (2 * spatial))
    if len(pads) != 2 * spatial:
        raise node.model_error(f"pads {pads} for {spatial} spatial dimensions")
    if any(not 0 <= pad < MAX_WINDOW for pad in pads):
        raise node.model_error(f"pads {pads} must not be negative")
    return tuple(zip(pads[:spatial], pads[spatial:], strict=True))


def _same(node: NodeContext, window: NodeWindow, *, lower: bool) -> Padding:
    """Pad so that the output has the input's size over the stride, rounded up."""
    result: list[tuple[int, int]] = []
    sizes = node.static_shape(0)[2:]
    for size, extent, stride in zip(sizes, window.extent, window.strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        result.append((large, small) if lower else (small, large))
    return tuple(result)
