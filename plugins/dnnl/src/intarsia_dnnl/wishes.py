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
    from .program import Node, Program
    from .sdk import Dnnl


class Wish(Struct, frozen=True):
    """A layout for a value.

    Attributes:
        desc: The layout.
        output: Whether memory in this layout can be the caller's array of an output.
        origin: That output, a value.
    """

    desc: int
    output: bool
    origin: int


def find_wishes(dnnl: Dnnl, program: Program, outputs: AbstractSet[int]) -> dict[int, Wish]:
    """Return a wish for outputs and for values that views read."""
    wishes = {value: Wish(_plain(dnnl, program, value), True, value) for value in outputs}
    fixed = {*program.inputs, *program.constants}
    for node in reversed(program.nodes):
        if node.kind not in ("reshape", "transpose"):
            continue
        source = node.args[0]
        if source in wishes or source in fixed:
            continue
        wish = wishes.get(node.result)
        if wish is None:
            wish = Wish(_plain(dnnl, program, node.result), False, node.result)
        desc = _before(dnnl, program, node, wish.desc)
        if desc is not None:
            wishes[source] = Wish(desc, wish.output, wish.origin)
    return wishes


def _plain(dnnl: Dnnl, program: Program, value: int) -> int:
    return dnnl.plain(program.shapes[value], DTYPES[program.dtypes[value]])


def _before(dnnl: Dnnl, program: Program, node: Node, desc: int) -> int | None:
    """Return the layout of a view's operand that makes its result have the layout ``desc``."""
    if node.kind == "transpose":
        return dnnl.permuted(desc, node.ints("axes"))
    return dnnl.reshaped(desc, program.shapes[node.args[0]])
