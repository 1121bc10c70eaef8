# SPDX-License-Identifier: Apache-2.0
"""Pixel shuffles, as of transposed convolutions of open sizes, of images that are channels last.

In the model's layout a shuffle is a reshape, a transpose and a reshape: phases, which are channels,
become rows and columns. Of an image channels last that is one transpose as well, and its result may
be in either layout; otherwise there would be a second transpose before it, and a third one behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Expr, tensor_type
from intarsia_ir.graph.types import Size
from intarsia_ir.ops.shape import Transpose

from ..typical import has_open_size
from .layout_rules import Users, between_reshapes, is_result
from .relayout import moved, reshaped


class _Order(Struct, frozen=True):
    """Where phases lie among the channels.

    Attributes:
        channels: Place of the channels in ``[N, *(channels, rows, columns), H, W]``.
        rows: Place of the phases of rows; those of columns are behind them.
        axes: The transpose of that to ``[N, channels, H, rows, W, columns]``.
        to_last: Of ``[N, H, W, ...]`` to ``[N, H, rows, W, columns, channels]``.
        to_first: Of ``[N, H, W, ...]`` to ``[N, channels, H, rows, W, columns]``, if that is fast.
    """

    channels: int
    rows: int
    axes: tuple[int, ...]
    to_last: tuple[int, ...]
    to_first: tuple[int, ...] | None


_ORDERS = (
    _Order(1, 2, (0, 1, 4, 2, 5, 3), (0, 1, 4, 2, 5, 3), (0, 3, 1, 4, 2, 5)),
    _Order(3, 1, (0, 3, 4, 1, 5, 2), (0, 1, 3, 2, 4, 5), None),
)
"""Phases of a channel together, or channels of a phase."""


def shuffled_pixels(
    node: Call, last: Mapping[Expr, Expr], users: Users
) -> tuple[Expr, bool] | None:
    """Return a shuffled image, and whether it is channels last; ``None`` if a node is none.

    It is in the model's layout where only the model's results are computed of it. There phases of a
    channel must lie together, so that pairs of elements move; else two transposes are faster.
    (AMX, 24 to 24 channels of 80 x 80 pixels, alone: 0.70 of the time of two, and 1.5 if apart.)

    Args:
        node: What may be the second reshape.
        last: Node to its equivalent channels last.
        users: Who uses each node.
    """
    found = _shuffled(node)
    if found is None or found[0] not in last or not has_open_size(node):
        return None
    image, order, parts = found
    n, _, h, w = tensor_type(image).shape
    channels, rows, columns = parts[order.channels - 1], parts[order.rows - 1], parts[order.rows]
    apart = reshaped(last[image], (n, h, w, *parts))
    if is_result(node, users):
        axes = order.to_first
        if axes is None:
            return None
        return reshaped(moved(apart, axes), tensor_type(node).shape), False
    return reshaped(moved(apart, order.to_last), (n, h * rows, w * columns, channels)), True


def _shuffled(node: Call) -> tuple[Expr, _Order, tuple[Size, ...]] | None:
    """Return the image that is shuffled, the order of its channels, and their three parts."""
    found = between_reshapes(node, Transpose)
    if found is None:
        return None
    image, apart, turned = found
    split = tensor_type(apart).shape
    n, _, h, w = tensor_type(image).shape
    for order in _ORDERS:
        channels, rows, columns = split[order.channels], split[order.rows], split[order.rows + 1]
        if (
            turned.attrs == Transpose.Attrs(axes=order.axes)
            and split == (n, *split[1:4], h, w)
            and tensor_type(node).shape == (n, channels, h * rows, w * columns)
        ):
            return image, order, split[1:4]
    return None
