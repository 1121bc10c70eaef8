# SPDX-License-Identifier: Apache-2.0
"""Values of a program by number, and nodes that see them in other shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from .program import PrimitiveNode

Shape: TypeAlias = tuple[int, ...]


class ValueTypes:
    """Shapes and element types, to which more are added.

    Attributes:
        shapes: Shape of every value.
        dtypes: Element type of every value.
    """

    def __init__(self, shapes: Iterable[Shape] = (), dtypes: Iterable[str] = ()) -> None:
        self.shapes = list(shapes)
        self.dtypes = list(dtypes)

    def new_value(self, shape: Shape, dtype: str = "float32") -> int:
        """Number a value."""
        self.shapes.append(shape)
        self.dtypes.append(dtype)
        return len(self.shapes) - 1


def reshaped(
    values: ValueTypes, node: PrimitiveNode, shape_of: Callable[[Shape], Shape]
) -> list[PrimitiveNode]:
    """Return ``node`` between views that give its tensors other shapes."""
    nodes: list[PrimitiveNode] = []
    mapping: dict[int, int] = {}
    for value in dict.fromkeys(node.reads):
        shape = shape_of(values.shapes[value])
        if shape != values.shapes[value]:
            mapping[value] = values.new_value(shape, values.dtypes[value])
            nodes.append(PrimitiveNode("reshape", (value,), mapping[value]))
    result = values.new_value(shape_of(values.shapes[node.result]), values.dtypes[node.result])
    nodes.append(replace(node.reading(mapping), result=result))
    nodes.append(PrimitiveNode("reshape", (result,), node.result))
    return nodes
