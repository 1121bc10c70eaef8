# SPDX-License-Identifier: Apache-2.0
"""Convolutions of lines as convolutions of pictures of width 1.

The library's kernels for matrix units take up to a third less time over such a picture, if there
are channels enough to fill their tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from .program import AttrValue, PrimitiveNode, PrimitiveProgram
from .views import Shape, ValueTypes, reshaped

_OF_WIDTH: Mapping[str, int] = MappingProxyType(
    {"strides": 1, "dilation": 1, "padding_low": 0, "padding_high": 0}
)
_LEAST_CHANNELS = 16
_RANK = 3  # of lines: batch, channels, places


def with_tall_windows(program: PrimitiveProgram) -> PrimitiveProgram:
    """Return the same program in which convolutions of lines have a second axis, of size 1."""
    values = ValueTypes(program.shapes, program.dtypes)
    nodes: list[PrimitiveNode] = []
    for node in program.nodes:
        if _is_wide_line(program, node):
            nodes += reshaped(values, replace(node, attrs=_as_conv2d(node)), _tall)
        else:
            nodes.append(node)
    shapes, dtypes = tuple(values.shapes), tuple(values.dtypes)
    return replace(program, shapes=shapes, dtypes=dtypes, nodes=tuple(nodes))


def _tall(shape: Shape) -> Shape:
    """Return the shape with an axis behind the line's; a bias has none."""
    return (*shape, 1) if len(shape) == _RANK else shape


def _is_wide_line(program: PrimitiveProgram, node: PrimitiveNode) -> bool:
    if node.kind != "conv" or len(node.ints("strides")) != 1 or node.integer("groups") != 1:
        return False
    return min(program.shapes[node.args[1]][:2]) >= _LEAST_CHANNELS


def _as_conv2d(node: PrimitiveNode) -> dict[str, AttrValue]:
    more = {key: (*node.ints(key), number) for key, number in _OF_WIDTH.items()}
    return {**node.attrs, **more}
