# SPDX-License-Identifier: Apache-2.0
"""Layouts that the readers of a value would like, seen through views.

A value that is only transposed and then multiplied is best written in the transposed order at once;
a value that is the region's output is best written to the caller's array. Wishes are hints: what
ignores one costs a reorder, never a wrong result.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from msgspec import Struct

from .names import DTYPES

if TYPE_CHECKING:
    from .program import PrimitiveNode, PrimitiveProgram
    from .sdk import Dnnl


class LayoutHint(Struct, frozen=True):
    """A layout for a value.

    Attributes:
        desc: The layout.
        output: Whether memory in this layout can be the caller's array of an output.
        origin: That output, a value.
    """

    desc: int
    output: bool
    origin: int


def find_layout_hints(
    dnnl: Dnnl, program: PrimitiveProgram, outputs: AbstractSet[int]
) -> dict[int, LayoutHint]:
    """Return a wish for outputs and for values that views read."""
    layout_hints = {
        value: LayoutHint(_plain(dnnl, program, value), True, value) for value in outputs
    }
    fixed = {*program.inputs, *program.constants}
    for node in reversed(program.nodes):
        if node.kind not in ("reshape", "transpose"):
            continue
        source = node.args[0]
        if source in layout_hints or source in fixed:
            continue
        layout_hint = layout_hints.get(node.result)
        if layout_hint is None:
            layout_hint = LayoutHint(_plain(dnnl, program, node.result), False, node.result)
        desc = _before(dnnl, program, node, layout_hint.desc)
        if desc is not None:
            layout_hints[source] = LayoutHint(desc, layout_hint.output, layout_hint.origin)
    return layout_hints


def _plain(dnnl: Dnnl, program: PrimitiveProgram, value: int) -> int:
    return dnnl.plain(program.shapes[value], DTYPES[program.dtypes[value]])


def _before(dnnl: Dnnl, program: PrimitiveProgram, node: PrimitiveNode, desc: int) -> int | None:
    """Return the layout of a view's operand that makes its result have the layout ``desc``."""
    if node.kind == "transpose":
        return dnnl.permuted(desc, node.ints("axes"))
    return dnnl.reshaped(desc, program.shapes[node.args[0]])
