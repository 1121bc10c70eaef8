# SPDX-License-Identifier: Apache-2.0
"""Operators whose result is as long as the data say, of which most can be compiled all the same.

Compiled code fills a table with room for all rows there may be and counts them; a kernel on the
host keeps those that count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.ops.binary import Add, Maximum, Minimum, Multiply, Subtract
from intarsia_ir.ops.suppression import NonMaxSuppression
from intarsia_ir.ops.type_rules import same_size
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import minimum

from ..context import NodeContext

MOST_BYTES = 256 << 20
"""Room that a table may take; a larger one is left to the host."""


class Table(Struct, frozen=True):
    """What is compiled of a node.

    Attributes:
        kernel: Kernel of our own domain that makes the node's result of the parts.
        parts: What compiled code gives it.
    """

    kernel: str
    parts: tuple[Expr, ...]


Tabled: TypeAlias = Callable[[NodeContext], "Table | None"]


def non_max_suppression(node: NodeContext) -> Table | None:
    """Compile NonMaxSuppression if its limits are known; they decide how large the table is.

    Raises:
        ModelError: Boxes and scores do not fit, or a limit is not one number.
    """
    given = [number for number in range(2, 5) if node.optional(number) is not None]
    if 2 not in given or any(node.constant_value(number) is None for number in given):
        return None
    boxes, scores = node.type_of(0).shape, node.type_of(1).shape
    if (
        len(scores) != 3
        or len(boxes) != 3
        or not all(map(same_size, boxes, (scores[0], scores[2], 4)))
    ):
        raise node.model_error(f"boxes of shape {boxes} do not fit scores of shape {scores}")
    wanted = node.required_integer(2, "the number of boxes")
    (count,) = extents([minimum(wanted, scores[2])])
    if wanted < 1 or count == 0:
        return None
    room = 8 * scores[0] * scores[1] * (count + scores[2])
    if isinstance(room, int) and room > MOST_BYTES:
        return None
    attrs = NonMaxSuppression.Attrs(
        count=count,
        overlap=float(node.required_scalar(3, "the overlap")) if 3 in given else 0.0,
        least=float(node.required_scalar(4, "the least score")) if 4 in given else -np.inf,
    )
    chosen = node.call(NonMaxSuppression, _corners(node), node.input(1), attrs=attrs)
    return Table("ChosenBoxes", (get_item(chosen, 0), get_item(chosen, 1)))


def _corners(node: NodeContext) -> Expr:
    """Lower and upper corner of each box: ``[batch, (y0, x0, y1, x1), boxes]``."""
    rows = node.transpose(node.input(0), (0, 2, 1))
    first, second = node.slice(rows, 1, 0, 2), node.slice(rows, 1, 2, 4)
    if not node.integer("center_point_box", 0):
        low, high = node.call(Minimum, first, second), node.call(Maximum, first, second)
        return node.concat((low, high), 1)
    centre, size = _swapped(node, first), _swapped(node, second)  # x, y and width, height
    half = node.call(Multiply, size, node.scalar(0.5, DType.FLOAT32))
    return node.concat((node.call(Subtract, centre, half), node.call(Add, centre, half)), 1)


def _swapped(node: NodeContext, pair: Expr) -> Expr:
    return node.concat((node.slice(pair, 1, 1, 2), node.slice(pair, 1, 0, 1)), 1)


TABLES: Mapping[str, Tabled] = MappingProxyType({"NonMaxSuppression": non_max_suppression})
"""By operator of the standard domain; ``None`` leaves the node to the host."""
