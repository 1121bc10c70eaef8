# SPDX-License-Identifier: Apache-2.0
"""Numbers of less than a byte, and floats of a byte: stored in bytes, moved as these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_ir.graph.expr import Expr

from .context import Converted, Narrow
from .graph import Node

MOVE_NARROW = frozenset(
    {
        *("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze"),
        *("Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators that move elements of their first operand and need not know what they are."""
TAKE_NARROW = MOVE_NARROW | {
    "BitCast",
    "Cast",
    "CastLike",
    "DequantizeLinear",
    "QuantizeLinear",
    "Shape",
    "com.microsoft::GatherBlockQuantized",
}
"""Operators that take numbers that are stored in bytes."""


def unwrapped(
    node: Node,
    converted: Converted,
    operands: Sequence[np.dtype | None],
    stored: dict[str, np.dtype],
) -> tuple[Expr, ...]:
    """Return what a converter gave as expressions; note in ``stored`` which are narrow bytes."""
    results = converted if isinstance(converted, tuple) else (converted,)
    if node.op_type in MOVE_NARROW and operands[0] is not None:
        stored.update(dict.fromkeys((name for name in node.outputs if name), operands[0]))
    found: list[Expr] = []
    for name, value in zip(node.outputs, results, strict=False):
        if isinstance(value, Narrow):
            stored[name] = value.dtype
        found.append(value.bytes if isinstance(value, Narrow) else value)
    return tuple(found)
