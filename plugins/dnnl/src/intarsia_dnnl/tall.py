# SPDX-License-Identifier: Apache-2.0
"""Convolutions of lines as convolutions of pictures of width 1.

The library's kernels for matrix units take up to a third less time over such a picture, if there
are channels enough to fill their tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .program import AttrValue, Node, Program

_OF_WIDTH: Mapping[str, int] = MappingProxyType(
    {"strides": 1, "dilation": 1, "padding_low": 0, "padding_high": 0}
)


_LEAST_CHANNELS = 16


def with_tall_windows(program: Program) -> Program:
    """Return the same program in which convolutions of lines have a second axis, of size 1."""
    shapes, dtypes = list(program.shapes), list(program.dtypes)
    nodes: list[Node] = []

    def tall(value: int) -> int:
        shapes.append((*shapes[value], 1))
        dtypes.append(dtypes[value])
        return len(shapes) - 1

    def viewed(value: int) -> int:
        view = tall(value)
        nodes.append(Node("reshape", (value,), view))
        return view

    for node in program.nodes:
        if _is_wide_line(program, node):
            data, weights, *bias = node.args
            args = (viewed(data), viewed(weights), *bias)
            views = {op.value: viewed(op.value) for op in node.post if op.value >= 0}
            wide = replace(node, args=args, attrs=_of_picture(node), result=tall(node.result))
            nodes += (wide.reading(views), Node("reshape", (wide.result,), node.result))
        else:
            nodes.append(node)
    return replace(program, shapes=tuple(shapes), dtypes=tuple(dtypes), nodes=tuple(nodes))


def _is_wide_line(program: Program, node: Node) -> bool:
    if node.kind != "conv" or len(node.ints("strides")) != 1 or node.integer("groups") != 1:
        return False
    return min(program.shapes[node.args[1]][:2]) >= _LEAST_CHANNELS


def _of_picture(node: Node) -> dict[str, AttrValue]:
    more = {key: (*node.ints(key), number) for key, number in _OF_WIDTH.items()}
    return {**node.attrs, **more}
