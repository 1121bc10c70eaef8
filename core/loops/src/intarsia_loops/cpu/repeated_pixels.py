# SPDX-License-Identifier: Apache-2.0
"""Images that are enlarged by repeating pixels, channels last.

Nearest-neighbour enlargement of an image of open sizes by a whole factor is a reshape, a broadcast
and a reshape in the model's layout.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.graph.expr import Call, Expr, call, tensor_type
from intarsia_ir.graph.types import Size
from intarsia_ir.ops.shape import BroadcastTo
from intarsia_ir.tir.tensor import extents

from .layout_rules import between_reshapes
from .relayout import reshaped


def repeated_pixels(node: Call, last: Mapping[Expr, Expr]) -> Expr | None:
    """Return the end of such a pattern channels last; ``None`` if the image is not.

    Args:
        node: What may be the second reshape.
        last: Node to its equivalent channels last.
    """
    found = _repeated(node)
    if found is None or found[0] not in last:
        return None
    image, (rows, columns) = found
    n, c, h, w = tensor_type(image).shape
    single = reshaped(last[image], (n, h, 1, w, 1, c))
    attrs = BroadcastTo.Attrs(shape=extents((n, h, rows, w, columns, c)))
    repeated = call(BroadcastTo, single, attrs=attrs, span=node.span)
    return reshaped(repeated, (n, h * rows, w * columns, c))


def _repeated(node: Call) -> tuple[Expr, tuple[Size, Size]] | None:
    """Return an image and how often its rows and columns are, if a reshape is of those repeated.

    ``[N, C, H, 1, W, 1]`` becomes ``[N, C, H, h, W, w]``: images of open sizes are enlarged so.
    """
    found = between_reshapes(node, BroadcastTo)
    if found is None:
        return None
    image, narrow, wide = found
    repeated = tensor_type(wide).shape
    n, c, h, w = tensor_type(image).shape
    rows, columns = repeated[3], repeated[5]
    is_repeated = (
        tensor_type(narrow).shape == (n, c, h, 1, w, 1)
        and repeated == (n, c, h, rows, w, columns)
        and tensor_type(node).shape == (n, c, h * rows, w * columns)
    )
    return (image, (rows, columns)) if is_repeated else None
